//! A change to an interface, and a picture of one: the same for the configuration and for `wg`.

use super::callers::Caller;
use crypto::{PublicKey, Secret};
use ipnet::IpNet;
use packet::Endpoint;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tunnel::wireguard::{Reason, Trouble};

/// A change of an interface; everything else stays, sessions included.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Update {
    /// Our private key; zero for none.
    pub private_key: Option<Secret>,
    /// The UDP port; 0 for any.
    pub listen_port: Option<u16>,
    /// The mark on outer packets; 0 for none.
    pub fwmark: Option<u32>,
    /// Whether peers are called as soon as it is known where they are, or only when there is something to send.
    pub eager: Option<bool>,
    /// What the log calls peers.
    pub names: Option<BTreeMap<PublicKey, String>>,
    /// All peers are removed first, with their sessions.
    pub replace_peers: bool,
    /// Changes to peers, in their order.
    pub peers: Vec<PeerUpdate>,
}

/// A change of one peer; it is added if it is not there.
#[derive(Debug, PartialEq, Eq)]
pub struct PeerUpdate {
    /// Which peer.
    pub public: PublicKey,
    /// Remove it.
    pub remove: bool,
    /// Do nothing if it is not there.
    pub update_only: bool,
    /// The key shared beforehand; zero for none.
    pub preshared: Option<Secret>,
    /// Where it is.
    pub endpoint: Option<SocketAddr>,
    /// Where it may be called, the preferred address first. Without them, a new endpoint is the only one.
    pub addresses: Option<Vec<SocketAddr>>,
    /// What its name has been found to be.
    pub found: Option<Found>,
    /// Seconds between keepalives; 0 for none.
    pub persistent_keepalive: Option<u16>,
    /// Prefixes that are not in `allowed_ips` are taken away.
    pub replace_allowed_ips: bool,
    /// Prefixes to give or to take away, in their order.
    pub allowed_ips: Vec<AllowedIpUpdate>,
}

/// The addresses of a peer that is found by name. They change nothing if it has answered meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Those of its name.
    pub addresses: Vec<SocketAddr>,
    /// Its others, called when those do not answer.
    pub others: Vec<SocketAddr>,
    /// Whether its name is another than before: then it is called there even if it answers elsewhere.
    pub is_moved: bool,
}

/// One prefix given or taken away.
#[derive(Debug, PartialEq, Eq)]
pub struct AllowedIpUpdate {
    /// Take it away, if the peer has it.
    pub remove: bool,
    /// The prefix.
    pub prefix: IpNet,
}

impl PeerUpdate {
    /// An update that changes nothing but that the peer is there.
    pub fn new(public: PublicKey) -> Self {
        Self {
            public,
            remove: false,
            update_only: false,
            preshared: None,
            endpoint: None,
            addresses: None,
            found: None,
            persistent_keepalive: None,
            replace_allowed_ips: false,
            allowed_ips: Vec::new(),
        }
    }
}

impl UpdateError {
    /// Another program has this port.
    pub fn port_in_use(port: u16) -> Self {
        Self::PortInUse { port, by: crate::host::occupied::port(port) }
    }
}

/// Why an update was refused; nothing of it was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// Another socket has the port.
    #[error("UDP port {port} is in use{by}")]
    PortInUse {
        /// The port.
        port: u16,
        /// Which program has it, and the fix.
        by: String,
    },
    /// The kernel refused the socket for another reason.
    #[error("UDP port {port} cannot be used: {error}")]
    Socket {
        /// The port.
        port: u16,
        /// What the kernel says.
        error: Errno,
    },
    /// The kernel refused the mark.
    #[error("fwmark {mark} cannot be set: {error}")]
    Fwmark {
        /// The mark.
        mark: u32,
        /// What the kernel says.
        error: Errno,
    },
}

/// An interface at one moment.
#[derive(Debug)]
pub struct Snapshot {
    /// Whether the interface is up.
    pub up: bool,
    /// Our private key.
    pub private_key: Option<Secret>,
    /// Our public key.
    pub public: Option<PublicKey>,
    /// The UDP port; 0 while none was chosen.
    pub listen_port: u16,
    /// The mark on outer packets; 0 for none.
    pub fwmark: u32,
    /// The peers, the first added first.
    pub peers: Vec<PeerSnapshot>,
    /// Callers that are not peers, the latest first.
    pub(crate) callers: Vec<Caller>,
}

/// A peer at one moment.
#[derive(Debug)]
pub struct PeerSnapshot {
    /// Its key.
    pub public: PublicKey,
    /// The key shared beforehand; zero for none.
    pub preshared: Secret,
    /// Where it is.
    pub endpoint: Option<Endpoint>,
    /// Where it may be called, the preferred address first.
    pub addresses: Vec<SocketAddr>,
    /// Why it is called at its endpoint, if it has one.
    pub reason: Option<Reason>,
    /// Time since 1970 of the last finished handshake.
    pub last_handshake: Option<Duration>,
    /// Finished handshakes.
    pub handshakes: u64,
    /// Outside bytes sent and received.
    pub sent_bytes: u64,
    /// See above.
    pub received_bytes: u64,
    /// Outside packets sent and received.
    pub sent_packets: u64,
    /// See above.
    pub received_packets: u64,
    /// Packets for it that the kernel did not take.
    pub unsent_packets: u64,
    /// Seconds between keepalives; 0 for none.
    pub persistent_keepalive: u16,
    /// Whether there is a key to send with.
    pub has_key: bool,
    /// What went wrong since the last finished handshake.
    pub trouble: Trouble,
    /// Why the kernel refused the last handshake message to it, if it did.
    pub refusal: Option<Errno>,
    /// Its prefixes, in order.
    pub allowed_ips: Vec<IpNet>,
}
