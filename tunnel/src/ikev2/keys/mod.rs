//! Derivation of the keys of IKE SAs and Child SAs (RFC 7296 sections 2.13 to 2.18).
//!
//! ```text
//! g^ir, nonces ──> SKEYSEED ──> SK_d ──> KEYMAT of Child SAs, SKEYSEED of the next IKE SA
//!                          ├──> SK_a, SK_e of each direction: Sealer, Opener
//!                          └──> SK_p of each side, for AUTH
//! ```

mod auth;
mod envelope;

pub use auth::{Signed, shared_key_mac};
pub use envelope::{NotAuthentic, Opener, Sealer};

use super::proposal::{IkeSuite, MessageCipher};
use crate::esp;
use crypto::SecretBytes;
use crypto::cipher::Encryption;
use crypto::prf::Prf;

/// The side of an IKE SA. The side that asks for a rekeying is the initiator of the new IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The sender of the first message.
    Initiator,
    /// The receiver of the first message.
    Responder,
}

/// The nonces of one exchange.
#[derive(Clone, Copy)]
pub struct Nonces<'a> {
    /// Ni.
    pub initiator: &'a [u8],
    /// Nr.
    pub responder: &'a [u8],
}

/// The SPIs of an IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spis {
    /// SPIi.
    pub initiator: u64,
    /// SPIr.
    pub responder: u64,
}

impl Spis {
    /// The SPI chosen by the side of this role.
    pub fn of(self, role: Role) -> u64 {
        if role == Role::Initiator { self.initiator } else { self.responder }
    }
}

/// The root of key derivation: SK_d and the prf that uses it.
#[derive(Clone)]
pub struct Root {
    prf: Prf,
    sk_d: SecretBytes,
}

/// SK_pi and SK_pr, which both sides authenticate with. They are dropped after IKE_AUTH.
pub struct ProofKeys {
    /// Ours.
    pub local: SecretBytes,
    /// The key of the peer.
    pub remote: SecretBytes,
}

/// All keys of an IKE SA, from the point of view of one side.
pub struct IkeKeys {
    /// The root of further keys.
    pub root: Root,
    /// Encrypts sent messages.
    pub sealer: Sealer,
    /// Decrypts received messages.
    pub opener: Opener,
    /// The keys for AUTH.
    pub proof: ProofKeys,
}

impl IkeKeys {
    /// The keys of a first IKE SA (section 2.14).
    pub fn first(suite: &IkeSuite, role: Role, spis: Spis, nonces: Nonces<'_>, shared: &SecretBytes) -> Self {
        let seed = suite.prf.seed(nonces.initiator, nonces.responder, shared.expose());
        Self::derive(suite, role, spis, nonces, &seed)
    }

    /// The keys of an IKE SA that replaces the one of `old` (section 2.18).
    pub fn rekeyed(
        old: &Root,
        suite: &IkeSuite,
        role: Role,
        spis: Spis,
        nonces: Nonces<'_>,
        shared: &SecretBytes,
    ) -> Self {
        // The prf of the old SA computes SKEYSEED, the one of the new SA expands it.
        let parts = [shared.expose(), nonces.initiator, nonces.responder];
        let seed = old.prf.compute(old.sk_d.expose(), &parts);
        Self::derive(suite, role, spis, nonces, &seed)
    }

    fn derive(suite: &IkeSuite, role: Role, spis: Spis, nonces: Nonces<'_>, seed: &SecretBytes) -> Self {
        let (mac, cipher) = key_lengths(suite.protection);
        let prf = suite.prf.key_length();
        let (spi_i, spi_r) = (spis.initiator.to_be_bytes(), spis.responder.to_be_bytes());
        let length = 3 * prf + 2 * mac + 2 * cipher;
        let parts = [nonces.initiator, nonces.responder, &spi_i, &spi_r];
        let keys = suite.prf.expand(seed.expose(), &parts, length);
        let mut rest = keys.expose();
        let mut take = |length: usize| {
            let (taken, tail) = rest.split_at(length);
            rest = tail;
            taken
        };
        let sk_d = SecretBytes::new(take(prf).to_vec());
        let (ai, ar) = (take(mac), take(mac));
        let (ei, er) = (take(cipher), take(cipher));
        let [pi, pr] = [take(prf), take(prf)].map(|key| SecretBytes::new(key.to_vec()));
        let is_initiator = role == Role::Initiator;
        let (ours, theirs) = if is_initiator { ((ei, ai), (er, ar)) } else { ((er, ar), (ei, ai)) };
        let (local, remote) = if is_initiator { (pi, pr) } else { (pr, pi) };
        Self {
            root: Root { prf: suite.prf, sk_d },
            sealer: Sealer::new(suite.protection, ours.0, ours.1),
            opener: Opener::new(suite.protection, theirs.0, theirs.1),
            proof: ProofKeys { local, remote },
        }
    }
}

impl Root {
    /// The prf for AUTH.
    pub fn prf(&self) -> Prf {
        self.prf
    }

    /// KEYMAT of a Child SA: the keys of the initiator's direction, then of the responder's (section 2.17). `shared`
    /// is the secret of an additional key exchange, with which the keys stay secret even if SK_d is disclosed.
    pub fn child_keys(
        &self,
        transform: esp::Transform,
        nonces: Nonces<'_>,
        shared: Option<&SecretBytes>,
    ) -> [SecretBytes; 2] {
        let shared = shared.map_or(&[][..], SecretBytes::expose);
        let length = transform.key_material_length();
        let seed = [shared, nonces.initiator, nonces.responder];
        let keys = self.prf.expand(self.sk_d.expose(), &seed, 2 * length);
        let (initiator, responder) = keys.expose().split_at(length);
        [initiator, responder].map(|keys| SecretBytes::new(keys.to_vec()))
    }
}

/// Bytes of SK_a and of SK_e; SK_e includes the salt of the cipher.
fn key_lengths(protection: MessageCipher) -> (usize, usize) {
    match protection {
        MessageCipher::Aead(cipher, _) => (0, cipher.key_length() + envelope::salt_length(cipher)),
        MessageCipher::Pair(pair) => {
            let nonce = if matches!(pair.encryption, Encryption::AesCtr(_)) { 4 } else { 0 };
            (pair.integrity.key_length(), pair.encryption.key_length() + nonce)
        }
    }
}

#[cfg(test)]
mod tests;
