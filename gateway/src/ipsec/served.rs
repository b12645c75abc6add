//! The running gateway, and its change from one configuration to another.
//!
//! ```text
//! prepare  the gateway itself, MTU, and routes also to what is new: beside what there is
//! switch   peers; then unwanted routes are removed
//! ```

use super::connections::Plan;
use super::gateway::{Gateway, GatewayError};
use super::peer_error::PeerError;
use super::{MTU, NAME, network};
use crate::host;
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::networks::Networks;
use crate::host::wants::Wants;
use crate::service::{Context, Refusal};
use crate::tunnel_interface::{Options, check_processors, check_receive_threads, receive_threads};
use config::settings::IpSec;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Where it is configured.
const PATH: &str = "vpn ipsec";

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

impl ServiceError {
    /// Whether it may go away by itself.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, Self::Peer(error) if error.is_temporary())
    }
}

impl From<ServiceError> for Refusal {
    fn from(error: ServiceError) -> Self {
        let is_temporary = error.is_temporary();
        Self::new(error, is_temporary)
    }
}

/// The running gateway, and what was made of it.
pub(super) struct Served {
    pub(super) gateway: Arc<Gateway>,
    pub(super) settings: IpSec,
    /// Peers of the settings that cannot be served yet: their names are not resolved, or there is no route to them.
    pub(super) pending: BTreeSet<String>,
    /// Where the others are, as far as that is known.
    pub(super) remotes: BTreeMap<String, IpAddr>,
}

/// A change of the peers.
pub(super) struct Change {
    /// What is to be served; once it is, what was.
    pub(super) settings: IpSec,
    /// The peers of it that cannot be served yet; once it is served, those of before.
    pub(super) pending: BTreeSet<String>,
    /// Where the peers of before were.
    pub(super) remotes: BTreeMap<String, IpAddr>,
    /// The connections to peers that are new or changed.
    pub(super) plans: Vec<Plan>,
    /// All that is to be protected, also what peers are for that are not served.
    pub(super) networks: Networks,
    /// The wanted state of the host before.
    pub(super) before: Option<Wants>,
    /// Whether there was no gateway before.
    pub(super) is_new: bool,
    /// Whether it was carried out.
    pub(super) is_switched: bool,
}

impl Change {
    /// The wanted state of the host at the end.
    pub(super) fn wants(&self) -> Option<Wants> {
        network::wants(self.networks.clone(), true)
    }

    /// The wanted state of the host during the change.
    pub(super) fn prepared(&self) -> Option<Wants> {
        let networks = self.networks.clone();
        let both = match &self.before {
            Some(before) => before.networks.clone().and(networks),
            None => networks,
        };
        network::wants(both, true)
    }
}

impl Served {
    /// A gateway without peers, as these settings say.
    pub(super) fn create(settings: &IpSec, context: &Context) -> Result<Self, ServiceError> {
        let receive_threads = receive_threads(settings.receive_threads);
        let (threads, processors) = (settings.threads, settings.processors.clone());
        check_processors(&processors, PATH).map_err(GatewayError::from)?;
        let options = Options { threads, processors, receive_threads, ..Options::default() };
        let gateway = Gateway::create(context.engines.clone(), options, context.events.clone())?;
        Ok(Self {
            gateway: Arc::new(gateway),
            settings: IpSec::default(),
            pending: BTreeSet::new(),
            remotes: BTreeMap::new(),
        })
    }

    /// Does all that may be refused, without removing anything.
    pub(super) fn prepare(&self, change: &Change, context: &Context) -> Result<(), ServiceError> {
        if !change.is_new {
            let threads = [&self.settings, &change.settings].map(|settings| settings.receive_threads);
            // It ends with its last peer.
            let path = "vpn ipsec site-to-site";
            check_receive_threads(NAME, self.gateway.receive_threads(), threads, path)
                .map_err(GatewayError::from)?;
            check_processors(&change.settings.processors, PATH).map_err(GatewayError::from)?;
        }
        set_mtu(&change.settings)?;
        self.set_threads(&change.settings)?;
        let prepared = change.prepared();
        // A new interface may have routes that it could not have before.
        if change.is_new || prepared != change.before {
            context.host.set(NAME, prepared)?;
        }
        if change.is_new {
            context.host.follow(NAME, self.gateway.measurer());
        }
        Ok(())
    }

    /// Undoes [`prepare`](Self::prepare) of a gateway that was there before.
    pub(super) fn undo_prepare(&self, change: &mut Change, context: &Context) -> Result<(), ServiceError> {
        set_mtu(&self.settings)?;
        self.set_threads(&self.settings)?;
        Ok(context.host.set(NAME, change.before.take())?)
    }

    fn set_threads(&self, settings: &IpSec) -> Result<(), ServiceError> {
        let set = self.gateway.set_threads(settings.threads, &settings.processors);
        set.map_err(|error| GatewayError::from(error).into())
    }

    /// Serves the peers.
    pub(super) fn switch(&mut self, change: &mut Change, context: &Context) -> Result<(), ServiceError> {
        self.exchange(change);
        let (wants, prepared) = (change.wants(), change.prepared());
        if wants != prepared {
            context.host.set(NAME, wants)?;
        }
        Ok(())
    }

    /// Takes the peers of a change over, and keeps in it what they were.
    pub(super) fn exchange(&mut self, change: &mut Change) {
        let (before, after) = (&self.settings, &change.settings);
        let gone = before.peers.keys().filter(|name| !after.peers.contains_key(*name));
        self.gateway.remove(gone.cloned().collect());
        self.gateway.set_patience(after.retransmission);
        let mut remotes = self.remotes.clone();
        remotes.retain(|name, _| after.peers.contains_key(name));
        let known = change.plans.iter();
        remotes
            .extend(known.filter_map(|plan| Some((plan.connection.name.clone(), plan.connection.remote?))));
        self.gateway.add(std::mem::take(&mut change.plans));
        change.remotes = std::mem::replace(&mut self.remotes, remotes);
        std::mem::swap(&mut self.settings, &mut change.settings);
        std::mem::swap(&mut self.pending, &mut change.pending);
        change.is_switched = !change.is_switched;
    }
}

/// Gives the interface its MTU, and puts it up.
fn set_mtu(settings: &IpSec) -> Result<(), NetlinkError> {
    let up = LinkChange { mtu: Some(inside_mtu(settings)), up: Some(true), ..LinkChange::default() };
    host::change_link(NAME, &[up])
}

/// The MTU of the interface: as usual, or what the tunnel with the largest packets has. Each looks to its own.
fn inside_mtu(settings: &IpSec) -> u32 {
    let tunnels = settings.peers.values().flat_map(|peer| peer.tunnels.values());
    tunnels.filter_map(|tunnel| tunnel.mtu.map(u32::from)).fold(MTU, u32::max)
}
