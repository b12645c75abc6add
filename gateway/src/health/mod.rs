//! Health: one table of rules about facts, looked at once a second, and alerts that begin and end.
//!
//! ```text
//! facts, once a second ───────> Sight ──> rules: ok, failing or unknown ──> alerts: pending ──> firing ──> resolved
//! machine, each half minute ──> Seen ───> rules/                            alerts.rs              │
//! GET /v1/health, metrics, doctor <── what rules and alerts say <──────────────────────────────────┤
//! process that tells receivers    <── outbox.rs <── groups.rs: one message a rule, day.rs ─────────┘
//! ```
//! Nothing here locks a table of the data path. The main thread only waits: rules are applied in a blocking thread. A process of its own sends
//! messages to receivers (`cli/src/alerter.rs`), so that a slow receiver does not delay the daemon.

mod alerts;
mod day;
mod examine;
mod groups;
pub mod machine;
pub mod model;
mod outbox;
pub mod programs;
pub mod rules;
pub mod service;
mod sight;
#[cfg(test)]
mod tests;
mod watcher;
pub mod wire;

pub use examine::{examine, examine_copy, read as read_watched};
pub use outbox::{Connection, OutboxError};

use crate::api::Shown;
use axum::Json;
use axum::extract::State;
use config::settings::{Health as Settings, Watched};
use outbox::{Outbox, Reported, lock};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::Orders;

/// How often rules are applied.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval: a snapshot of many peers may take long.
const LONGEST: Duration = Duration::from_secs(10);
/// At most one part in so many of the time goes into snapshots for rules.
const PART: u32 = 50;
/// The age up to which a snapshot that was made for another request is used.
const FRESH: Duration = Duration::from_millis(500);

/// The state of health, and its settings.
#[derive(Default)]
pub struct Kept {
    settings: Mutex<Arc<Settings>>,
    /// What rules look at in the configuration.
    watched: Mutex<Arc<Watched>>,
    shown: Mutex<Arc<model::Health>>,
    outbox: Mutex<Outbox>,
    reported: Reported,
}

impl Kept {
    /// Connects the process that sends messages to receivers.
    pub fn connect(&self, connection: Connection) {
        *lock(&self.outbox) = Outbox::new(connection);
    }

    /// The folders whose programs may be run.
    fn folders(&self) -> Vec<PathBuf> {
        lock(&self.outbox).folders().to_vec()
    }

    /// Sets how rules are applied, and the receivers.
    fn order(&self, settings: Arc<Settings>, orders: Orders) -> Result<(), OutboxError> {
        lock(&self.outbox).order(orders, &self.reported)?;
        *lock(&self.settings) = settings;
        Ok(())
    }

    /// Sets the configuration that rules look at.
    fn watch(&self, watched: Arc<Watched>) {
        *lock(&self.watched) = watched;
    }

    /// The answer of the API.
    fn show(&self) -> model::Health {
        let shown = Arc::clone(&lock(&self.shown));
        let receivers = lock(&self.reported).clone();
        model::Health { receivers, ..(*shown).clone() }
    }

    /// What every rule says.
    pub(crate) fn rules(&self) -> Vec<model::Rule> {
        lock(&self.shown).rules.clone()
    }
}

/// Applies rules once a second, for ever.
pub(crate) async fn watch(shown: Shown) {
    let mut watcher = watcher::Watcher::default();
    let begun = Instant::now();
    loop {
        let asked = Instant::now();
        if let Some(snapshot) = shown.latest().glance(&shown, FRESH).await {
            let settings = Arc::clone(&lock(&shown.health().settings));
            let watched = Arc::clone(&lock(&shown.health().watched));
            let look = move || {
                let found = watcher.look(&snapshot.facts, &settings, &watched, begun.elapsed());
                (watcher, found)
            };
            // A panic has been logged.
            let Ok((same, found)) = tokio::task::spawn_blocking(look).await else { return };
            watcher = same;
            if let Some((health, messages)) = found {
                *lock(&shown.health().shown) = Arc::new(health);
                let outbox = lock(&shown.health().outbox);
                for message in messages {
                    outbox.tell(message);
                }
            }
        }
        tokio::time::sleep(pause(asked.elapsed())).await;
    }
}

/// The pause after a round that took this long.
fn pause(took: Duration) -> Duration {
    (PART * took).clamp(INTERVAL, LONGEST).saturating_sub(took)
}

/// `GET /v1/health`
pub(crate) async fn health(State(shown): State<Shown>) -> Json<model::Health> {
    Json(shown.health().show())
}
