//! Why a WireGuard peer is up or not, and what fixes it.

use super::endpoint_reason::endpoint_reason;
use super::known_routes::KnownRoutes;
use super::labels::Labels;
use super::update::{PeerSnapshot, Snapshot};
use crate::host::netlink::Netlink;
use crate::unsent::unsent;
use crate::wireguard::model::{Caller, Explained, Explanation, Finding, PeerState};
use ipnet::IpNet;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tunnel::wireguard::Reason;

/// 2024-01-01: a clock that says less has not been set.
const UNSET_CLOCK: Duration = Duration::from_secs(1_704_067_200);

/// Explains all peers of an interface. It asks the kernel about those that do not answer, which may be thousands: not for a
/// thread that has something else to do.
pub(crate) fn interface(name: &str, snapshot: &Snapshot, labels: &Labels, now: Duration) -> Explanation {
    let mut netlink = Netlink::open().ok();
    let routes = KnownRoutes::new(|to| {
        // Without an answer nothing is claimed.
        netlink.as_mut().is_none_or(|netlink| netlink.outside(to, snapshot.fwmark).is_ok())
    });
    let has_route = |to| routes.has_route(to);
    let explain = |peer: &PeerSnapshot| {
        let (name_of, host) = (labels.peers.get(&peer.public).map(|it| &*it.name), host_name(labels, peer));
        Subject { interface: name, snapshot, peer, name: name_of, host, now, has_route: &has_route }.explain()
    };
    let mut peers: Vec<Explained> = snapshot.peers.iter().map(explain).collect();
    peers.sort_by(|a, b| {
        let [a, b] = [a, b].map(|peer| peer.name.as_deref().unwrap_or_default());
        config::tree::natural_order(a, b)
    });
    let public_key = snapshot.public.map(|key| key.to_string());
    Explanation { interface: name.to_owned(), public_key, peers, callers: callers(snapshot) }
}

/// Why peers of an interface are down, by their keys. It asks the kernel, as [`interface`] does.
pub(crate) fn failures(
    name: &str,
    snapshot: &Snapshot,
    labels: &Labels,
    now: Duration,
) -> HashMap<String, String> {
    let explanation = interface(name, snapshot, labels, now);
    let down = explanation.peers.into_iter().filter(|peer| peer.state == PeerState::Down);
    down.filter_map(|peer| Some((peer.public_key, peer.findings.into_iter().next()?.what))).collect()
}

/// Whether each peer is up, in the order of the snapshot. The kernel is not asked: routes change what is advised, not the state.
pub(crate) fn states<'a>(
    snapshot: &'a Snapshot,
    labels: &'a Labels,
    now: Duration,
) -> impl Iterator<Item = PeerState> + 'a {
    let state = move |peer| {
        let (has_route, host) = (&|_| true, host_name(labels, peer));
        Subject { interface: "", snapshot, peer, name: None, host, now, has_route }.state().0
    };
    snapshot.peers.iter().map(state)
}

/// The domain name that a peer is found by.
fn host_name<'a>(labels: &'a Labels, peer: &PeerSnapshot) -> Option<HostName<'a>> {
    let name = labels.peers.get(&peer.public)?.host.as_deref()?;
    Some(HostName { name, unresolved: labels.known.why(name) })
}

/// A peer, and what there is to know for its explanation.
struct Subject<'a> {
    /// The interface.
    interface: &'a str,
    /// All that it shows.
    snapshot: &'a Snapshot,
    /// The peer.
    peer: &'a PeerSnapshot,
    /// Its name in the configuration; without one the interface is driven by `wg`.
    name: Option<&'a str>,
    /// The domain name that it is found by.
    host: Option<HostName<'a>>,
    /// Time since 1970.
    now: Duration,
    /// Whether the kernel knows a way to an address.
    has_route: &'a dyn Fn(IpAddr) -> bool,
}

/// The domain name of a peer.
struct HostName<'a> {
    name: &'a str,
    /// Why it has no address now.
    unresolved: Option<String>,
}

fn finding(what: String, fix: impl IntoIterator<Item = String>) -> Finding {
    Finding { what, fix: fix.into_iter().collect() }
}

/// How long ago something was, for people.
fn ago(now: Duration, then: Duration) -> String {
    match now.saturating_sub(then).as_secs() {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

impl Subject<'_> {
    /// All that there is to say.
    fn explain(&self) -> Explained {
        let (state, mut findings) = self.state();
        findings.extend(self.bad_responses().filter(|it| !findings.contains(it)));
        findings.extend(self.whatever_the_state());
        if state != PeerState::Up && self.snapshot.up {
            findings.extend(self.callers());
        }
        Explained {
            name: self.name.map(str::to_owned),
            public_key: self.peer.public.to_string(),
            endpoint: self.remote().map(|remote| remote.to_string()),
            allowed_ips: self.peer.allowed_ips.iter().map(IpNet::to_string).collect(),
            has_preshared_key: !self.peer.preshared.is_zero(),
            state,
            findings,
        }
    }

    fn remote(&self) -> Option<SocketAddr> {
        self.peer.endpoint.map(|endpoint| endpoint.remote)
    }

    /// The line that sets something of the interface.
    fn set_interface(&self, what: &str, for_wg: &str) -> String {
        match self.name {
            Some(_) => format!("set interfaces wireguard {} {what}", self.interface),
            None => format!("wg set {} {for_wg}", self.interface),
        }
    }

    /// The line that sets something of the peer.
    fn set(&self, what: &str, for_wg: &str) -> String {
        match self.name {
            Some(name) => format!("set interfaces wireguard {} peer {name} {what}", self.interface),
            None => format!("wg set {} peer {} {for_wg}", self.interface, self.peer.public),
        }
    }

    fn state(&self) -> (PeerState, Vec<Finding>) {
        let (peer, trouble) = (self.peer, &self.peer.trouble);
        let handshake = peer.last_handshake.map(|at| ago(self.now, at));
        if !self.snapshot.up {
            let fix = match self.name {
                Some(_) => {
                    format!("delete interfaces wireguard {} disable, or ip link set {0} up", self.interface)
                }
                None => format!("ip link set {} up", self.interface),
            };
            return (PeerState::Down, vec![finding(format!("interface {} is down", self.interface), [fix])]);
        }
        if self.snapshot.public.is_none() {
            let fix = self.set_interface("private-key KEY", "private-key FILE");
            return (PeerState::Down, vec![finding("the interface has no private key".to_owned(), [fix])]);
        }
        if trouble.is_low_order {
            let fix = self.set("public-key KEY", "remove; then add it with its right key");
            let what = "its public key is a point of low order, which no private key has".to_owned();
            return (PeerState::Down, vec![finding(what, [fix])]);
        }
        if trouble.unanswered > 1 || (trouble.unanswered == 1 && !peer.has_key) {
            // It has answered, and the general advice for silence would mislead.
            let answered = self.bad_responses();
            let silent = || self.unresolved().into_iter().chain(self.unanswered()).collect();
            return (PeerState::Down, answered.map_or_else(silent, |why| vec![why]));
        }
        if peer.has_key {
            let at = handshake.unwrap_or_default();
            return (PeerState::Up, vec![finding(format!("the last handshake was {at}"), [])]);
        }
        if trouble.unconfirmed > 0 {
            return (PeerState::Down, vec![self.unconfirmed()]);
        }
        match (handshake, self.remote()) {
            (Some(at), _) => {
                let what = format!("idle: the last handshake was {at}, and the next packet begins another");
                (PeerState::Idle, vec![finding(what, [])])
            }
            (None, Some(_)) => (PeerState::Waiting, vec![self.unused()]),
            (None, None) => match self.unresolved() {
                Some(unresolved) => (PeerState::Down, vec![unresolved]),
                None => (PeerState::Waiting, vec![self.nowhere()]),
            },
        }
    }

    /// Nothing was sent to it yet.
    fn unused(&self) -> Finding {
        let fix = self.set("persistent-keepalive 25", "persistent-keepalive 25");
        let what = "no handshake yet: it starts on the first packet; none yet".to_owned();
        finding(what, [format!("ping an address behind the peer; or connect at once: {fix}")])
    }

    /// It is not known where it is.
    fn nowhere(&self) -> Finding {
        if let Some(HostName { name, .. }) = &self.host {
            return finding(format!("{name} is being looked up"), []);
        }
        let fix = self.set("address ADDRESS", "endpoint ADDRESS:PORT");
        let what =
            "it has no endpoint, and has not called: nothing has come that could be this peer".to_owned();
        let port = self.snapshot.listen_port;
        finding(what, [format!("have it call UDP port {port} of this gateway; or say where it is: {fix}")])
    }

    /// Its name has no address.
    fn unresolved(&self) -> Option<Finding> {
        let HostName { name, unresolved } = self.host.as_ref()?;
        let what = format!("{name} has no address now: {}", unresolved.as_ref()?);
        let fix = self.set("address ADDRESS", "endpoint ADDRESS:PORT");
        Some(finding(
            what,
            [format!("see what the resolver says: getent ahosts {name}; or set its address: {fix}")],
        ))
    }

    fn unanswered(&self) -> Vec<Finding> {
        let count = self.peer.trouble.unanswered;
        let handshakes = if count == 1 { "1 handshake".to_owned() } else { format!("{count} handshakes") };
        let Some(remote) = self.remote() else { return vec![self.nowhere()] };
        if !(self.has_route)(remote.ip()) {
            let what = format!("there is no route to {remote}: {handshakes} failed");
            return vec![finding(what, [format!("ip route get {}", remote.ip())])];
        }
        if let Some(refusal) = self.peer.refusal {
            let (what, fix) = unsent(remote, refusal, "UDP");
            return vec![finding(what, fix)];
        }
        let ours = self.snapshot.public.map(|key| key.to_string()).unwrap_or_default();
        let what = match &self.peer.addresses[..] {
            all @ [_, _, ..] => {
                let all: Vec<String> = all.iter().map(SocketAddr::to_string).collect();
                format!("none of {} has answered: {handshakes}, now at {remote}", all.join(", "))
            }
            _ => match &self.host {
                Some(HostName { name, .. }) => format!("{name}, at {remote}, has not answered {handshakes}"),
                None => format!("{remote} has not answered {handshakes}"),
            },
        };
        let fix = [
            format!("see that a WireGuard listens there, and that UDP port {} is let through", remote.port()),
            format!("it must have a peer with our public key, {ours}"),
            format!("and its own public key must be {}", self.peer.public),
        ];
        vec![finding(what, fix)]
    }

    fn unconfirmed(&self) -> Finding {
        let what = format!(
            "{} of its handshakes were answered, and nothing has come under the new keys",
            self.peer.trouble.unconfirmed
        );
        let fix = [
            "see that both sides have the same preshared key, or none".to_owned(),
            "and that our answers reach it: a firewall or NAT may let one direction pass only".to_owned(),
        ];
        finding(what, fix)
    }

    /// Its answers were not for the preshared key that we have.
    fn bad_responses(&self) -> Option<Finding> {
        let count = self.peer.trouble.bad_responses;
        let what = format!("{count} of its answers could not be opened: the preshared keys differ");
        let fix = self.set("preshared-key KEY", "preshared-key FILE");
        (count > 0).then(|| finding(what, [format!("the same on both sides: {fix}")]))
    }

    fn whatever_the_state(&self) -> Vec<Finding> {
        let (mut findings, trouble) = (Vec::new(), &self.peer.trouble);
        if self.peer.reason.is_some_and(|reason| reason != Reason::First)
            && let (Some(why), Some(remote)) = (endpoint_reason(self.peer), self.remote())
        {
            findings.push(finding(format!("{remote} is used: {why}"), []));
        }
        if trouble.stale > 0 {
            let what = format!(
                "{} of its handshakes were refused: their time is not after that of an earlier one",
                trouble.stale
            );
            findings.push(finding(
                what,
                ["set the clock of the peer; or restart this side, which then forgets".to_owned()],
            ));
        }
        if self.now < UNSET_CLOCK {
            let what = "the clock of this machine is not set: peers that have seen a later time refuse it"
                .to_owned();
            findings.push(finding(what, ["set the clock: timedatectl".to_owned()]));
        }
        if self.peer.allowed_ips.is_empty() {
            let what =
                "it has no allowed-ips: nothing is sent to it, and nothing is taken from it".to_owned();
            findings.push(finding(what, [self.set("allowed-ips PREFIX", "allowed-ips PREFIX")]));
        }
        findings
    }

    /// Callers that may be this peer: from where it is, or from anywhere if that is not known.
    fn callers(&self) -> Vec<Finding> {
        let ours = self.snapshot.public.map(|key| key.to_string()).unwrap_or_default();
        let is_likely = |source: SocketAddr| self.remote().is_none_or(|remote| remote.ip() == source.ip());
        let callers = self.snapshot.callers.iter().filter(|caller| is_likely(caller.source));
        callers
            .map(|caller| {
                let (source, at) = (caller.source, ago(self.now, caller.last));
                match caller.public {
                    Some(key) => finding(
                        format!("{at}, {source} called and named the public key {key}, which no peer has"),
                        [format!(
                            "if that is this peer: {}",
                            self.set(
                                &format!("public-key {key}"),
                                &format!("remove, and wg set {} peer {key} ...", self.interface)
                            )
                        )],
                    ),
                    None => finding(
                        format!("{at}, {source} called another public key than ours"),
                        [format!("if that is this peer: give it our public key, {ours}")],
                    ),
                }
            })
            .collect()
    }
}

/// The callers of an interface that are no peers.
fn callers(snapshot: &Snapshot) -> Vec<Caller> {
    let show = |caller: &crate::wireguard::callers::Caller| Caller {
        public_key: caller.public.map(|key| key.to_string()),
        address: caller.source.to_string(),
        count: caller.count,
        latest: caller.last.as_secs(),
    };
    snapshot.callers.iter().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireguard::callers::Callers;
    use crypto::{PublicKey, Secret};
    use packet::Endpoint;
    use rustix::io::Errno;
    use tunnel::wireguard::Trouble;
    use tunnel::{Now, Time};

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const REMOTE: &str = "192.0.2.2:51820";

    fn peer() -> PeerSnapshot {
        PeerSnapshot {
            public: PublicKey([2; 32]),
            preshared: Secret::zero(),
            endpoint: Some(Endpoint::new(REMOTE.parse().expect("literal"))),
            addresses: vec![REMOTE.parse().expect("literal")],
            reason: Some(Reason::First),
            last_handshake: None,
            handshakes: 0,
            sent_bytes: 0,
            received_bytes: 0,
            sent_packets: 0,
            received_packets: 0,
            unsent_packets: 0,
            persistent_keepalive: 0,
            has_key: false,
            trouble: Trouble::default(),
            refusal: None,
            allowed_ips: vec!["10.2.0.0/24".parse().expect("literal")],
        }
    }

    fn snapshot() -> Snapshot {
        let public = Some(PublicKey([1; 32]));
        let (peers, callers) = (Vec::new(), Vec::new());
        Snapshot { up: true, private_key: None, public, listen_port: 51_820, fwmark: 0, peers, callers }
    }

    /// The state of the peer, and all findings with their fixes, one a line.
    fn explained(snapshot: &Snapshot, peer: &PeerSnapshot, has_route: bool) -> (PeerState, String) {
        explained_with(snapshot, peer, has_route, None)
    }

    fn explained_with(
        snapshot: &Snapshot,
        peer: &PeerSnapshot,
        has_route: bool,
        host: Option<HostName<'_>>,
    ) -> (PeerState, String) {
        let has_route = &|_| has_route;
        let subject =
            Subject { interface: "wg0", snapshot, peer, name: Some("b"), host, now: NOW, has_route };
        let explained = subject.explain();
        let lines = explained.findings.iter().flat_map(|it| std::iter::once(&it.what).chain(&it.fix));
        (explained.state, lines.map(|line| format!("{line}\n")).collect())
    }

    #[test]
    fn a_peer_that_is_up_needs_nothing() {
        let mut peer = peer();
        (peer.has_key, peer.last_handshake) = (true, Some(NOW.saturating_sub(Duration::from_secs(50))));
        // A handshake that renews the key is on its way.
        peer.trouble.unanswered = 1;
        let explained = explained(&snapshot(), &peer, true);
        assert_eq!(explained, (PeerState::Up, "the last handshake was 50 s ago\n".to_owned()));
    }

    #[test]
    fn a_peer_whose_name_has_no_address_is_down_and_one_that_is_looked_up_waits() {
        let (mut peer, snapshot) = (peer(), snapshot());
        let host =
            |why: Option<&str>| Some(HostName { name: "b.example", unresolved: why.map(str::to_owned) });
        peer.trouble.unanswered = 3;
        let (_, text) = explained_with(&snapshot, &peer, true, host(None));
        assert!(text.starts_with("b.example, at 192.0.2.2:51820, has not answered 3 handshakes\n"), "{text}");
        let (_, text) = explained_with(&snapshot, &peer, true, host(Some("no answer")));
        assert!(text.starts_with("b.example has no address now: no answer\n"), "{text}");
        assert!(text.contains("\nb.example, at 192.0.2.2:51820, has not answered"), "the last one: {text}");
        (peer.endpoint, peer.trouble) = (None, Trouble::default());
        let (state, text) = explained_with(&snapshot, &peer, true, host(None));
        assert_eq!((state, &*text), (PeerState::Waiting, "b.example is being looked up\n"));
        let (state, text) = explained_with(&snapshot, &peer, true, host(Some("no answer")));
        assert!(state == PeerState::Down && text.contains("getent ahosts b.example"), "{text}");
    }

    #[test]
    fn a_peer_that_does_not_answer_may_have_no_route_another_key_or_another_preshared_key() {
        let (mut peer, snapshot) = (peer(), snapshot());
        peer.trouble.unanswered = 3;
        let (state, text) = explained(&snapshot, &peer, true);
        assert!(
            state == PeerState::Down && text.starts_with("192.0.2.2:51820 has not answered 3 handshakes\n"),
            "{text}"
        );
        assert!(
            text.contains(&PublicKey([1; 32]).to_string()) && text.contains(&PublicKey([2; 32]).to_string())
        );
        assert!(explained(&snapshot, &peer, false).1.starts_with("there is no route to 192.0.2.2:51820"));
        peer.refusal = Some(Errno::PERM);
        let (state, text) = explained(&snapshot, &peer, true);
        let filter =
            "a packet filter of this machine refuses UDP to 192.0.2.2, port 51820: Operation not permitted";
        assert!(state == PeerState::Down && text.starts_with(filter), "{text}");
        assert!(text.contains("nft list ruleset") && !text.contains("WireGuard listens there"), "{text}");
        peer.refusal = None;
        peer.trouble.bad_responses = 3;
        assert_eq!(
            explained(&snapshot, &peer, true).1,
            "3 of its answers could not be opened: the preshared keys differ\n\
             the same on both sides: set interfaces wireguard wg0 peer b preshared-key KEY\n",
            "the reason is not hidden behind general advice"
        );
        peer.trouble = Trouble { unconfirmed: 2, stale: 1, ..Trouble::default() };
        let (state, text) = explained(&snapshot, &peer, true);
        assert!(
            state == PeerState::Down && text.contains("preshared key") && text.contains("clock of the peer"),
            "{text}"
        );
        peer.trouble = Trouble { is_low_order: true, ..Trouble::default() };
        assert!(
            explained(&snapshot, &peer, true)
                .1
                .contains("set interfaces wireguard wg0 peer b public-key KEY")
        );
    }

    #[test]
    fn the_address_in_use_is_named_with_the_reason() {
        let (mut peer, snapshot) = (peer(), snapshot());
        assert_eq!(endpoint_reason(&peer), None, "with one address there is nothing to say");
        let backup: SocketAddr = "198.51.100.2:51820".parse().expect("literal");
        peer.addresses.push(backup);
        assert_eq!(endpoint_reason(&peer).as_deref(), Some("the first of its addresses"));
        let mut said = |reason, endpoint| {
            (peer.reason, peer.endpoint, peer.has_key) = (Some(reason), Some(Endpoint::new(endpoint)), true);
            let (state, text) = explained(&snapshot, &peer, true);
            assert_eq!(state, PeerState::Up, "{text}");
            text
        };
        let text = said(Reason::Fallback, backup);
        assert!(
            text.contains(
                "198.51.100.2:51820 is used: a backup address, as 192.0.2.2:51820 has not answered; \
                 192.0.2.2:51820 is tried every 30 s"
            ),
            "{text}"
        );
        assert!(said(Reason::Followed, backup).contains("from which it has sent itself"));
        let elsewhere = "203.0.113.7:9".parse().expect("literal");
        assert!(said(Reason::Followed, elsewhere).contains("203.0.113.7:9 is used: none of its addresses"));
        (peer.trouble.unanswered, peer.has_key) = (7, false);
        let text = explained(&snapshot, &peer, true).1;
        assert!(
            text.contains("none of 192.0.2.2:51820, 198.51.100.2:51820 has answered: 7 handshakes"),
            "{text}"
        );
    }

    #[test]
    fn a_silent_peer_is_told_from_one_that_cannot_send() {
        let (mut peer, mut snapshot) = (peer(), snapshot());
        assert_eq!(explained(&snapshot, &peer, true).0, PeerState::Waiting);
        assert!(explained(&snapshot, &peer, true).1.contains("persistent-keepalive 25"));
        peer.endpoint = None;
        assert!(explained(&snapshot, &peer, true).1.contains("UDP port 51820 of this gateway"));
        peer.last_handshake = Some(NOW.saturating_sub(Duration::from_secs(3600)));
        assert_eq!(explained(&snapshot, &peer, true).0, PeerState::Idle);
        peer.allowed_ips.clear();
        assert!(explained(&snapshot, &peer, true).1.contains("peer b allowed-ips PREFIX"));
        snapshot.public = None;
        assert!(explained(&snapshot, &peer, true).1.contains("set interfaces wireguard wg0 private-key KEY"));
        snapshot.up = false;
        assert!(explained(&snapshot, &peer, true).1.starts_with("interface wg0 is down\n"));
    }

    #[test]
    fn callers_are_named_where_the_peer_is_or_may_be_anywhere() {
        let (mut peer, mut snapshot) = (peer(), snapshot());
        let mut callers = Callers::default();
        let now = Now { monotonic: Time::from_nanoseconds(1), wall: NOW };
        for (key, source) in
            [(Some([7; 32]), "192.0.2.2:9"), (None, "192.0.2.2:8"), (Some([8; 32]), "198.51.100.1:9")]
        {
            callers.note(key.map(PublicKey), source.parse().expect("literal"), now);
        }
        snapshot.callers = callers.all();
        peer.trouble.unanswered = 5;
        let text = explained(&snapshot, &peer, true).1;
        assert!(text.contains(&format!("peer b public-key {}", PublicKey([7; 32]))), "{text}");
        assert!(text.contains("192.0.2.2:8 called another public key than ours"), "{text}");
        assert!(!text.contains("198.51.100.1"), "nothing is believed that comes from elsewhere");
        peer.endpoint = None;
        assert!(explained(&snapshot, &peer, true).1.contains("198.51.100.1"));
        (peer.has_key, peer.trouble) = (true, Trouble::default());
        assert!(!explained(&snapshot, &peer, true).1.contains("called"));
    }
}
