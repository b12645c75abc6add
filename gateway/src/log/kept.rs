//! The last lines that the daemon has logged, kept in memory: a machine without a journal has them too, and clients follow them.

use super::Subsystem;
use crate::api::model::LogLine;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many lines are kept.
const LINES: usize = 2_000;
/// How many lines are kept for traces only: a busy peer must not push out the other lines.
const TRACED: usize = 1_000;
/// How many characters of a line are kept.
const LENGTH: usize = 1_024;
/// How many characters of a name are kept.
const NAME: usize = 128;

/// The lines of this process.
static RECENT: Mutex<Recent> = Mutex::new(Recent::new());

/// An event, as it is kept.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// Its lines, with time and level.
    pub text: &'a str,
    /// Its level: error, warning, info or debug.
    pub level: &'static str,
    /// Who has logged it.
    pub subsystem: Subsystem,
    /// Its interface, if it is of one.
    pub interface: Option<&'a str>,
    /// Its peer, if it is of one.
    pub peer: Option<&'a str>,
    /// Whether it is for a trace of its peer only.
    pub is_traced: bool,
}

/// The last lines of a log, and how many there have been.
struct Recent {
    lines: VecDeque<LogLine>,
    /// Lines for traces only.
    traced: VecDeque<LogLine>,
    logged: u64,
}

/// Which lines a client wants.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only those of this subsystem.
    pub subsystem: Option<Subsystem>,
    /// Only those of this peer.
    pub peer: Option<String>,
    /// Also those that are kept for traces only.
    pub traced: bool,
}

impl Wanted {
    fn has(&self, line: &LogLine) -> bool {
        self.subsystem.is_none_or(|it| it.name() == line.subsystem)
            && self.peer.as_ref().is_none_or(|peer| line.peer.as_ref() == Some(peer))
    }
}

impl Recent {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), traced: VecDeque::new(), logged: 0 }
    }

    fn add(&mut self, event: &Event<'_>) {
        let short = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        let (lines, most) =
            if event.is_traced { (&mut self.traced, TRACED) } else { (&mut self.lines, LINES) };
        for text in event.text.lines() {
            if lines.len() == most {
                lines.pop_front();
            }
            self.logged += 1;
            let line = LogLine {
                number: self.logged,
                text: short(text, LENGTH),
                level: event.level.to_owned(),
                subsystem: event.subsystem.name().to_owned(),
                interface: event.interface.map(|name| short(name, NAME)),
                peer: event.peer.map(|name| short(name, NAME)),
            };
            lines.push_back(line);
        }
    }

    /// The lines after the one with this number; the first has number 1.
    fn after(&self, number: u64, wanted: &Wanted) -> Vec<LogLine> {
        let traced = self.traced.iter().filter(|_| wanted.traced);
        let all = self.lines.iter().chain(traced);
        let mut later: Vec<LogLine> =
            all.filter(|line| line.number > number && wanted.has(line)).cloned().collect();
        later.sort_by_key(|line| line.number);
        later
    }
}

fn recent() -> MutexGuard<'static, Recent> {
    RECENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an event.
pub fn keep(event: &Event<'_>) {
    recent().add(event);
}

/// The lines after the one with this number, and the number of the last line of all.
pub fn after(number: u64, wanted: &Wanted) -> (Vec<LogLine>, u64) {
    let recent = recent();
    (recent.after(number, wanted), recent.logged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event<'_> {
        Event {
            text,
            level: "info",
            subsystem: Subsystem::Ipsec,
            interface: None,
            peer: None,
            is_traced: false,
        }
    }

    fn empty() -> Recent {
        Recent::new()
    }

    #[test]
    fn a_trace_leaves_the_lines_of_others() {
        let mut recent = empty();
        recent.add(&event("of all"));
        (0..LINES + TRACED).for_each(|_| recent.add(&Event { is_traced: true, ..event("traced") }));
        assert_eq!(recent.after(0, &Wanted::default()).len(), 1);
        let all = recent.after(0, &Wanted { traced: true, ..Wanted::default() });
        assert_eq!((all.len(), all[0].number), (TRACED + 1, 1));
    }

    #[test]
    fn the_last_lines_are_kept_with_their_numbers() {
        let (mut recent, all) = (empty(), Wanted::default());
        assert!(recent.after(0, &all).is_empty());
        recent.add(&event("first\nsecond\n"));
        recent.add(&event(&"ü".repeat(LENGTH + 1)));
        let numbers: Vec<u64> = recent.after(1, &all).iter().map(|line| line.number).collect();
        assert_eq!(numbers, [2, 3]);
        assert_eq!(recent.after(2, &all)[0].text.chars().count(), LENGTH);
        (0..LINES).for_each(|number| recent.add(&event(&number.to_string())));
        let lines = recent.after(0, &all);
        assert_eq!((lines.len(), lines[0].number, lines[0].text.as_str()), (LINES, 4, "0"));
        assert!(recent.after(recent.logged, &all).is_empty());
    }

    #[test]
    fn a_client_gets_the_lines_of_its_subsystem_and_peer_and_those_of_traces_only_if_it_traces() {
        let mut recent = empty();
        recent.add(&Event { peer: Some("berlin"), ..event("of berlin") });
        recent.add(&Event { peer: Some("rome"), ..event("of rome") });
        recent.add(&Event { subsystem: Subsystem::OpenVpn, peer: Some("berlin"), ..event("a client") });
        recent.add(&Event { peer: Some("berlin"), is_traced: true, ..event("traced") });
        let texts = |wanted: Wanted| -> Vec<String> {
            recent.after(0, &wanted).into_iter().map(|line| line.text).collect()
        };
        assert_eq!(texts(Wanted::default()), ["of berlin", "of rome", "a client"]);
        let ipsec = Wanted { subsystem: Some(Subsystem::Ipsec), ..Wanted::default() };
        assert_eq!(texts(ipsec.clone()), ["of berlin", "of rome"]);
        let berlin = Wanted { peer: Some("berlin".to_owned()), ..ipsec };
        assert_eq!(texts(berlin.clone()), ["of berlin"]);
        assert_eq!(texts(Wanted { traced: true, ..berlin }), ["of berlin", "traced"]);
    }
}
