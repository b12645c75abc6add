//! The octets that AUTH covers, and AUTH by a shared key (RFC 7296 section 2.15).

use crypto::SecretBytes;
use crypto::prf::Prf;

/// The signed octets of one side: its first message, the peer's nonce, and its identity keyed with SK_p.
pub struct Signed<'a> {
    /// The signer's IKE_SA_INIT message, as it was sent.
    pub message: &'a [u8],
    /// The nonce of the peer.
    pub nonce: &'a [u8],
    /// The body of the signer's identification payload.
    pub identity: &'a [u8],
}

impl Signed<'_> {
    /// The bytes to be signed; `key` is the signer's SK_p.
    pub fn octets(&self, prf: Prf, key: &SecretBytes) -> Vec<u8> {
        let identity = prf.compute(key.expose(), &[self.identity]);
        [self.message, self.nonce, identity.expose()].concat()
    }
}

/// AUTH by a shared key: prf(prf(key, "Key Pad for IKEv2"), octets).
pub fn shared_key_mac(prf: Prf, shared_key: &SecretBytes, octets: &[u8]) -> SecretBytes {
    let key = prf.compute(shared_key.expose(), &[b"Key Pad for IKEv2"]);
    prf.compute(key.expose(), &[octets])
}
