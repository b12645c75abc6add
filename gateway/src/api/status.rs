//! What a daemon says of itself, and the order to read its configuration again.

use super::model::{Configuration, Refused, ReloadOutcome, Reloaded, Status};
use super::{Shown, lock, server};
use crate::clock::Clock;
use crate::daemon::ledger::Ledger;
use crate::daemon::needs::Needs;
use crate::daemon::order::{Order, Orders};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::oneshot;

/// What the API says of the daemon itself.
#[derive(Default)]
pub(super) struct Itself {
    /// Seconds since 1970 of the start.
    started: u64,
    needs: Mutex<Needs>,
    refused: Mutex<BTreeMap<config::Path, Refused>>,
    /// What only a daemon has that reads a file.
    file: OnceLock<Served>,
}

/// The file of a daemon.
struct Served {
    orders: Orders,
    configuration: Mutex<Configuration>,
    ledger: Arc<Ledger>,
}

impl Itself {
    pub(super) fn new() -> Self {
        Self { started: now(), ..Self::default() }
    }
}

fn now() -> u64 {
    Clock.now().wall.as_secs()
}

impl Shown {
    /// The daemon serves what this file says, and reads it again when it is ordered to.
    pub fn serves(&self, file: &Path, ledger: Arc<Ledger>, orders: Orders) {
        let configuration =
            Configuration { file: file.display().to_string(), in_force_since: now(), last_reload: None };
        let _ = self.itself.file.set(Served { orders, configuration: Mutex::new(configuration), ledger });
    }

    /// What is known of the configuration in force, and where orders go; nothing in a daemon without a file.
    pub(super) fn transactions(&self) -> Option<(&Arc<Ledger>, &Orders)> {
        self.itself.file.get().map(|served| (&served.ledger, &served.orders))
    }

    /// A commit is in force.
    pub(super) fn has_committed(&self) {
        if let Some(served) = self.itself.file.get() {
            lock(&served.configuration).in_force_since = now();
        }
    }

    /// Notes what became of reading the file again.
    pub fn has_reloaded(&self, outcome: &Reloaded) {
        let Some(served) = self.itself.file.get() else { return };
        let mut configuration = lock(&served.configuration);
        if outcome.outcome != ReloadOutcome::Refused {
            configuration.in_force_since = outcome.at;
        }
        configuration.last_reload = Some(outcome.clone());
    }

    /// What the configuration needs of the kernel.
    pub(crate) fn set_needs(&self, needs: Needs) {
        *lock(&self.itself.needs) = needs;
    }

    /// What of the configuration is not in force.
    pub(crate) fn set_refused(&self, refused: BTreeMap<config::Path, Refused>) {
        *lock(&self.itself.refused) = refused;
    }

    /// More of it is not.
    pub(crate) fn add_refused(&self, refused: impl Iterator<Item = (config::Path, Refused)>) {
        lock(&self.itself.refused).extend(refused);
    }

    /// Forgets what is in force by now.
    pub(crate) fn keep_refused(&self, keep: impl Fn(&config::Path, &Refused) -> bool) {
        lock(&self.itself.refused).retain(|path, refused| keep(path, refused));
    }

    /// The revision in force; none in a daemon without a file.
    pub(crate) fn revision(&self) -> Option<u64> {
        self.itself.file.get().map(|served| served.ledger.revision())
    }

    pub(crate) fn status(&self) -> Status {
        let served = self.itself.file.get();
        let configuration = served.map(|served| lock(&served.configuration).clone());
        let undoing = served.and_then(|served| served.ledger.undoing());
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            started: self.itself.started,
            configuration,
            refused: lock(&self.itself.refused).values().cloned().collect(),
            warnings: undoing.into_iter().chain(lock(&self.itself.needs).warnings()).collect(),
        }
    }
}

impl Reloaded {
    /// An outcome of now.
    pub fn new(outcome: ReloadOutcome, changes: Vec<String>, errors: Vec<String>) -> Self {
        Self { at: now(), outcome, changes, errors }
    }
}

pub(super) async fn status(State(shown): State<Shown>) -> Json<Status> {
    Json(shown.status())
}

pub(super) async fn reload(State(shown): State<Shown>) -> Result<Json<Reloaded>, Response> {
    let (_, orders) = shown.transactions().ok_or_else(without_file)?;
    ordered(orders, |reply| Order::Reload(Some(reply))).await.map(Json)
}

/// The error of a daemon without a configuration file.
pub(super) fn without_file() -> Response {
    let error = "this daemon has no configuration file: it is configured by wg";
    server::problem(StatusCode::CONFLICT, error, "wg setconf IFNAME FILE")
}

/// Gives an order, and waits for the answer.
pub(super) async fn ordered<T>(
    orders: &Orders,
    order: impl FnOnce(oneshot::Sender<T>) -> Order,
) -> Result<T, Response> {
    let unavailable = |error: &str, fix: &str| server::problem(StatusCode::SERVICE_UNAVAILABLE, error, fix);
    let (reply, answer) = oneshot::channel();
    if !orders.give(order(reply)) {
        let fix = "try again when they have it";
        return Err(unavailable("others wait for the configuration to be read or committed", fix));
    }
    answer.await.map_err(|_| unavailable("the daemon is ending", "systemctl start postern"))
}
