//! The session ID of a server as a cookie: it proves that a client receives packets at its address, and costs no state.
//!
//! The ID is a MAC over the client's session ID and address, and the time. Only a client that received the answer to its
//! first packet can send the ID back, and only then a session is created.

use super::limits::HAND_WINDOW;
use super::packet::SessionId;
use super::peer_address::PeerAddress;
use crate::Time;
use crypto::prf::Prf;
use crypto::{Random, Secret};
use std::net::IpAddr;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// The slots of time, the present one included, in which an ID is accepted.
pub(super) const SLOTS: u64 = 3;
/// The length of a slot.
pub(super) const SLOT: Duration = Duration::from_secs(HAND_WINDOW.as_secs() / 2);

/// The server's key for its session IDs.
pub struct CookieKey(Secret);

impl CookieKey {
    /// A random key, which no one else needs to know.
    pub fn random(random: &mut dyn Random) -> Self {
        let mut key = [0; 32];
        random.fill(&mut key);
        Self(Secret::new(key))
    }

    /// The session ID with which the server answers this client now.
    pub fn create(&self, now: Time, client: SessionId, address: PeerAddress) -> SessionId {
        self.in_slot(slot(now), client, address)
    }

    /// Whether the server answered this client with `session` lately.
    pub fn verify(&self, now: Time, client: SessionId, address: PeerAddress, session: SessionId) -> bool {
        let now = slot(now);
        let is_of = |slot| bool::from(self.in_slot(slot, client, address).0.ct_eq(&session.0));
        (0..SLOTS).filter_map(|age| now.checked_sub(age)).any(is_of)
    }

    fn in_slot(&self, slot: u64, client: SessionId, address: PeerAddress) -> SessionId {
        let ip = match address.socket.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let (port, protocol) =
            (address.socket.port().to_be_bytes(), [u8::from(address.is_tcp), address.binding]);
        let parts: &[&[u8]] = &[&client.0, &ip, &port, &protocol, &slot.to_be_bytes()];
        let mac = Prf::HmacSha256.compute(self.0.expose(), parts);
        SessionId(*mac.expose().first_chunk().expect("SHA-256 has 32 bytes"))
    }
}

/// The slot of a time.
pub(super) fn slot(now: Time) -> u64 {
    now.nanoseconds() / SLOT.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn at(address: &str) -> SocketAddr {
        address.parse().expect("literal")
    }

    #[test]
    fn an_id_is_good_for_its_client_at_its_address_for_a_minute() {
        let key = CookieKey(Secret::new([1; 32]));
        let start = Time::from_nanoseconds(1) + Duration::from_secs(1000);
        let (client, address) = (SessionId([2; 8]), PeerAddress::from(at("192.0.2.1:5000")));
        let session = key.create(start, client, address);
        let after = |seconds| key.verify(start + Duration::from_secs(seconds), client, address, session);
        assert!(after(0) && after(60) && !after(90));
        assert!(!key.verify(start, SessionId([3; 8]), address, session));
        assert!(!key.verify(start, client, at("192.0.2.1:5001").into(), session));
        assert!(!key.verify(start, client, at("192.0.2.2:5000").into(), session));
        assert!(!key.verify(start, client, PeerAddress::tcp(address.socket), session));
        assert!(!CookieKey(Secret::new([2; 32])).verify(start, client, address, session));
    }
}
