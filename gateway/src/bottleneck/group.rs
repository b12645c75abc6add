//! How often the kernel keeps the daemon from running, as its control group has used up its share of processor time (cpu.max, or CPUQuota=
//! of systemd).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Periods so far, and those among them in which the share was used up, of the group of this process and of those that it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttled(BTreeMap<PathBuf, [u64; 2]>);

impl Throttled {
    /// Reads the counts of this process; none where there are no such groups.
    ///
    /// `root`: where proc(5) and sysfs(5) are.
    pub fn read(root: &Path) -> Option<Self> {
        let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
        let counts = groups.lines().filter_map(|line| file(root, line)).flat_map(|(base, group)| {
            let all: Vec<&Path> = group.ancestors().collect();
            let count = move |group: &Path| {
                // In a namespace of groups, some are above what is shown here.
                let path = base.join(group.strip_prefix("/").ok()?).join("cpu.stat");
                let counts = parse(&std::fs::read_to_string(&path).ok()?)?;
                Some((path, counts))
            };
            all.into_iter().filter_map(count).collect::<Vec<_>>()
        });
        Some(Self(counts.collect())).filter(|it| !it.0.is_empty())
    }

    #[cfg(test)]
    pub(super) fn of(periods: u64, throttled: u64) -> Self {
        Self(BTreeMap::from([(PathBuf::from("cpu.stat"), [periods, throttled])]))
    }

    /// The part of the periods since `before` in which it was kept from running: that of the group for which it is the largest.
    pub fn since(&self, before: &Self) -> f64 {
        let part = |(path, [periods, throttled]): (&PathBuf, &[u64; 2])| {
            // A group that this process was not in before has no earlier counts.
            let then = before.0.get(path)?;
            let periods = periods.checked_sub(then[0]).filter(|&periods| periods > 0)?;
            Some(throttled.saturating_sub(then[1]) as f64 / periods as f64)
        };
        self.0.iter().filter_map(part).fold(0.0, f64::max).min(1.0)
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

/// Periods, and those in which the share was used up. The times beside them are sums over all processors.
fn parse(stat: &str) -> Option<[u64; 2]> {
    let count = |name: &str| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(found, _)| *found == name)?.1.trim().parse().ok()
    };
    Some([count("nr_periods")?, count("nr_throttled")?])
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
    fn the_group_that_is_kept_now_counts() {
        let stat = |of: &str| format!("sys/fs/cgroup/{of}cpu.stat");
        let v2 = |parent: &str, own: &str| {
            machine(&[
                ("proc/self/cgroup", "0::/system.slice/postern.service\n"),
                (&stat(""), "usage_usec 5\n"),
                (&stat("system.slice/"), parent),
                (&stat("system.slice/postern.service/"), own),
            ])
        };
        let counts = |machine: &tempfile::TempDir| {
            let Throttled(counts) = Throttled::read(machine.path()).expect("it is there");
            let short = |path: &PathBuf| path.strip_prefix(machine.path()).expect("below it").to_owned();
            Throttled(counts.iter().map(|(path, counts)| (short(path), *counts)).collect())
        };
        let before = counts(&v2("nr_periods 9000\nnr_throttled 9000\n", "nr_periods 10\nnr_throttled 1\n"));
        let now = counts(&v2("nr_periods 9010\nnr_throttled 9000\n", "nr_periods 20\nnr_throttled 6\n"));
        assert_eq!(now.0.len(), 2);
        assert!((now.since(&before) - 0.5).abs() < 1e-9, "the parent was, and is not any more");
        assert!(now.since(&now) < 1e-9 && before.since(&now) < 1e-9, "no time, and counts that went back");
        assert!(now.since(&Throttled::default()) < 1e-9, "it moved to another group");
        let v1 = machine(&[
            ("proc/self/cgroup", "5:memory:/a\n1:cpu,cpuacct:/a\n0::/\n"),
            ("sys/fs/cgroup/unified/cgroup.procs", ""),
            ("sys/fs/cgroup/cpu/a/cpu.stat", "nr_periods 7\nnr_throttled 2\nthrottled_time 2000000000\n"),
        ]);
        assert_eq!(counts(&v1).0.values().copied().collect::<Vec<_>>(), [[7, 2]]);
    }

    #[test]
    fn what_cannot_be_read_tells_nothing() {
        let none = [
            ("proc/self/cgroup", "0::/x\nnonsense\n1:cpu:/../../etc\n"),
            ("sys/fs/cgroup/x/cpu.stat", "nr_periods x\n"),
        ];
        assert_eq!(Throttled::read(machine(&none).path()), None);
        assert_eq!(Throttled::read(machine(&[]).path()), None);
    }
}
