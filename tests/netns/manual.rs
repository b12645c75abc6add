//! An IPsec interface with keys set by hand, for tests without IKE.

use crossbeam_channel::{Receiver, unbounded};
use gateway::clock::Clock;
use gateway::datapath::DataPathEvent;
use gateway::datapath::protocol::Protocol;
use gateway::datapath::punt::Punt;
use gateway::datapath::tables::{Order, Peer, Tables};
use gateway::datapath::worker::Shared;
use gateway::tunnel_interface::{Drops, Options, TunnelInterface};
use port::udp::{Spread, Steering};
use std::sync::Arc;
use tunnel::esp::{Policies, Policy};

/// The UDP port of ESP.
pub const PORT: u16 = 4500;
/// Bytes that ESP adds to a packet, about.
const OVERHEAD: usize = 64;

pub struct Ipsec {
    tunnel: TunnelInterface,
    shared: Shared,
}

impl Ipsec {
    /// Makes an interface in the calling thread's namespace, and the queue of what its workers notice.
    pub fn create(name: &str, raw: bool, mark: u32) -> (Self, Receiver<DataPathEvent>) {
        let mut tunnel = TunnelInterface::create(name, &Options::default()).expect("TUN is there");
        if raw {
            let steering = Steering { sockets: 1, spread: Spread::NotBeginning([0; 4]), byte: 0 };
            tunnel.open_raw(mark, steering).expect("root has raw sockets");
        }
        let mut binding = tunnel.binding();
        binding.set_port(PORT).and_then(|()| binding.set_fwmark(mark)).expect("nothing is bound yet");
        binding.open().expect("the port is free");
        let (datapath_events, noticed) = unbounded();
        let (removed, _) = tokio::sync::mpsc::unbounded_channel();
        let shared =
            Shared { tables: Arc::new(Tables::new(Protocol::Ipsec, 1400)), datapath_events, clock: Clock };
        let (punt, _) = Punt::new(Protocol::Ipsec);
        let tables = Arc::clone(&shared.tables);
        let tell = move |_, mtu| tables.mtu.store(mtu, std::sync::atomic::Ordering::Relaxed);
        tunnel.start(&shared, Options::default(), punt, removed, OVERHEAD, tell).expect("threads start");
        (Self { tunnel, shared }, noticed)
    }

    pub fn tables(&self) -> &Tables {
        &self.shared.tables
    }

    pub fn drops(&self) -> &Drops {
        self.tunnel.drops()
    }

    /// Has sent what waited for the key of a peer.
    pub fn flush(&self, peer: &Arc<Peer>) {
        self.shared.tables.orders.give(peer, Order::Send, &self.tunnel.outbound_wake());
    }

    pub fn set_policies(&self, policies: Vec<Policy<Arc<Peer>>>) {
        self.shared.tables.policies.store(Arc::new(Policies::new(policies)));
    }
}
