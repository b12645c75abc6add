//! The answers of the API about IPsec.

mod algorithms;

pub use algorithms::{Algorithms, Encryption, Group, Integrity, Prf};

use crate::api::words::words;
use serde::{Deserialize, Serialize};

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
    /// The algorithms of the IKE SA, in the words of the configuration.
    pub suite: Option<String>,
    /// The same one by one.
    #[serde(default)]
    pub algorithms: Option<Algorithms>,
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
    /// The algorithms, in the words of the configuration.
    pub suite: String,
    /// The same one by one.
    #[serde(default)]
    pub algorithms: Option<Algorithms>,
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

words! {
    /// Which side starts an IPsec connection, and when.
    #[derive(Default)]
    ConnectionType {
        /// This gateway, at once.
        #[default]
        Initiate = "initiate",
        /// This gateway, on the first matching packet.
        Trap = "trap",
        /// The peer.
        None = "none",
    }

    /// How an IPsec peer authenticates.
    #[derive(Default)]
    AuthenticationMethod {
        /// With a pre-shared secret.
        #[default]
        Secret = "secret",
        /// With an X.509 certificate.
        Certificate = "certificate",
        /// With a raw public key.
        Key = "key",
    }

    /// The state of a pair of SAs.
    #[derive(Default)]
    SaState {
        /// In use.
        #[default]
        Installed = "installed",
        /// The peer has replaced it, and has yet to delete it.
        Rekeyed = "rekeyed",
        /// This gateway is deleting it.
        Deleting = "deleting",
    }

    /// What an SA carries.
    #[derive(Default)]
    SaMode {
        /// Whole packets.
        #[default]
        Tunnel = "tunnel",
        /// What follows the IP header.
        Transport = "transport",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::words::check;

    #[test]
    fn every_state_has_its_json_word() {
        use {ConnectionType as C, SaState as S};
        check(&[(C::Initiate, "initiate"), (C::Trap, "trap"), (C::None, "none")]);
        check(&[
            (AuthenticationMethod::Secret, "secret"),
            (AuthenticationMethod::Certificate, "certificate"),
            (AuthenticationMethod::Key, "key"),
        ]);
        check(&[(S::Installed, "installed"), (S::Rekeyed, "rekeyed"), (S::Deleting, "deleting")]);
        check(&[(SaMode::Tunnel, "tunnel"), (SaMode::Transport, "transport")]);
    }
}
