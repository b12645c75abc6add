//! How long the kernel kept the daemon from running, as its control group has used up its share of processor time (cpu.max, or CPUQuota= of
//! systemd).

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time so far in which a thread of the group wanted to run and was not allowed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled(Duration);

impl Throttled {
    /// Reads it for this process, of the group above it that was kept longest; none where there are no such groups.
    ///
    /// `root`: where proc(5) and sysfs(5) are.
    pub fn read(root: &Path) -> Option<Self> {
        let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
        let files = groups.lines().filter_map(|line| file(root, line));
        files.filter_map(|(base, group)| Self::of_group(&base, &group)).max_by_key(|it| it.0)
    }

    /// The longest of a group and those that it is in.
    fn of_group(base: &Path, group: &Path) -> Option<Self> {
        let counts = group.ancestors().filter_map(|group| {
            // In a namespace of groups, some are above what is shown here.
            let group = group.strip_prefix("/").ok()?;
            parse(&std::fs::read_to_string(base.join(group).join("cpu.stat")).ok()?)
        });
        counts.max().map(Self)
    }

    #[cfg(test)]
    pub(super) fn of(time: Duration) -> Self {
        Self(time)
    }

    /// The part of this time in which it was kept from running since `before`.
    pub fn since(self, before: Self, time: Duration) -> f64 {
        (self.0.saturating_sub(before.0).as_secs_f64() / time.as_secs_f64().max(1e-3)).min(1.0)
    }
}

/// Where the groups of a line of cgroup(7) are, and which it names: those of version 2, and of version 1 the ones for processors.
fn file(root: &Path, line: &str) -> Option<(PathBuf, PathBuf)> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    let groups = root.join("sys/fs/cgroup");
    let base = match controllers {
        "" if groups.join("unified").is_dir() => groups.join("unified"),
        "" => groups,
        _ if controllers.split(',').any(|it| it == "cpu") => groups.join("cpu"),
        _ => return None,
    };
    Some((base, PathBuf::from(group)))
}

/// Version 2 counts microseconds, version 1 nanoseconds.
fn parse(stat: &str) -> Option<Duration> {
    stat.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", count) => count.trim().parse().ok().map(Duration::from_micros),
        ("throttled_time", count) => count.trim().parse().ok().map(Duration::from_nanos),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine with these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("ours");
            fs::write(path, text).expect("ours");
        }
        root
    }

    #[test]
    fn the_group_that_waits_longest_counts() {
        let v2 = machine(&[
            ("proc/self/cgroup", "0::/system.slice/postern.service\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 5\n"),
            ("sys/fs/cgroup/system.slice/cpu.stat", "nr_throttled 9\nthrottled_usec 3000000\n"),
            ("sys/fs/cgroup/system.slice/postern.service/cpu.stat", "throttled_usec 1000000\n"),
        ]);
        let now = Throttled::read(v2.path()).expect("it is there");
        assert_eq!(now, Throttled(Duration::from_secs(3)));
        let half = now.since(Throttled(Duration::from_millis(2_500)), Duration::from_secs(1));
        assert!((half - 0.5).abs() < 1e-9, "{half}");
        assert!(Throttled::default().since(now, Duration::from_secs(1)) < 1e-9, "it moved to another group");
        let v1 = machine(&[
            ("proc/self/cgroup", "5:memory:/a\n1:cpu,cpuacct:/a\n0::/\n"),
            ("sys/fs/cgroup/unified/cgroup.procs", ""),
            ("sys/fs/cgroup/cpu/a/cpu.stat", "nr_periods 7\nnr_throttled 2\nthrottled_time 2000000000\n"),
        ]);
        assert_eq!(Throttled::read(v1.path()), Some(Throttled(Duration::from_secs(2))));
    }

    #[test]
    fn what_cannot_be_read_tells_nothing() {
        let none = [
            ("proc/self/cgroup", "0::/x\nnonsense\n1:cpu:/../../etc\n"),
            ("sys/fs/cgroup/x/cpu.stat", "throttled_usec x\n"),
        ];
        assert_eq!(Throttled::read(machine(&none).path()), None);
        assert_eq!(Throttled::read(machine(&[]).path()), None);
    }
}
