//! A local request for a new IKE SA.

use super::rival::Rival;
use crate::ikev2::limits::NONCE;
use crate::ikev2::message::{KeyExchange, Payload, Proposal};
use crypto::exchange::{Group, PrivateShare};
use std::sync::Arc;

/// The parameters of a pending request.
pub(super) struct Rekeying {
    /// The local SPI of the new IKE SA.
    pub(super) spi: u64,
    pub(super) proposals: Vec<Proposal>,
    pub(super) nonce: [u8; NONCE],
    pub(super) group: Group,
    /// `None` while it is being generated.
    pub(super) share: Option<Arc<PrivateShare>>,
    /// The IKE SA that the peer has created meanwhile to replace the same one.
    pub(super) rival: Option<Rival<u64>>,
    pub(super) retries: u32,
}

impl Rekeying {
    pub(super) fn payloads(&self) -> Vec<Payload<'_>> {
        let mut payloads = vec![Payload::Sa(self.proposals.clone()), Payload::Nonce(&self.nonce)];
        let exchange =
            self.share.as_ref().map(|share| KeyExchange { group: self.group.id(), public: share.public() });
        payloads.extend(exchange.map(Payload::Ke));
        payloads
    }
}
