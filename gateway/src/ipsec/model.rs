//! The answers of the API about IPsec.

mod algorithms;

pub use algorithms::{Algorithms, Encryption, Group, Integrity, Prf};

use crate::api::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/vpn/ipsec`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Ipsec {
    /// Every configured peer, and connected peers that are no longer configured.
    pub peers: Vec<IpsecPeer>,
    /// Whether the daemon serves no IPsec, whatever is configured: `postern wireguard`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_absent: bool,
}

/// An IPsec peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct IpsecPeer {
    /// Its name; that of an instance is the name of its profile, `/` and its identity.
    pub name: String,
    /// The configured peer that it is an instance of: a profile, which serves all that authenticate.
    #[serde(default)]
    pub instance_of: Option<String>,
    /// The number of its instances, if it is a profile. It has no IKE SA of its own.
    #[serde(default)]
    pub instances: Option<usize>,
    /// Whether there is an IKE SA.
    pub up: bool,
    /// Our address, if it is known.
    pub local_address: Option<String>,
    /// Its address, if it is known.
    pub remote_address: Option<String>,
    /// Our identity.
    pub local_id: String,
    /// The identity of the peer; while it is not connected, the configured one.
    pub remote_id: Option<String>,
    /// The algorithms of the IKE SA, in the words of the configuration.
    pub suite: Option<String>,
    /// The same one by one.
    #[serde(default)]
    pub algorithms: Option<Algorithms>,
    /// Seconds since both sides have authenticated.
    pub uptime: Option<u64>,
    /// Lifetime of an IKE SA in seconds; none if it is unlimited.
    pub lifetime: Option<u64>,
    /// Its authentication method.
    #[serde(default)]
    pub authentication: AuthenticationMethod,
    /// The path of its secret in the configuration, if it has one.
    #[serde(default)]
    pub secret_at: Option<String>,
    /// Our IKE proposals, in order of preference.
    pub proposals: Vec<String>,
    /// Which side starts it.
    pub connection_type: ConnectionType,
    /// The IKE SA, if there is one.
    pub ike: Option<IpsecIke>,
    /// Its tunnels.
    pub tunnels: Vec<IpsecTunnel>,
    /// Seconds since its last packet, if requests were retransmitted since then and are unanswered.
    #[serde(default)]
    pub silent: Option<u64>,
    /// The source address of its packets, if it differs from the address to which we send.
    #[serde(default)]
    pub sends_from: Option<String>,
    /// Its last failure.
    pub failure: Option<IpsecFailure>,
    /// While it is not connected: the last call from an address for which no peer is configured, which may be its own.
    #[serde(default)]
    pub unknown_caller: Option<IpsecFailure>,
}

impl IpsecPeer {
    /// Whether it is a profile whose instances stand for it.
    pub fn has_instances(&self) -> bool {
        self.instances.is_some_and(|count| count > 0)
    }
}

/// The IKE SA with a peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct IpsecIke {
    /// Number of the session since the start.
    pub number: u64,
    /// Whether we are the initiator.
    pub initiated: bool,
    /// The SPI of the initiator, in hexadecimal.
    pub spi_initiator: String,
    /// The SPI of the responder.
    pub spi_responder: String,
    /// Our address and port.
    pub local: String,
    /// The peer's.
    pub remote: String,
    /// Whether this gateway is behind a NAT.
    pub nat: bool,
    /// Seconds until its rekeying.
    pub rekeying_in: Option<u64>,
    /// Seconds until it expires without rekeying; none if its lifetime is unlimited.
    pub expires_in: Option<u64>,
    /// Key exchanges of the peer that the rate limit refused.
    #[serde(default)]
    pub refused_exchanges: u64,
}

/// A tunnel to an IPsec peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct IpsecTunnel {
    /// Its name: the peer's with its number.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// What its SAs carry.
    pub mode: SaMode,
    /// Whether ESP travels in UDP.
    pub in_udp: bool,
    /// Our ESP proposals, in order of preference.
    pub proposals: Vec<String>,
    /// The local traffic selectors.
    pub local: Vec<String>,
    /// The remote traffic selectors.
    pub remote: Vec<String>,
    /// Bytes of ESP received, by all SAs so far.
    pub received_bytes: u64,
    /// Bytes of ESP sent, by all SAs so far.
    pub sent_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that were dropped as `peer-congested` or `send-failed`.
    #[serde(default)]
    pub unsent_packets: u64,
    /// The pairs of SAs, the newest last; none if it is down.
    pub sas: Vec<IpsecSa>,
}

/// A pair of SAs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct IpsecSa {
    /// The inbound SPI.
    pub spi_in: u32,
    /// The outbound SPI.
    pub spi_out: u32,
    /// The algorithms, in the words of the configuration.
    pub suite: String,
    /// The same one by one.
    #[serde(default)]
    pub algorithms: Option<Algorithms>,
    /// Whether it is in use or about to be deleted.
    #[serde(default)]
    pub state: SaState,
    /// The local traffic selectors.
    #[serde(default)]
    pub local: Vec<String>,
    /// The remote traffic selectors.
    #[serde(default)]
    pub remote: Vec<String>,
    /// Seconds since the installation.
    pub uptime: u64,
    /// Whether it is used for sending.
    pub sending: bool,
    /// Seconds until its rekeying.
    pub rekeying_in: Option<u64>,
    /// Seconds until it expires without rekeying.
    pub expires_in: Option<u64>,
}

/// The failure of an IPsec peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct IpsecFailure {
    /// Seconds since 1970.
    pub at: u64,
    /// The failure, in one line.
    pub what: String,
    /// Details, such as what each side accepts, a line each.
    pub details: Vec<String>,
    /// What to do, a line each.
    pub fix: Vec<String>,
}

/// `POST /v1/vpn/ipsec/reset`; the answer is whether there is such a peer and tunnel.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Reset {
    /// The peer whose tunnels are re-established.
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
        /// The peer has replaced it, and will delete it.
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
