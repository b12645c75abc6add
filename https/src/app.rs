//! The state that all requests share: keys, limits, the daemon.

use crate::daemon::Daemon;
use crate::gate::{Client, Denied, Gate};
use crate::keys::Keys;
use crate::listen::Answering;
use crate::local::Local;
use crate::long_bodies::LongBodies;
use crate::place::Place;
use crate::source::Source;
use crate::{answer, vyos};
use axum::http::StatusCode;
use axum::response::Response;
use gateway::api::connections::Deadline;
use hyper::Request;
use hyper::body::Incoming;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Operational commands at once.
const LOCAL_AT_ONCE: usize = 4;

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) daemon: Daemon,
    pub(crate) local: Arc<dyn Local>,
    pub(crate) local_permits: Semaphore,
    /// One commit after the other, as VyOS does.
    pub(crate) commits: tokio::sync::Mutex<()>,
    /// The folder that `/config-file` names files in.
    pub(crate) files: PathBuf,
    pub(crate) long_bodies: LongBodies,
    serving: Mutex<Arc<Serving>>,
    gate: Gate,
}

/// The part of it that changes with the configuration.
#[derive(Default)]
pub(crate) struct Serving {
    pub(crate) keys: Keys,
    pub(crate) is_strict: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl App {
    pub(crate) fn new(place: &Place, local: Arc<dyn Local>) -> Self {
        Self {
            daemon: Daemon::new(place.api.clone()),
            local,
            local_permits: Semaphore::new(LOCAL_AT_ONCE),
            commits: tokio::sync::Mutex::default(),
            files: place.state.join("config"),
            long_bodies: LongBodies::default(),
            serving: Mutex::default(),
            gate: Gate::default(),
        }
    }

    pub(crate) fn set_serving(&self, serving: Serving) {
        *lock(&self.serving) = Arc::new(serving);
    }

    pub(crate) fn serving(&self) -> Arc<Serving> {
        Arc::clone(&lock(&self.serving))
    }

    /// The client with this key.
    pub(crate) async fn client(&self, key: Option<&[u8]>, source: Source) -> Result<Client, Denied> {
        self.gate.client(&self.serving().keys, key, source).await
    }
}

impl Answering for App {
    const NAME: &'static str = "https";

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        source: Source,
        deadline: Deadline,
        patience: Duration,
    ) -> Response {
        answer::answer(self, request, source, deadline, patience).await
    }

    fn not_allowed(why: &str) -> Response {
        vyos::error(StatusCode::FORBIDDEN, why)
    }
}
