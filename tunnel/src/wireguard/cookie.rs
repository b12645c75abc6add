//! The two MACs of handshake messages, and cookies against floods (sections 5.3, 5.4.4 and 5.4.7).
//!
//! [`CookieChecker`] is the receiver's side; [`CookieJar`] the sender's, one for each peer.

use super::limits::COOKIE_TIME;
use crate::Time;
use crypto::{PublicKey, Random, aead, hash};
use packet::header::wireguard::{COOKIE_REPLY, CookieReply, Initiation, Macs, Response, TAG};
use std::net::SocketAddr;
use std::time::Duration;
use subtle::ConstantTimeEq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zeroize::ZeroizeOnDrop;

const LABEL_MAC1: &[u8] = b"mac1----";
const LABEL_COOKIE: &[u8] = b"cookie--";
const MAC: usize = 16;

/// A cookie is not used in its last seconds: its secret could change while the message is in flight.
const COOKIE_USE_TIME: Duration = Duration::from_secs(COOKIE_TIME.as_secs() - 5);

/// A handshake message with its MACs.
pub trait Authenticated: IntoBytes + FromBytes + Immutable + KnownLayout {
    /// The sender index, which a cookie reply is addressed to.
    fn sender(&self) -> u32;
    /// The MACs at the end.
    fn macs(&self) -> &Macs;
    /// The MACs, for writing.
    fn macs_mut(&mut self) -> &mut Macs;
    /// Everything before `mac1`.
    fn before_mac1(&self) -> &[u8] {
        let bytes = self.as_bytes();
        &bytes[..bytes.len() - 2 * MAC]
    }
    /// Everything before `mac2`.
    fn before_mac2(&self) -> &[u8] {
        let bytes = self.as_bytes();
        &bytes[..bytes.len() - MAC]
    }
}

macro_rules! authenticated {
    ($message:ty) => {
        impl Authenticated for $message {
            fn sender(&self) -> u32 {
                self.sender.get()
            }
            fn macs(&self) -> &Macs {
                &self.macs
            }
            fn macs_mut(&mut self) -> &mut Macs {
                &mut self.macs
            }
        }
    };
}
authenticated!(Initiation);
authenticated!(Response);

/// What the MACs prove about the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The sender does not know our public key.
    Nothing,
    /// The sender knows our public key.
    KnowsKey,
    /// The sender also receives packets at its source address.
    OwnsAddress,
}

/// Verifies the MACs of received messages, and creates cookies.
#[derive(ZeroizeOnDrop)]
pub struct CookieChecker {
    mac1_key: [u8; 32],
    cookie_key: [u8; 32],
    secret: [u8; 32],
    #[zeroize(skip)]
    secret_since: Option<Time>,
}

impl CookieChecker {
    /// Creates the checker for the local public key.
    pub fn new(local: &PublicKey) -> Self {
        Self {
            mac1_key: hash::hash(&[LABEL_MAC1, &local.0]),
            cookie_key: hash::hash(&[LABEL_COOKIE, &local.0]),
            secret: [0; 32],
            secret_since: None,
        }
    }

    /// What `message` from `source` proves.
    pub fn check(&self, message: &impl Authenticated, source: SocketAddr, now: Time) -> Proof {
        let macs = message.macs();
        if !same(&hash::mac(&self.mac1_key, &[message.before_mac1()]), &macs.mac1) {
            return Proof::Nothing;
        }
        let secret_is_valid = self.secret_since.is_some_and(|since| now - since < COOKIE_TIME);
        if secret_is_valid && same(&hash::mac(&self.cookie(source), &[message.before_mac2()]), &macs.mac2) {
            return Proof::OwnsAddress;
        }
        Proof::KnowsKey
    }

    /// Creates the reply with the cookie for `source`, encrypted for the sender of `message`.
    pub fn create_reply(
        &mut self,
        message: &impl Authenticated,
        source: SocketAddr,
        now: Time,
        random: &mut dyn Random,
    ) -> CookieReply {
        if self.secret_since.is_none_or(|since| now - since >= COOKIE_USE_TIME) {
            random.fill(&mut self.secret);
            self.secret_since = Some(now);
        }
        let mut reply = CookieReply {
            kind: COOKIE_REPLY.into(),
            receiver: message.sender().into(),
            nonce: [0; 24],
            encrypted_cookie: [0; MAC + TAG],
        };
        random.fill(&mut reply.nonce);
        reply.encrypted_cookie[..MAC].copy_from_slice(&self.cookie(source));
        let mac1 = &message.macs().mac1;
        aead::seal_extended(&self.cookie_key, &reply.nonce, mac1, &mut reply.encrypted_cookie);
        reply
    }

    /// The cookie of a source; it covers address and port, so that it is not valid for another socket.
    fn cookie(&self, source: SocketAddr) -> [u8; MAC] {
        let port = source.port().to_be_bytes();
        match source {
            SocketAddr::V4(source) => hash::mac(&self.secret, &[&source.ip().octets(), &port]),
            SocketAddr::V6(source) => hash::mac(&self.secret, &[&source.ip().octets(), &port]),
        }
    }
}

/// Writes the MACs of messages to one peer, and stores the peer's cookie.
#[derive(ZeroizeOnDrop)]
pub struct CookieJar {
    mac1_key: [u8; 32],
    cookie_key: [u8; 32],
    last_mac1: Option<[u8; MAC]>,
    #[zeroize(skip)]
    cookie_since: Option<Time>,
    cookie: [u8; MAC],
}

impl CookieJar {
    /// Creates the jar for messages to the owner of `remote`.
    pub fn new(remote: &PublicKey) -> Self {
        Self {
            mac1_key: hash::hash(&[LABEL_MAC1, &remote.0]),
            cookie_key: hash::hash(&[LABEL_COOKIE, &remote.0]),
            last_mac1: None,
            cookie_since: None,
            cookie: [0; MAC],
        }
    }

    /// Writes both MACs; the second one is zero without a cookie.
    pub fn stamp(&mut self, message: &mut impl Authenticated, now: Time) {
        let mac1 = hash::mac(&self.mac1_key, &[message.before_mac1()]);
        message.macs_mut().mac1 = mac1;
        self.last_mac1 = Some(mac1);
        // A cookie that would expire on the way is not used.
        if self.cookie_since.is_some_and(|since| now - since < COOKIE_USE_TIME) {
            message.macs_mut().mac2 = hash::mac(&self.cookie, &[message.before_mac2()]);
        }
    }

    /// Stores the cookie of a reply, if it answers the last stamped message; returns whether it did.
    pub fn consume_reply(&mut self, reply: &CookieReply, now: Time) -> bool {
        let Some(mac1) = self.last_mac1 else { return false };
        let mut text = reply.encrypted_cookie;
        let Ok(cookie) = aead::open_extended(&self.cookie_key, &reply.nonce, &mac1, &mut text) else {
            return false;
        };
        self.cookie.copy_from_slice(cookie);
        self.cookie_since = Some(now);
        // One message is answered by one reply: a second one is a replay.
        self.last_mac1 = None;
        true
    }
}

/// Compares two MACs in constant time.
fn same(ours: &[u8; MAC], theirs: &[u8; MAC]) -> bool {
    ours.ct_eq(theirs).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::random;
    use zerocopy::FromZeros;

    const NOW: Time = Time::from_nanoseconds(1_000_000_000_000);

    fn source() -> SocketAddr {
        "192.0.2.1:51820".parse().expect("literal")
    }

    fn pair() -> (CookieChecker, CookieJar) {
        let responder = PublicKey([4; 32]);
        (CookieChecker::new(&responder), CookieJar::new(&responder))
    }

    fn stamped(jar: &mut CookieJar, now: Time) -> Initiation {
        let mut message = Initiation::new_zeroed();
        jar.stamp(&mut message, now);
        message
    }

    #[test]
    fn the_first_mac_proves_knowledge_of_the_key() {
        let (checker, mut jar) = pair();
        let mut message = stamped(&mut jar, NOW);
        assert_eq!(checker.check(&message, source(), NOW), Proof::KnowsKey);
        message.ephemeral[0] ^= 1;
        assert_eq!(checker.check(&message, source(), NOW), Proof::Nothing);
    }

    #[test]
    fn a_cookie_proves_the_address_and_the_port() {
        let (mut checker, mut jar) = pair();
        let message = stamped(&mut jar, NOW);
        let reply = checker.create_reply(&message, source(), NOW, &mut random::System::default());
        assert!(jar.consume_reply(&reply, NOW));
        let message = stamped(&mut jar, NOW);
        assert_eq!(checker.check(&message, source(), NOW), Proof::OwnsAddress);
        for elsewhere in ["192.0.2.1:51821", "192.0.2.2:51820", "[2001:db8::1]:51820"] {
            let elsewhere = elsewhere.parse().expect("literal");
            assert_eq!(checker.check(&message, elsewhere, NOW), Proof::KnowsKey);
        }
    }

    #[test]
    fn cookies_expire_on_both_sides() {
        let (mut checker, mut jar) = pair();
        let message = stamped(&mut jar, NOW);
        let reply = checker.create_reply(&message, source(), NOW, &mut random::System::default());
        jar.consume_reply(&reply, NOW);
        let message = stamped(&mut jar, NOW + Duration::from_secs(100));
        assert_eq!(checker.check(&message, source(), NOW + Duration::from_secs(119)), Proof::OwnsAddress);
        assert_eq!(checker.check(&message, source(), NOW + Duration::from_secs(120)), Proof::KnowsKey);
        let message = stamped(&mut jar, NOW + Duration::from_secs(116));
        assert_eq!(message.macs.mac2, [0; 16]);
    }

    #[test]
    fn a_reply_is_taken_once_and_only_for_the_message_it_answers() {
        let (mut checker, mut jar) = pair();
        let first = stamped(&mut jar, NOW);
        let reply = checker.create_reply(&first, source(), NOW, &mut random::System::default());
        let mut second = Initiation::new_zeroed();
        second.sender = 5.into();
        jar.stamp(&mut second, NOW);
        assert!(!jar.consume_reply(&reply, NOW), "it answers the first message");
        let reply = checker.create_reply(&second, source(), NOW, &mut random::System::default());
        let mut damaged = reply.clone();
        damaged.encrypted_cookie[0] ^= 1;
        assert!(!jar.consume_reply(&damaged, NOW));
        assert!(jar.consume_reply(&reply, NOW));
        assert!(!jar.consume_reply(&reply, NOW), "a replay");
    }

    #[test]
    fn without_a_cookie_given_out_no_second_mac_is_right() {
        let (checker, mut jar) = pair();
        let mut message = stamped(&mut jar, NOW);
        // An attacker could guess a cookie made with an all-zero secret.
        message.macs.mac2 = hash::mac(&checker.cookie(source()), &[message.before_mac2()]);
        assert_eq!(checker.check(&message, source(), NOW), Proof::KnowsKey);
    }
}
