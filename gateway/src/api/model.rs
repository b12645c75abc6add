//! What the API says, as `postern show` reads it and prints it with `--json`.

mod state;

pub use state::{
    AuthenticationMethod, ConnectionType, CryptoDirection, OffloadState, PeerState, ReloadOutcome, SaMode,
    SaState,
};

use serde::{Deserialize, Serialize};

/// Why a request was refused: what comes with every status that is an error.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Problem {
    /// What is wrong.
    pub error: String,
    /// What to do.
    pub fix: Option<String>,
}

/// Something that works, and not as it should.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Advice {
    /// What.
    pub what: String,
    /// What to type.
    pub fix: String,
}

/// `GET /v1/status`
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// Seconds since 1970 of its start.
    pub started: u64,
    /// What it serves; none for an interface that `wg` configures.
    pub configuration: Option<Configuration>,
    /// What of the configuration is not in force.
    pub refused: Vec<Refused>,
    /// What does not work as it should.
    pub warnings: Vec<Advice>,
}

/// The configuration file of a daemon.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Configuration {
    /// Where it is.
    pub file: String,
    /// Seconds since 1970.
    pub in_force_since: u64,
    /// What became of reading it again, if it was.
    pub last_reload: Option<Reloaded>,
}

/// A part of the configuration that is not in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Refused {
    /// Which part.
    pub place: String,
    /// Why.
    pub why: String,
    /// Whether it is tried again.
    pub is_temporary: bool,
}

/// `POST /v1/reload`: what became of reading the configuration again.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Reloaded {
    /// Seconds since 1970.
    pub at: u64,
    /// How much of it is in force.
    pub outcome: ReloadOutcome,
    /// What has changed in the file, a line each, without secrets.
    pub changes: Vec<String>,
    /// What is wrong.
    pub errors: Vec<String>,
}

/// `GET /v1/interfaces/wireguard`
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Interfaces {
    /// All interfaces of a daemon.
    pub interfaces: Vec<Interface>,
}

/// A WireGuard interface.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What the configuration says it is for.
    pub description: Option<String>,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Whether it is up.
    pub up: bool,
    /// Its MTU.
    pub mtu: usize,
    /// Our public key, in base64.
    pub public_key: Option<String>,
    /// The UDP port; 0 while none was chosen.
    pub listen_port: u16,
    /// The mark on outer packets; 0 for none.
    pub fwmark: u32,
    /// The peers.
    pub peers: Vec<Peer>,
}

/// A peer.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Peer {
    /// Its name in the configuration.
    pub name: Option<String>,
    /// What the configuration says who it is.
    #[serde(default)]
    pub description: Option<String>,
    /// Its key, in base64.
    pub public_key: String,
    /// Whether a key is shared beforehand.
    pub has_preshared_key: bool,
    /// Where it is.
    pub endpoint: Option<String>,
    /// Its prefixes.
    pub allowed_ips: Vec<String>,
    /// Seconds since 1970 of the last handshake.
    pub latest_handshake: Option<u64>,
    /// Whether a handshake was finished in the last five minutes.
    pub active: bool,
    /// Outside bytes received.
    pub received_bytes: u64,
    /// Outside bytes sent.
    pub sent_bytes: u64,
    /// Packets for it that were dropped as `peer-congested` or `send-failed`.
    #[serde(default)]
    pub unsent_packets: u64,
    /// Seconds between keepalives; 0 for none.
    pub persistent_keepalive: u16,
}

/// `GET /v1/interfaces/wireguard/NAME/explain`
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Explanations {
    /// The interface, if the daemon has it.
    pub interfaces: Vec<Explanation>,
}

/// Why the peers of a WireGuard interface are up or not.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Explanation {
    /// The interface.
    pub interface: String,
    /// Our public key, in base64.
    pub public_key: Option<String>,
    /// The peers.
    pub peers: Vec<Explained>,
    /// Callers that are not peers; nothing in their messages is authenticated.
    pub callers: Vec<Caller>,
}

/// Why a WireGuard peer is up or not.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Explained {
    /// Its name in the configuration.
    pub name: Option<String>,
    /// Its key, in base64.
    pub public_key: String,
    /// Where it is.
    pub endpoint: Option<String>,
    /// Its prefixes.
    pub allowed_ips: Vec<String>,
    /// Whether a key is shared beforehand.
    pub has_preshared_key: bool,
    /// Whether it is up.
    pub state: PeerState,
    /// What was found, the most important first.
    pub findings: Vec<Finding>,
}

/// Something to know about a peer, and what mends it.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Finding {
    /// What is so.
    pub what: String,
    /// What to type or to see to; nothing if all is well.
    pub fix: Vec<String>,
}

/// A caller of a WireGuard interface that is no peer.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Caller {
    /// The public key that it names, in base64; none if it calls another public key than ours.
    pub public_key: Option<String>,
    /// Where its last message came from.
    pub address: String,
    /// Its messages.
    pub count: u64,
    /// Seconds since 1970 of the last one.
    pub latest: u64,
}

/// `GET /v1/drops`
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Drops {
    /// Every reason of every interface.
    pub drops: Vec<Drop>,
}

/// How many packets an interface dropped for one reason.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Drop {
    /// The interface.
    pub interface: String,
    /// The reason's name.
    pub reason: String,
    /// What it means.
    pub meaning: String,
    /// Packets from inside.
    pub outbound: u64,
    /// Packets from outside.
    pub inbound: u64,
    /// Handshake messages, and packets that waited for one.
    pub handshake: u64,
}

/// `GET /v1/offloads`
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Offloads {
    /// Every offload of every interface.
    pub offloads: Vec<Offload>,
}

/// An offload of an interface.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Offload {
    /// The interface.
    pub interface: String,
    /// The offload's name.
    pub offload: String,
    /// What it does.
    pub does: String,
    /// Whether it is in use, and if not, why.
    pub state: OffloadState,
    /// Calls that carried more than one packet.
    pub calls: u64,
    /// Packets in them.
    pub packets: u64,
    /// Calls that the kernel refused and that were done again without it.
    pub fallbacks: u64,
}

/// `GET /v1/crypto`
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Crypto {
    /// The engines that this program knows.
    pub engines: Vec<CryptoEngine>,
    /// The ciphers that were measured.
    pub ciphers: Vec<CryptoCipher>,
    /// What happened to engines, the oldest first.
    pub events: Vec<CryptoEvent>,
}

/// A crypto engine.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct CryptoEngine {
    /// Its name.
    pub name: String,
    /// The version of its library, if it is here.
    pub version: Option<String>,
    /// Whether it is used, and if not, why.
    pub state: String,
    /// Whether it is reached over a bus.
    pub accelerator: bool,
    /// How often it has failed.
    pub failures: u64,
}

/// The choice for one cipher.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct CryptoCipher {
    /// Its name.
    pub name: String,
    /// The engine that the configuration wants for it.
    pub pinned: Option<String>,
    /// Why that one is not used all the same.
    #[serde(default)]
    pub pin_refused: Option<String>,
    /// The engines that are not used for it.
    #[serde(default)]
    pub unused: Vec<CryptoUnused>,
    /// Whether it was measured by who asked, since the daemon does not use it.
    #[serde(default)]
    pub measured_here: bool,
    /// The choice for each direction, burst and size.
    pub places: Vec<CryptoPlace>,
}

/// An engine that is not used for a cipher.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct CryptoUnused {
    /// Its name.
    pub engine: String,
    /// Why.
    pub why: String,
}

/// The choice for one direction, burst and size.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct CryptoPlace {
    /// Encryption or decryption.
    pub direction: CryptoDirection,
    /// Packets in one call.
    pub burst: usize,
    /// Bytes of text in a packet.
    pub size: usize,
    /// The engine that is used.
    pub chosen: String,
    /// What each engine costs, the fastest first.
    pub costs: Vec<CryptoCost>,
}

/// What an engine costs.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct CryptoCost {
    /// Its name.
    pub engine: String,
    /// ns a packet.
    pub ns: f64,
}

/// Something that happened to an engine.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct CryptoEvent {
    /// Seconds since 1970.
    pub at: u64,
    /// To which.
    pub engine: String,
    /// What.
    pub what: String,
}

/// `GET /v1/vpn/ipsec`
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Ipsec {
    /// Every configured peer, and peers that are connected and configured no more.
    pub peers: Vec<IpsecPeer>,
}

/// An IPsec peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct IpsecPeer {
    /// Its name.
    pub name: String,
    /// Whether an IKE SA is there.
    pub up: bool,
    /// Our address, if it is known.
    pub local_address: Option<String>,
    /// Its address, if it is known.
    pub remote_address: Option<String>,
    /// Who we say we are.
    pub local_id: String,
    /// Who it says it is; who it must be, while it is not connected.
    pub remote_id: Option<String>,
    /// The algorithms of the IKE SA.
    pub suite: Option<String>,
    /// Seconds since the sides have authenticated.
    pub uptime: Option<u64>,
    /// Seconds that the keys of an IKE SA may be used; none if that is not limited.
    pub lifetime: Option<u64>,
    /// How it authenticates.
    #[serde(default)]
    pub authentication: AuthenticationMethod,
    /// Where its secret stands in the configuration, if it has one.
    #[serde(default)]
    pub secret_at: Option<String>,
    /// What we offer and accept for IKE, the best first.
    pub proposals: Vec<String>,
    /// Which side starts it.
    pub connection_type: ConnectionType,
    /// The IKE SA, if there is one.
    pub ike: Option<IpsecIke>,
    /// Its tunnels.
    pub tunnels: Vec<IpsecTunnel>,
    /// Seconds since it was last heard, if it was asked something since then, more than once, and has not answered.
    #[serde(default)]
    pub silent: Option<u64>,
    /// Where its packets come from, if that is not where packets for it are sent.
    #[serde(default)]
    pub sends_from: Option<String>,
    /// What went wrong last.
    pub failure: Option<IpsecFailure>,
}

/// The IKE SA with a peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct IpsecIke {
    /// Counts the sessions since the start.
    pub number: u64,
    /// Whether we began.
    pub initiated: bool,
    /// The SPI of who began, in hexadecimal.
    pub spi_initiator: String,
    /// The SPI of the other side.
    pub spi_responder: String,
    /// Our address and port.
    pub local: String,
    /// The peer's.
    pub remote: String,
    /// Whether a NAT is on the way, or one side says so for the sake of ESP in UDP.
    pub nat: bool,
    /// Seconds until we replace its keys.
    pub rekeying_in: Option<u64>,
    /// Seconds until it ends if nobody does; none if it is to last.
    pub expires_in: Option<u64>,
    /// Key exchanges that the peer asked for and were put off, because they were too many.
    #[serde(default)]
    pub refused_exchanges: u64,
}

/// A tunnel to an IPsec peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct IpsecTunnel {
    /// Its name: the peer's with its number.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// What its SAs carry.
    pub mode: SaMode,
    /// Whether ESP travels in UDP.
    pub in_udp: bool,
    /// What we offer and accept for ESP, the best first.
    pub proposals: Vec<String>,
    /// The packets of our side.
    pub local: Vec<String>,
    /// The packets of the other side.
    pub remote: Vec<String>,
    /// Bytes of ESP received and sent, by all SAs so far.
    pub received_bytes: u64,
    /// See above.
    pub sent_bytes: u64,
    /// Packets received and sent.
    pub received_packets: u64,
    /// See above.
    pub sent_packets: u64,
    /// Packets that were dropped as `peer-congested` or `send-failed`.
    #[serde(default)]
    pub unsent_packets: u64,
    /// The pairs of SAs, the newest last; none if it is down.
    pub sas: Vec<IpsecSa>,
}

/// A pair of SAs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct IpsecSa {
    /// The SPI of what we receive.
    pub spi_in: u32,
    /// The SPI of what we send.
    pub spi_out: u32,
    /// The algorithms.
    pub suite: String,
    /// Whether it is in use or about to be deleted.
    #[serde(default)]
    pub state: SaState,
    /// The packets of our side that it is for.
    #[serde(default)]
    pub local: Vec<String>,
    /// The packets of the other side.
    #[serde(default)]
    pub remote: Vec<String>,
    /// Seconds since they are there.
    pub uptime: u64,
    /// Whether we send with it.
    pub sending: bool,
    /// Seconds until we replace it.
    pub rekeying_in: Option<u64>,
    /// Seconds until it ends if nobody does.
    pub expires_in: Option<u64>,
}

/// What went wrong with an IPsec peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct IpsecFailure {
    /// Seconds since 1970.
    pub at: u64,
    /// In one line.
    pub what: String,
    /// What each side wants, a line each.
    pub details: Vec<String>,
    /// What to do, a line each.
    pub fix: Vec<String>,
}

/// `POST /v1/vpn/ipsec/reset`; the answer is whether there is such a peer and tunnel.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Reset {
    /// With whom to begin anew.
    pub peer: String,
    /// Only this tunnel.
    pub tunnel: Option<u32>,
}
