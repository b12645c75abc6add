//! What an operator may know of a device: events for the log, and why a peer has no session.

use crate::PeerId;
use crypto::PublicKey;

/// Something that is worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is a session with a peer that had none.
    Up(PeerId),
    /// A peer does not answer our initiations.
    Silent(PeerId),
    /// Nothing was exchanged with a peer for so long that its keys were erased.
    Idle(PeerId),
    /// An initiation names a public key that no peer has. Its sender knows our public key; that it owns its own was not
    /// checked.
    UnknownPeer(PublicKey),
    /// A handshake message was made for another public key than ours.
    NotForUs,
}

/// What went wrong with a peer since the last finished handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Our initiations that were not answered.
    pub unanswered: u64,
    /// Its responses that could not be opened: most likely the preshared keys differ.
    pub bad_responses: u64,
    /// Its initiations that we answered, without any packet under the new keys.
    pub unconfirmed: u64,
    /// Its initiations that we refused, because their time is not after that of an earlier one.
    pub stale: u64,
    /// It cannot be called: its public key is a point of low order.
    pub is_low_order: bool,
}
