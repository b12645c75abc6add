//! The link between a branch and head office fails again and again, for a random time: the tunnel comes back without intervention.
//!
//! ```text
//! device ── branch ══ outside ══ head office ── device
//!    └── a probe every 10 ms, which the other device returns: the tunnel is back with the first one sent after the failure
//! ```

use super::Offices;
use super::{DEVICE_A, DEVICE_B};
use crate::support::{PATIENCE, answers, unavailable};
use lab::{Lab, has_program, wait_until};
use std::io::Write;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// From the first of the two commands to a ping between devices, on a machine that does nothing else.
const JOINED_WITHIN: Duration = Duration::from_secs(5);
/// The pause between probes.
const PROBE: Duration = Duration::from_millis(10);
/// How soon traffic gets through after a failure that a key outlives: the kernel takes up to a second to use a link again, and
/// asks for a neighbour once a second.
const BACK_WITHIN: Duration = Duration::from_secs(3);
/// The same when keys have expired meanwhile: the next handshake is at most 5.333 s away.
const BACK_WITH_NEW_KEYS_WITHIN: Duration = Duration::from_secs(9);
/// A failure of this length may outlive a key, which is up to two minutes old when it begins.
const OUTLIVES_KEYS: Duration = Duration::from_secs(45);

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The branch has no link.
    BranchDown,
    /// Head office has no link.
    HeadDown,
    /// The branch has no address.
    AddressLost,
    /// The branch comes back with another address.
    AddressChanged,
    /// The branch may send nothing: the kernel refuses it.
    SendsNothing,
    /// The branch hears nothing.
    HearsNothing,
    /// The link loses everything, ARP too, both ways.
    LosesAll,
}

const KINDS: [Kind; 7] = [
    Kind::BranchDown,
    Kind::HeadDown,
    Kind::AddressLost,
    Kind::AddressChanged,
    Kind::SendsNothing,
    Kind::HearsNothing,
    Kind::LosesAll,
];

/// Xorshift, so that a run can be repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn milliseconds(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// The link outside, and the address that the branch has there.
struct Outside<'a> {
    lab: &'a Lab,
    address: u8,
}

impl Outside<'_> {
    fn ip(&self, site: &str, arguments: &str) {
        self.lab.ip(site, arguments).expect("the link is there");
    }

    fn filter(&self, rules: &str) {
        self.lab.run("b", "nft", &[rules]).expect("a filter");
    }

    fn begin(&self, kind: Kind) {
        let own = format!("192.168.77.{}/24 dev outside", self.address);
        let one_way = |hook: &str, direction: &str| {
            self.filter(&format!(
                "add table inet fail; add chain inet fail c {{ type filter hook {hook} priority 0 ; }}; \
                 add rule inet fail c {direction} outside drop"
            ));
        };
        match kind {
            Kind::BranchDown => self.ip("b", "link set outside down"),
            Kind::HeadDown => self.ip("a", "link set outside down"),
            Kind::AddressLost | Kind::AddressChanged => self.ip("b", &format!("address delete {own}")),
            Kind::SendsNothing => one_way("output", "oifname"),
            Kind::HearsNothing => one_way("input", "iifname"),
            Kind::LosesAll => self.filter(
                "add table netdev fail; \
                 add chain netdev fail i { type filter hook ingress device outside priority 0 ; policy drop ; }; \
                 add chain netdev fail o { type filter hook egress device outside priority 0 ; policy drop ; }",
            ),
        }
    }

    fn end(&mut self, kind: Kind) {
        match kind {
            Kind::BranchDown => self.ip("b", "link set outside up"),
            Kind::HeadDown => self.ip("a", "link set outside up"),
            Kind::AddressLost | Kind::AddressChanged => {
                if kind == Kind::AddressChanged {
                    self.address = if self.address == 250 { 2 } else { self.address + 1 };
                }
                self.ip("b", &format!("address add 192.168.77.{}/24 dev outside", self.address));
            }
            Kind::SendsNothing | Kind::HearsNothing => self.filter("delete table inet fail"),
            Kind::LosesAll => self.filter("delete table netdev fail"),
        }
    }
}

/// Probes from the device behind the branch, which the device behind head office returns.
pub(super) struct Probes {
    socket: UdpSocket,
    next: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Probes {
    pub(super) fn start(lab: &Lab) -> Self {
        let device = |namespace, address: &str| {
            let socket = lab.enter(namespace, || UdpSocket::bind((address, 7000))).expect("entered");
            let socket = socket.expect("the device has the address");
            socket.set_read_timeout(Some(PROBE)).expect("it is no zero");
            socket
        };
        let (far, socket) = (device("la", DEVICE_A), device("lb", DEVICE_B));
        let (next, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((length, source)) = far.recv_from(&mut buffer) {
                    let _ = far.send_to(&buffer[..length], source);
                }
            }
        });
        let (sending, number) = (socket.try_clone().expect("a descriptor"), Arc::clone(&next));
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let _ =
                    sending.send_to(&number.fetch_add(1, Ordering::SeqCst).to_be_bytes(), (DEVICE_A, 7000));
                std::thread::sleep(PROBE);
            }
        });
        Self { socket, next, stop }
    }

    /// Waits until a probe that is sent from now on returns.
    pub(super) fn returned(&self, within: Duration) -> Option<Duration> {
        let (begun, first) = (Instant::now(), self.next.load(Ordering::SeqCst));
        let mut number = [0; 8];
        while begun.elapsed() < within {
            // What the machine answers to probes while there is no way is no answer.
            let is_back =
                matches!(self.socket.recv(&mut number), Ok(8)) && u64::from_be_bytes(number) >= first;
            if is_back {
                return Some(begun.elapsed());
            }
        }
        None
    }
}

impl Probes {
    /// How many of the probes that are sent within some time do not return.
    pub(super) fn lost_for(&self, time: Duration) -> usize {
        let first = self.next.load(Ordering::SeqCst);
        let mut returned = std::collections::BTreeSet::new();
        let mut number = [0; 8];
        let mut gather = |until: Instant| {
            while Instant::now() < until {
                if matches!(self.socket.recv(&mut number), Ok(8)) {
                    returned.insert(u64::from_be_bytes(number));
                }
            }
        };
        gather(Instant::now() + time);
        let end = self.next.load(Ordering::SeqCst);
        // What is under way still arrives.
        gather(Instant::now() + Duration::from_secs(2));
        (first..end).filter(|number| !returned.contains(number)).count()
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A recovery, and what it followed.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    kind: Kind,
    lasted: Duration,
    took: Duration,
}

/// Lets the link fail, so often, each time for `length`, after which the tunnel must be back within `bound` of it; returns the slowest
/// recovery of each kind.
fn fail(
    offices: &Offices,
    random: &mut Random,
    count: usize,
    mut length: impl FnMut(&mut Random, usize) -> Duration,
    bound: fn(Duration) -> Duration,
) -> Vec<Recovery> {
    let mut outside = Outside { lab: &offices.lab, address: 2 };
    let probes = Probes::start(&offices.lab);
    probes.returned(PATIENCE).expect("probes return while nothing has failed");
    let mut slowest: Vec<Recovery> = Vec::new();
    for number in 0..count {
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        let lasted = length(random, number);
        outside.begin(kind);
        std::thread::sleep(lasted);
        outside.end(kind);
        let bound = bound(lasted);
        let Some(took) = probes.returned(bound) else {
            let later = probes.returned(PATIENCE);
            let logged = (offices.head.logged(), offices.branch.logged());
            panic!(
                "failure {number}, {kind:?} for {lasted:?}: not back within {bound:?}, later: {later:?}\n{}\n{}",
                logged.0, logged.1
            );
        };
        match slowest.iter_mut().find(|it| it.kind == kind) {
            Some(known) if known.took >= took => {}
            Some(known) => *known = Recovery { kind, lasted, took },
            None => slowest.push(Recovery { kind, lasted, took }),
        }
    }
    slowest.sort_by_key(|it| std::cmp::Reverse(it.took));
    slowest
}

/// Past the capture of the test harness: a figure is for who reads the log of a run that passed.
pub(super) fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

fn report(slowest: &[Recovery], count: usize, seed: u64) {
    say(&format!("{count} failures, seed {seed}; the slowest recovery of each kind:"));
    for Recovery { kind, lasted, took } in slowest {
        say(&format!("  {took:>9.1?} after {kind:?} for {lasted:.1?}"));
    }
}

/// How soon the tunnel is back on a machine that does nothing else.
fn strict(lasted: Duration) -> Duration {
    if lasted < OUTLIVES_KEYS { BACK_WITHIN } else { BACK_WITH_NEW_KEYS_WITHIN }
}

/// A branch that has joined, and how long that took.
fn joined() -> Option<(Offices, Duration)> {
    if !has_program("nft") {
        unavailable("nft is not installed");
        return None;
    }
    let offices = Offices::new()?;
    let took = joins(&offices);
    Some((offices, took))
}

/// From nothing to a ping, in two commands.
fn joins(offices: &Offices) -> Duration {
    let begun = Instant::now();
    let token = offices.token(&[]);
    let created = begun.elapsed();
    offices.joins(&token);
    let joined = begun.elapsed().saturating_sub(created);
    wait_until(PATIENCE, || answers(&offices.lab, "lb", DEVICE_A)).expect("the tunnel carries");
    let took = begun.elapsed();
    let parts = format!("enroll create {created:.2?}, join {joined:.2?}");
    say(&format!("from nothing to a ping of a device behind head office: {took:.2?} ({parts})"));
    took
}

#[test]
fn a_branch_that_has_joined_comes_back_after_each_of_a_hundred_failures_of_its_link() {
    let Some((offices, _)) = joined() else { return };
    let (seed, count) = (17, 104);
    // Most failures are short; four are longer than a probe of the kernel for a neighbour, and than a retry of WireGuard.
    let length = |random: &mut Random, number: usize| match number % 26 {
        25 => random.milliseconds(2500, 6000),
        _ => random.milliseconds(10, 600),
    };
    // Other tests run beside it: how long it takes is printed, and held to a bound by the night.
    let slowest = fail(&offices, &mut Random(seed), count, length, |_| PATIENCE);
    report(&slowest, count, seed);
    assert_eq!(slowest.len(), KINDS.len(), "every kind of failure has occurred");
    assert!(answers(&offices.lab, "la", DEVICE_B), "and the other way");
}

/// One in a hundred failures outlives the keys. FAILURES says how many (1,000, an hour), SEED which.
#[test]
#[ignore = "takes hours: FAILURES=10000 SEED=1 netns --ignored a_night_of_failures"]
fn a_branch_that_has_joined_comes_back_through_a_night_of_failures() {
    let Some((offices, took)) = joined() else { return };
    assert!(took < JOINED_WITHIN, "{took:?}");
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse().expect("a number"));
    let (seed, count) = (number("SEED").unwrap_or(1), number("FAILURES").unwrap_or(1000) as usize);
    let length = |random: &mut Random, _: usize| match random.below(100) {
        0 => random.milliseconds(45_000, 300_000),
        1..10 => random.milliseconds(1000, 10_000),
        _ => random.milliseconds(10, 600),
    };
    report(&fail(&offices, &mut Random(seed.max(1)), count, length, strict), count, seed);
}
