//! `vpn ipsec`, typed and checked: what the daemon is to serve, with nothing left to look up.
//!
//! ```text
//! group ── proposals, lifetimes ──┐
//! secret, pki ── who is who ──────┼──> peer ──> overlap: what the peers say of each other
//! identity, algorithm ── names ───┘
//! ```

mod algorithm;
mod group;
mod identity;
mod overlap;
mod peer;
mod pki;
mod preset;
mod second;
mod secret;

pub(crate) use algorithm::is_served;
pub use algorithm::{encryption_by_name, prf_by_name, weakness};
pub use crypto::exchange::Group;
pub use crypto::pki::Revocation;
pub use crypto::prf::Prf;
pub use identity::Identity;
pub(super) use preset::{esp as esp_with_preset, ike as ike_with_preset};
pub use tunnel::esp::Mode;
pub use tunnel::ikev2::proposal::Encryption;
pub use tunnel::ikev2::{Patience, Start};

use super::{Processors, Reader, Threads, branches, parsed, set, set_or_default};
use crate::schema::hundredths;
use crate::tree::Tree;
use crypto::SecretBytes;
use crypto::cipher::Integrity;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The interface for the packets of all IPsec peers.
pub const INTERFACE: &str = "ipsec0";
/// The MTU of a tunnel that sets none: what fits into 1500 bytes in any outer header and with any cipher, but for the longest tags.
pub const MTU: u16 = 1400;

/// IPsec, site to site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpSec {
    /// Whether routes to the networks behind peers are left to others.
    pub disable_route_autoinstall: bool,
    /// Networks that are reached in clear, although a tunnel leads to a wider one.
    pub passthrough: BTreeSet<IpNet>,
    /// How often and when a request is sent again.
    pub retransmission: Patience,
    /// Threads that encrypt and decrypt.
    pub threads: Threads,
    /// Threads that receive from outside.
    pub receive_threads: Threads,
    /// Processors that the threads stay on, if there are any.
    pub processors: Processors,
    /// Peers that are not disabled, by name.
    pub peers: BTreeMap<String, Arc<Peer>>,
}

/// A peer.
#[derive(Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who it is.
    pub description: Option<String>,
    /// Our address; any if not set.
    pub local_address: Option<IpAddr>,
    /// Where it is, to be tried in this order; if empty, it calls us from anywhere.
    pub remote_addresses: Vec<Remote>,
    /// Who we are. If not set, our address, or with a certificate its subject.
    pub local_id: Option<Identity>,
    /// Who it must be; anyone if not set.
    pub remote_id: Option<Identity>,
    /// How both sides prove that.
    pub authentication: Authentication,
    /// The second round of authentication of both sides, if there is one.
    pub second: Option<Second>,
    /// The name of its `psk`, if its secret has one.
    pub psk: Option<String>,
    /// The name of its `ike-group`.
    pub ike_group: String,
    /// What that says.
    pub ike: Arc<Ike>,
    /// Whether both sides reauthenticate instead of only rekeying the IKE SA.
    pub reauthenticate: bool,
    /// Which side initiates the connection.
    pub start: Start,
    /// Whether ESP goes in UDP even where there is no NAT, if the peer knows of NAT: datagrams have the kernel's segmentation,
    /// which ESP as a protocol of its own has not.
    pub prefers_udp: bool,
    /// Packets that may arrive late; 0 for no check; if not set, as many as suit the data path.
    pub replay_window: Option<u32>,
    /// Tunnels that are not disabled, by number. Boxed, as a map has room for eleven and most peers have one.
    pub tunnels: BTreeMap<u32, Box<Tunnel>>,
}

/// A second round of authentication, by a secret that both have (RFC 4739).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Second {
    /// Our identity in this round.
    pub local_id: Identity,
    /// The peer's.
    pub remote_id: Identity,
    /// The name of the `psk`.
    pub psk: String,
    /// Its secret.
    pub secret: SecretBytes,
}

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remote {
    /// At an address.
    Address(IpAddr),
    /// Where this domain name leads.
    Name(String),
}

/// How both sides prove who they are.
#[derive(Debug, PartialEq, Eq)]
pub enum Authentication {
    /// By a secret that both have.
    PreSharedSecret(SecretBytes),
    /// By certificates.
    X509(X509),
    /// By keys without certificates.
    Rsa(Rsa),
}

/// A certificate, its key, and who may have signed the peer's.
#[derive(Debug, PartialEq, Eq)]
pub struct X509 {
    /// The name of ours in the configuration.
    pub name: String,
    /// Ours, in DER.
    pub certificate: Vec<u8>,
    /// Its key, in DER: PKCS#8, PKCS#1 or SEC 1.
    pub private_key: SecretBytes,
    /// Who may have signed the peer's; also the certificates between ours and its root.
    pub authorities: Vec<Authority>,
    /// Whether RSA signatures with SHA-1 are made where the peer knows nothing better, and taken.
    pub accept_sha1: bool,
    /// What must be known about the revocation of the peer's certificate.
    pub revocation: Revocation,
}

/// Our key, and the public one of the peer.
#[derive(Debug, PartialEq, Eq)]
pub struct Rsa {
    /// The name of our key pair in the configuration.
    pub local_key: String,
    /// Our private key, in DER: PKCS#8, PKCS#1 or SEC 1.
    pub private_key: SecretBytes,
    /// The name of the peer's key pair in the configuration.
    pub remote_key: String,
    /// The peer's public key, in DER: a SubjectPublicKeyInfo.
    pub public_key: Vec<u8>,
}

/// Who signs certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Its name in the configuration.
    pub name: String,
    /// Its certificate, in DER.
    pub certificate: Vec<u8>,
    /// Its lists of revoked certificates, in DER.
    pub revocation_lists: Vec<Vec<u8>>,
    /// Files with such lists, which are read again when they change.
    pub revocation_files: Vec<String>,
}

/// An `ike-group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ike {
    /// What is offered and accepted, the best first; never empty.
    pub proposals: Vec<IkeProposal>,
    /// When the keys are replaced; never if not set.
    pub lifetime_seconds: Option<u32>,
    /// How a dead peer is noticed; not if not set.
    pub dead_peer_detection: Option<DeadPeerDetection>,
    /// What is done when the peer ends a tunnel.
    pub close_action: Action,
    /// Whether both sides reauthenticate instead of only rekeying the IKE SA; see [`Peer::reauthenticate`].
    pub reauthenticate: bool,
}

/// A proposal for IKE: one cipher, with what may go with it, the best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeProposal {
    /// Its number in the configuration; 0 if it is one of ours, for a group that has none.
    pub number: u16,
    /// The cipher.
    pub encryption: Encryption,
    /// MACs; empty if the cipher authenticates.
    pub integrity: Vec<Integrity>,
    /// Pseudorandom functions.
    pub prfs: Vec<Prf>,
    /// Diffie-Hellman groups.
    pub groups: Vec<Group>,
}

/// How a dead peer is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadPeerDetection {
    /// What is done then.
    pub action: Action,
    /// Silence after which it is asked.
    pub interval_seconds: u32,
    /// Time without an answer after which it is dead.
    pub timeout_seconds: u32,
}

/// What is done with a tunnel that ended without our doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Clear,
    /// It is set up again for the next packet that matches.
    Trap,
    /// It is set up again at once.
    Restart,
}

/// An `esp-group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Esp {
    /// What is offered and accepted, the best first; never empty.
    pub proposals: Vec<EspProposal>,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// Whether new keys come of a new Diffie-Hellman exchange.
    pub pfs: Pfs,
    /// When an SA is replaced.
    pub lifetime_seconds: u32,
    /// After how many bytes, if that is limited.
    pub life_bytes: Option<u64>,
    /// After how many packets, if that is limited.
    pub life_packets: Option<u64>,
    /// Whether it is replaced at all, or only ends.
    pub rekey: bool,
    /// Whether sequence numbers of 64 bits are offered, before those of 32.
    pub extended_sequence: bool,
}

impl Esp {
    /// The Diffie-Hellman groups for new keys, the best first; none without perfect forward secrecy.
    pub fn groups<'a>(&'a self, ike: &'a Ike) -> &'a [Group] {
        match &self.pfs {
            Pfs::Off => &[],
            Pfs::AsIke => ike.proposals.first().map_or(&[], |proposal| &proposal.groups),
            Pfs::Group(group) => std::slice::from_ref(group),
        }
    }
}

/// A proposal for ESP: one cipher, with what may go with it, the best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EspProposal {
    /// Its number in the configuration; 0 if it is one of ours, for a group that has none.
    pub number: u16,
    /// The cipher.
    pub encryption: Encryption,
    /// MACs; empty if the cipher authenticates.
    pub integrity: Vec<Integrity>,
}

/// Perfect forward secrecy: whether new keys come of a new Diffie-Hellman exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pfs {
    /// They come of the keys of IKE.
    Off,
    /// With the groups of the first proposal for IKE.
    AsIke,
    /// With this group.
    Group(Group),
}

/// A tunnel: which packets go to the peer, and how.
#[derive(Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The name of its `esp-group`.
    pub esp_group: String,
    /// What that says.
    pub esp: Arc<Esp>,
    /// The only IP protocol; any if not set.
    pub protocol: Option<u8>,
    /// What is on our side.
    pub local: Traffic,
    /// What is on the other side.
    pub remote: Traffic,
    /// Which of several tunnels for the same traffic is taken: the lowest first, those without one last.
    pub priority: Option<u8>,
    /// Largest packet inside; what fits the way if not set.
    pub mtu: Option<u16>,
}

impl Tunnel {
    /// The networks of our side that are part of the other side too, as with a remote prefix of 0.0.0.0/0: as in VyOS, what
    /// goes from them to themselves stays out of the tunnel.
    pub fn passed_by(&self) -> Vec<IpNet> {
        let meet = |ours: &IpNet| {
            self.remote.prefixes.iter().any(|theirs| theirs.contains(ours) || ours.contains(theirs))
        };
        self.local.prefixes.iter().copied().filter(meet).collect()
    }
}

/// One side of a tunnel's traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Its networks; only the gateway's own address if empty.
    pub prefixes: Vec<IpNet>,
    /// Its port; any if not set.
    pub port: Option<u16>,
}

/// What peers refer to.
struct Named<'a> {
    root: &'a Tree,
    /// Groups by name; `None` for those of which something is wrong, which has been said.
    ike: BTreeMap<&'a str, Option<Arc<Ike>>>,
    esp: BTreeMap<&'a str, Option<Arc<Esp>>>,
    secrets: secret::Secrets,
}

impl Reader {
    pub(super) fn ipsec(&mut self, root: &Tree) -> IpSec {
        let Some(tree) = root.at(&["vpn", "ipsec"]) else { return IpSec::default() };
        let named = Named {
            root,
            ike: branches(tree, &["ike-group"]).map(|(name, it)| (name, self.ike_group(name, it))).collect(),
            esp: branches(tree, &["esp-group"]).map(|(name, it)| (name, self.esp_group(name, it))).collect(),
            secrets: self.secrets(tree),
        };
        let peers: BTreeMap<String, Arc<Peer>> = branches(tree, &["site-to-site", "peer"])
            .filter(|(_, peer)| !peer.has("disable"))
            .filter_map(|(name, peer)| {
                Some((name.to_owned(), Arc::new(self.ipsec_peer(&named, name, peer)?)))
            })
            .collect();
        self.check_peers(tree, &peers);
        self.check_overlaps(tree, &peers);
        let passthrough = self.passthrough(tree, &peers);
        IpSec {
            passthrough,
            disable_route_autoinstall: tree.at(&["options", "disable-route-autoinstall"]).is_some(),
            retransmission: retransmission(tree),
            threads: set_or_default(tree, "vpn ipsec", "threads"),
            receive_threads: set_or_default(tree, "vpn ipsec", "receive-threads"),
            processors: set(tree, "processors").unwrap_or_default(),
            peers,
        }
    }
}

impl Reader {
    /// Networks that are reached in clear. One that a tunnel leads to cannot be both.
    fn passthrough(&mut self, tree: &Tree, peers: &BTreeMap<String, Arc<Peer>>) -> BTreeSet<IpNet> {
        let given: Vec<IpNet> = parsed(tree.values("passthrough"));
        for (name, peer) in peers {
            for (number, tunnel) in &peer.tunnels {
                let is_given = |prefix: &&IpNet| given.iter().any(|given| given.trunc() == prefix.trunc());
                let Some(prefix) = tunnel.remote.prefixes.iter().find(is_given) else { continue };
                self.error(
                    tree.location_of("passthrough"),
                    format!("passthrough {prefix} is also a remote prefix of tunnel {number} of peer {name}"),
                    format!("delete vpn ipsec passthrough {prefix}"),
                );
            }
        }
        given.iter().map(IpNet::trunc).collect()
    }
}

fn retransmission(tree: &Tree) -> Patience {
    let empty = Tree::default();
    let tree = tree.at(&["options", "retransmission"]).unwrap_or(&empty);
    let path = "vpn ipsec options retransmission";
    let base: String = set_or_default(tree, path, "base");
    Patience {
        attempts: set_or_default(tree, path, "attempts"),
        base_percent: hundredths(&base).expect("the schema has checked it"),
        first: Duration::from_secs(set_or_default(tree, path, "timeout")),
    }
}
