//! What the API shows of a program with one interface.

use super::Runner;
use crate::openvpn::interface::Interface;
use crate::service::View;
use crate::tunnel_interface::Counters;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What the API shows: the counters of the interface that is served now.
#[derive(Default)]
pub struct Current(Mutex<Weak<Interface>>);

impl Current {
    /// Shows this one from now on.
    pub fn set(&self, runner: &Runner) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&runner.interface);
    }
}

impl View for Current {
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        current.into_iter().map(|interface| interface as Arc<dyn Counters>).collect()
    }
}
