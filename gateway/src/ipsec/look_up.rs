//! Resolves the addresses of peers and plans their connections, on blocking threads: a resolver may be slow.

use super::connections;
use super::connections::Plan;
use super::peer_error::PeerError;
use config::settings::ipsec::{Peer, Remote};
use crypto::pki::Evidence;
use std::net::IpAddr;
use std::sync::Arc;

/// A peer whose connection is to be planned.
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) peer: Arc<Peer>,
    /// What it was before, if it is served.
    pub(super) before: Option<Arc<Peer>>,
    /// Where it was.
    pub(super) at: Option<IpAddr>,
    /// Whether it should be looked for elsewhere.
    pub(super) moves: bool,
    /// What is known about revocation besides the configuration.
    pub(super) evidence: Option<Arc<Evidence>>,
}

impl Wanted {
    fn plan(self) -> (String, Result<Plan, PeerError>) {
        let Self { name, peer, before, at, moves, evidence } = self;
        let planned = connections::addresses(&name, &peer)
            .map(|found| connections::choose(&found, at, moves))
            .and_then(|remote| connections::plan(&name, &peer, remote, evidence.as_ref()))
            .map(|plan| Plan { keeps: before.is_some_and(|it| connections::is_same(&it, &peer)), ..plan });
        (name, planned)
    }
}

/// Plans connections. A resolver may be slow: all names are looked up concurrently.
pub(super) async fn plan_all(wanted: Vec<Wanted>) -> Vec<(String, Result<Plan, PeerError>)> {
    let (named, known): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|wanted| is_named(&wanted.peer));
    let mut tasks =
        vec![tokio::task::spawn_blocking(move || known.into_iter().map(Wanted::plan).collect::<Vec<_>>())];
    tasks.extend(named.into_iter().map(|wanted| tokio::task::spawn_blocking(move || vec![wanted.plan()])));
    let mut plans = Vec::new();
    for task in tasks {
        plans.extend(task.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
    }
    plans
}

/// Whether the peer is configured by name.
pub(super) fn is_named(peer: &Peer) -> bool {
    peer.remote_addresses.iter().any(|remote| matches!(remote, Remote::Name(_)))
}

/// For the log.
pub(super) fn where_it_is(plan: &Plan) -> String {
    plan.connection
        .remote
        .map_or_else(|| "it may call".to_owned(), |remote| format!("it is sought at {remote}"))
}
