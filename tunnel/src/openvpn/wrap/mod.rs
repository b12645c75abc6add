//! The wrap of control packets: none, tls-auth or tls-crypt; tls-crypt-v2 is tls-crypt with a key for each client.
//!
//! ```text
//! none        lead | session ID 8 | body
//! tls-auth    lead | session ID 8 | HMAC | number 4 | time 4 | body
//! tls-crypt   lead | session ID 8 | number 4 | time 4 | tag 32 | encrypted body
//! ```
//! [`WrapKeys`] has no state, so that a server can open first packets without any. A [`Wrapper`] adds the numbers of one
//! session: none is sent twice, none is accepted twice.

mod key;
pub mod v2;

pub use key::{KEY, StaticKey, StaticKeyError};

use super::limits::{CONTROL_OVERHEAD, CONTROL_PACKET, LEAST_CHUNK};
use super::packet::{Lead, SessionId, take, take_u32};
use crate::replay::ReplayWindow;
use crypto::ctr;
use crypto::prf::Prf;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Bytes of the tag of tls-crypt.
const TAG: usize = 32;
/// OpenVPN's default for `--replay-window`.
const WINDOW: u64 = 64;

/// Why a control packet is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrapError {
    /// Too short, or an unknown opcode.
    #[error("not a well-formed OpenVPN control packet")]
    Malformed,
    /// The HMAC is wrong.
    #[error("the control packet does not authenticate: the tls-auth or tls-crypt keys of both sides differ")]
    NotAuthentic,
    /// The packet was received before.
    #[error("the control packet was received before")]
    Replayed,
}

impl From<super::packet::Malformed> for WrapError {
    fn from(_: super::packet::Malformed) -> Self {
        Self::Malformed
    }
}

/// The side of a connection: it selects who uses which half of shared keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The TLS client.
    Client,
    /// The TLS server.
    Server,
}

/// The number of a wrapped packet: a counter, and the second in which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId {
    /// The counter, from 1 on.
    pub number: u32,
    /// Seconds since 1970.
    pub time: u32,
}

/// An authentic control packet. Its body is not parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The leading byte.
    pub lead: Lead,
    /// The session ID of the sender.
    pub session: SessionId,
    /// The number, which is still to be checked against earlier ones. `None` without a wrap.
    pub id: Option<PacketId>,
    /// What follows the wrap.
    pub body: Vec<u8>,
}

#[derive(Debug)]
enum Mode {
    None,
    /// With the HMAC function, and the slots to seal and to open.
    Auth(Prf, StaticKey, [usize; 2]),
    /// With the slots to seal and to open.
    Crypt(StaticKey, [usize; 2]),
}

/// The keys of a wrap. A clone shares them: a server needs its keys for each packet of an unknown source.
#[derive(Clone, Debug)]
pub struct WrapKeys(Arc<Mode>);

impl WrapKeys {
    /// No wrap: packets are not authenticated before TLS does it.
    pub fn none() -> Self {
        Self(Arc::new(Mode::None))
    }

    /// tls-auth. `direction`: 0 or 1 as in `key-direction`; without one, both sides use the first slot.
    pub fn tls_auth(hash: Prf, key: StaticKey, direction: Option<u8>) -> Self {
        let slots = match direction {
            None => [0, 0],
            Some(0) => [0, 1],
            Some(_) => [1, 0],
        };
        Self(Arc::new(Mode::Auth(hash, key, slots)))
    }

    /// tls-crypt. The server seals with the first slot, unlike in data packets.
    pub fn tls_crypt(key: StaticKey, role: Role) -> Self {
        Self(Arc::new(Mode::Crypt(key, if role == Role::Server { [0, 1] } else { [1, 0] })))
    }

    /// The wrap of renegotiations with dynamic tls-crypt: `exported` by the first TLS session, XOR the present key.
    #[must_use]
    pub fn renewed(&self, exported: &[u8; KEY], role: Role) -> Self {
        let key = match &*self.0 {
            Mode::None => StaticKey::new(exported),
            Mode::Auth(_, key, _) | Mode::Crypt(key, _) => key.xor(exported),
        };
        Self::tls_crypt(key, role)
    }

    /// Whether packets are authenticated.
    pub fn authenticates(&self) -> bool {
        !matches!(*self.0, Mode::None)
    }

    /// What the wrap adds to a packet.
    fn overhead(&self) -> usize {
        match &*self.0 {
            Mode::None => 0,
            Mode::Auth(hash, ..) => hash.output_length() + 8,
            Mode::Crypt(..) => TAG + 8,
        }
    }

    /// A packet with this body.
    pub fn seal(&self, lead: Lead, session: SessionId, id: PacketId, body: &[u8]) -> Vec<u8> {
        let (op, id) = (lead.byte(), [id.number.to_be_bytes(), id.time.to_be_bytes()].concat());
        let start = [&[op][..], &session.0].concat();
        match &*self.0 {
            Mode::None => [&start[..], body].concat(),
            Mode::Auth(hash, key, [slot, _]) => {
                let hmac = hash.compute(&key.hmac(*slot)[..hash.output_length()], &[&id, &start, body]);
                [&start[..], hmac.expose(), &id, body].concat()
            }
            Mode::Crypt(key, [slot, _]) => {
                let tag = crypt_tag(key, *slot, &[&start, &id, body]);
                let mut packet = [&start[..], &id, &tag, body].concat();
                let text = packet.len() - body.len();
                ctr::apply(key.cipher(*slot), counter_block(&tag), &mut packet[text..]);
                packet
            }
        }
    }

    /// Checks a packet's HMAC, and decrypts it.
    pub fn open(&self, packet: &[u8]) -> Result<Opened, WrapError> {
        let mut rest = packet;
        let lead = Lead::parse(take::<1>(&mut rest)?[0]).ok_or(WrapError::Malformed)?;
        let session = SessionId(take(&mut rest)?);
        let start = &packet[..9];
        match &*self.0 {
            Mode::None => Ok(Opened { lead, session, id: None, body: rest.to_vec() }),
            Mode::Auth(hash, key, [_, slot]) => {
                let (hmac, signed) =
                    rest.split_at_checked(hash.output_length()).ok_or(WrapError::Malformed)?;
                let (id, mut body) = signed.split_at_checked(8).ok_or(WrapError::Malformed)?;
                let expected = hash.compute(&key.hmac(*slot)[..hash.output_length()], &[id, start, body]);
                authentic(expected.expose(), hmac)?;
                let id = packet_id(&mut &*id)?;
                Ok(Opened { lead, session, id: Some(id), body: std::mem::take(&mut body).to_vec() })
            }
            Mode::Crypt(key, [_, slot]) => {
                let (number, mut rest) = rest.split_at_checked(8).ok_or(WrapError::Malformed)?;
                let tag: [u8; TAG] = take(&mut rest)?;
                let mut body = rest.to_vec();
                ctr::apply(key.cipher(*slot), counter_block(&tag), &mut body);
                authentic(&crypt_tag(key, *slot, &[start, number, &body]), &tag)?;
                Ok(Opened { lead, session, id: Some(packet_id(&mut &*number)?), body })
            }
        }
    }
}

fn packet_id(bytes: &mut &[u8]) -> Result<PacketId, WrapError> {
    Ok(PacketId { number: take_u32(bytes)?, time: take_u32(bytes)? })
}

fn authentic(expected: &[u8], found: &[u8]) -> Result<(), WrapError> {
    if expected.ct_eq(found).into() { Ok(()) } else { Err(WrapError::NotAuthentic) }
}

fn crypt_tag(key: &StaticKey, slot: usize, parts: &[&[u8]]) -> [u8; TAG] {
    mac(&key.hmac(slot)[..TAG], parts)
}

fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; TAG] {
    let tag = Prf::HmacSha256.compute(key, parts);
    tag.expose().try_into().expect("SHA-256 has 32 bytes")
}

fn counter_block(tag: &[u8; TAG]) -> [u8; 16] {
    *tag.first_chunk().expect("the tag is longer")
}

/// The wrap of one session.
pub struct Wrapper {
    keys: WrapKeys,
    sent: PacketId,
    received: Option<PacketId>,
    window: ReplayWindow,
    longest: usize,
}

impl Wrapper {
    /// A wrap that numbers packets from `after.number + 1` on.
    pub fn new(keys: WrapKeys, after: PacketId) -> Self {
        Self { keys, sent: after, received: None, window: ReplayWindow::new(WINDOW), longest: CONTROL_PACKET }
    }

    /// Limits packets to so many bytes, with their UDP and IP header (`max-packet-size`), as far as that is possible.
    #[must_use]
    pub fn limited_to(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// See [`limited_to`](Self::limited_to).
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The bytes of TLS that a packet carries.
    pub fn room(&self) -> usize {
        self.longest.saturating_sub(CONTROL_OVERHEAD + self.keys.overhead()).max(LEAST_CHUNK)
    }

    /// The keys.
    pub fn keys(&self) -> &WrapKeys {
        &self.keys
    }

    /// A packet with the next number.
    pub fn seal(&mut self, wall_seconds: u32, lead: Lead, session: SessionId, body: &[u8]) -> Vec<u8> {
        match self.sent.number.checked_add(1) {
            Some(number) => self.sent.number = number,
            // A number is used once in its second; 2^32 packets take longer than one.
            None => self.sent = PacketId { number: 1, time: wall_seconds.max(self.sent.time + 1) },
        }
        self.keys.seal(lead, session, self.sent, body)
    }

    /// Notes the number of an authentic packet of this session, or refuses one that was received before.
    pub fn accept(&mut self, id: Option<PacketId>) -> Result<(), WrapError> {
        let Some(id) = id else { return Ok(()) };
        match self.received {
            Some(last) if id.time < last.time => return Err(WrapError::Replayed),
            Some(last) if id.time == last.time => {}
            _ => self.window = ReplayWindow::new(WINDOW),
        }
        self.window.accept(id.number.into()).map_err(|_| WrapError::Replayed)?;
        self.received = Some(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Opcode;
    use super::*;

    const LEAD: Lead = Lead { opcode: Opcode::Control, key_id: 3 };
    const SESSION: SessionId = SessionId([5; 8]);
    const ID: PacketId = PacketId { number: 7, time: 1_700_000_000 };

    fn key() -> StaticKey {
        StaticKey::new(&std::array::from_fn(|index| index as u8))
    }

    fn pairs() -> Vec<[WrapKeys; 2]> {
        let auth = |direction| WrapKeys::tls_auth(Prf::HmacSha512, key(), direction);
        vec![
            [WrapKeys::none(), WrapKeys::none()],
            [WrapKeys::tls_auth(Prf::HmacSha1, key(), None), WrapKeys::tls_auth(Prf::HmacSha1, key(), None)],
            [auth(Some(0)), auth(Some(1))],
            [WrapKeys::tls_crypt(key(), Role::Server), WrapKeys::tls_crypt(key(), Role::Client)],
        ]
    }

    #[test]
    fn what_one_side_seals_the_other_opens() {
        for [a, b] in pairs().into_iter().chain(pairs().into_iter().map(|[a, b]| [b, a])) {
            let opened = b.open(&a.seal(LEAD, SESSION, ID, b"body")).expect("authentic");
            assert_eq!((opened.lead, opened.session, &opened.body[..]), (LEAD, SESSION, &b"body"[..]));
            assert_eq!(opened.id, a.authenticates().then_some(ID));
        }
    }

    #[test]
    fn no_changed_or_truncated_packet_is_opened() {
        for [a, b] in &pairs()[1..] {
            let packet = a.seal(LEAD, SESSION, ID, b"body");
            for length in 0..packet.len() {
                assert!(b.open(&packet[..length]).is_err(), "{length}");
                let mut changed = packet.clone();
                changed[length] ^= 1;
                assert!(b.open(&changed).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn with_directions_a_side_does_not_open_its_own_packets() {
        for [a, _] in &pairs()[2..] {
            assert_eq!(a.open(&a.seal(LEAD, SESSION, ID, b"body")), Err(WrapError::NotAuthentic));
        }
    }

    #[test]
    fn a_packet_is_accepted_once() {
        let keys = WrapKeys::tls_crypt(key(), Role::Server);
        let mut sender = Wrapper::new(keys, PacketId { number: 0, time: 1000 });
        let mut receiver =
            Wrapper::new(WrapKeys::tls_crypt(key(), Role::Client), PacketId { number: 0, time: 1 });
        let packets: Vec<_> = (0..3).map(|_| sender.seal(1000, LEAD, SESSION, b"")).collect();
        let mut receive = |packet: &[u8]| receiver.accept(receiver.keys.open(packet)?.id);
        for index in [0, 2, 1] {
            assert_eq!(receive(&packets[index]), Ok(()));
            assert_eq!(receive(&packets[index]), Err(WrapError::Replayed));
        }
        let later = sender.keys.seal(LEAD, SESSION, PacketId { number: 1, time: 1001 }, b"");
        assert_eq!(receive(&later), Ok(()), "a later second begins again");
        let next = sender.seal(1000, LEAD, SESSION, b"");
        assert_eq!(receive(&next), Err(WrapError::Replayed), "an earlier second");
    }
}
