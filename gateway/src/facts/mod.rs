//! One snapshot of facts about a running daemon, which all views read: metrics, and what else shows the whole of it.
//!
//! ```text
//! workers' counters, slow paths, proc(5) ──> collect ──> snapshot ──> GET /v1/facts ──> views, in other processes
//!                                     at most once a second
//! ```
//! Nothing here locks a table of the data path: workers count for themselves, and a slow path is asked as `show` asks it. The
//! thread of signals and commits only waits; reading and writing happen in a thread beside it.

pub mod history;
pub mod model;
mod process;

use crate::api::{Shown, model as api};
use crate::clock::Clock;
use crate::path;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{Daemon, Drop, Facts, Tunnel};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long a snapshot is the answer.
pub const FRESH: Duration = Duration::from_secs(1);

/// The tunnels of a service, which its slow path tells.
pub type Tunnels<'a> = Pin<Box<dyn Future<Output = Vec<Tunnel>> + Send + 'a>>;

/// A snapshot; its JSON is made once somebody asks for that.
pub(crate) struct Snapshot {
    at: Instant,
    pub(crate) facts: Facts,
    json: OnceLock<Bytes>,
}

/// The latest snapshot. Those who ask while it is made wait for it.
#[derive(Default)]
pub(crate) struct Latest(Mutex<Option<Arc<Snapshot>>>);

impl Latest {
    /// A snapshot that is not older; none if a thread has panicked, which has said so.
    pub(crate) async fn snapshot(&self, shown: &Shown, fresh: Duration) -> Option<Arc<Snapshot>> {
        let mut latest = self.0.lock().await;
        if let Some(snapshot) = latest.as_ref()
            && snapshot.at.elapsed() < fresh
        {
            return Some(Arc::clone(snapshot));
        }
        let snapshot = Arc::new(collect(shown).await?);
        *latest = Some(Arc::clone(&snapshot));
        Some(snapshot)
    }

    /// The same for the daemon itself, which does not keep what it makes: a person who asks after a change, as after a ping, gets facts of that
    /// moment, and not those from up to a second before it.
    pub(crate) async fn glance(&self, shown: &Shown, fresh: Duration) -> Option<Arc<Snapshot>> {
        let latest = self.0.lock().await.clone();
        match latest.filter(|snapshot| snapshot.at.elapsed() < fresh) {
            Some(snapshot) => Some(snapshot),
            None => collect(shown).await.map(Arc::new),
        }
    }

    async fn json(&self, shown: &Shown) -> Option<Bytes> {
        let snapshot = self.snapshot(shown, FRESH).await?;
        let made = move || {
            let make = || serde_json::to_vec(&snapshot.facts).expect("every field has its JSON").into();
            snapshot.json.get_or_init(make).clone()
        };
        tokio::task::spawn_blocking(made).await.ok()
    }
}

pub(crate) async fn facts(State(shown): State<Shown>) -> Response {
    match shown.latest().json(&shown).await {
        Some(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The tunnels alone, with their paths, as they are now: where the rest of a snapshot is not needed.
pub(crate) async fn tunnels(shown: &Shown) -> Vec<Tunnel> {
    let mut tunnels = of_services(shown).await;
    if let Some(paths) = shown.paths() {
        path::attach(&mut tunnels, &paths);
    }
    tunnels
}

async fn of_services(shown: &Shown) -> Vec<Tunnel> {
    let mut tunnels = Vec::new();
    for service in shown.services() {
        tunnels.extend(service.tunnels().await);
    }
    tunnels
}

/// Makes a snapshot; none if a thread has panicked, which has said so.
async fn collect(shown: &Shown) -> Option<Snapshot> {
    let tunnels = of_services(shown).await;
    let shown = shown.clone();
    let read = move || Snapshot { at: Instant::now(), facts: read(&shown, tunnels), json: OnceLock::new() };
    tokio::task::spawn_blocking(read).await.ok()
}

/// Reads the counters.
fn read(shown: &Shown, mut tunnels: Vec<Tunnel>) -> Facts {
    if let Some(paths) = shown.paths() {
        path::attach(&mut tunnels, &paths);
    }
    let status = shown.status();
    let api::Threads { threads, handoffs } = shown.threads();
    let now = Clock.now();
    Facts {
        at: now.wall.as_secs(),
        moment: now.monotonic.nanoseconds() / 1_000_000,
        daemon: Daemon {
            version: status.version,
            started: status.started,
            revision: shown.revision(),
            refused_parts: status.refused.len(),
        },
        process: process::read(Path::new("/proc/self")),
        tunnels,
        failover: shown.failover().map(|kept| kept.show().groups).unwrap_or_default(),
        drops: shown.drops().drops.into_iter().map(Drop::from).collect(),
        workers: shown.workers().workers,
        threads,
        handoffs,
        stages: shown.stages(),
        segments: shown.segments(),
        offloads: shown.offloads().offloads,
        engines: shown.engines(),
        health: shown.health().rules(),
    }
}

impl From<api::Drop> for Drop {
    fn from(api::Drop { interface, reason, outbound, inbound, handshake, .. }: api::Drop) -> Self {
        Self { interface, reason, outbound, inbound, handshake }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::View;
    use crate::tunnel_interface::Counters;
    use axum::Router;
    use crypto::choice::Choice;
    use crypto::engine::none;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A service that counts how often it is asked.
    #[derive(Default)]
    struct Asked(AtomicUsize);

    impl View for Asked {
        fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
            Vec::new()
        }

        fn routes(&self) -> Router {
            Router::new()
        }

        fn tunnels(&self) -> Tunnels<'_> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                vec![Tunnel { peer: "berlin".to_owned(), ..Tunnel::default() }]
            })
        }
    }

    #[tokio::test]
    async fn all_who_ask_within_a_second_get_one_snapshot() {
        let asked = Arc::new(Asked::default());
        let engines = Arc::new(Choice::among(vec![Arc::new(none::None)]));
        let shown = Shown::new(engines, vec![Arc::clone(&asked) as Arc<dyn View>]);
        let all = async || tokio::join!(shown.latest().json(&shown), shown.latest().json(&shown));
        let (first, second) = all().await;
        let first = first.expect("facts");
        assert_eq!(Some(&first), second.as_ref());
        assert_eq!(asked.0.load(Ordering::Relaxed), 1);
        let facts: Facts = serde_json::from_slice(&first).expect("JSON");
        assert_eq!((&*facts.tunnels[0].peer, facts.daemon.revision), ("berlin", None));
        assert!(facts.process.cpu_seconds.is_some() && facts.at > facts.daemon.started - 1, "{facts:?}");
        tokio::time::sleep(FRESH).await;
        all().await.0.expect("facts");
        assert_eq!(asked.0.load(Ordering::Relaxed), 2);
    }
}
