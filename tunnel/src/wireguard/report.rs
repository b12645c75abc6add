//! Reports for operators: events for the log, and the reasons why a peer has no session.

use crate::PeerId;
use crypto::PublicKey;
use std::net::SocketAddr;

/// An event for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer without a session now has one.
    Up(PeerId),
    /// A peer does not answer initiations.
    Silent(PeerId),
    /// A peer does not answer where it was called; this address of it is called next.
    Fallback(PeerId, SocketAddr),
    /// A peer answers at its first address again, which is used from now on.
    Returned(PeerId),
    /// The keys of an idle peer were erased.
    Idle(PeerId),
    /// The public key in an initiation belongs to no peer. The sender knows our public key; that it owns its own was
    /// not verified.
    UnknownPeer(PublicKey),
    /// A handshake message was made for another public key.
    NotForUs,
}

/// Failures with a peer since the last completed handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Unanswered initiations of the local side.
    pub unanswered: u64,
    /// Responses of the peer that could not be decrypted: most likely the preshared keys differ.
    pub bad_responses: u64,
    /// Answered initiations of the peer without any packet under the new keys.
    pub unconfirmed: u64,
    /// Initiations of the peer that were refused, as their timestamp is not newer than an earlier one.
    pub stale: u64,
    /// The public key of the peer is a low-order point, so no handshake is possible.
    pub is_low_order: bool,
}
