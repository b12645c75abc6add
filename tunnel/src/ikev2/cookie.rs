//! Cookies: before any state is kept for an initiator, it proves that it receives packets at its address (RFC 7296
//! section 2.6).

use super::limits::COOKIE_TIME;
use crate::Time;
use crypto::{Random, hash};
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// Bytes of a cookie: the version of the secret, and a MAC.
const LENGTH: usize = 1 + 16;

/// Creates and verifies cookies; its only state is two secrets.
#[derive(Default)]
pub(super) struct CookieJar {
    current: Option<Secret>,
    previous: Option<Secret>,
}

struct Secret {
    version: u8,
    key: [u8; 32],
    since: Time,
}

impl CookieJar {
    /// The cookie for an initiator.
    pub(super) fn give(
        &mut self,
        now: Time,
        initiator: &Initiator<'_>,
        random: &mut dyn Random,
    ) -> [u8; LENGTH] {
        if self.current.as_ref().is_none_or(|secret| now - secret.since >= COOKIE_TIME) {
            let version = self.current.as_ref().map_or(0, |secret| secret.version.wrapping_add(1));
            let mut key = [0; 32];
            random.fill(&mut key);
            self.previous = self.current.replace(Secret { version, key, since: now });
        }
        let secret = self.current.as_ref().expect("made if there was none");
        secret.cookie(initiator)
    }

    /// Whether `initiator` returned the cookie that it was given.
    pub(super) fn is_valid(&self, now: Time, initiator: &Initiator<'_>, cookie: &[u8]) -> bool {
        let secrets = [&self.current, &self.previous].into_iter().flatten();
        let mut fresh = secrets.filter(|secret| now - secret.since < 2 * COOKIE_TIME);
        fresh.any(|secret| secret.cookie(initiator).ct_eq(cookie).into())
    }
}

/// What a cookie is bound to.
pub(super) struct Initiator<'a> {
    pub(super) spi: u64,
    pub(super) nonce: &'a [u8],
    pub(super) source: SocketAddr,
}

impl Secret {
    /// Section 2.6: `<VersionIDofSecret> | Hash(Ni | IPi | SPIi | <secret>)`, and with the port.
    fn cookie(&self, initiator: &Initiator<'_>) -> [u8; LENGTH] {
        let (spi, port) = (initiator.spi.to_be_bytes(), initiator.source.port().to_be_bytes());
        let address = match initiator.source.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut cookie = [self.version; LENGTH];
        let mac = hash::mac(&self.key, &[initiator.nonce, &address.octets(), &port, &spi]);
        cookie[1..].copy_from_slice(&mac);
        cookie
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::random::System;

    const NOW: Time = Time::from_nanoseconds(1_000_000_000);

    fn initiator(source: &str, nonce: &'static [u8], spi: u64) -> Initiator<'static> {
        Initiator { spi, nonce, source: source.parse().expect("literal") }
    }

    #[test]
    fn a_cookie_is_valid_for_its_owner_only() {
        let mut jar = CookieJar::default();
        let owner = initiator("192.0.2.1:500", b"nonce", 1);
        assert!(!jar.is_valid(NOW, &owner, &[0; LENGTH]), "none was given out");
        let cookie = jar.give(NOW, &owner, &mut System::default());
        assert!(jar.is_valid(NOW, &owner, &cookie));
        for other in [
            initiator("192.0.2.2:500", b"nonce", 1),
            initiator("192.0.2.1:501", b"nonce", 1),
            initiator("192.0.2.1:500", b"other", 1),
            initiator("192.0.2.1:500", b"nonce", 2),
        ] {
            assert!(!jar.is_valid(NOW, &other, &cookie));
        }
        assert!(!jar.is_valid(NOW, &owner, &cookie[..LENGTH - 1]));
        assert!(!jar.is_valid(NOW, &owner, &[]));
    }

    #[test]
    fn cookies_outlive_one_change_of_the_secret() {
        let mut jar = CookieJar::default();
        let owner = initiator("192.0.2.1:500", b"nonce", 1);
        let cookie = jar.give(NOW, &owner, &mut System::default());
        let later = NOW + COOKIE_TIME;
        assert_ne!(jar.give(later, &owner, &mut System::default()), cookie);
        assert!(jar.is_valid(later, &owner, &cookie));
        jar.give(later + COOKIE_TIME, &owner, &mut System::default());
        assert!(!jar.is_valid(later + COOKIE_TIME, &owner, &cookie));
    }
}
