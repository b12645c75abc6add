//! What the API shows of the HTTPS server.
//!
//! ```text
//! GET /v1/service/https
//! ```

use super::model::Https;
use crate::service::View;
use crate::tunnel_interface::Counters;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Default)]
pub(super) struct Shown(Arc<Mutex<Https>>);

impl Shown {
    pub(super) fn show(&self, shown: Https) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }
}

impl Shown {
    /// Shows another certificate; whether it is another one.
    pub(super) fn renew(&self, fingerprint: &str) -> bool {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shown.fingerprint.replace(fingerprint.to_owned());
        before.as_deref() != Some(fingerprint)
    }
}

impl View for Shown {
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        Vec::new()
    }

    fn routes(&self) -> Router {
        Router::new().route("/v1/service/https", get(https)).with_state(self.clone())
    }
}

async fn https(State(shown): State<Shown>) -> Json<Https> {
    Json(shown.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
}
