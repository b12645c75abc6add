//! What a configuration says about a connection to another gateway.

use super::identity::Identity;
use super::proposal::{EspOffer, IkeOffer};
use crate::esp::{Mode, TrafficSelector};
use crypto::SecretBytes;
use crypto::pki::{Certificate, TrustStore};
use crypto::signature::{SigningKey, VerifyingKey};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Names a connection for the lifetime of its [`Endpoint`](super::Endpoint); never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(super) u64);

/// A connection to another gateway.
#[derive(Clone)]
pub struct Connection {
    /// Its name in reports.
    pub name: String,
    /// Our address; `None` for any, which is chosen anew whenever we begin.
    pub local: Option<IpAddr>,
    /// The other side's address; `None` for any, and then the other side must begin.
    pub remote: Option<IpAddr>,
    /// Who we say we are.
    pub local_identity: Identity,
    /// Who the other side must say it is; `None` for anyone who can authenticate.
    pub remote_identity: Option<Identity>,
    /// How both sides show who they are.
    pub authentication: Authentication,
    /// What may protect the IKE SA, the best first.
    pub ike: Vec<IkeOffer>,
    /// The Child SAs.
    pub children: Vec<Child>,
    /// The IKE SA is rekeyed before this ends; it is deleted when it ends.
    pub lifetime: Duration,
    /// Whether both sides show anew who they are, in a new session, where otherwise the IKE SA would be rekeyed. Who began
    /// the old session begins the new one.
    pub reauthenticate: bool,
    /// How the death of the other side is noticed while nothing else is asked of it.
    pub dead_peer_detection: Option<DeadPeerDetection>,
    /// Who begins.
    pub start: Start,
    /// What becomes of the connection when the other side is dead or closes it.
    pub when_lost: WhenLost,
    /// Whether ESP travels in UDP even where there is no NAT, if the other side knows of NAT. What a session began with it
    /// keeps.
    pub force_encapsulation: bool,
}

/// How long an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A request that is not answered is sent again after this.
    pub first: Duration,
    /// How long each wait is, in hundredths of the one before.
    pub base_percent: u32,
    /// How often it is sent again before the other side is taken for dead.
    pub attempts: u32,
}

/// Two minutes and a quarter in all.
impl Default for Patience {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), base_percent: 180, attempts: 7 }
    }
}

impl Patience {
    const LONGEST: Duration = Duration::from_secs(86_400);

    /// The wait after this one.
    pub(super) fn after(&self, wait: Duration) -> Duration {
        (wait.saturating_mul(self.base_percent) / 100).min(Self::LONGEST)
    }
}

/// How the death of the other side is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadPeerDetection {
    /// It is asked for a sign of life when nothing was heard of it for this long.
    pub interval: Duration,
    /// It is dead when nothing was heard of it for this long, and it was asked at least twice.
    pub timeout: Duration,
}

/// How both sides show who they are.
#[derive(Clone)]
pub enum Authentication {
    /// A secret that both have.
    SharedKey(SecretBytes),
    /// Certificates, of authorities that are trusted.
    Certificate(Arc<Credentials>),
    /// Keys without certificates, of which each side knows the other's public one beforehand.
    RawKeys(Arc<RawKeys>),
}

impl Authentication {
    /// Whether it takes signatures, which take long, and not only hashes.
    pub(super) fn takes_long(&self) -> bool {
        !matches!(self, Self::SharedKey(_))
    }
}

/// What we sign with, and whom we trust.
pub struct Credentials {
    /// The key of the first certificate.
    pub key: SigningKey,
    /// Our certificate, and those that lead from it to an authority: see [`chain`](crypto::pki::chain).
    pub certificates: Vec<Certificate>,
    /// Whom we trust.
    pub trust: TrustStore,
    /// Whether signatures of RSA keys with SHA-1 are taken (method 1 of RFC 7296), and made for a peer that knows no RFC
    /// 7427.
    pub accept_sha1: bool,
}

/// What we sign with, and what the other side does. SHA-1 is not accepted.
pub struct RawKeys {
    /// Our key.
    pub own: SigningKey,
    /// The other side's.
    pub peer: VerifyingKey,
}

/// A Child SA: which packets are protected, and how.
#[derive(Clone)]
pub struct Child {
    /// Its name in reports.
    pub name: String,
    /// What may protect the packets, the best first.
    pub esp: Vec<EspOffer>,
    /// The packets of our side; empty for those of our address alone.
    pub local: Vec<TrafficSelector>,
    /// The packets of the other side; empty for those of its address alone.
    pub remote: Vec<TrafficSelector>,
    /// Which of several tunnels for the same packets takes them, if that is said: the lowest.
    pub priority: Option<u8>,
    /// What is carried.
    pub mode: Mode,
    /// The SA is deleted when this ends.
    pub lifetime: Duration,
    /// Whether it is replaced before.
    pub rekey: bool,
}

/// Who begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// We do, at once and whenever the connection is down.
    Initiate,
    /// We do, when there is a packet for it.
    OnTraffic,
    /// The other side does.
    Respond,
}

/// What becomes of a connection whose other side is dead or closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLost {
    /// It is down until somebody asks for it.
    Clear,
    /// It is set up again at once.
    Restart,
}

impl Connection {
    /// Whether it is for two addresses.
    pub(super) fn is_between(&self, local: IpAddr, remote: IpAddr) -> bool {
        self.local.is_none_or(|known| known == local) && self.remote.is_none_or(|known| known == remote)
    }

    /// How exactly its addresses are known: the more exactly, the better it fits.
    pub(super) fn precision(&self) -> u8 {
        u8::from(self.remote.is_some()) * 2 + u8::from(self.local.is_some())
    }
}
