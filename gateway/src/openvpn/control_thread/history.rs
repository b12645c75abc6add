//! The last sessions that were refused or failed, for `explain`: bounded, and kept in memory alone.

use super::server::variables::certificate_name;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tunnel::openvpn::action::{Request, SessionNumber};
use tunnel::openvpn::name_fields::NameFields;
use tunnel::openvpn::{Cause, PeerAddress};

/// Entries; an older one with the same peer and the same reason counts up instead.
const MOST: usize = 64;
/// Sessions that are asked about at once.
const MOST_OFFERS: usize = 1024;
/// Characters of what a peer says of itself.
const LONGEST: usize = 200;

/// A peer whose session was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Where it is.
    pub address: PeerAddress,
    /// Its name in its certificate, if it has shown one that is accepted.
    pub common_name: Option<String>,
    /// What it said of itself: its version and ciphers.
    pub offered: Option<String>,
    /// Why it failed.
    pub cause: Cause,
    /// How often.
    pub count: u64,
    /// When it last did, as the time since 1970.
    pub latest: Duration,
}

/// What a peer that asks to be admitted has said.
struct Offer {
    common_name: Option<String>,
    offered: String,
}

/// The history.
#[derive(Default)]
pub(super) struct History {
    offers: BTreeMap<SessionNumber, Offer>,
    failed: VecDeque<Failed>,
}

impl History {
    /// A peer asks to be admitted.
    pub(super) fn asked(&mut self, session: SessionNumber, request: &Request, fields: &NameFields) {
        if self.offers.len() >= MOST_OFFERS {
            self.offers.pop_first();
        }
        let offer = Offer { common_name: name(request, fields), offered: offered(request) };
        self.offers.insert(session, offer);
    }

    /// A session has ended. `was_connected`: that it ends is no failure then.
    pub(super) fn closed(
        &mut self,
        session: SessionNumber,
        address: PeerAddress,
        was_connected: bool,
        cause: &Cause,
        wall: Duration,
    ) {
        let offer = self.offers.remove(&session);
        if was_connected || matches!(cause, Cause::Stopped | Cause::Exited | Cause::Replaced) {
            return;
        }
        let (common_name, offered) = match offer {
            Some(offer) => (offer.common_name, Some(offer.offered)),
            None => (None, None),
        };
        self.add(Failed { address, common_name, offered, cause: cause.clone(), count: 1, latest: wall });
    }

    /// All of them, the newest first.
    pub(super) fn all(&self) -> Vec<Failed> {
        self.failed.iter().rev().cloned().collect()
    }

    fn add(&mut self, failed: Failed) {
        let is_same = |it: &Failed| {
            it.address.socket.ip() == failed.address.socket.ip()
                && it.common_name == failed.common_name
                && it.cause == failed.cause
        };
        let before = self.failed.iter().position(is_same).and_then(|at| self.failed.remove(at));
        if self.failed.len() >= MOST {
            self.failed.pop_front();
        }
        let count = failed.count + before.map_or(0, |before| before.count);
        self.failed.push_back(Failed { count, ..failed });
    }
}

/// The name of a client in its certificate, which the protocol has verified: that of `x509-username-field`.
fn name(request: &Request, fields: &NameFields) -> Option<String> {
    (!request.certificates.is_empty()).then(|| certificate_name(&request.certificates, fields))
}

/// The version, the platform and the ciphers of a client.
fn offered(request: &Request) -> String {
    let known = ["IV_VER", "IV_PLAT", "IV_CIPHERS"];
    let lines = request.info.lines.iter().filter(|(name, _)| known.contains(&name.as_str()));
    let lines: Vec<String> = lines.map(|(name, value)| format!("{name}={value}")).collect();
    lines.join(", ").chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn at(address: &str) -> PeerAddress {
        address.parse::<SocketAddr>().expect("literal").into()
    }

    fn end(history: &mut History, address: &str, cause: &Cause, second: u64) {
        history.closed(1, at(address), false, cause, Duration::from_secs(second));
    }

    #[test]
    fn equal_failures_are_counted_and_the_newest_is_first() {
        let mut history = History::default();
        let refused = Cause::RefusedByUs("it is disabled".to_owned());
        end(&mut history, "192.0.2.1:5", &refused, 1);
        end(&mut history, "192.0.2.2:5", &Cause::HandshakeTimeout, 2);
        end(&mut history, "192.0.2.1:6", &refused, 3);
        let all = history.all();
        assert_eq!((all.len(), all[0].count, all[0].latest.as_secs()), (2, 2, 3));
        assert_eq!((&all[0].cause, &all[1].cause), (&refused, &Cause::HandshakeTimeout));
    }

    #[test]
    fn the_history_is_bounded_and_has_no_session_that_was_up() {
        let mut history = History::default();
        history.closed(1, at("192.0.2.1:5"), true, &Cause::Gone(60), Duration::ZERO);
        end(&mut history, "192.0.2.1:5", &Cause::Exited, 1);
        assert!(history.all().is_empty());
        for number in 0..200_u64 {
            end(&mut history, "192.0.2.1:5", &Cause::Gone(number), number);
        }
        assert_eq!((history.all().len(), history.all()[0].latest.as_secs()), (MOST, 199));
    }
}
