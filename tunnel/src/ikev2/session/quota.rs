//! Rate limit of the key exchanges and Child SAs that a peer asks for. A key exchange takes up to ten milliseconds of
//! the threads that serve all peers, and the selectors of a Child SA are compared with those of all others. A
//! well-behaved peer needs few of both.
//!
//! Each peer has a token bucket, which a new session of the peer takes over. Requests beyond the limit are refused
//! with TEMPORARY_FAILURE (RFC 7296 section 2.25), after which a well-behaved peer tries again.

use super::Session;
use super::requests::Asked;
use crate::bucket::Bucket;
use crate::ikev2::cause::Cause;
use crate::ikev2::config::Connection;
use crate::ikev2::context::Context;
use crate::ikev2::limits::{CHILDREN, EXCHANGES_AT_ONCE, EXCHANGES_PER_LIFETIME, SHORTEST_LIFETIME};
use crate::ikev2::message::numbers::notify;
use std::time::Duration;

/// The refill interval and the size of the bucket.
fn rate(config: &Connection) -> (Duration, u32) {
    // The peer's lifetimes are its own choice: they may be shorter than the local ones.
    let lifetimes = config.children.iter().map(|child| child.lifetime).chain([config.lifetime]);
    let shortest = lifetimes.fold(SHORTEST_LIFETIME, Duration::min);
    // Some implementations create a Child SA for each pair of networks.
    let pairs = config.children.iter().map(|child| child.local.len().max(1) * child.remote.len().max(1));
    let children = u32::try_from(pairs.sum::<usize>().min(CHILDREN)).unwrap_or(u32::MAX);
    let children = children.max(u32::try_from(config.children.len()).unwrap_or(u32::MAX - 1));
    // One more for the IKE SA.
    let sas = children.saturating_add(1);
    let each_lifetime = sas.saturating_mul(EXCHANGES_PER_LIFETIME);
    (shortest / each_lifetime, each_lifetime.saturating_add(EXCHANGES_AT_ONCE))
}

impl Session {
    /// Whether a request for a key exchange or a Child SA is within the limit; if not, it is refused. The rekeying of
    /// a Child SA near its byte or packet limit is always allowed: `replaces` has its inbound and outbound SPI.
    pub(super) fn may_make(
        &mut self,
        asked: Asked<'_>,
        replaces: Option<[u32; 2]>,
        context: &mut Context<'_>,
    ) -> bool {
        // It was counted before its job.
        if asked.exchanged.is_some() || replaces.is_some_and(|spis| (context.worn)(spis)) {
            return true;
        }
        let (now, key) =
            (context.now, (context.registry.instances.configured(self.connection), self.identity.clone()));
        let fresh = || {
            let (interval, size) = rate(&self.config);
            Bucket::new(size, interval, now)
        };
        if context.registry.exchanges.of(key, now, fresh).take(now) {
            return true;
        }
        self.refused_exchanges += 1;
        self.refuse(asked, notify::TEMPORARY_FAILURE, &[], context);
        context.fail_sometimes(self.connection, self.path, Cause::TooManyExchanges);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ikev2::config::{Authentication, Start, WhenLost};
    use crate::ikev2::identity::Identity;
    use crypto::SecretBytes;

    #[test]
    fn the_shortest_lifetime_counts() {
        let mut config = Connection {
            name: String::new(),
            local: None,
            remote: None,
            local_identity: Identity::KeyId(vec![]),
            remote_identity: None,
            authentication: Authentication::SharedKey(SecretBytes::new(vec![])),
            further: Vec::new(),
            ike: vec![],
            children: vec![],
            lifetime: Duration::from_secs(3600),
            reauthenticate: false,
            dead_peer_detection: None,
            start: Start::Respond,
            when_lost: WhenLost::Clear,
            force_encapsulation: false,
        };
        assert_eq!(rate(&config).0, SHORTEST_LIFETIME / EXCHANGES_PER_LIFETIME);
        config.lifetime = Duration::from_secs(4);
        assert_eq!(rate(&config).0, Duration::from_secs(4) / EXCHANGES_PER_LIFETIME);
    }
}
