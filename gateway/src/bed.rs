//! A tunnel in memory, for tests and benchmarks: what goes in at one end goes through both directions of the data path and
//! comes out at the other.

use crate::clock::Clock;
use crate::datapath::Notice;
use crate::datapath::punt::{Datagram, Punt};
use crate::staging::Budget;
use crate::tables::{Kind, Peer, Protocol, Session, Tables};
use crate::worker::{Egress, Inbound, Outbound, Shared};
use crossbeam_channel::{Receiver, unbounded};
use crypto::Cipher;
use crypto::engine::{Engine, LoadError};
use crypto::{PublicKey, random};
use ipnet::IpNet;
use packet::{DropCounters, DropReason, Endpoint};
use port::Transmit;
use port::memory::{InsideLink, Link};
use std::net::SocketAddr;
use std::sync::Arc;
use tunnel::sa::Lifetime;
use tunnel::wireguard::limits::REJECT_AFTER_MESSAGES;
use tunnel::wireguard::{AllowedIps, Device};
use tunnel::{InboundSa, OutboundSa, Time};

/// How much a worker of the bed carries at once.
const BATCH_BYTES: usize = 512 * 1024;
/// The receiver index of the only session.
pub const INDEX: u32 = 1;

/// Both directions between three links.
pub struct Bed<O = Link, I = InsideLink> {
    /// Packets for the outbound worker.
    pub inside: Link,
    /// Datagrams between the workers.
    pub outside: Link,
    /// What the outbound worker answered to the inside.
    pub answers: Link,
    /// What came out of the tunnel.
    pub delivered: Link,
    /// The only peer: it is its own other side.
    pub peer: Arc<Peer>,
    /// What the workers look up.
    pub tables: Arc<Tables>,
    /// What the protocol was told.
    pub notices: Receiver<Notice>,
    /// Handshake messages.
    pub datagrams: Receiver<Datagram>,
    /// Why packets were dropped.
    pub drops: Arc<DropCounters>,
    /// From `inside` to `outside`.
    pub outbound: Outbound<Link, O, InsideLink>,
    /// From `outside` to `delivered`.
    pub inbound: Inbound<Link, I>,
}

impl Bed {
    /// A bed whose session is sealed by `engine` and lasts for ever.
    pub fn new(engine: &dyn Engine) -> Result<Self, LoadError> {
        let lifetime = Lifetime {
            renew: None,
            renew_sequence: u64::MAX,
            expires: Time::from_nanoseconds(u64::MAX),
            end_sequence: REJECT_AFTER_MESSAGES,
        };
        Self::with(engine, lifetime, |link| link, InsideLink)
    }
}

impl<O: Transmit, I: Transmit> Bed<O, I> {
    /// A bed whose session has this lifetime, and whose sending ports are made from the links.
    pub fn with(
        engine: &dyn Engine,
        lifetime: Lifetime,
        outside_port: impl FnOnce(Link) -> O,
        inside_port: impl FnOnce(Link) -> I,
    ) -> Result<Self, LoadError> {
        let (sender, notices) = unbounded();
        let shared = Shared {
            tables: Arc::new(Tables::new(Protocol::WireGuard, 1420)),
            notices: sender,
            clock: Clock,
        };
        let tables = Arc::clone(&shared.tables);
        let key = engine.load(Cipher::ChaCha20Poly1305, &[7; 32])?;
        let peer = Arc::new(new_peer());
        peer.endpoint.store(Some(Arc::new(Endpoint::new(SocketAddr::from(([192, 0, 2, 2], 51_820))))));
        peer.sending.store(Some(Arc::new(OutboundSa::new(Arc::clone(&key), INDEX, lifetime))));
        let sa = Arc::new(InboundSa::new(key, INDEX, lifetime, false));
        tables.install(Session { sa, peer: Arc::clone(&peer), selectors: None });
        let (inside, outside, answers, delivered) = <(Link, Link, Link, Link)>::default();
        let drops = Arc::new(DropCounters::default());
        let egress = Egress::new(shared.clone(), outside_port(outside.clone()), Arc::clone(&drops));
        let outbound =
            Outbound::new(shared.clone(), inside.clone(), InsideLink(answers.clone()), egress, BATCH_BYTES);
        let (punt, datagrams) = Punt::new();
        let to_inside = inside_port(delivered.clone());
        let inbound = Inbound::new(shared, outside.clone(), to_inside, punt, Arc::clone(&drops), BATCH_BYTES);
        Ok(Self {
            inside,
            outside,
            answers,
            delivered,
            peer,
            tables,
            notices,
            datagrams,
            drops,
            outbound,
            inbound,
        })
    }

    /// Gives the peer these prefixes and no others.
    pub fn allow(&self, prefixes: &[IpNet]) {
        let mut routes = AllowedIps::default();
        for prefix in prefixes {
            routes.insert(*prefix, Arc::clone(&self.peer));
        }
        self.tables.routes.store(Arc::new(routes));
    }

    /// Carries whatever waits at both ends.
    pub fn carry(&mut self) {
        while self.outbound.burst(&mut ()).expect("memory does not fail") {}
        while self.inbound.burst(&mut ()).expect("memory does not fail") {}
    }

    /// The reasons for which packets were dropped, and how many.
    pub fn dropped(&self) -> Vec<(DropReason, u64)> {
        let counts = DropReason::ALL.iter().map(|&reason| (reason, self.drops.read(reason)));
        counts.filter(|&(_, count)| count > 0).collect()
    }

    /// Takes everything that came out of the tunnel.
    pub fn received(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.delivered.pop()).collect()
    }
}

/// A peer; only a device can name one.
fn new_peer() -> Peer {
    let engine = Arc::new(crypto::engine::aws_lc::AwsLc);
    let mut device = Device::new(engine, Box::new(random::System::default()));
    let (id, activity) = device.add_peer(PublicKey([9; 32]));
    Peer::new(id, Kind::WireGuard(activity), Budget::default())
}

/// A port that loses everything, as a socket or interface does that is down.
pub struct Refusing(pub DropReason);

impl Transmit for Refusing {
    fn transmit(&mut self, batch: &mut packet::Batch, drops: &DropCounters) {
        drops.count(self.0, batch.live(0..batch.len()).count());
    }
}
