//! The features that both IKE_SA_INIT messages announce.

use crate::ikev2::auth::proof::HASHES;
use crate::ikev2::keys::Spis;
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Notify, Payload};
use crate::ikev2::nat::{Path, detection_hashes};

/// See the module documentation.
pub(super) struct Announced {
    hashes: [[u8; 20]; 2],
}

impl Announced {
    pub(super) fn new(path: Path, spis: Spis, force_encapsulation: bool) -> Self {
        Self { hashes: detection_hashes(path, spis, force_encapsulation) }
    }

    pub(super) fn payloads(&self) -> [Payload<'_>; 4] {
        let [source, destination] = &self.hashes;
        [
            Payload::Notify(Notify::new(notify::NAT_DETECTION_SOURCE_IP, source)),
            Payload::Notify(Notify::new(notify::NAT_DETECTION_DESTINATION_IP, destination)),
            Payload::Notify(Notify::new(notify::IKEV2_FRAGMENTATION_SUPPORTED, &[])),
            Payload::Notify(Notify::new(notify::SIGNATURE_HASH_ALGORITHMS, HASHES)),
        ]
    }
}
