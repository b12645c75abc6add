use super::*;
use crate::ikev2::message::{Body, Envelope, Exchange, Header, Message};
use crypto::Random;
use crypto::cipher::{Cipher, Integrity, Pair};
use crypto::exchange::Group;

struct Counting(u8);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
    }
}

const SPIS: Spis = Spis { initiator: 1, responder: 2 };
const NONCES: Nonces<'static> = Nonces { initiator: &[1; 32], responder: &[2; 32] };

/// Everything that can protect an IKE SA.
fn protections() -> Vec<MessageCipher> {
    let aead = Cipher::ALL
        .iter()
        .flat_map(|&cipher| cipher.tag_lengths().iter().map(move |&tag| MessageCipher::Aead(cipher, tag)));
    let ciphers = Encryption::ALL.iter().copied().filter(|&one| one != Encryption::Null);
    let pairs = ciphers.flat_map(|encryption| {
        Integrity::ALL.iter().map(move |&integrity| MessageCipher::Pair(Pair { encryption, integrity }))
    });
    aead.chain(pairs).collect()
}

fn suite(protection: MessageCipher, prf: Prf) -> IkeSuite {
    IkeSuite { protection, prf, group: Group::X25519 }
}

fn keys(protection: MessageCipher, prf: Prf, role: Role) -> IkeKeys {
    IkeKeys::first(&suite(protection, prf), role, SPIS, NONCES, &SecretBytes::new(vec![3; 32]))
}

fn header() -> Header {
    Header {
        initiator_spi: 1,
        responder_spi: 2,
        exchange: Exchange::IkeAuth,
        from_initiator: true,
        is_response: false,
        message_id: 1,
    }
}

fn open(opener: &Opener, datagram: &[u8]) -> Result<Vec<u8>, NotAuthentic> {
    match Message::parse(datagram).map(|message| message.body) {
        Ok(Body::Encrypted(sealed) | Body::Fragment { sealed, .. }) => opener.open(&sealed),
        _ => Err(NotAuthentic),
    }
}

#[test]
fn what_one_side_seals_the_other_opens_with_every_algorithm() {
    for prf in Prf::ALL {
        for protection in protections() {
            let mut initiator = keys(protection, *prf, Role::Initiator);
            let mut responder = keys(protection, *prf, Role::Responder);
            for length in [0, 1, 15, 16, 100] {
                let payloads = vec![9; length];
                let seal = |keys: &mut IkeKeys, envelope| {
                    keys.sealer.seal(&header(), 35, envelope, &payloads, &mut Counting(0))
                };
                let datagram = seal(&mut initiator, Envelope::Whole);
                assert_eq!(datagram.len(), initiator.sealer.datagram_length(length));
                assert_eq!(open(&responder.opener, &datagram).as_ref(), Ok(&payloads), "{protection:?}");
                assert_eq!(open(&initiator.opener, &datagram), Err(NotAuthentic), "directions differ");
                let fragment = seal(&mut responder, Envelope::Fragment(1, 2));
                assert_eq!(open(&initiator.opener, &fragment).as_ref(), Ok(&payloads));
            }
        }
    }
}

#[test]
fn no_flipped_bit_and_no_cut_is_authentic() {
    for protection in [
        MessageCipher::Aead(Cipher::Aes128Gcm, 8),
        MessageCipher::Aead(Cipher::Aes256Ccm, 12),
        MessageCipher::Pair(Pair { encryption: Encryption::AesCbc(16), integrity: Integrity::HmacSha256 }),
        MessageCipher::Pair(Pair { encryption: Encryption::AesCtr(32), integrity: Integrity::AesXcbc }),
    ] {
        let mut sender = keys(protection, Prf::HmacSha256, Role::Initiator);
        let receiver = keys(protection, Prf::HmacSha256, Role::Responder);
        let datagram = sender.sealer.seal(&header(), 35, Envelope::Whole, &[7; 20], &mut Counting(0));
        for bit in 0..datagram.len() * 8 {
            let mut flipped = datagram.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&receiver.opener, &flipped), Err(NotAuthentic), "bit {bit} of {protection:?}");
        }
        for length in 0..datagram.len() - Header::LENGTH - 4 {
            let (associated, text) = datagram.split_at(Header::LENGTH + 4);
            let sealed = crate::ikev2::message::Sealed { first: 35, associated, text: &text[..length] };
            assert_eq!(receiver.opener.open(&sealed), Err(NotAuthentic));
        }
    }
}

#[test]
fn initialization_vectors_of_counter_modes_are_never_used_twice() {
    let mut sender = keys(MessageCipher::Aead(Cipher::Aes128Gcm, 16), Prf::HmacSha256, Role::Initiator);
    let mut seal = || sender.sealer.seal(&header(), 35, Envelope::Whole, &[7; 20], &mut Counting(0));
    let ivs: Vec<Vec<u8>> = (0..3).map(|_| seal()[32..40].to_vec()).collect();
    assert_eq!(ivs, [0u64, 1, 2].map(|iv| iv.to_be_bytes().to_vec()));
}

#[test]
fn a_fragment_fills_its_datagram_and_no_more() {
    for protection in protections() {
        let mut sender = keys(protection, Prf::HmacSha256, Role::Initiator);
        for size in [200, 576, 1280] {
            let room = sender.sealer.fragment_room(size);
            let mut length = |room| {
                let envelope = Envelope::Fragment(1, 9);
                sender.sealer.seal(&header(), 35, envelope, &vec![0; room], &mut Counting(0)).len()
            };
            assert!(length(room) <= size && length(room + 1) > size, "{protection:?}");
        }
    }
}

/// Section 2.14, spelled out for one suite.
#[test]
fn keys_come_in_the_order_of_the_rfc() {
    let pair = Pair { encryption: Encryption::AesCbc(16), integrity: Integrity::HmacSha1 };
    let shared = [3; 32];
    let prf = Prf::HmacSha256;
    let seed = prf.compute(&[NONCES.initiator, NONCES.responder].concat(), &[&shared]);
    let info = [NONCES.initiator, NONCES.responder, &1u64.to_be_bytes(), &2u64.to_be_bytes()];
    let stream = prf.expand(seed.expose(), &info, 3 * 32 + 2 * 20 + 2 * 16);
    let keys = keys(MessageCipher::Pair(pair), prf, Role::Responder);
    assert_eq!(keys.root.sk_d.expose(), &stream.expose()[..32]);
    assert_eq!(keys.proof.remote.expose(), &stream.expose()[104..136], "SK_pi");
    assert_eq!(keys.proof.local.expose(), &stream.expose()[136..], "SK_pr");
}

#[test]
fn child_keys_are_the_same_on_both_sides_and_depend_on_everything() {
    let gcm = MessageCipher::Aead(Cipher::Aes256Gcm, 16);
    let roots = [Role::Initiator, Role::Responder].map(|role| keys(gcm, Prf::HmacSha384, role).root);
    let transform = esp::Transform::Aead(Cipher::Aes256Gcm, 16);
    let shared = SecretBytes::new(vec![5; 32]);
    let [one, other] = roots.each_ref().map(|root| root.child_keys(transform, NONCES, Some(&shared)));
    assert_eq!(one, other);
    assert_eq!([one[0].len(), one[1].len()], [36, 36]);
    assert_ne!(one[0], one[1]);
    assert_ne!(one, roots[0].child_keys(transform, NONCES, None));
    let swapped = Nonces { initiator: NONCES.responder, responder: NONCES.initiator };
    assert_ne!(one, roots[0].child_keys(transform, swapped, Some(&shared)));
}

#[test]
fn a_rekeyed_sa_has_other_keys_even_with_another_prf() {
    let gcm = MessageCipher::Aead(Cipher::Aes256Gcm, 16);
    let roots = [Role::Initiator, Role::Responder].map(|role| keys(gcm, Prf::HmacSha1, role).root);
    let shared = SecretBytes::new(vec![6; 32]);
    let spis = Spis { initiator: 3, responder: 4 };
    let suite = suite(gcm, Prf::HmacSha512);
    // The old responder may be the new initiator.
    let mut new = IkeKeys::rekeyed(&roots[1], &suite, Role::Initiator, spis, NONCES, &shared);
    let other = IkeKeys::rekeyed(&roots[0], &suite, Role::Responder, spis, NONCES, &shared);
    assert_eq!(new.root.sk_d, other.root.sk_d);
    assert_eq!(new.root.sk_d.len(), 64);
    let datagram = new.sealer.seal(&header(), 35, Envelope::Whole, b"payloads", &mut Counting(0));
    assert_eq!(open(&other.opener, &datagram).as_deref(), Ok(&b"payloads"[..]));
}

/// Section 2.15, with HMAC-SHA256 computed elsewhere.
#[test]
fn auth_by_a_shared_key_covers_message_nonce_and_identity() {
    let key = SecretBytes::new(vec![0x0b; 32]);
    let psk = SecretBytes::new(b"secret".to_vec());
    let signed = Signed { message: b"message", nonce: b"nonce", identity: b"identity" };
    let mac =
        |signed: &Signed<'_>| shared_key_mac(Prf::HmacSha256, &psk, &signed.octets(Prf::HmacSha256, &key));
    let expected = "21e9514ecead6c72ee5d68a85c36d538c64053f8bf3ac0835694c4094b379b67";
    assert_eq!(hex(mac(&signed).expose()), expected);
    for other in [
        Signed { message: b"massage", ..signed },
        Signed { nonce: b"nonsense", ..signed },
        Signed { identity: b"impostor", ..signed },
    ] {
        assert_ne!(hex(mac(&other).expose()), expected);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
