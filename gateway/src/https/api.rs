//! What the API shows of the server.
//!
//! ```text
//! GET /v1/service/https    GET /v1/service/metrics    GET /v1/service/page    GET /v1/service/enrollment
//! ```

use super::model::Https;
use super::service::Part;
use crate::service::View;
use crate::tunnel_interface::Counters;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A part of what the server serves, as it is shown.
pub(super) struct Shown<P>(Arc<Mutex<Https>>, PhantomData<fn() -> P>);

impl<P> Default for Shown<P> {
    fn default() -> Self {
        Self(Arc::default(), PhantomData)
    }
}

impl<P> Clone for Shown<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), PhantomData)
    }
}

impl<P: Part> Shown<P> {
    fn lock(&self) -> MutexGuard<'_, Https> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn show(&self, shown: Https) {
        *self.lock() = shown;
    }

    /// Shows another certificate; whether it is another one.
    pub(super) fn renew(&self, fingerprint: &str) -> bool {
        let before = self.lock().fingerprint.replace(fingerprint.to_owned());
        before.as_deref() != Some(fingerprint)
    }
}

impl<P: Part> View for Shown<P> {
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        Vec::new()
    }

    fn routes(&self) -> Router {
        Router::new().route(P::PLACE, get(show::<P>)).with_state(self.clone())
    }
}

async fn show<P: Part>(State(shown): State<Shown<P>>) -> Response {
    let state = shown.lock().clone();
    P::answer(state)
}
