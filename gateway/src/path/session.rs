//! The probes of one target: which is due, what their answers say. No socket, no clock.

use super::model::{Mtu, Path, Protocol, State};
use super::search::Search;
use arrayvec::ArrayVec;
use config::settings::{PathProtocol, PathTarget};
use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::time::Duration;

/// Probes that loss and round-trip times are taken from.
const WINDOW: usize = 60;
/// So many lost probes one after the other make a target silent.
const SILENT: usize = 3;
/// How long an answer is waited for, at least and at most (RFC 8899 section 5.1.1: more than a second).
const PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

/// A probe to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) sequence: u32,
    /// The length of its IP packet, for one that is to find the MTU.
    pub(super) size: Option<u32>,
}

/// A probe that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    probe: Probe,
    /// What its answer must repeat.
    token: u64,
    sent: Duration,
    /// Whether a small probe that was sent after it was answered.
    is_followed: bool,
}

/// A target, and what is known of it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: String,
    pub(super) target: PathTarget,
    /// Its number among the sessions, which STAMP probes carry: zero is none (RFC 8972 section 3).
    pub(super) number: NonZeroU16,
    sequence: u32,
    next: Duration,
    waiting: ArrayVec<Waiting, 8>,
    /// The round-trip times of the last probes, none for those that were lost.
    window: VecDeque<Option<Duration>>,
    /// The round-trip time and its deviation, smoothed, in seconds.
    smoothed: Option<(f64, f64)>,
    sent: u64,
    answered: u64,
    was_large: bool,
    search: Option<Search>,
    /// Why the last probe was not sent.
    unsent: Option<String>,
}

impl Session {
    /// A session whose first probe is due at `first`, with a number that no other has.
    pub(super) fn new(name: String, target: PathTarget, number: NonZeroU16, first: Duration) -> Self {
        let search = target.searches_mtu.then(|| Search::new(target.address.is_ipv4()));
        Self {
            name,
            target,
            number,
            sequence: 0,
            next: first,
            waiting: ArrayVec::new(),
            window: VecDeque::with_capacity(WINDOW),
            smoothed: None,
            sent: 0,
            answered: 0,
            was_large: false,
            search,
            unsent: None,
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(self.target.interval.into())
    }

    /// Sets the MTU of the tunnel.
    pub(super) fn set_mtu(&mut self, interface: u32) {
        let mtu = self.target.mtu.map_or(interface, |own| interface.min(own.into()));
        if let Some(search) = &mut self.search {
            search.set_top(mtu);
        }
    }

    /// The probe that is due, if one is. Large ones take turns with small ones, and only where those are answered.
    pub(super) fn due(&mut self, now: Duration) -> Option<Probe> {
        if now < self.next {
            return None;
        }
        // After a delay one probe is sent, not those that were missed.
        let next = self.next + self.interval();
        self.next = if next > now { next } else { now + self.interval() };
        self.sequence = self.sequence.wrapping_add(1);
        let may_be_large = !self.was_large && self.is_answering() && !self.waits_for_large();
        let size = self.search.as_mut().filter(|_| may_be_large).and_then(|search| search.wanted(now));
        self.was_large = size.is_some();
        Some(Probe { sequence: self.sequence, size })
    }

    /// When something is to be done next.
    pub(super) fn next(&self) -> Duration {
        let patience = self.patience();
        let ends = self.waiting.iter().filter(|it| it.probe.size.is_none() || it.is_followed);
        ends.map(|it| it.sent + patience).fold(self.next, Duration::min)
    }

    fn is_answering(&self) -> bool {
        self.window.back().is_some_and(Option::is_some)
    }

    fn waits_for_large(&self) -> bool {
        self.waiting.iter().any(|it| it.probe.size.is_some())
    }

    /// A probe was sent, with a token that its answer repeats.
    pub(super) fn sent(&mut self, probe: Probe, token: u64, now: Duration) {
        self.unsent = None;
        if probe.size.is_none() {
            self.sent += 1;
        }
        if self.waiting.is_full() {
            self.lose(0, now);
        }
        self.waiting.push(Waiting { probe, token, sent: now, is_followed: false });
    }

    /// A probe could not be sent. Nothing is known of the path then.
    pub(super) fn unsent(&mut self, why: String) {
        self.unsent = Some(why);
    }

    /// An answer came that repeats these. `held` is the time that the other side had the probe.
    pub(super) fn answered(&mut self, sequence: u32, token: u64, now: Duration, held: Duration) -> bool {
        let is_it = |it: &Waiting| it.probe.sequence == sequence && it.token == token;
        let Some(at) = self.waiting.iter().position(is_it) else { return false };
        let Waiting { probe, sent, .. } = self.waiting.remove(at);
        let Some(size) = probe.size else {
            let took = now.saturating_sub(sent);
            // A hold time longer than the round trip is wrong: without it the path would look fast.
            self.note(Some(took.checked_sub(held).unwrap_or(took)));
            self.answered += 1;
            self.waiting.iter_mut().filter(|it| it.sent < sent).for_each(|it| it.is_followed = true);
            return true;
        };
        if let Some(search) = &mut self.search {
            search.passed(size, now);
        }
        true
    }

    /// An ICMP error said that a probe is too large; whether it was one of these, which its number and its token tell, as far as it
    /// quotes them.
    pub(super) fn too_large(&mut self, is_it: impl Fn(u32, u64) -> bool, mtu: u32, now: Duration) -> bool {
        let is_it = |it: &Waiting| it.probe.size.is_some() && is_it(it.probe.sequence, it.token);
        let Some(at) = self.waiting.iter().position(is_it) else { return false };
        let size = self.waiting.remove(at).probe.size;
        if let Some((search, size)) = self.search.as_mut().zip(size) {
            search.told(size, mtu, now);
        }
        true
    }

    /// Gives up probes that were not answered in time.
    pub(super) fn expire(&mut self, now: Duration) {
        let patience = self.patience();
        while let Some(at) = self.waiting.iter().position(|it| is_over(it, now, patience)) {
            self.lose(at, now);
        }
    }

    fn lose(&mut self, at: usize, now: Duration) {
        let Waiting { probe, sent, is_followed, .. } = self.waiting.remove(at);
        let Some(size) = probe.size else {
            self.note(None);
            // What was sent before may be lost for the same reason.
            self.waiting.retain(|it| it.probe.size.is_none() || it.sent > sent);
            return;
        };
        let loss = self.loss().unwrap_or(1.0);
        if let Some(search) = self.search.as_mut().filter(|_| is_followed) {
            search.failed(size, loss, now);
        }
    }

    fn note(&mut self, took: Option<Duration>) {
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(took);
        if let Some(took) = took {
            self.smoothed = Some(smooth(self.smoothed, took.as_secs_f64()));
        } else if self.window.iter().all(Option::is_none) {
            self.smoothed = None;
        }
    }

    /// RFC 6298 section 2: the smoothed time, and four deviations.
    fn patience(&self) -> Duration {
        let (mean, deviation) = self.smoothed.unwrap_or_default();
        Duration::from_secs_f64(mean + 4.0 * deviation).clamp(PATIENCE[0], PATIENCE[1])
    }

    fn loss(&self) -> Option<f64> {
        let lost = self.window.iter().filter(|it| it.is_none()).count();
        (!self.window.is_empty()).then(|| lost as f64 / self.window.len() as f64)
    }

    fn state(&self) -> State {
        let mut last = self.window.iter().rev().take(SILENT);
        if self.unsent.is_some() {
            State::Unsent
        } else if self.window.is_empty() {
            State::New
        } else if last.all(Option::is_none) {
            State::Silent
        } else {
            State::Answers
        }
    }

    /// What is known.
    pub(super) fn shown(&self) -> Path {
        let found = self.search.as_ref().and_then(Search::found);
        let answers = || self.window.iter().flatten();
        let state = self.state();
        let mtu = match (&self.search, found) {
            (_, Some(found)) => found.mtu,
            (Some(_), None) if state == State::Answers => Mtu::Searching,
            _ => Mtu::Unknown,
        };
        let (problem, remedy) = self.problem(state).unzip();
        let hole = found.filter(|found| found.mtu == Mtu::BlackHole).and_then(|found| found.size);
        Path {
            target: self.name.clone(),
            interface: self.target.interface.clone(),
            peer: self.target.peer.clone(),
            tunnel: self.target.tunnel,
            address: self.target.address.to_string(),
            protocol: match self.target.protocol {
                PathProtocol::Icmp => Protocol::Icmp,
                PathProtocol::Stamp(_) => Protocol::Stamp,
            },
            interval_seconds: self.target.interval,
            state,
            sent: self.sent,
            answered: self.answered,
            loss_ratio: self.loss(),
            rtt_seconds: self.smoothed.map(|(mean, _)| mean),
            rtt_least_seconds: answers().min().map(Duration::as_secs_f64),
            rtt_most_seconds: answers().max().map(Duration::as_secs_f64),
            rtt_deviation_seconds: self.smoothed.map(|(_, deviation)| deviation),
            tunnel_mtu_bytes: self.search.as_ref().and_then(Search::top),
            path_mtu_bytes: found.and_then(|found| found.size),
            mtu,
            mtu_remedy: hole.map(|size| format!("{} {size}", self.target.mtu_command)),
            problem,
            remedy,
        }
    }

    /// What is wrong, and what to type.
    fn problem(&self, state: State) -> Option<(String, String)> {
        let PathTarget { address, interface, peer, .. } = &self.target;
        let is_stamp = matches!(self.target.protocol, PathProtocol::Stamp(_));
        if let Some(why) = &self.unsent {
            let sentence = format!("No probe is sent to {address}: {why}.");
            return Some((sentence, "postern status".to_owned()));
        }
        if state == State::Silent {
            let sentence = format!("{address} does not answer through {interface} {peer}.");
            let fix = if is_stamp {
                format!(
                    "set service path-monitor reflector listen-address {address} at the peer, or protocol icmp here"
                )
            } else {
                format!(
                    "postern explain says whether the tunnel is up; the peer must answer ping to {address}"
                )
            };
            return Some((sentence, fix));
        }
        let found = self.search.as_ref()?.found().filter(|found| found.mtu == Mtu::BlackHole)?;
        let top = self.search.as_ref()?.top()?;
        let command = &self.target.mtu_command;
        Some(match found.size {
            Some(size) => (
                format!(
                    "Packets of more than {size} bytes are lost between here and {peer} without an ICMP error, and \
                     {interface} sends up to {top}: a black hole."
                ),
                format!("{command} {size}"),
            ),
            None => (
                format!(
                    "Large packets, of {top} bytes and less, are lost between here and {peer} without an ICMP error: a black hole."
                ),
                "look for a firewall that drops fragments or large packets on the way".to_owned(),
            ),
        })
    }
}

/// Whether a probe has waited too long. A large one counts as lost only after a later small one was answered.
fn is_over(it: &Waiting, now: Duration, patience: Duration) -> bool {
    now >= it.sent + patience && (it.probe.size.is_none() || it.is_followed)
}

/// RFC 6298 section 2.
fn smooth(before: Option<(f64, f64)>, took: f64) -> (f64, f64) {
    match before {
        None => (took, took / 2.0),
        Some((mean, deviation)) => {
            (mean + (took - mean) / 8.0, deviation + ((mean - took).abs() - deviation) / 4.0)
        }
    }
}
