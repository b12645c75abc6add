//! What the machine did during a trial: time stolen by the hypervisor, preemptions of the tester, received softirqs.

use serde::Serialize;

/// Where the figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// This machine's.
    Here,
    /// None: simulated devices.
    #[cfg(test)]
    None,
}

/// What disturbed a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Disturbance {
    /// Time that the hypervisor took from all cores, in milliseconds.
    pub steal_ms: f64,
    /// How often the tester's thread had to leave its core to another.
    pub preemptions: u64,
    /// Softirqs of received frames, on all cores.
    pub softirqs: u64,
}

impl Disturbance {
    /// What has come since an earlier look.
    pub fn since(self, before: &Self) -> Self {
        Self {
            steal_ms: self.steal_ms - before.steal_ms,
            preemptions: self.preemptions.saturating_sub(before.preemptions),
            softirqs: self.softirqs.saturating_sub(before.softirqs),
        }
    }

    /// Whether the loss of a trial may be the machine's.
    pub fn is_any(&self) -> bool {
        self.steal_ms > 0.0 || self.preemptions > 0
    }
}

impl Host {
    /// The figures so far.
    pub fn look(self) -> Disturbance {
        match self {
            Self::Here => {
                let read = |path| std::fs::read_to_string(path).unwrap_or_default();
                Disturbance {
                    steal_ms: steal(&read("/proc/stat")).unwrap_or_default() * 1e3
                        / rustix::param::clock_ticks_per_second() as f64,
                    preemptions: preemptions(&read("/proc/thread-self/status")).unwrap_or_default(),
                    softirqs: softirqs(&read("/proc/softirqs")).unwrap_or_default(),
                }
            }
            #[cfg(test)]
            Self::None => Disturbance::default(),
        }
    }
}

/// The clock source of the kernel, from which the tester's clock is read without a system call if it is `tsc` or `kvm-clock`.
pub fn clock_source() -> String {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// Ticks stolen from all cores: the eighth number of the first line of /proc/stat (proc(5)).
fn steal(stat: &str) -> Option<f64> {
    stat.lines().next()?.split_whitespace().nth(8)?.parse().ok()
}

fn preemptions(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

fn softirqs(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.trim().strip_prefix("NET_RX:"))?;
    Some(line.split_whitespace().filter_map(|count| count.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_procfs() {
        assert_eq!(steal("cpu  1 2 3 4 5 6 7 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"), Some(80.0));
        assert_eq!(preemptions("voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t42\n"), Some(42));
        assert_eq!(softirqs("   CPU0 CPU1\n NET_TX: 1 2\n NET_RX:  30  12\n"), Some(42));
        let (before, after) = (Host::Here.look(), Host::Here.look());
        let between = after.since(&before);
        assert!(between.steal_ms >= 0.0 && before.softirqs <= after.softirqs);
        assert_ne!(clock_source(), "");
    }
}
