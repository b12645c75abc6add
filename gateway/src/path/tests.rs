//! Sessions by a clock that the tests set, and what tunnels get of them.

use super::attach;
use super::model::{Mtu, Path, Paths, State};
use super::session::{Probe, Session};
use crate::facts::model::Tunnel;
use crate::ipsec;
use config::settings::{PathProtocol, PathTarget, Settings};
use std::num::NonZeroU16;
use std::time::Duration;

pub(super) fn target() -> PathTarget {
    PathTarget {
        address: "10.2.0.1".parse().expect("literal"),
        interface: "wg0".to_owned(),
        peer: "berlin".to_owned(),
        tunnel: None,
        mtu: None,
        mtu_command: "set interfaces wireguard wg0 mtu".to_owned(),
        protocol: PathProtocol::Icmp,
        source: None,
        interval: 1,
        searches_mtu: true,
    }
}

/// A peer of IPsec without tunnels, and targets behind two.
const IPSEC: &str = "\
set vpn ipsec esp-group E proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 prf prfsha256
set vpn ipsec ike-group I proposal 1 dh-group 19
set vpn ipsec authentication psk sites id 172.16.1.5
set vpn ipsec authentication psk sites id 172.16.2.5
set vpn ipsec authentication psk sites secret 'a secret of both sites'
set vpn ipsec site-to-site peer b authentication mode pre-shared-secret
set vpn ipsec site-to-site peer b authentication local-id 172.16.1.5
set vpn ipsec site-to-site peer b authentication remote-id 172.16.2.5
set vpn ipsec site-to-site peer b ike-group I
set vpn ipsec site-to-site peer b default-esp-group E
set vpn ipsec site-to-site peer b local-address 172.16.2.5
set vpn ipsec site-to-site peer b remote-address 172.16.1.5
set service path-monitor target one address 192.168.7.1
set service path-monitor target one interface ipsec0
set service path-monitor target two address 192.168.8.1
set service path-monitor target two interface ipsec0
";

/// A target behind a path that answers as it is told.
struct Link {
    session: Session,
    now: Duration,
    /// The large sizes that were tried.
    tried: Vec<u32>,
}

const DELAY: Duration = Duration::from_millis(40);

impl Link {
    fn new() -> Self {
        let mut session = Session::new("b".to_owned(), target(), NonZeroU16::MIN, Duration::ZERO);
        session.set_mtu(1420);
        Self { session, now: Duration::ZERO, tried: Vec::new() }
    }

    /// Lets time pass; the path carries packets of `carries` bytes, and `loses` tells which probes it loses besides.
    fn run(&mut self, seconds: u64, carries: u32, mut loses: impl FnMut() -> bool) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.session.expire(self.now);
            if let Some(probe) = self.session.due(self.now) {
                self.session.sent(probe, 7, self.now);
                self.tried.extend(probe.size);
                if probe.size.is_none_or(|size| size <= carries) && !loses() {
                    assert!(
                        !self.session.answered(probe.sequence, 8, self.now + DELAY, Duration::ZERO),
                        "a guess"
                    );
                    assert!(self.session.answered(probe.sequence, 7, self.now + DELAY, Duration::ZERO));
                    assert!(
                        !self.session.answered(probe.sequence, 7, self.now + DELAY, Duration::ZERO),
                        "again"
                    );
                }
            }
            self.now += Duration::from_millis(100);
        }
    }

    fn shown(&self) -> Path {
        self.session.shown()
    }
}

#[test]
fn a_good_path_has_its_delay_no_loss_and_the_tunnels_mtu() {
    let mut link = Link::new();
    assert_eq!((link.shown().state, link.shown().loss_ratio), (State::New, None));
    link.run(30, 1500, || false);
    let path = link.shown();
    assert_eq!((path.state, path.mtu, path.path_mtu_bytes), (State::Answers, Mtu::Fits, Some(1420)));
    assert_eq!(
        (path.loss_ratio, path.rtt_seconds, path.rtt_most_seconds),
        (Some(0.0), Some(0.04), Some(0.04))
    );
    assert_eq!(
        (path.sent, path.answered, link.tried.len()),
        (29, 29, 1),
        "one probe a second, large or small"
    );
    assert_eq!((path.problem, path.remedy, path.mtu_remedy), (None, None, None));
}

#[test]
fn a_dead_path_is_silent_and_no_black_hole_and_old_probes_are_forgotten() {
    let mut link = Link::new();
    link.run(20, 1500, || false);
    link.run(20, 1500, || true);
    let path = link.shown();
    assert_eq!((path.state, path.mtu), (State::Silent, Mtu::Fits));
    assert!(path.problem.is_some_and(|it| it.contains("does not answer")) && path.loss_ratio > Some(0.4));
    link.run(60, 1500, || true);
    let path = link.shown();
    assert_eq!((path.loss_ratio, path.rtt_seconds), (Some(1.0), None));
    link.run(70, 1500, || false);
    let path = link.shown();
    assert_eq!((path.state, path.loss_ratio, path.mtu), (State::Answers, Some(0.0), Mtu::Fits));
    assert!(link.tried.iter().all(|size| *size == 1420), "{:?}", link.tried);
}

#[test]
fn a_black_hole_is_named_with_its_fix_at_a_probe_a_second() {
    let mut link = Link::new();
    link.run(150, 1312, || false);
    let path = link.shown();
    assert_eq!((path.mtu, path.path_mtu_bytes, path.loss_ratio), (Mtu::BlackHole, Some(1312), Some(0.0)));
    assert_eq!(path.remedy.as_deref(), Some("set interfaces wireguard wg0 mtu 1312"));
    assert_eq!(path.mtu_remedy, path.remedy);
    let sent = path.sent + link.tried.len() as u64;
    assert!(sent <= 150, "{sent}");
    // The MTU was set.
    link.session.set_mtu(1312);
    link.run(10, 1312, || false);
    assert_eq!((link.shown().mtu, link.shown().problem), (Mtu::Fits, None));
}

#[test]
fn a_lossy_path_is_no_black_hole_and_a_black_hole_behind_it_is_found() {
    // A third of all probes is lost, in no order that fits the search.
    let mut state = 5u32;
    let mut loses = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16).is_multiple_of(3)
    };
    let mut link = Link::new();
    link.run(1200, 1500, &mut loses);
    assert_eq!((link.shown().mtu, link.shown().path_mtu_bytes), (Mtu::Fits, Some(1420)));
    let mut link = Link::new();
    link.run(1200, 1312, &mut loses);
    assert_eq!((link.shown().mtu, link.shown().path_mtu_bytes), (Mtu::BlackHole, Some(1312)));
}

#[test]
fn what_an_icmp_error_tells_is_believed_of_our_large_probes_only() {
    let mut link = Link::new();
    let mut told = false;
    for second in 0..40 {
        let now = Duration::from_secs(second);
        link.session.expire(now);
        let Some(probe) = link.session.due(now) else { continue };
        link.session.sent(probe, 7, now);
        match probe.size {
            Some(size) if size > 1380 => {
                link.session.too_large(|it, _| it == probe.sequence + 1, 1000, now);
                link.session.too_large(|it, _| it == probe.sequence, 1380, now);
                told = true;
            }
            _ => assert!(link.session.answered(probe.sequence, 7, now + DELAY, Duration::ZERO)),
        }
    }
    let path = link.shown();
    assert_eq!((told, path.mtu, path.path_mtu_bytes, path.problem), (true, Mtu::Told, Some(1380), None));
}

#[test]
fn what_cannot_be_sent_is_said_and_says_nothing_of_the_path() {
    let mut link = Link::new();
    link.run(5, 1500, || false);
    for _ in 0..5 {
        link.now += Duration::from_secs(1);
        assert!(link.session.due(link.now).is_some());
        link.session.unsent("there is no interface wg0".to_owned());
    }
    let path = link.shown();
    assert_eq!((path.state, path.loss_ratio), (State::Unsent, Some(0.0)));
    assert!(path.problem.is_some_and(|it| it.contains("there is no interface wg0")));
}

#[test]
fn a_probe_that_is_late_is_not_followed_by_another_at_once() {
    let mut session = Session::new("b".to_owned(), target(), NonZeroU16::MIN, Duration::ZERO);
    let mut due = |milliseconds| session.due(Duration::from_millis(milliseconds)).is_some();
    assert!(due(0) && !due(999) && due(1400), "a little late");
    assert!(!due(1999) && due(2000), "the next one is an interval later");
    assert!(due(9300) && !due(9300) && !due(10_299) && due(10_300), "late by several intervals");
    assert!(due(12_300) && !due(12_300), "late by exactly one");
}

#[test]
fn a_tunnel_of_ipsec_without_an_mtu_is_not_probed_to_that_of_another() {
    let tunnel =
        |number: u32, rest: &str| format!("set vpn ipsec site-to-site peer b tunnel {number} {rest}\n");
    let text = [
        IPSEC.to_owned(),
        tunnel(1, "local prefix 192.168.1.0/24"),
        tunnel(1, "remote prefix 192.168.7.0/24"),
        tunnel(2, "local prefix 192.168.1.0/24"),
        tunnel(2, "remote prefix 192.168.8.0/24"),
        tunnel(2, "mtu 8000"),
    ]
    .concat();
    let (settings, _) = config::parse(&text).and_then(|tree| Settings::new(&tree)).expect("right");
    let targets = settings.path_monitor.expect("it is configured").targets;
    assert_eq!((targets["one"].tunnel, targets["one"].mtu.map(u32::from)), (Some(1), Some(ipsec::MTU)));
    assert_eq!((targets["two"].tunnel, targets["two"].mtu), (Some(2), Some(8000)));
    // The interface has that of the tunnel with the largest packets.
    for (name, mtu) in [("one", 1400), ("two", 8000)] {
        let target = targets[name].clone();
        let mut session = Session::new(name.to_owned(), target, NonZeroU16::MIN, Duration::ZERO);
        session.set_mtu(8000);
        assert_eq!(session.shown().tunnel_mtu_bytes, Some(mtu));
    }
}

#[test]
fn a_reflector_that_is_wrong_about_itself_makes_no_path_fast() {
    let mut session = Session::new("b".to_owned(), target(), NonZeroU16::MIN, Duration::ZERO);
    let probe = session.due(Duration::ZERO).expect("the first");
    session.sent(probe, 7, Duration::ZERO);
    assert!(session.answered(probe.sequence, 7, DELAY, Duration::from_secs(9)));
    assert_eq!(session.shown().rtt_seconds, Some(0.04));
    let probe = session.due(Duration::from_secs(1)).expect("the next");
    session.sent(Probe { size: None, ..probe }, 7, Duration::from_secs(1));
    assert!(session.answered(probe.sequence, 7, Duration::from_secs(1) + DELAY, DELAY / 4));
    assert_eq!(session.shown().rtt_least_seconds, Some(0.03), "without the time that it was held");
}

#[test]
fn each_tunnel_has_the_path_of_its_first_target() {
    let path = |target: &str, peer: &str, tunnel| Path {
        target: target.to_owned(),
        interface: "ipsec0".to_owned(),
        peer: peer.to_owned(),
        tunnel,
        ..Path::default()
    };
    let tunnel = |interface: &str, peer: &str, number| Tunnel {
        interface: interface.to_owned(),
        peer: peer.to_owned(),
        tunnel: Some(number),
        ..Tunnel::default()
    };
    let mut tunnels = [("ipsec0", "a", 1), ("ipsec0", "a", 2), ("ipsec1", "a", 1)]
        .map(|(interface, peer, it)| tunnel(interface, peer, it));
    let targets = vec![path("x", "a", Some(2)), path("y", "a", Some(2)), path("z", "b", Some(1))];
    attach(&mut tunnels, &Paths { targets, ..Paths::default() });
    let names: Vec<_> = tunnels.iter().map(|it| it.path.as_ref().map(|path| &*path.target)).collect();
    assert_eq!(names, [None, Some("x"), None]);
}
