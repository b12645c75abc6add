//! A tunnel in memory, for tests and benchmarks: what goes in at one end goes through both directions of the data path and
//! comes out at the other.

use crate::clock::Clock;
use crate::datapath::DataPathEvent;
use crate::datapath::egress::Egress;
use crate::datapath::protocol::{self, PeerState, Protocol, Tunnel};
use crate::datapath::punt::{Datagram, Punt};
use crate::datapath::staging::Budget;
use crate::datapath::tables::{Peer, Session, Tables};
use crate::datapath::worker::{Inbound, Outbound, Shared};
use crossbeam_channel::{Receiver, unbounded};
use crypto::Cipher;
use crypto::engine::{Engine, LoadError};
use crypto::{PublicKey, SecretBytes, random};
use ipnet::IpNet;
use packet::header::esp::UDP_PORT;
use packet::{DropCounters, DropReason, Endpoint};
use port::Transmit;
use port::memory::{InsideLink, Link};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tunnel::esp::{
    self, ChildSa, Half, Mode, Policies, Policy, Processing, Selectors, TrafficSelector, Transform,
};
use tunnel::openvpn::data::{AeadData, DataKey, Header};
use tunnel::openvpn::limits::PORT;
use tunnel::sa::Lifetime;
use tunnel::wireguard::limits::REJECT_AFTER_MESSAGES;
use tunnel::wireguard::{Activity, AllowedIps, Device};
use tunnel::{InboundSa, OutboundSa, PeerId, Protection, Time};

/// How much a worker of the bed carries at once.
const BATCH_BYTES: usize = 512 * 1024;
/// The receiver index or SPI of the only session.
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
    pub datapath_events: Receiver<DataPathEvent>,
    /// Handshake messages.
    pub datagrams: Receiver<Datagram>,
    /// Why packets were dropped.
    pub drops: Arc<DropCounters>,
    /// From `inside` to `outside`.
    pub outbound: Outbound<Link, O, InsideLink>,
    /// From `outside` to `delivered`.
    pub inbound: Inbound<Link, I>,
}

/// What both workers of a bed look up, and the only peer.
pub struct Ends {
    tables: Arc<Tables>,
    peer: Arc<Peer>,
}

impl Ends {
    /// A session of WireGuard.
    pub fn wireguard(engine: &dyn Engine, lifetime: Lifetime) -> Result<Self, LoadError> {
        let tables = Arc::new(Tables::new(Protocol::WireGuard, 1420));
        let key = engine.load(Cipher::ChaCha20Poly1305, &[7; 32])?;
        let (id, activity) = new_peer();
        let peer = Arc::new(Peer::new(id, PeerState::WireGuard(activity), Budget::default()));
        peer.endpoint.store(Some(Endpoint::new(SocketAddr::from(([192, 0, 2, 2], 51_820)))));
        peer.sending.store(Some(Arc::new(OutboundSa::new(Arc::clone(&key), INDEX, lifetime))));
        let sa = Arc::new(InboundSa::new(key, INDEX, lifetime, false));
        tables.install(Session { sa, peer: Arc::clone(&peer), selectors: None, transport: None });
        Ok(Self { tables, peer })
    }

    /// A pair of ESP SAs.
    pub fn esp(
        engine: &dyn Engine,
        child: ChildSa,
        options: &esp::Options,
        tunnel: Tunnel,
    ) -> Result<Self, LoadError> {
        let tables = Arc::new(Tables::new(Protocol::Ipsec, 1400));
        let now = Time::from_nanoseconds(1);
        let (outbound, inbound) = child.load(options, engine, &mut random::System::default(), now)?;
        let peer = Arc::new(Peer::new(PeerId::new(1), PeerState::Ipsec(tunnel), Budget::default()));
        peer.endpoint.store(Some(Endpoint::new(SocketAddr::from(([192, 0, 2, 2], UDP_PORT)))));
        peer.sending.store(Some(Arc::new(outbound)));
        // The peer is its own other side: what goes out comes back.
        let selectors = Selectors::new(&child.remote, &child.local);
        let (sa, peer_of) = (Arc::new(inbound), Arc::clone(&peer));
        tables.install(Session { sa, peer: peer_of, selectors: Some(selectors), transport: None });
        let selectors = Selectors::new(&child.local, &child.remote);
        let processing = Processing::Protect(Arc::clone(&peer));
        tables.policies.store(Arc::new(Policies::new(vec![Policy { selectors, processing }])));
        Ok(Self { tables, peer })
    }
}

impl Ends {
    /// What workers look up, and the only peer.
    pub fn parts(&self) -> (Arc<Tables>, Arc<Peer>) {
        (Arc::clone(&self.tables), Arc::clone(&self.peer))
    }
}

/// The peer ID and the key ID of OpenVPN's data packets.
const OPENVPN: Header = Header::V2 { key_id: 0, peer_id: INDEX };

impl Ends {
    /// A session of OpenVPN with AES-256-GCM, whose endpoint follows authentic packets if `follows`. `fitting`: the outer
    /// packets that TCP segments fit in.
    pub fn openvpn(
        engine: &dyn Engine,
        lifetime: Lifetime,
        follows: bool,
        fitting: Option<usize>,
    ) -> Result<Self, LoadError> {
        Self::openvpn_with(engine, lifetime, protocol::Link::new(Arc::default(), follows, fitting))
    }

    /// The same with any link, such as one on a TCP connection.
    pub fn openvpn_with(
        engine: &dyn Engine,
        lifetime: Lifetime,
        link: protocol::Link,
    ) -> Result<Self, LoadError> {
        let tables = Arc::new(Tables::new(Protocol::OpenVpn, 1500));
        let key = engine.load(Cipher::Aes256Gcm, &[7; 32])?;
        let data = || Protection::OpenVpn(DataKey::Aead(AeadData::new(Arc::clone(&key), [9; 8], OPENVPN)));
        let state = PeerState::OpenVpn(link);
        let peer = Arc::new(Peer::new(PeerId::new(1), state, Budget::default()));
        peer.endpoint.store(Some(Endpoint::new(SocketAddr::from(([192, 0, 2, 2], PORT)))));
        peer.sending.store(Some(Arc::new(OutboundSa::new(data(), OPENVPN.word(), lifetime))));
        let sa = Arc::new(InboundSa::new(data(), OPENVPN.word(), lifetime, false));
        tables.install(Session { sa, peer: Arc::clone(&peer), selectors: None, transport: None });
        Ok(Self { tables, peer })
    }
}

/// A pair of ESP SAs that are each other's other side, for all packets.
pub fn child(transform: Transform, extended_sequence: bool, mode: Mode) -> ChildSa {
    let half = || Half {
        spi: INDEX,
        keys: SecretBytes::new((0..transform.key_material_length()).map(|byte| byte as u8).collect()),
    };
    let all = || {
        let v4 = Ipv4Addr::UNSPECIFIED.into()..=Ipv4Addr::BROADCAST.into();
        let v6 = Ipv6Addr::UNSPECIFIED.into()..=Ipv6Addr::from(u128::MAX).into();
        let any = |addresses| TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses };
        vec![any(v4), any(v6)]
    };
    let (outbound, inbound, local, remote) = (half(), half(), all(), all());
    ChildSa { transform, extended_sequence, mode, outbound, inbound, local, remote }
}

/// A lifetime that does not end.
pub const FOR_EVER: Lifetime = Lifetime {
    renew: None,
    renew_sequence: u64::MAX,
    expires: Time::from_nanoseconds(u64::MAX),
    end_sequence: REJECT_AFTER_MESSAGES,
};

impl Bed {
    /// A bed whose session is sealed by `engine` and lasts for ever.
    pub fn new(engine: &dyn Engine) -> Result<Self, LoadError> {
        Self::with(engine, FOR_EVER, |link| link, InsideLink)
    }

    /// A bed of ESP, which lasts for ever.
    pub fn esp(engine: &dyn Engine, child: ChildSa) -> Result<Self, LoadError> {
        let ends = Ends::esp(engine, child, &esp::Options::default(), Tunnel::default())?;
        Ok(Self::between(ends, |link| link, InsideLink))
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
        Ok(Self::between(Ends::wireguard(engine, lifetime)?, outside_port, inside_port))
    }

    /// A bed between these ends, whose sending ports are made from the links.
    pub fn between(
        ends: Ends,
        outside_port: impl FnOnce(Link) -> O,
        inside_port: impl FnOnce(Link) -> I,
    ) -> Self {
        let Ends { tables, peer } = ends;
        let (sender, datapath_events) = unbounded();
        let shared = Shared { tables: Arc::clone(&tables), datapath_events: sender, clock: Clock };
        let (inside, outside, answers, delivered) = <(Link, Link, Link, Link)>::default();
        let drops = Arc::new(DropCounters::default());
        let egress = Egress::new(shared.clone(), outside_port(outside.clone()), Arc::clone(&drops));
        let outbound =
            Outbound::new(shared.clone(), inside.clone(), InsideLink(answers.clone()), egress, BATCH_BYTES);
        let (punt, datagrams) = Punt::new(tables.protocol);
        let to_inside = inside_port(delivered.clone());
        let inbound = Inbound::new(shared, outside.clone(), to_inside, punt, Arc::clone(&drops), BATCH_BYTES);
        Self {
            inside,
            outside,
            answers,
            delivered,
            peer,
            tables,
            datapath_events,
            datagrams,
            drops,
            outbound,
            inbound,
        }
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

/// A peer's name, and the notes about its traffic; only a device makes them.
fn new_peer() -> (PeerId, Arc<Activity>) {
    let engine = Arc::new(crypto::engine::aws_lc::AwsLc);
    let mut device = Device::new(engine, Box::new(random::System::default()));
    device.add_peer(PublicKey([9; 32]))
}

/// A port that loses everything, as a socket or interface does that is down.
pub struct Refusing(pub DropReason);

impl Transmit for Refusing {
    fn transmit(&mut self, batch: &mut packet::Batch, drops: &DropCounters) {
        let live: Vec<usize> = batch.live(0..batch.len()).collect();
        for index in live {
            batch.drop_packet(index, self.0, drops);
        }
    }
}
