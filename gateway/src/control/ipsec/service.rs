//! Keeps the gateway what the configuration says it is: only peers that changed are touched.

use super::connections::{self, PeerError, Plan};
use super::gateway::{Gateway, GatewayError, MTU, NAME};
use super::keeper::{self, Keeper};
use super::network::Network;
use crate::control::carrier::{Options, Removed};
use crate::control::netlink::{LinkChange, Netlink, NetlinkError};
use crate::control::rules::Rules;
use config::settings::IpSec;
use crypto::Engine;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;

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

/// What was refused, by its place in the configuration.
pub type Refused = BTreeMap<String, ServiceError>;

struct Running {
    gateway: Arc<Gateway>,
    settings: IpSec,
}

/// The gateway, if there are peers.
#[derive(Default)]
pub struct Service {
    running: Option<Running>,
    /// The routes that lead to it, which outlive it when somebody takes the interface away.
    keeper: Option<Keeper>,
}

impl Service {
    /// What runs.
    pub fn gateway(&self) -> Option<Arc<Gateway>> {
        self.running.as_ref().map(|running| Arc::clone(&running.gateway))
    }

    /// Makes the gateway what `settings` says. Peers that were refused are not served, or as they were before.
    pub async fn apply(
        &mut self,
        mut settings: IpSec,
        engine: &Arc<dyn Engine>,
        events: &mpsc::UnboundedSender<Removed>,
        rules: &mut Rules,
    ) -> Refused {
        let mut refused = Refused::new();
        if settings.peers.is_empty() {
            self.stop(rules);
            return refused;
        }
        let plans = self.plan(&mut settings, &mut refused).await;
        if let Err(error) = self.serve(settings, plans, engine, events, rules) {
            refused.insert("vpn ipsec".to_owned(), error);
        }
        // What is in force has its policies: the first packet finds them.
        if let Some(running) = &self.running {
            running.gateway.settle().await;
        }
        refused
    }

    /// Ends everything.
    pub fn stop(&mut self, rules: &mut Rules) {
        self.running = None;
        let Some(keeper) = self.keeper.take() else { return };
        if let Err(error) = keeper.end(rules) {
            tracing::warn!("{error}");
        }
    }

    /// Forgets the gateway, whose interface is gone. What it protected is still not to leave in clear.
    pub fn lose(&mut self) {
        self.running = None;
    }

    /// Takes away what a daemon that was killed has left, if no IPsec is served now.
    pub fn clear_stale(&self) {
        if self.keeper.is_none()
            && let Err(error) = keeper::clear_stale()
        {
            tracing::warn!("{error}");
        }
    }

    /// Plans the connections to peers that are new or changed. What is refused stays as it was.
    async fn plan(&self, settings: &mut IpSec, refused: &mut Refused) -> Vec<Plan> {
        let mut plans = Vec::new();
        for (name, peer) in std::mem::take(&mut settings.peers) {
            let before = self.running.as_ref().and_then(|running| running.settings.peers.get(&name));
            if before == Some(&peer) {
                settings.peers.insert(name, peer);
                continue;
            }
            let peer = Arc::new(peer);
            let (of, whose) = (Arc::clone(&peer), name.clone());
            // A resolver may take its time.
            let planned = tokio::task::spawn_blocking(move || connections::plan(&whose, &of)).await;
            match planned.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
                Ok(plan) => plans.push(plan),
                Err(error) => {
                    refused.insert(format!("vpn ipsec site-to-site peer {name}"), error.into());
                    continue;
                }
            }
            if let Ok(peer) = Arc::try_unwrap(peer) {
                settings.peers.insert(name, peer);
            }
        }
        plans
    }

    fn serve(
        &mut self,
        settings: IpSec,
        plans: Vec<Plan>,
        engine: &Arc<dyn Engine>,
        events: &mpsc::UnboundedSender<Removed>,
        rules: &mut Rules,
    ) -> Result<(), ServiceError> {
        if self.running.is_none() {
            let gateway = Gateway::create(Arc::clone(engine), Options::default(), events.clone())?;
            self.running = Some(Running { gateway: Arc::new(gateway), settings: IpSec::default() });
        }
        let Some(running) = &mut self.running else { return Ok(()) };
        let mut netlink = Netlink::open()?;
        let network = Network::new(&settings);
        let needed = network.rules();
        let index = netlink.link(NAME)?.index;
        let up = LinkChange { mtu: Some(inside_mtu(&settings)), up: Some(true), ..LinkChange::default() };
        netlink.set_link(index, up)?;
        if self.keeper.is_none() {
            self.keeper = Some(Keeper::start()?);
        }
        self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.keep(network, &running.gateway))?;
        rules.change(&mut netlink, NAME, &needed)?;
        let gone = running.settings.peers.keys().filter(|name| !settings.peers.contains_key(*name));
        running.gateway.remove(gone.cloned().collect());
        running.gateway.set_patience(connections::patience(settings.retransmission));
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
