//! What the page shows: the snapshot of facts with rates, and why tunnels are down. It is read once a second at most for all browsers.

use super::fresh::Fresh;
use super::rates::{self, Rates};
use super::reasons::{Reason, Reasons};
use crate::daemon::{Daemon, Refused};
use gateway::facts::FRESH;
use gateway::facts::model::{Facts, State, Tunnel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long the daemon may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
const SILENT: &str = "the daemon does not answer";

/// What the page shows.
#[derive(Default)]
pub(super) struct View {
    /// Tunnels with trouble are first.
    pub(super) facts: Facts,
    pub(super) rates: Rates,
    pub(super) reasons: Reasons,
}

impl View {
    pub(super) fn new(mut facts: Facts, rates: Rates, reasons: Reasons) -> Self {
        // Stable: within a state the order of the snapshot stays.
        facts.tunnels.sort_by_key(|tunnel| match tunnel.state {
            State::Down => 0,
            State::Waiting => 1,
            State::Up => 2,
        });
        Self { facts, rates, reasons }
    }

    /// Why a tunnel is down, the most important first.
    pub(super) fn reasons(&self, tunnel: &Tunnel) -> &[Reason] {
        if tunnel.state == State::Down { self.reasons.of(tunnel) } else { &[] }
    }

    /// How many tunnels have this state.
    pub(super) fn count(&self, state: State) -> usize {
        self.facts.tunnels.iter().filter(|it| it.state == state).count()
    }

    /// The tunnel with this key.
    pub(super) fn tunnel(&self, key: u64) -> Option<&Tunnel> {
        self.facts.tunnels.iter().find(|it| rates::key(it) == key)
    }

    /// The names of all interfaces, in the order of the snapshot.
    pub(super) fn interfaces(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let drops = self.facts.drops.iter().map(|it| &*it.interface);
        for name in drops.chain(self.facts.workers.iter().map(|it| &*it.interface)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// The view, or why there is none.
pub(super) type Outcome = Result<Arc<View>, String>;

/// The latest view.
pub(super) struct Latest {
    fresh: Arc<Fresh<Outcome>>,
    kept: Arc<Mutex<Kept>>,
    /// One view is rendered after the other.
    renders: Semaphore,
}

/// A view that nobody else holds: the next is not made beside others that are still rendered.
pub(super) struct Held<'a> {
    pub(super) view: Arc<View>,
    pub(super) turn: SemaphorePermit<'a>,
}

/// What is kept of a view for the next one.
#[derive(Default)]
struct Kept {
    rates: Rates,
    reasons: Reasons,
}

impl Default for Latest {
    fn default() -> Self {
        Self { fresh: Arc::new(Fresh::new(FRESH)), kept: Arc::default(), renders: Semaphore::new(1) }
    }
}

impl Latest {
    /// A view that is about a second old at most, to be rendered.
    pub(super) async fn view(&self, daemon: &Arc<Daemon>) -> Result<Held<'_>, String> {
        loop {
            // Those who wait for their turn hold no view: they would keep an old one in memory, which has megabytes.
            self.made(daemon).await.map(drop)?;
            let turn = self.renders.acquire().await.map_err(|closed| closed.to_string())?;
            if let Some(latest) = self.fresh.latest() {
                return Ok(Held { view: latest?, turn });
            }
        }
    }

    /// A view that is at most a second old.
    async fn made(&self, daemon: &Arc<Daemon>) -> Outcome {
        let make = || {
            let (daemon, kept) = (Arc::clone(daemon), Arc::clone(&self.kept));
            async move {
                match timeout(PATIENCE, make(&daemon, &kept)).await {
                    Ok(made) => made.map(Arc::new).map_err(|refused| refused.error),
                    Err(_) => Err(SILENT.to_owned()),
                }
            }
        };
        self.fresh.get(make).await
    }
}

async fn make(daemon: &Daemon, kept: &Arc<Mutex<Kept>>) -> Result<View, Refused> {
    let json = daemon.facts().await?;
    let parsed_with = Arc::clone(kept);
    let (facts, rates) = parsed(move || {
        let facts: Facts = serde_json::from_slice(&json).ok()?;
        let mut kept = parsed_with.lock().unwrap_or_else(PoisonError::into_inner);
        let rates = Rates::since(&kept.rates, &facts);
        kept.rates = rates.clone();
        Some((facts, rates))
    })
    .await?;
    let before = kept.lock().unwrap_or_else(PoisonError::into_inner).reasons.clone();
    let reasons = before.renewed(daemon, &facts).await;
    kept.lock().unwrap_or_else(PoisonError::into_inner).reasons = reasons.clone();
    Ok(View::new(facts, rates, reasons))
}

/// What another thread reads from an answer of the daemon: that of ten thousand tunnels takes a while.
pub(super) async fn parsed<T: Send + 'static>(
    read: impl FnOnce() -> Option<T> + Send + 'static,
) -> Result<T, Refused> {
    let read = spawn_blocking(read).await.ok().flatten();
    read.ok_or_else(|| Refused::bad("the daemon is of another version"))
}
