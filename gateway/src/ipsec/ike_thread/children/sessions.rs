//! The sessions of a peer. There are two for a moment where both sides initiate at once, and either may be the one that stays.

use packet::Endpoint;
use tunnel::Time;
use tunnel::ikev2::SessionId;
use tunnel::ikev2::proposal::IkeSuite;

/// A session: its start, the peer's identity, the algorithms of its IKE SA, and where the peer is.
pub(super) struct Established {
    pub(super) session: SessionId,
    pub(super) since: Time,
    pub(super) identity: String,
    pub(super) suite: IkeSuite,
    pub(super) endpoint: Endpoint,
}

/// In the order in which they were established.
#[derive(Default)]
pub(super) struct Sessions(Vec<Established>);

impl Sessions {
    pub(super) fn insert(&mut self, session: Established) {
        self.0.push(session);
    }

    pub(super) fn remove(&mut self, session: SessionId) {
        self.0.retain(|it| it.session != session);
    }

    pub(super) fn get_mut(&mut self, session: SessionId) -> Option<&mut Established> {
        self.0.iter_mut().find(|it| it.session == session)
    }

    /// The newest, which reports show.
    pub(super) fn newest(&self) -> Option<&Established> {
        self.0.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Cipher;
    use crypto::exchange::Group;
    use crypto::prf::Prf;
    use tunnel::ikev2::proposal::MessageCipher;

    fn established(number: u64) -> Established {
        let protection = MessageCipher::Aead(Cipher::Aes128Gcm, 16);
        Established {
            session: SessionId::new(number),
            since: Time::from_nanoseconds(0),
            identity: "berlin".to_owned(),
            suite: IkeSuite { protection, prf: Prf::HmacSha256, group: Group::X25519 },
            endpoint: Endpoint::new("192.0.2.1:500".parse().expect("literal")),
        }
    }

    #[test]
    fn a_peer_is_connected_until_the_last_of_two_sessions_ends() {
        for (first, last) in [(1, 2), (2, 1)].map(|(a, b)| (SessionId::new(a), SessionId::new(b))) {
            let mut sessions = Sessions::default();
            sessions.insert(established(1));
            sessions.insert(established(2));
            sessions.remove(first);
            assert_eq!(sessions.newest().map(|it| it.session), Some(last));
            sessions.remove(last);
            assert!(sessions.newest().is_none());
        }
    }
}
