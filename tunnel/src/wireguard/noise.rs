//! The handshake: Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s (section 5.4).
//!
//! ```text
//! initiator                                          responder
//! create_initiation  ── e, es, s, ss, {timestamp} ─> consume_initiation → authenticate
//! consume_response   <─ e, ee, se, psk, {} ───────── create_response
//! ```
//! Each state is a type. A message that does not authenticate changes nothing: the state goes on waiting.

use super::tai64n::Tai64n;
use crypto::agreement::LowOrder;
use crypto::{PrivateKey, PublicKey, Random, Secret, aead, hash};
use packet::header::wireguard::{INITIATION, Initiation, Macs, RESPONSE, Response, TAG};
use zeroize::{Zeroize, Zeroizing};

const CONSTRUCTION: &[u8] = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const IDENTIFIER: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";

/// A handshake message that does not authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handshake message does not authenticate")]
pub struct HandshakeError;

impl From<LowOrder> for HandshakeError {
    fn from(_: LowOrder) -> Self {
        Self
    }
}

impl From<aead::NotAuthentic> for HandshakeError {
    fn from(_: aead::NotAuthentic) -> Self {
        Self
    }
}

/// The result of a handshake.
pub struct SessionKeys {
    /// The key of sent packets.
    pub sending: Secret,
    /// The key of received packets.
    pub receiving: Secret,
    /// The local index, which the peer puts into its messages.
    pub local_index: u32,
    /// The index of the peer.
    pub remote_index: u32,
}

/// The chaining key and the running hash.
#[derive(Clone)]
struct Symmetric {
    chain: Secret,
    hash: [u8; 32],
}

impl Symmetric {
    /// The state before the first message to the owner of `responder`.
    fn new(responder: &PublicKey) -> Self {
        let chain = hash::hash(&[CONSTRUCTION]);
        let hash = hash::hash(&[&hash::hash(&[&chain, IDENTIFIER]), &responder.0]);
        Self { chain: Secret::new(chain), hash }
    }

    fn mix_hash(&mut self, data: &[u8]) {
        self.hash = hash::hash(&[&self.hash, data]);
    }

    fn mix_key(&mut self, input: &[u8]) {
        let outputs = Zeroizing::new(hash::kdf::<1>(self.chain.expose(), input));
        self.chain = Secret::new(outputs[0]);
    }

    /// Mixes `input` in, and derives the key of the next message part.
    fn mix_key_and_derive(&mut self, input: &Secret) -> Secret {
        let outputs = Zeroizing::new(hash::kdf::<2>(self.chain.expose(), input.expose()));
        self.chain = Secret::new(outputs[0]);
        Secret::new(outputs[1])
    }

    fn mix_preshared(&mut self, preshared: &Secret) -> Secret {
        let outputs = Zeroizing::new(hash::kdf::<3>(self.chain.expose(), preshared.expose()));
        self.chain = Secret::new(outputs[0]);
        self.mix_hash(&outputs[1]);
        Secret::new(outputs[2])
    }

    fn encrypt_and_hash<const N: usize>(&mut self, key: &Secret, plain: &[u8]) -> [u8; N] {
        let mut text = [0; N];
        text[..N - TAG].copy_from_slice(plain);
        aead::seal(key, &self.hash, &mut text);
        self.mix_hash(&text);
        text
    }

    fn decrypt_and_hash<const N: usize>(
        &mut self,
        key: &Secret,
        text: &[u8],
    ) -> Result<[u8; N], HandshakeError> {
        let mut copy = Zeroizing::new(text.to_vec());
        let plain = aead::open(key, &self.hash, &mut copy)?.try_into().map_err(|_| HandshakeError)?;
        self.mix_hash(text);
        Ok(plain)
    }

    /// The transport keys: the initiator's, then the responder's (section 5.4.5).
    fn split(self) -> (Secret, Secret) {
        let mut outputs = hash::kdf::<2>(self.chain.expose(), &[]);
        let keys = (Secret::new(outputs[0]), Secret::new(outputs[1]));
        outputs.zeroize();
        keys
    }
}

/// An initiation was sent; the response is pending.
pub struct AwaitingResponse {
    symmetric: Symmetric,
    ephemeral: PrivateKey,
    local_index: u32,
}

/// Creates the first message to the owner of `responder`; its MACs are added later.
///
/// `static_static` is the shared secret of both static keys.
pub fn create_initiation(
    local: &PrivateKey,
    responder: &PublicKey,
    static_static: &Secret,
    local_index: u32,
    timestamp: Tai64n,
    random: &mut dyn Random,
) -> Result<(Initiation, AwaitingResponse), HandshakeError> {
    let mut symmetric = Symmetric::new(responder);
    let ephemeral = PrivateKey::generate(random);
    let public = ephemeral.public();
    symmetric.mix_hash(&public.0);
    symmetric.mix_key(&public.0);
    let key = symmetric.mix_key_and_derive(&ephemeral.agree(responder)?);
    let encrypted_static = symmetric.encrypt_and_hash(&key, &local.public().0);
    let key = symmetric.mix_key_and_derive(static_static);
    let encrypted_timestamp = symmetric.encrypt_and_hash(&key, &timestamp.0);
    let message = Initiation {
        kind: INITIATION.into(),
        sender: local_index.into(),
        ephemeral: public.0,
        encrypted_static,
        encrypted_timestamp,
        macs: Macs::default(),
    };
    Ok((message, AwaitingResponse { symmetric, ephemeral, local_index }))
}

/// An initiation whose claimed sender is not authenticated yet.
pub struct ReceivedInitiation {
    symmetric: Symmetric,
    /// The claimed static public key of the sender.
    pub claimed: PublicKey,
    ephemeral: PublicKey,
    remote_index: u32,
    encrypted_timestamp: [u8; 12 + TAG],
}

/// Decrypts the claimed sender of the first message.
pub fn consume_initiation(
    local: &PrivateKey,
    message: &Initiation,
) -> Result<ReceivedInitiation, HandshakeError> {
    let mut symmetric = Symmetric::new(&local.public());
    let ephemeral = PublicKey(message.ephemeral);
    symmetric.mix_hash(&ephemeral.0);
    symmetric.mix_key(&ephemeral.0);
    let key = symmetric.mix_key_and_derive(&local.agree(&ephemeral)?);
    let claimed = PublicKey(symmetric.decrypt_and_hash(&key, &message.encrypted_static)?);
    Ok(ReceivedInitiation {
        symmetric,
        claimed,
        ephemeral,
        remote_index: message.sender.get(),
        encrypted_timestamp: message.encrypted_timestamp,
    })
}

/// An initiation whose sender is authenticated; it may be a replay.
pub struct AuthenticInitiation {
    symmetric: Symmetric,
    remote: PublicKey,
    ephemeral: PublicKey,
    remote_index: u32,
    /// The timestamp; the caller compares it with the last accepted one.
    pub timestamp: Tai64n,
}

impl ReceivedInitiation {
    /// Authenticates the sender: only the owner of the claimed key can have encrypted the timestamp.
    pub fn authenticate(mut self, static_static: &Secret) -> Result<AuthenticInitiation, HandshakeError> {
        let key = self.symmetric.mix_key_and_derive(static_static);
        let timestamp = Tai64n(self.symmetric.decrypt_and_hash(&key, &self.encrypted_timestamp)?);
        Ok(AuthenticInitiation {
            symmetric: self.symmetric,
            remote: self.claimed,
            ephemeral: self.ephemeral,
            remote_index: self.remote_index,
            timestamp,
        })
    }
}

impl AuthenticInitiation {
    /// Creates the second message and the keys; its MACs are added later.
    pub fn create_response(
        self,
        preshared: &Secret,
        local_index: u32,
        random: &mut dyn Random,
    ) -> Result<(Response, SessionKeys), HandshakeError> {
        let mut symmetric = self.symmetric;
        let ephemeral = PrivateKey::generate(random);
        let public = ephemeral.public();
        symmetric.mix_hash(&public.0);
        symmetric.mix_key(&public.0);
        symmetric.mix_key(ephemeral.agree(&self.ephemeral)?.expose());
        symmetric.mix_key(ephemeral.agree(&self.remote)?.expose());
        let key = symmetric.mix_preshared(preshared);
        let encrypted_nothing = symmetric.encrypt_and_hash(&key, &[]);
        let message = Response {
            kind: RESPONSE.into(),
            sender: local_index.into(),
            receiver: self.remote_index.into(),
            ephemeral: public.0,
            encrypted_nothing,
            macs: Macs::default(),
        };
        let (receiving, sending) = symmetric.split();
        Ok((message, SessionKeys { sending, receiving, local_index, remote_index: self.remote_index }))
    }
}

impl AwaitingResponse {
    /// The index that a response must contain.
    pub fn local_index(&self) -> u32 {
        self.local_index
    }

    /// Handles the second message; after success the caller drops this state, otherwise it goes on waiting.
    pub fn consume_response(
        &self,
        local: &PrivateKey,
        preshared: &Secret,
        message: &Response,
    ) -> Result<SessionKeys, HandshakeError> {
        let mut symmetric = self.symmetric.clone();
        let remote = PublicKey(message.ephemeral);
        symmetric.mix_hash(&remote.0);
        symmetric.mix_key(&remote.0);
        symmetric.mix_key(self.ephemeral.agree(&remote)?.expose());
        symmetric.mix_key(local.agree(&remote)?.expose());
        let key = symmetric.mix_preshared(preshared);
        symmetric.decrypt_and_hash::<0>(&key, &message.encrypted_nothing)?;
        let (sending, receiving) = symmetric.split();
        let (local_index, remote_index) = (self.local_index, message.sender.get());
        Ok(SessionKeys { sending, receiving, local_index, remote_index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::random;
    use std::time::Duration;

    struct Side {
        key: PrivateKey,
        static_static: Secret,
    }

    fn sides() -> (Side, Side) {
        let (a, b) = (PrivateKey::new(Secret::new([1; 32])), PrivateKey::new(Secret::new([2; 32])));
        let shared = a.agree(&b.public()).expect("not of low order");
        (Side { key: a, static_static: shared.clone() }, Side { key: b, static_static: shared })
    }

    fn initiation(a: &Side, b: &Side) -> (Initiation, AwaitingResponse) {
        let timestamp = Tai64n::new(Duration::from_secs(1));
        let random = &mut random::System::default();
        create_initiation(&a.key, &b.key.public(), &a.static_static, 11, timestamp, random)
            .expect("good keys")
    }

    fn respond(b: &Side, message: &Initiation, preshared: &Secret) -> (Response, SessionKeys) {
        let received = consume_initiation(&b.key, message).expect("made for b");
        let authentic = received.authenticate(&b.static_static).expect("made by a");
        authentic.create_response(preshared, 22, &mut random::System::default()).expect("good keys")
    }

    #[test]
    fn both_sides_end_with_the_same_keys() {
        let ((a, b), preshared) = (sides(), Secret::new([9; 32]));
        let (message, waiting) = initiation(&a, &b);
        let (response, b_keys) = respond(&b, &message, &preshared);
        let a_keys = waiting.consume_response(&a.key, &preshared, &response).expect("made by b");
        assert!(a_keys.sending == b_keys.receiving && a_keys.receiving == b_keys.sending);
        assert!(a_keys.sending != a_keys.receiving);
        assert_eq!((a_keys.local_index, a_keys.remote_index), (11, 22));
        assert_eq!((b_keys.local_index, b_keys.remote_index), (22, 11));
    }

    #[test]
    fn the_initiation_names_its_sender_and_its_time() {
        let (a, b) = sides();
        let (message, _) = initiation(&a, &b);
        let received = consume_initiation(&b.key, &message).expect("made for b");
        assert_eq!(received.claimed, a.key.public());
        let authentic = received.authenticate(&b.static_static).expect("made by a");
        assert_eq!(authentic.timestamp, Tai64n::new(Duration::from_secs(1)));
    }

    #[test]
    fn different_preshared_keys_do_not_meet() {
        let (a, b) = sides();
        let (message, waiting) = initiation(&a, &b);
        let (response, _) = respond(&b, &message, &Secret::new([9; 32]));
        assert!(waiting.consume_response(&a.key, &Secret::zero(), &response).is_err());
        assert!(
            waiting.consume_response(&a.key, &Secret::new([9; 32]), &response).is_ok(),
            "it went on waiting"
        );
    }

    #[test]
    fn one_wrong_bit_anywhere_is_noticed() {
        use zerocopy::{FromBytes, IntoBytes};
        let (a, b) = sides();
        let (message, waiting) = initiation(&a, &b);
        // After the fields type and sender, and before the MACs, every byte is authenticated.
        for offset in 8..size_of::<Initiation>() - size_of::<Macs>() {
            let mut damaged = message.clone();
            damaged.as_mut_bytes()[offset] ^= 1;
            let outcome = consume_initiation(&b.key, &damaged).and_then(|r| r.authenticate(&b.static_static));
            assert!(outcome.is_err(), "initiation, byte {offset}");
        }
        let (response, _) = respond(&b, &message, &Secret::zero());
        for offset in 12..size_of::<Response>() - size_of::<Macs>() {
            let mut bytes = response.as_bytes().to_vec();
            bytes[offset] ^= 1;
            let damaged = Response::read_from_bytes(&bytes).expect("the length of a response");
            assert!(
                waiting.consume_response(&a.key, &Secret::zero(), &damaged).is_err(),
                "response, byte {offset}"
            );
        }
    }

    #[test]
    fn a_message_for_another_key_is_refused() {
        let (a, b) = sides();
        let (message, _) = initiation(&a, &b);
        assert!(consume_initiation(&PrivateKey::new(Secret::new([3; 32])), &message).is_err());
    }
}
