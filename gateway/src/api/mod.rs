//! The API of a daemon: HTTP and JSON on a Unix socket that only its owner may use.
//!
//! ```text
//! GET /v1/drops     GET /v1/offloads    GET /v1/crypto    GET /v1/threads    GET /v1/workers
//! GET /v1/stages    GET /v1/bottleneck  GET /v1/log    GET /v1/log/AFTER
//! GET /v1/status    POST /v1/reload
//! GET /v1/configuration                POST /v1/configuration/commit
//! GET /v1/configuration/revisions      POST /v1/configuration/confirm
//! GET /v1/configuration/revisions/N    POST /v1/configuration/saved
//! GET PUT PATCH /v1/configuration/tree GET /v1/openapi.json
//! GET /v1/facts     GET /v1/health     GET /v1/facts/history    GET /v1/service/snmp
//! GET /v1/path      GET /v1/local/log     GET /v1/local/capture/INTERFACE
//! ```
//!
//! What begins with `/v1/local/` is for clients on this machine only. The requests of a protocol are in its folder: `api.rs`, with the answers in `model.rs`.

mod bottleneck;
mod capture;
pub mod client;
mod configuration;
pub mod connections;
mod engines;
mod kernel;
mod log;
pub mod model;
#[cfg(feature = "https")]
pub mod openapi;
pub mod saving;
pub mod server;
mod status;
mod stream;
mod threads;
mod typed;
pub(crate) mod words;

pub use engines::{describe as describe_engine_event, engine_of, show as show_crypto};
pub use kernel::meaning_of_drop;

use crate::facts::{self, Latest, history};
use crate::failover;
use crate::health;
use crate::host::HeldReader;
use crate::service::View;
use crate::snmp;
use crate::tunnel_interface::{Counters, Drops, Tallies, worker_name};
pub use crate::unix_socket::Prepared;
use crate::unix_socket::{Listener, SocketError};
use ::crypto::choice::Choice;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use packet::DropReason;
use port::Tally;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::Semaphore;

/// The longest request of a commit, in bytes: it may be a whole configuration.
pub const LONGEST_COMMIT: usize = 16 << 20;
/// Where daemons put their sockets, and where `postern show` looks for them.
pub const DIRECTORY: &str = "/run/postern";
/// The socket of a daemon that serves the interface or configuration called `name`.
pub fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{name}.sock"))
}

/// The state that the API of a daemon shows: its services, and its crypto engines.
#[derive(Clone)]
pub struct Shown {
    services: Vec<Arc<dyn View>>,
    /// Counts the packets that our nftables rules have dropped.
    held: Arc<OnceLock<HeldReader>>,
    engines: Arc<Choice>,
    itself: Arc<status::Itself>,
    latest: Arc<Latest>,
    health: Arc<health::Kept>,
    snmp: Arc<snmp::SubAgent>,
    history: Arc<history::Keeper>,
    /// How many captures may begin.
    captures: Arc<Semaphore>,
    /// How many clients more may follow the log.
    followers: Arc<Semaphore>,
}

impl Shown {
    /// Shows these services.
    pub fn new(engines: Arc<Choice>, services: Vec<Arc<dyn View>>) -> Self {
        let itself = Arc::new(status::Itself::new());
        let (held, latest, health, snmp, history) = <(Arc<_>, Arc<_>, Arc<_>, Arc<_>, Arc<_>)>::default();
        let [captures, followers] = [capture::MOST, log::MOST].map(|most| Arc::new(Semaphore::new(most)));
        Self { services, held, engines, itself, latest, health, snmp, history, captures, followers }
    }

    /// Sets the reader of the counters of our nftables rules.
    pub(crate) fn set_held(&self, held: HeldReader) {
        let _ = self.held.set(held);
    }

    fn interfaces(&self) -> impl Iterator<Item = Arc<dyn Counters>> + '_ {
        self.services.iter().flat_map(|service| service.interfaces())
    }

    pub(crate) fn services(&self) -> &[Arc<dyn View>] {
        &self.services
    }

    /// The latest snapshot of facts.
    pub(crate) fn latest(&self) -> &Latest {
        &self.latest
    }

    /// What is known of health.
    pub(crate) fn health(&self) -> &Arc<health::Kept> {
        &self.health
    }

    /// What is known of the sub-agent of snmpd.
    pub(crate) fn snmp(&self) -> &Arc<snmp::SubAgent> {
        &self.snmp
    }

    /// The last minutes.
    pub(crate) fn history(&self) -> &history::Keeper {
        &self.history
    }

    /// The groups of tunnels that stand in for each other.
    pub(crate) fn failover(&self) -> Option<Arc<failover::Kept>> {
        self.services.iter().find_map(|service| service.failover())
    }

    /// What is measured of the path of tunnels.
    pub(crate) fn paths(&self) -> Option<Arc<crate::path::model::Paths>> {
        self.services.iter().find_map(|service| service.paths())
    }

    pub(crate) fn drops(&self) -> model::Drops {
        let mut drops = Vec::new();
        for interface in self.interfaces() {
            drops.extend(show_drops(interface.name(), interface.drops()));
            drops.extend(kernel::drops(interface.name(), &interface.sockets()));
        }
        if let Some(held) = self.held.get() {
            drops.extend(kernel::held(held.read()));
        }
        model::Drops { drops }
    }

    pub(crate) fn offloads(&self) -> model::Offloads {
        let of = |interface: Arc<dyn Counters>| show_offloads(interface.name(), interface.offloads());
        model::Offloads { offloads: self.interfaces().flat_map(of).collect() }
    }

    pub(crate) fn workers(&self) -> model::Workers {
        let of = |interface: Arc<dyn Counters>| {
            let Tallies { outbound, inbound } = interface.tallies();
            let ways = [("out", outbound), ("in", inbound)];
            let workers = ways.map(|(direction, tallies)| {
                let each = tallies.iter().enumerate();
                each.map(|(number, tally)| {
                    show_worker(interface.name(), &worker_name(direction, number), tally)
                })
                .collect::<Vec<_>>()
            });
            workers.concat()
        };
        model::Workers { workers: self.interfaces().flat_map(of).collect() }
    }

    pub(crate) fn engines(&self) -> Vec<model::CryptoEngine> {
        engines::engines(&self.engines)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the socket.
pub async fn bind(path: &Path) -> Result<Listener, SocketError> {
    Listener::bind(path).await
}

/// Makes the socket before this process becomes another user, which may not.
pub async fn prepare(path: &Path) -> Result<Prepared, SocketError> {
    Prepared::bind(path).await
}

/// Serves the API for ever, applies the rules of health and looks at groups of tunnels meanwhile, and keeps the history that it shows.
pub async fn serve(listener: Listener, shown: Shown) {
    let router = router(shown.clone());
    let kept = history::keep(shown.clone());
    let server = server::serve(listener, router, server::Limits::USUAL);
    tokio::join!(server, failover::watch(shown.clone()), health::watch(shown), kept);
}

fn router(shown: Shown) -> Router {
    let services: Vec<Router> = shown.services.iter().map(|service| service.routes()).collect();
    let own = Router::new()
        .route("/v1/drops", get(drops))
        .route("/v1/offloads", get(offloads))
        .route("/v1/threads", get(threads::threads))
        .route("/v1/workers", get(workers))
        .route("/v1/stages", get(bottleneck::stages))
        .route("/v1/bottleneck", get(bottleneck::bottleneck))
        .route("/v1/crypto", get(crypto))
        .route("/v1/facts", get(facts::facts))
        .route("/v1/health", get(health::health))
        .route("/v1/facts/history", get(history::history))
        .route("/v1/service/snmp", get(snmp::snmp))
        .route("/v1/status", get(status::status))
        .route("/v1/reload", post(status::reload))
        .route("/v1/local/capture/{interface}", get(capture::capture))
        .route("/v1/local/log", get(log::follow))
        .route("/v1/log", get(log::all))
        .route("/v1/log/{after}", get(log::after))
        .merge(configuration::routes())
        .merge(typed::routes())
        .with_state(shown);
    #[cfg(feature = "https")]
    let own = own.route(openapi::PLACE, get(openapi::serve));
    // Last, so that they apply to the requests of the services too.
    let all = services.into_iter().fold(own, Router::merge);
    // The server has limits of its own, by the path.
    all.fallback(unknown).method_not_allowed_fallback(not_allowed).layer(DefaultBodyLimit::disable())
}

async fn unknown(place: Uri) -> Response {
    let error = format!("there is no {}", place.path());
    server::problem(StatusCode::NOT_FOUND, error, "use a client of the daemon's version: postern --version")
}

async fn not_allowed(method: Method, place: Uri) -> Response {
    let error = format!("{method} cannot be done with {}", place.path());
    server::problem(StatusCode::METHOD_NOT_ALLOWED, error, "see the header Allow for what can be done")
}

async fn drops(State(shown): State<Shown>) -> Json<model::Drops> {
    Json(shown.drops())
}

async fn offloads(State(shown): State<Shown>) -> Json<model::Offloads> {
    Json(shown.offloads())
}

async fn workers(State(shown): State<Shown>) -> Json<model::Workers> {
    Json(shown.workers())
}

async fn crypto(State(shown): State<Shown>) -> Json<model::Crypto> {
    Json(engines::show(&shown.engines))
}

fn show_drops(interface: &str, drops: &Drops) -> Vec<model::Drop> {
    let show = |reason: &DropReason| {
        let [outbound, inbound, handshake] = drops.read(*reason);
        model::Drop {
            interface: interface.to_owned(),
            reason: reason.name().to_owned(),
            meaning: reason.sentence().to_owned(),
            outbound,
            inbound,
            handshake,
        }
    };
    DropReason::ALL.iter().map(show).collect()
}

/// A worker, as `GET /v1/workers` shows it.
pub fn show_worker(interface: &str, worker: &str, tally: &Tally) -> model::Worker {
    let counted = tally.read();
    let bursts = counted.bursts.iter().enumerate();
    model::Worker {
        interface: interface.to_owned(),
        worker: worker.to_owned(),
        wake_ups: counted.wake_ups,
        receives: counted.receives,
        empty_receives: counted.empty,
        received_packets: counted.received_packets,
        received_bytes: counted.received_bytes,
        sends: counted.sends,
        sent_bytes: counted.sent_bytes,
        bursts: bursts
            .map(|(class, &bursts)| model::Bursts { packets: port::tally::most(class), bursts })
            .collect(),
    }
}

fn show_offloads(interface: &str, offloads: &port::Offloads) -> Vec<model::Offload> {
    let show = |(name, does, offload): (&str, &str, &port::Offload)| {
        let (calls, packets, fallbacks) = offload.counters();
        let (interface, state) = (interface.to_owned(), offload_state(offload.state()));
        model::Offload {
            interface,
            offload: name.to_owned(),
            does: does.to_owned(),
            state,
            calls,
            packets,
            fallbacks,
        }
    };
    offloads.all().into_iter().map(show).collect()
}

fn offload_state(state: port::offload::State) -> model::OffloadState {
    use port::offload::State;
    match state {
        State::Unprobed => model::OffloadState::Unprobed,
        State::On => model::OffloadState::On,
        State::SwitchedOff => model::OffloadState::SwitchedOff,
        State::Unsupported => model::OffloadState::Unsupported,
        State::Failed => model::OffloadState::Failed,
    }
}
