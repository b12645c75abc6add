//! What the processors of the machine did, as the kernel counts it.

use serde::Serialize;
use std::path::Path;

/// Processor time so far, of all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Processors {
    /// How many there are.
    pub count: u64,
    /// All of it, in ticks.
    pub all: u64,
    /// Without anything to run.
    pub idle: u64,
    /// Taken by the hypervisor.
    pub stolen: u64,
}

/// Parts of the processor time between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// How many processors there are.
    pub count: u64,
    /// The part that was idle.
    pub idle: f64,
    /// The part that the hypervisor took.
    pub stolen: f64,
}

impl Processors {
    /// Reads the counts; none if the kernel does not show them.
    pub fn read(stat: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(stat).ok()?)
    }

    /// From the text of proc_stat(5).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user, nice, system, idle, iowait, irq, softirq, steal; time of guests is among that of users
        let ticks: Vec<u64> = all.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let &[_, _, _, idle, waiting, .., stolen] = &ticks[..] else { return None };
        let is_one = |line: &&str| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        Some(Self {
            count: text.lines().filter(is_one).count() as u64,
            all: ticks.iter().sum(),
            idle: idle + waiting,
            stolen: if ticks.len() == 8 { stolen } else { 0 },
        })
    }

    /// What they did since `before`; none if no time has passed.
    pub fn since(self, before: Self) -> Option<Shares> {
        let all = self.all.checked_sub(before.all).filter(|&all| all > 0)? as f64;
        // The kernel's counts of idle time may go back.
        let part = |now: u64, then: u64| (now.saturating_sub(then) as f64 / all).min(1.0);
        Some(Shares {
            count: self.count,
            idle: part(self.idle, before.idle),
            stolen: part(self.stolen, before.stolen),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 0 50 800 10 0 5 35 0 0\ncpu0 50 0 25 400 5 0 3 17 0 0\ncpu1 50 0 25 400 5 0 2 18 0 0\nintr 1 2\n";

    #[test]
    fn idle_and_stolen_time_is_told() {
        let now = Processors::parse(STAT).expect("as the kernel writes it");
        assert_eq!(now, Processors { count: 2, all: 1000, idle: 810, stolen: 35 });
        let before = Processors { count: 2, all: 800, idle: 710, stolen: 25 };
        assert_eq!(now.since(before), Some(Shares { count: 2, idle: 0.5, stolen: 0.05 }));
        assert_eq!(now.since(now), None);
        assert_eq!(before.since(now), None, "counts that went back");
    }

    #[test]
    fn text_that_is_no_count_tells_nothing() {
        for text in ["", "cpu", "cpu  1 2 3", "cpu  a b c d e f g h", "intr 5"] {
            assert_eq!(Processors::parse(text), None, "{text:?}");
        }
        assert!(Processors::read(Path::new("/proc/stat")).is_some_and(|it| it.count > 0));
        assert_eq!(Processors::read(Path::new("/nowhere")), None);
    }
}
