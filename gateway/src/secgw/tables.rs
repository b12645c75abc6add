//! What the worker looks up: policies, SAs and routes of a plan.

use super::plan::Plan;
use super::policies::Policies;
use super::routes::{RouteIndex, Routes};
use crate::datapath::protocol::{PeerState, Protocol, Tunnel};
use crate::datapath::staging::Budget;
use crate::datapath::tables::{Peer, Session, Tables};
use config::secgw::settings::{Direction, Mode, Sa};
use crypto::engine::{Engine, LoadError};
use crypto::{SecretBytes, random};
use packet::Endpoint;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tunnel::esp::{SaKeys, Transform};
use tunnel::sa::Lifetime;
use tunnel::{InboundSa, OutboundSa, PeerId, Time};

/// An SA in the data path.
pub struct Installed {
    /// Its SPI.
    pub spi: u32,
    /// Its direction.
    pub direction: Direction,
    /// The algorithms.
    pub algorithms: String,
    /// Its tunnel, with counters of its own.
    pub peer: Arc<Peer>,
}

/// The tables of a gateway.
pub struct SecgwTables {
    /// The inbound SAs, as the stages of the data path look them up.
    pub sessions: Arc<Tables>,
    /// All SAs.
    pub sas: Vec<Installed>,
    /// The SAs to send with, by SPI.
    pub(super) outbound: HashMap<u32, (Arc<Peer>, Arc<OutboundSa>)>,
    /// The outbound policies.
    pub(super) policies_out: Policies,
    /// The inbound policies.
    pub(super) policies_in: Policies,
    /// Routes to numbers of ports.
    pub(super) routes: Routes,
    /// The longest IP packet that leaves.
    pub(super) mtu: usize,
}

impl SecgwTables {
    /// Loads the keys of a plan.
    ///
    /// # Errors
    /// No engine has an algorithm.
    pub fn new(plan: &Plan, engine: &dyn Engine) -> Result<Self, LoadError> {
        let sessions = Arc::new(Tables::new(Protocol::Ipsec, plan.mtu));
        let (mut sas, mut outbound) = (Vec::new(), HashMap::new());
        for (id, sa) in (1..).map(PeerId::new).zip(&plan.sas) {
            let Some(transform) = sa.protection.transform() else { continue };
            let peer = Arc::new(peer(id, sa, plan.mtu));
            let keys = || keys(sa, transform, plan.extended_sequence, engine);
            let lifetime = lifetime(plan.extended_sequence);
            match sa.direction {
                Direction::Outbound => {
                    let sa = Arc::new(OutboundSa::new(keys()?, sa.spi, lifetime));
                    outbound.insert(sa.receiver, (Arc::clone(&peer), sa));
                }
                Direction::Inbound => {
                    let inbound = InboundSa::new(keys()?, sa.spi, lifetime, false).with_window(plan.window);
                    let (sa, peer) = (Arc::new(inbound), Arc::clone(&peer));
                    sessions.install(Session { sa, peer, selectors: None, transport: None });
                }
            }
            let (spi, direction, algorithms) = (sa.spi, sa.direction, sa.protection.name());
            sas.push(Installed { spi, direction, algorithms, peer });
        }
        let routes = plan
            .routes
            .iter()
            .filter_map(|route| route.network().map(|network| (network, RouteIndex(route.port.into()))));
        Ok(Self {
            sessions,
            sas,
            outbound,
            policies_out: Policies::new(&plan.policies, Direction::Outbound),
            policies_in: Policies::new(&plan.policies, Direction::Inbound),
            routes: Routes::build(routes),
            mtu: plan.mtu,
        })
    }
}

/// The tunnel of an SA. Its endpoint is how packets of the SA are addressed, or must be: remote and local address.
fn peer(id: PeerId, sa: &Sa, mtu: usize) -> Peer {
    let tunnel = Tunnel { in_udp: AtomicBool::new(false), path_mtu: mtu.into(), ..Tunnel::default() };
    let peer = Peer::new(id, PeerState::Ipsec(tunnel), Budget::default());
    if let Mode::Tunnel { source, destination } = sa.mode {
        let (remote, local) = match sa.direction {
            Direction::Outbound => (destination, source),
            Direction::Inbound => (source, destination),
        };
        let endpoint = Endpoint { local: Some(local), ..Endpoint::new(SocketAddr::new(remote, 0)) };
        peer.endpoint.store(Some(Arc::new(endpoint)));
    }
    peer
}

fn keys(sa: &Sa, transform: Transform, extended: bool, engine: &dyn Engine) -> Result<SaKeys, LoadError> {
    let bytes = sa.keys.expose();
    // RFC 4309 has 3 bytes of salt for CCM; the format has 4, of which the last one is not used.
    let keys = SecretBytes::new(bytes[..transform.key_material_length().min(bytes.len())].to_vec());
    let mode = tunnel::esp::Mode::Tunnel;
    SaKeys::new(transform, extended, mode, &keys, engine, &mut random::System::default())
}

/// A manual SA ends when its sequence numbers do (RFC 4303 section 3.3.3).
fn lifetime(extended: bool) -> Lifetime {
    let end_sequence = if extended { u64::MAX } else { 1 << 32 };
    let expires = Time::from_nanoseconds(u64::MAX);
    Lifetime { renew: None, renew_sequence: u64::MAX, expires, end_sequence }
}
