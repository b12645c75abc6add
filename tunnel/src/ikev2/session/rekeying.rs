//! A local request for a new IKE SA.

use super::rival::Rival;
use crate::ikev2::limits::NONCE;
use crate::ikev2::message::{KeyExchange, Payload, Proposal};
use crypto::exchange::PrivateShare;

/// The parameters of a pending request.
pub(super) struct Rekeying {
    /// The local SPI of the new IKE SA.
    pub(super) spi: u64,
    pub(super) proposals: Vec<Proposal>,
    pub(super) nonce: [u8; NONCE],
    pub(super) share: PrivateShare,
    /// The IKE SA that the peer has created meanwhile to replace the same one.
    pub(super) rival: Option<Rival<u64>>,
    pub(super) retries: u32,
}

impl Rekeying {
    pub(super) fn payloads(&self) -> [Payload<'_>; 3] {
        [
            Payload::Sa(self.proposals.clone()),
            Payload::Nonce(&self.nonce),
            Payload::Ke(KeyExchange { group: self.share.group().id(), public: self.share.public() }),
        ]
    }
}
