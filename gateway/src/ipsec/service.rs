//! Keeps the gateway what the configuration says it is: only peers that changed are touched.

use super::api::Peers;
use super::connections;
use super::connections::Plan;
use super::gateway::{Gateway, GatewayError};
use super::network;
use super::peer_error::PeerError;
use super::revocation;
use super::revocation::Revocations;
use super::{MTU, NAME, path_of, requirements, resolver};
use crate::host;
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::networks::Networks;
use crate::host::wants::Wants;
use crate::service::{Context, Refusal, Refused, Requirements, Service, View, Work};
use crate::tunnel_interface::Options;
use config::settings::IpSec;
use config::settings::ipsec::{Peer, Remote};
use config::{Path, Settings};
use crypto::pki::Evidence;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Why a configuration of IPsec could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The gateway could not be started.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// A peer cannot be served.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// Link, route or rule were refused.
    #[error("vpn ipsec: {0}")]
    Network(#[from] NetlinkError),
    /// No conversation with the kernel.
    #[error("rtnetlink: {0}")]
    Netlink(#[from] io::Error),
}

/// Where a peer is configured.
fn path_of_peer(peer: &str) -> Path {
    path_of(["site-to-site", "peer", peer])
}

struct Running {
    gateway: Arc<Gateway>,
    settings: IpSec,
    /// Peers of the settings that cannot be served yet: their names lead nowhere, or no route leads to them.
    pending: BTreeSet<String>,
    /// Where the others are, as far as that is known.
    remotes: BTreeMap<String, IpAddr>,
}

/// A peer whose connection is to be planned.
struct Wanted {
    name: String,
    peer: Arc<Peer>,
    /// What it was before, if it is served.
    before: Option<Arc<Peer>>,
    /// Where it was.
    at: Option<IpAddr>,
    /// Whether it should be looked for elsewhere.
    moves: bool,
    /// What is known about revocation besides the configuration.
    evidence: Option<Arc<Evidence>>,
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

/// Plans connections. A resolver may take its time: names are looked up at once.
async fn plan_all(wanted: Vec<Wanted>) -> Vec<(String, Result<Plan, PeerError>)> {
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

/// Whether it is a resolver who knows where the peer is.
fn is_named(peer: &Peer) -> bool {
    peer.remote_addresses.iter().any(|remote| matches!(remote, Remote::Name(_)))
}

/// For the log.
fn where_it_is(plan: &Plan) -> String {
    plan.connection
        .remote
        .map_or_else(|| "it may call".to_owned(), |remote| format!("it is sought at {remote}"))
}

impl ServiceError {
    /// Whether it may go away without anybody's doing.
    fn is_temporary(&self) -> bool {
        matches!(self, Self::Peer(error) if error.is_temporary())
    }
}

impl From<ServiceError> for Refusal {
    fn from(error: ServiceError) -> Self {
        let is_temporary = error.is_temporary();
        Self::new(error, is_temporary)
    }
}

/// The gateway, if there are peers.
#[derive(Default)]
pub struct IpsecService {
    running: Option<Running>,
    /// Learns what is revoked, if a peer needs that.
    revocations: Option<Revocations>,
    shown: Peers,
}

impl Service for IpsecService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        requirements::requirements(settings)
    }

    fn wants(&self, settings: &Settings) -> BTreeMap<String, Wants> {
        let wants = network::wants(network::networks(&settings.ipsec), false);
        wants.map(|wants| (NAME.to_owned(), wants)).into_iter().collect()
    }

    fn check(&self, settings: &Settings) -> (Vec<String>, Refused) {
        let (mut warnings, mut refused) = (Vec::new(), Refused::new());
        for (name, peer) in &settings.ipsec.peers {
            match connections::check(name, peer) {
                Ok(warning) => warnings.extend(warning),
                Err(error) => _ = refused.insert(path_of_peer(name), ServiceError::from(error).into()),
            }
        }
        (warnings, refused)
    }

    fn warnings(&self, settings: &Settings) -> Vec<String> {
        resolver::cut_off(settings).into_iter().collect()
    }

    fn configure<'a>(&'a mut self, settings: &'a mut Settings, context: &'a Context) -> Work<'a, Refused> {
        Box::pin(async {
            let refused = self.apply(std::mem::take(&mut settings.ipsec), context).await;
            self.shown.show(self.gateway());
            refused
        })
    }

    fn maintain(&mut self) -> Work<'_, ()> {
        Box::pin(self.look_again())
    }

    fn pending(&self) -> BTreeSet<Path> {
        let pending = self.running.iter().flat_map(|running| &running.pending);
        pending.map(|peer| path_of_peer(peer)).collect()
    }

    fn serves(&self) -> bool {
        self.running.is_some()
    }

    fn interface_removed(&mut self, name: &str) {
        if name == NAME {
            tracing::warn!("until then nothing is sent to the networks behind IPsec peers");
            self.shown.show(None);
            self.running = None;
        }
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {
        self.shown.show(None);
        self.end();
    }
}

impl IpsecService {
    fn gateway(&self) -> Option<Arc<Gateway>> {
        self.running.as_ref().map(|running| Arc::clone(&running.gateway))
    }

    /// Makes the gateway what `settings` says. Peers that were refused are not served, or as they were before.
    async fn apply(&mut self, mut settings: IpSec, context: &Context) -> Refused {
        let host = &context.host;
        let mut refused = Refused::new();
        if settings.peers.is_empty() {
            self.end();
            if let Err(error) = host.set(NAME, None) {
                tracing::warn!("{error}");
            }
            return refused;
        }
        if let Err(error) = self.learn_revocations(&settings) {
            refused.insert(path_of([]), ServiceError::from(error).into());
            return refused;
        }
        // Also of peers that are refused: what they are to protect stays closed.
        let wanted = network::networks(&settings);
        let (plans, pending) = self.plan(&mut settings, &mut refused).await;
        let served = network::networks(&settings);
        let networks = wanted.and(served);
        if settings.peers.is_empty() {
            self.end();
            if let Err(error) = host.set(NAME, network::wants(networks, false)) {
                refused.insert(path_of([]), ServiceError::from(error).into());
            }
            return refused;
        }
        if let Err(error) = self.serve(settings, networks.clone(), (plans, pending), context) {
            refused.insert(path_of([]), error.into());
            if self.running.is_none()
                && let Err(error) = host.set(NAME, network::wants(networks, false))
            {
                tracing::warn!("{error}");
            }
        }
        // What is in force has its policies: the first packet finds them.
        if let Some(running) = &self.running {
            running.gateway.settle().await;
        }
        refused
    }

    /// Has read and fetched what these settings need to know about revocation.
    fn learn_revocations(&mut self, settings: &IpSec) -> io::Result<()> {
        if self.revocations.is_none() && settings.peers.values().any(|peer| revocation::is_needed(peer)) {
            self.revocations = Some(Revocations::start()?);
        }
        if let Some(revocations) = &self.revocations {
            revocations.watch(settings);
        }
        Ok(())
    }

    fn evidence(&self) -> Option<Arc<Evidence>> {
        self.revocations.as_ref().map(Revocations::evidence)
    }

    fn end(&mut self) {
        self.running = None;
        self.revocations = None;
    }

    /// Plans the connections to peers that are new or changed. What is refused stays as it was, and what was not there and may
    /// be served later is pending.
    async fn plan(&self, settings: &mut IpSec, refused: &mut Refused) -> (Vec<Plan>, BTreeSet<String>) {
        let before = |name: &str| {
            let running = self.running.as_ref().filter(|running| !running.pending.contains(name))?;
            running.settings.peers.get(name)
        };
        let changed: Vec<Wanted> = settings
            .peers
            .iter()
            .filter(|(name, peer)| before(name) != Some(peer))
            .map(|(name, peer)| Wanted {
                name: name.clone(),
                peer: Arc::clone(peer),
                before: before(name).cloned(),
                at: self.running.as_ref().and_then(|running| running.remotes.get(name).copied()),
                moves: false,
                evidence: self.evidence(),
            })
            .collect();
        let (mut plans, mut pending) = (Vec::new(), BTreeSet::new());
        for (name, planned) in plan_all(changed).await {
            let error = match planned {
                Ok(plan) => {
                    plans.push(plan);
                    continue;
                }
                Err(error) => error,
            };
            match before(&name) {
                Some(old) => _ = settings.peers.insert(name.clone(), Arc::clone(old)),
                None if error.is_temporary() => _ = pending.insert(name.clone()),
                None => _ = settings.peers.remove(&name),
            }
            refused.insert(path_of_peer(&name), ServiceError::from(error).into());
        }
        (plans, pending)
    }

    /// Looks again at peers that could not be served, and for those that do not answer, whether they are elsewhere now: where
    /// their names lead, or at the next of their addresses.
    async fn look_again(&mut self) {
        let evidence = self.evidence();
        let Some(running) = &mut self.running else { return };
        let may_move = |(name, peer): &(&String, &Arc<Peer>)| {
            running.pending.contains(*name) || peer.remote_addresses.len() > 1 || is_named(peer)
        };
        let doubtful = running.settings.peers.iter().filter(may_move);
        let mut doubtful: BTreeMap<String, Arc<Peer>> =
            doubtful.map(|(name, peer)| (name.clone(), Arc::clone(peer))).collect();
        if doubtful.is_empty() {
            return;
        }
        for shown in running.gateway.status().await.into_iter().filter(|shown| shown.up) {
            doubtful.remove(&shown.name);
        }
        let wanted = doubtful.into_iter().map(|(name, peer)| {
            let at = running.remotes.get(&name).copied();
            Wanted { name, peer, before: None, at, moves: true, evidence: evidence.clone() }
        });
        for (name, planned) in plan_all(wanted.collect()).await {
            let Ok(plan) = planned else { continue };
            let was_pending = running.pending.remove(&name);
            if was_pending || plan.connection.remote != running.remotes.get(&name).copied() {
                running.remotes.extend(plan.connection.remote.map(|remote| (name.clone(), remote)));
                tracing::info!("peer {name}: {}", where_it_is(&plan));
                running.gateway.add(vec![plan]);
            }
        }
    }

    fn serve(
        &mut self,
        settings: IpSec,
        networks: Networks,
        (plans, pending): (Vec<Plan>, BTreeSet<String>),
        context: &Context,
    ) -> Result<(), ServiceError> {
        if self.running.is_none() {
            let gateway =
                Gateway::create(context.engines.clone(), Options::default(), context.events.clone())?;
            self.running = Some(Running {
                gateway: Arc::new(gateway),
                settings: IpSec::default(),
                pending: BTreeSet::new(),
                remotes: BTreeMap::new(),
            });
        }
        let Some(running) = &mut self.running else { return Ok(()) };
        let up = LinkChange { mtu: Some(inside_mtu(&settings)), up: Some(true), ..LinkChange::default() };
        host::change_link(NAME, &[up])?;
        context.host.set(NAME, network::wants(networks, true))?;
        context.host.follow(NAME, running.gateway.measurer());
        let gone = running.settings.peers.keys().filter(|name| !settings.peers.contains_key(*name));
        running.gateway.remove(gone.cloned().collect());
        running.gateway.set_patience(connections::patience(settings.retransmission));
        running.remotes.retain(|name, _| settings.peers.contains_key(name));
        let known =
            plans.iter().filter_map(|plan| Some((plan.connection.name.clone(), plan.connection.remote?)));
        running.remotes.extend(known);
        running.pending = pending;
        running.gateway.add(plans);
        running.settings = settings;
        Ok(())
    }
}

/// The MTU of the interface: as usual, or what the tunnel with the largest packets has. Each looks to its own.
fn inside_mtu(settings: &IpSec) -> u32 {
    let tunnels = settings.peers.values().flat_map(|peer| peer.tunnels.values());
    tunnels.filter_map(|tunnel| tunnel.mtu.map(u32::from)).fold(MTU, u32::max)
}
