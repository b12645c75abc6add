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

/// Sessions by their IDs, in the order in which they were established.
pub(super) struct Sessions<I, S>(Vec<(I, S)>);

impl<I, S> Default for Sessions<I, S> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<I: PartialEq, S> Sessions<I, S> {
    pub(super) fn insert(&mut self, id: I, session: S) {
        self.0.push((id, session));
    }

    pub(super) fn remove(&mut self, id: &I) {
        self.0.retain(|(it, _)| it != id);
    }

    pub(super) fn get_mut(&mut self, id: &I) -> Option<&mut S> {
        self.0.iter_mut().find(|(it, _)| it == id).map(|(_, session)| session)
    }

    /// The newest, which reports show.
    pub(super) fn newest(&self) -> Option<&S> {
        self.0.last().map(|(_, session)| session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_connected_until_the_last_of_two_sessions_ends() {
        for (first, last) in [(1, 2), (2, 1)] {
            let mut sessions = Sessions::default();
            sessions.insert(1, 1);
            sessions.insert(2, 2);
            sessions.remove(&first);
            assert_eq!(sessions.newest(), Some(&last));
            sessions.remove(&last);
            assert_eq!(sessions.newest(), None);
        }
    }
}
