//! The configuration of a connection to another gateway.

use super::identity::Identity;
use super::proposal::{EspOffer, IkeOffer};
use crate::esp::{Mode, TrafficSelector};
use crypto::SecretBytes;
use crypto::pki::{Certificate, TrustStore};
use crypto::signature::{SigningKey, VerifyingKey};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A connection to another gateway.
#[derive(Clone)]
pub struct Connection {
    /// Its name in reports.
    pub name: String,
    /// The local address; with `None` it is chosen from the route at each initiation.
    pub local: Option<IpAddr>,
    /// The remote address; with `None` any, and only the peer can initiate.
    pub remote: Option<IpAddr>,
    /// The local identity.
    pub local_identity: Identity,
    /// The identity that the peer must have; `None` accepts any authenticated peer.
    pub remote_identity: Option<Identity>,
    /// How both sides authenticate.
    pub authentication: Authentication,
    /// The rounds of authentication that follow, in this order (RFC 4739).
    pub further: Vec<FurtherRound>,
    /// The proposals for the IKE SA, in order of preference.
    pub ike: Vec<IkeOffer>,
    /// The Child SAs.
    pub children: Vec<Child>,
    /// The lifetime of the IKE SA: it is rekeyed before the end and deleted at the end.
    pub lifetime: Duration,
    /// Whether the IKE SA is reauthenticated in a new session instead of rekeyed. The initiator of the old session
    /// initiates the new one.
    pub reauthenticate: bool,
    /// How a dead peer is detected on an idle connection.
    pub dead_peer_detection: Option<DeadPeerDetection>,
    /// The side that initiates.
    pub start: Start,
    /// The action when the peer is dead or closes the connection.
    pub when_lost: WhenLost,
    /// Whether ESP is encapsulated in UDP even without a NAT, if the peer supports NAT traversal. A change does not
    /// affect an existing session.
    pub force_encapsulation: bool,
}

/// A round of authentication of both sides that follows another one (RFC 4739).
#[derive(Clone)]
pub struct FurtherRound {
    /// The local identity.
    pub local_identity: Identity,
    /// The identity that the peer must have in this round; `None` accepts any.
    pub remote_identity: Option<Identity>,
    /// How both sides authenticate.
    pub authentication: Authentication,
}

/// A round of authentication: the first one of a connection, or a further one.
#[derive(Clone, Copy)]
pub(super) struct Round<'a> {
    pub(super) local: &'a Identity,
    pub(super) remote: Option<&'a Identity>,
    pub(super) authentication: &'a Authentication,
}

/// The retransmission timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The time until an unanswered request is first sent again.
    pub first: Duration,
    /// The length of each wait, as a percentage of the one before.
    pub base_percent: u32,
    /// The number of retransmissions before the peer is considered dead.
    pub attempts: u32,
}

/// A request times out after 136 seconds.
impl Default for Patience {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), base_percent: 180, attempts: 7 }
    }
}

impl Patience {
    const LONGEST: Duration = Duration::from_secs(86_400);

    /// The wait that follows `wait`.
    pub(super) fn after(&self, wait: Duration) -> Duration {
        (wait.saturating_mul(self.base_percent) / 100).min(Self::LONGEST)
    }
}

/// Dead peer detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadPeerDetection {
    /// A liveness check is sent after this time without packets from the peer.
    pub interval: Duration,
    /// The peer is dead after this time without packets, once at least two checks were sent.
    pub timeout: Duration,
}

/// How both sides authenticate.
#[derive(Clone)]
pub enum Authentication {
    /// A pre-shared key.
    SharedKey(SecretBytes),
    /// Certificates that lead to a trusted authority.
    Certificate(Arc<Credentials>),
    /// Raw public keys: each side is configured with the public key of the other.
    RawKeys(Arc<RawKeys>),
}

impl Authentication {
    /// Whether it takes signatures, which are slow, and not only MACs.
    pub(super) fn takes_long(&self) -> bool {
        !matches!(self, Self::SharedKey(_))
    }
}

/// Our key and certificates, and the trusted authorities.
pub struct Credentials {
    /// The key of the first certificate.
    pub key: SigningKey,
    /// Our certificate, and those that lead from it to an authority: see [`chain`](crypto::pki::chain).
    pub certificates: Vec<Certificate>,
    /// The trusted authorities.
    pub trust: TrustStore,
    /// Whether RSA signatures with SHA-1 (method 1 of RFC 7296) are accepted, and made for a peer without RFC 7427.
    pub accept_sha1: bool,
}

/// Our private key and the public key of the peer. SHA-1 is not accepted.
pub struct RawKeys {
    /// Our key.
    pub own: SigningKey,
    /// The public key of the peer.
    pub peer: VerifyingKey,
}

/// A Child SA: its traffic selectors and its proposals.
#[derive(Clone)]
pub struct Child {
    /// Its name in reports.
    pub name: String,
    /// The proposals, in order of preference.
    pub esp: Vec<EspOffer>,
    /// The local traffic selectors; if empty, the local address.
    pub local: Vec<TrafficSelector>,
    /// The remote traffic selectors; if empty, the remote address.
    pub remote: Vec<TrafficSelector>,
    /// The priority among tunnels for the same packets, if configured: the lowest number wins.
    pub priority: Option<u8>,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// The lifetime of the SA, at whose end it is deleted.
    pub lifetime: Duration,
    /// Whether it is rekeyed before the end.
    pub rekey: bool,
}

/// The side that initiates a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The local side, at once and whenever the connection is down.
    Initiate,
    /// The local side, when a packet for the connection arrives.
    OnTraffic,
    /// The remote side.
    Respond,
}

/// The action when the peer is dead or closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLost {
    /// The connection stays down until an operator initiates it.
    Clear,
    /// It is set up again at once.
    Restart,
}

impl Connection {
    /// All rounds of authentication, in order.
    pub(super) fn rounds(&self) -> impl Iterator<Item = Round<'_>> {
        let Self { local_identity, remote_identity, authentication, further, .. } = self;
        let further = further.iter().map(|round| Round {
            local: &round.local_identity,
            remote: round.remote_identity.as_ref(),
            authentication: &round.authentication,
        });
        let first = Round { local: local_identity, remote: remote_identity.as_ref(), authentication };
        std::iter::once(first).chain(further)
    }

    /// The round with this number, from 0.
    pub(super) fn round(&self, number: usize) -> Option<Round<'_>> {
        self.rounds().nth(number)
    }

    /// Whether it is a profile: it serves every peer that authenticates, from any address, each as an instance.
    pub fn is_profile(&self) -> bool {
        self.remote.is_none() && self.remote_identity.is_none()
    }

    /// Whether the connection matches these two addresses.
    pub(super) fn is_between(&self, local: IpAddr, remote: IpAddr) -> bool {
        self.local.is_none_or(|known| known == local) && self.remote.is_none_or(|known| known == remote)
    }

    /// How specific its addresses are: a more specific connection is preferred.
    pub(super) fn precision(&self) -> u8 {
        u8::from(self.remote.is_some()) * 2 + u8::from(self.local.is_some())
    }
}
