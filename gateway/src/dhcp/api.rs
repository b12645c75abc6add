//! What the API shows of DHCP clients.
//!
//! ```text
//! GET /v1/dhcp/client
//! ```

use super::lease::Lease;
use super::model::{Leases, OfInterface};
use crate::service::View;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What interfaces have got, by their names.
#[derive(Clone, Default)]
pub(crate) struct Shown(Arc<Mutex<BTreeMap<String, Got>>>);

/// What an interface has got.
#[derive(Default)]
struct Got {
    lease: Option<(Lease, Instant)>,
    problem: Option<String>,
}

impl Got {
    /// Whether its lease has expired. A server that names no time gives it for ever.
    fn is_over(&self) -> bool {
        let is_over = |(lease, at): &(Lease, Instant)| {
            lease.seconds > 0 && at.elapsed() > Duration::from_secs(lease.seconds.into())
        };
        self.lease.as_ref().is_some_and(is_over)
    }
}

impl Shown {
    /// These interfaces get addresses, and no others.
    pub(super) fn expect(&self, interfaces: impl Iterator<Item = String>) {
        let mut got = self.lock();
        let mut before = std::mem::take(&mut *got);
        got.extend(interfaces.map(|name| {
            let kept = before.remove(&name).unwrap_or_default();
            (name, kept)
        }));
    }

    pub(super) fn has(&self, interface: &str) -> bool {
        self.lock().contains_key(interface)
    }

    /// An interface has an address; whether it is another one than before, or has another router.
    pub(super) fn bind(&self, interface: &str, lease: Lease) -> bool {
        let mut got = self.lock();
        let Some(of) = got.get_mut(interface) else { return false };
        of.problem = None;
        let before = of.lease.replace((lease.clone(), Instant::now()));
        before.is_none_or(|(before, _)| (before.address, before.router) != (lease.address, lease.router))
    }

    /// An interface has no address; whether that is new.
    pub(super) fn lose(&self, interface: &str, why: &str) -> bool {
        let had = self.lock().get_mut(interface).is_some_and(|of| of.lease.take().is_some());
        self.problem(interface, why) || had
    }

    /// Whether an interface has a lease that has not expired.
    pub(super) fn holds(&self, interface: &str) -> bool {
        self.lock().get(interface).is_some_and(|of| of.lease.is_some() && !of.is_over())
    }

    /// The interfaces whose leases have ended, and are forgotten.
    pub(super) fn expired(&self) -> Vec<String> {
        let mut got = self.lock();
        let over = got.iter_mut().filter(|(_, got)| got.is_over());
        over.map(|(name, got)| {
            got.lease = None;
            name.clone()
        })
        .collect()
    }

    /// Something is wrong; whether it was not so before.
    pub(super) fn problem(&self, interface: &str, why: &str) -> bool {
        let mut got = self.lock();
        let Some(of) = got.get_mut(interface) else { return false };
        of.problem.replace(why.to_owned()).as_deref() != Some(why)
    }

    /// The same is wrong with all.
    pub(super) fn fail(&self, why: &str) {
        self.lock().values_mut().for_each(|of| of.problem = Some(why.to_owned()));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Got>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View for Shown {
    fn routes(&self) -> Router {
        Router::new().route("/v1/dhcp/client", get(leases)).with_state(self.clone())
    }
}

async fn leases(State(shown): State<Shown>) -> Json<Leases> {
    let shown = shown.lock();
    let leases = shown.iter().map(|(interface, got)| OfInterface {
        interface: interface.clone(),
        lease: got.lease.as_ref().map(|(lease, _)| lease.clone()),
        remaining_seconds: got.lease.as_ref().map(|(lease, at)| {
            Duration::from_secs(lease.seconds.into()).saturating_sub(at.elapsed()).as_secs()
        }),
        problem: got.problem.clone(),
    });
    Json(Leases { leases: leases.collect() })
}
