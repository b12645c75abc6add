//! Peers to which this machine itself sends nothing now: it has no route, or a packet filter refuses.
//!
//! Only configured addresses are stored: the source of a datagram may be forged.

use crate::ipsec::model::IpsecFailure;
use std::collections::HashMap;
use std::net::IpAddr;

/// The addresses of the configuration, and why nothing is sent to some of them.
#[derive(Default)]
pub(in crate::ipsec::ike_thread) struct Unsent {
    /// How many connections have each.
    known: HashMap<IpAddr, usize>,
    refused: HashMap<IpAddr, IpsecFailure>,
    /// Seconds since 1970 at which a refusal was last told, by address.
    told: HashMap<IpAddr, u64>,
}

/// Seconds between two lines about one address: a route may come and go.
const AGAIN: u64 = 60;

impl Unsent {
    /// Counts a connection to this address.
    pub(super) fn enter(&mut self, remote: Option<IpAddr>) {
        if let Some(remote) = remote {
            *self.known.entry(remote).or_default() += 1;
        }
    }

    /// Removes it; the last one takes the records of its address along.
    pub(super) fn leave(&mut self, remote: Option<IpAddr>) {
        let Some(remote) = remote else { return };
        let Some(count) = self.known.get_mut(&remote) else { return };
        *count -= 1;
        if *count == 0 {
            self.known.remove(&remote);
            self.refused.remove(&remote);
            self.told.remove(&remote);
        }
    }

    /// A message was sent there.
    pub(in crate::ipsec::ike_thread) fn note_sent(&mut self, remote: IpAddr) {
        if !self.refused.is_empty() {
            self.refused.remove(&remote);
        }
    }

    /// This machine has refused a message to there. Tells whether to log it: once in a while.
    pub(in crate::ipsec::ike_thread) fn note_refused(
        &mut self,
        remote: IpAddr,
        failure: IpsecFailure,
    ) -> bool {
        if !self.known.contains_key(&remote) {
            return false;
        }
        let now = failure.at;
        self.refused.insert(remote, failure);
        let is_due = self.told.get(&remote).is_none_or(|told| now.saturating_sub(*told) >= AGAIN);
        if is_due {
            self.told.insert(remote, now);
        }
        is_due
    }

    /// Why nothing is sent there, if that is so.
    pub(in crate::ipsec::ike_thread) fn of(&self, remote: Option<IpAddr>) -> Option<&IpsecFailure> {
        self.refused.get(&remote?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_and_forgotten_with_the_first_message_that_leaves() {
        let failure_at =
            |at, what: &str| IpsecFailure { at, what: what.to_owned(), ..IpsecFailure::default() };
        let failure = |what: &str| failure_at(0, what);
        let [peer, other] = [1, 2].map(|number| IpAddr::from([192, 0, 2, number]));
        let mut unsent = Unsent::default();
        unsent.enter(Some(peer));
        unsent.enter(Some(peer));
        assert!(!unsent.note_refused(other, failure("no route")), "an unauthenticated source's address");
        assert_eq!(unsent.of(Some(other)), None);
        assert!(unsent.note_refused(peer, failure("no route")));
        assert!(!unsent.note_refused(peer, failure("no route")), "it is known");
        assert!(
            !unsent.note_refused(peer, failure_at(59, "a filter")),
            "routes that flap do not fill the log"
        );
        assert!(unsent.note_refused(peer, failure_at(60, "no route")));
        unsent.note_refused(peer, failure("a filter"));
        unsent.note_sent(other);
        assert_eq!(unsent.of(Some(peer)), Some(&failure("a filter")));
        unsent.leave(Some(peer));
        assert!(unsent.of(Some(peer)).is_some(), "another connection goes there too");
        unsent.note_sent(peer);
        assert_eq!(unsent.of(Some(peer)), None);
        unsent.note_refused(peer, failure("no route"));
        unsent.leave(Some(peer));
        assert_eq!((unsent.of(Some(peer)), unsent.known.len(), unsent.told.len()), (None, 0, 0));
    }
}
