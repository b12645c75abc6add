//! Watches for changes by other programs of our state in the kernel, and has it restored.

use super::netlink::{self, Concern, concern};
use super::networks::TABLES;
use super::nft;
use super::own_table::OwnTable;
use super::restore::{Outcome, shown};
use super::{Follower, State, ZONES};
use netlink_sys::Socket;
use port::Wake;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Changes come in bursts: after the first comparison, the next waits so long.
const SETTLE: Duration = Duration::from_millis(100);
/// And so long, when another program takes away whatever is put back.
const MOST: Duration = Duration::from_secs(1);
/// After this long without a deletion, no other program is in conflict with us.
const PEACE: Duration = Duration::from_secs(10);
/// The same message is logged once in this time.
const QUIET: Duration = Duration::from_secs(60);
/// The pause before something is put back that the kernel has refused, as it does for want of memory; it doubles.
const RETRY: Duration = Duration::from_secs(1);
/// Less than [`QUIET`]: what is refused for good is logged once.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The sockets for the kernel's notifications.
pub(super) struct Sockets {
    network: Socket,
    /// Without nf_tables there is no guard that could be changed.
    tables: Option<Socket>,
}

impl Sockets {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { network: netlink::watch()?, tables: nft::subscribe().ok() })
    }
}

/// What notices changes.
pub(super) struct Watch {
    sockets: Sockets,
    state: Arc<Mutex<State>>,
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
    pace: Pace,
    retry: Retry,
    said: BTreeMap<String, Instant>,
}

/// How soon it is compared again.
struct Pace {
    compared: Instant,
    lost: Instant,
    delay: Duration,
}

impl Pace {
    /// How long the next comparison must wait.
    fn wait(&self, now: Instant) -> Duration {
        self.delay.saturating_sub(now.duration_since(self.compared))
    }

    /// A comparison has found that something was lost, or not.
    fn note(&mut self, now: Instant, lost: bool) {
        self.compared = now;
        if now.duration_since(self.lost) > PEACE {
            self.delay = SETTLE;
        }
        if lost {
            self.delay = (self.delay * 2).min(MOST);
            self.lost = now;
        }
    }

    /// Whether another program takes away whatever is put back.
    fn is_fight(&self) -> bool {
        self.delay == MOST
    }
}

/// When something is compared again although no event comes: the last comparison was refused something.
#[derive(Default)]
struct Retry {
    /// The pause, and its end.
    paused: Option<(Duration, Instant)>,
}

impl Retry {
    /// The last comparison was refused something, or not.
    fn note(&mut self, now: Instant, is_refused: bool) {
        self.paused = match self.paused.filter(|_| is_refused) {
            Some((pause, end)) if now >= end => {
                let pause = (pause * 2).min(LONGEST_RETRY);
                Some((pause, now + pause))
            }
            None if is_refused => Some((RETRY, now + RETRY)),
            paused => paused,
        };
    }

    /// How long an event is waited for; without an end if nothing was refused.
    fn wait(&self, now: Instant) -> Option<Duration> {
        self.paused.map(|(_, end)| end.saturating_duration_since(now))
    }

    fn is_due(&self, now: Instant) -> bool {
        self.wait(now) == Some(Duration::ZERO)
    }
}

impl Watch {
    pub(super) fn new(
        sockets: Sockets,
        state: Arc<Mutex<State>>,
        wake: Arc<Wake>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let now = Instant::now();
        let pace = Pace { compared: now, lost: now, delay: SETTLE };
        Self { sockets, state, wake, stop, pace, retry: Retry::default(), said: BTreeMap::new() }
    }

    pub(super) fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let is_refused = self.state.lock().unwrap_or_else(PoisonError::into_inner).is_unfinished();
            self.retry.note(Instant::now(), is_refused);
            let limit = self.retry.wait(Instant::now());
            let tables = self.sockets.tables.as_ref().map(AsFd::as_fd);
            match self.wake.wait_at_most([Some(self.sockets.network.as_fd()), tables], limit) {
                Ok([network, tables]) => self.changed(network, tables),
                Err(error) => return tracing::error!("routes and rules are kept no more: {error}"),
            }
        }
    }

    fn changed(&mut self, network: bool, tables: bool) {
        let mut network = if network { self.network_change() } else { None };
        let tables = tables && self.table_was_changed();
        let is_retry = network.is_none() && !tables;
        if is_retry && !self.retry.is_due(Instant::now()) || self.stop.load(Ordering::Relaxed) {
            return;
        }
        let filter = self.put_back_filter();
        thread::sleep(self.pace.wait(Instant::now()));
        // What has come meanwhile needs no comparison of its own.
        if network.is_some() {
            network = network.max(self.network_change());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let restored = state.restore_if_disturbed();
        let followers: Vec<Follower> =
            state.followers.values().filter(|_| network == Some(Concern::Outside)).cloned().collect();
        drop(state);
        for follower in followers {
            follower();
        }
        let refused = match restored {
            Ok(mut outcome) => {
                outcome.restored.extend(filter.restored);
                outcome.errors.extend(filter.errors);
                self.pace.note(Instant::now(), !outcome.restored.is_empty());
                self.say_restored(&outcome.restored);
                outcome.errors.iter().map(|(name, error)| format!("{}: {error}", shown(name))).collect()
            }
            Err(error) => {
                self.pace.note(Instant::now(), true);
                vec![error.to_string()]
            }
        };
        for what in refused {
            self.say_refused(what, is_retry);
        }
    }

    /// Logs what was refused. A retry that is refused the same is not news.
    fn say_refused(&mut self, what: String, is_retry: bool) {
        let now = Instant::now();
        let recent = self.said.get_mut(&what).filter(|at| is_retry && now.duration_since(**at) < QUIET);
        match recent {
            Some(at) => *at = now,
            None => self.say(what),
        }
    }

    /// Puts back the zone firewall before the pause: packets pass unfiltered while its table is not there.
    fn put_back_filter(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.note_table(ZONES, state.zones.restore());
        outcome
    }

    fn say_restored(&mut self, restored: &[String]) {
        let Some(first) = restored.first() else { return };
        let more =
            if restored.len() == 1 { String::new() } else { format!(" and {} more", restored.len() - 1) };
        if self.pace.is_fight() {
            self.say(format!(
                "another program keeps deleting {first}{more}; it is put back once a second\n  \
                 fix: if it is systemd-networkd, set ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no in \
                 /etc/systemd/networkd.conf, and restart it"
            ));
        } else {
            self.say(format!("{first}{more} went and is put back"));
        }
    }

    /// Logs, if the same was not logged a moment ago.
    fn say(&mut self, what: String) {
        let now = Instant::now();
        self.said.retain(|_, at| now.duration_since(*at) < QUIET);
        self.said.entry(what).or_insert_with_key(|what| {
            tracing::warn!("{what}");
            now
        });
    }

    /// Reads the pending notifications; returns what they concern most. Lost ones may concern anything.
    fn network_change(&self) -> Option<Concern> {
        let mut concerned = None;
        loop {
            match self.sockets.network.recv_from_full() {
                Ok((bytes, _)) => concerned = concerned.max(concern(&bytes, &TABLES)),
                Err(error) if is_overflow(&error) => concerned = Some(Concern::Outside),
                Err(_) => return concerned,
            }
        }
    }

    /// The same of our tables, which are then no longer trusted.
    fn table_was_changed(&self) -> bool {
        let Some(socket) = &self.sockets.tables else { return false };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut was_changed = false;
        loop {
            match socket.recv_from_full() {
                Ok((bytes, _)) => {
                    // Each table is asked: `any` would stop at the first.
                    for table in state.tables() {
                        was_changed |= table.note(&bytes);
                    }
                }
                Err(error) if is_overflow(&error) => {
                    state.tables().into_iter().for_each(OwnTable::distrust);
                    was_changed = true;
                }
                Err(_) => return was_changed,
            }
        }
    }
}

/// Whether notifications were lost.
fn is_overflow(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Settings;
    use lab::{Lab, wait_until};
    use rustix::net::sockopt::{set_socket_recv_buffer_size, socket_recv_buffer_size};

    #[test]
    fn the_zone_firewall_is_put_back_before_the_pause() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("NO_SKIP").is_none(), "needs root to make network namespaces");
            return eprintln!("SKIPPED: needs root to make network namespaces");
        }
        let lab = Lab::new(&["watch"]).expect("root can make namespaces");
        let table = || lab.run("watch", "nft", &["list", "table", "inet", "postern-firewall"]);
        let text = "set firewall zone A member interface eth0";
        let settings = config::parse(text).and_then(|tree| Settings::new(&tree)).expect("right").0;
        lab.enter("watch", || {
            let state = Arc::new(Mutex::new(State::default()));
            let set = |state: &mut State| state.zones.set(&[settings.firewall]);
            set(&mut state.lock().expect("whole")).expect("nf_tables is there");
            let (wake, stop) = (Arc::new(Wake::new().expect("a wake")), Arc::new(AtomicBool::new(false)));
            let sockets = Sockets::open().expect("sockets");
            let mut watch = Watch::new(sockets, state, wake, stop);
            // Another program is in conflict with us: the pause is longer than the test.
            watch.pace.delay = Duration::from_secs(600);
            lab.run("watch", "nft", &["delete", "table", "inet", "postern-firewall"]).expect("deleted");
            table().expect_err("it is gone");
            thread::spawn(move || watch.changed(false, true));
        })
        .expect("the namespace is there");
        wait_until(Duration::from_secs(30), || table().is_ok()).expect("it is put back");
    }

    #[test]
    fn what_was_refused_is_put_back_although_no_event_comes() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("NO_SKIP").is_none(), "needs root to make network namespaces");
            return eprintln!("SKIPPED: needs root to make network namespaces");
        }
        let lab = Lab::new(&["retry"]).expect("root can make namespaces");
        let text = "set firewall zone A member interface eth0";
        let settings = config::parse(text).and_then(|tree| Settings::new(&tree)).expect("right").0;
        lab.enter("retry", || {
            let state = Arc::new(Mutex::new(State::default()));
            state.lock().expect("whole").zones.set(&[settings.firewall]).expect("nf_tables is there");
            let resize = |size: Option<usize>| {
                let mut state = state.lock().expect("whole");
                let socket = state.zones.table().open().expect("open");
                let before = socket_recv_buffer_size(socket).expect("known");
                set_socket_recv_buffer_size(socket, size.unwrap_or(1)).expect("set");
                before / 2
            };
            let is_trusted = || state.lock().expect("whole").zones.is_trusted();
            // The kernel's answers do not fit.
            let size = resize(None);
            let (wake, stop) = (Arc::new(Wake::new().expect("a wake")), Arc::new(AtomicBool::new(false)));
            let sockets = Sockets::open().expect("sockets");
            let watch = Watch::new(sockets, Arc::clone(&state), Arc::clone(&wake), Arc::clone(&stop));
            let thread = thread::spawn(move || watch.run());
            lab.run("retry", "nft", &["delete", "table", "inet", "postern-firewall"]).expect("deleted");
            wait_until(Duration::from_secs(30), || !is_trusted()).expect("it is lost");
            // Until the comparison has ended that the event has begun.
            thread::sleep(SETTLE * 10);
            assert!(!is_trusted(), "no answer fits");
            resize(Some(size));
            wait_until(Duration::from_secs(30), is_trusted).expect("it is put back");
            stop.store(true, Ordering::Relaxed);
            wake.notify();
            thread.join().expect("no panic");
        })
        .expect("the namespace is there");
    }

    #[test]
    fn retries_come_less_often_until_nothing_is_refused() {
        let (mut retry, mut now) = (Retry::default(), Instant::now());
        assert_eq!(retry.wait(now), None);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            retry.note(now, true);
            assert_eq!(retry.wait(now), Some(Duration::from_secs(seconds)));
            now += Duration::from_millis(500);
            // An event does not put it off.
            retry.note(now, true);
            assert!(!retry.is_due(now));
            now += retry.wait(now).expect("something is refused");
            assert!(retry.is_due(now));
        }
        retry.note(now, false);
        assert_eq!(retry.wait(now), None);
        retry.note(now, true);
        assert_eq!(retry.wait(now), Some(RETRY));
    }

    #[test]
    fn the_first_loss_is_mended_at_once_and_a_fight_goes_slowly() {
        let start = Instant::now();
        let mut pace = Pace { compared: start, lost: start, delay: SETTLE };
        let mut now = start + Duration::from_secs(60);
        assert_eq!(pace.wait(now), Duration::ZERO);
        for _ in 0..8 {
            pace.note(now, true);
            now += pace.wait(now);
            // The kernel also reports our own changes.
            pace.note(now, false);
        }
        assert!(pace.is_fight());
        assert_eq!(pace.wait(now), MOST);
        now += PEACE + MOST;
        pace.note(now, false);
        assert_eq!(pace.delay, SETTLE);
    }
}
