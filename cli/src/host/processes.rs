//! `postern show system processes`: what uses the processors, measured while the command runs.

use crate::answer::Answer;
use crate::host;
use crate::tabulate::tabulate;
use rustix::param::{clock_ticks_per_second, page_size};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How long the use of the processors is measured.
const MEASURED: Duration = Duration::from_millis(500);

/// What runs on this machine.
#[derive(Debug, Serialize)]
struct Running {
    load: Option<[f64; 3]>,
    /// The part of all processors that is in use, in percent.
    used: Option<f64>,
    processes: Vec<Process>,
}

#[derive(Debug, Clone, Serialize, PartialEq)]
struct Process {
    id: u32,
    user: String,
    state: char,
    /// The part of one processor that it used while it was measured, in percent.
    cpu: f64,
    memory_bytes: u64,
    /// The processor time that it has used, in seconds.
    seconds: u64,
    command: String,
}

pub(crate) fn show() -> Answer {
    let root = host::root();
    let before = Sample::read(&root);
    std::thread::sleep(MEASURED);
    Answer::new(compare(&root, &before, &Sample::read(&root)), text)
}

/// The counters of one moment, in ticks of the clock.
struct Sample {
    /// In use and idle, of all processors.
    all: Option<(u64, u64)>,
    processes: BTreeMap<u32, Stat>,
}

/// `/proc/PID/stat` (proc(5)).
#[derive(Debug, Clone, PartialEq)]
struct Stat {
    name: String,
    state: char,
    ticks: u64,
    pages: u64,
}

impl Sample {
    fn read(root: &Path) -> Self {
        let proc = root.join("proc");
        let all = host::text(&proc.join("stat")).and_then(|text| used_and_idle(&text));
        let process = |path: std::path::PathBuf| {
            let id: u32 = path.file_name()?.to_str()?.parse().ok()?;
            Some((id, stat(&host::text(&path.join("stat"))?)?))
        };
        let entries = std::fs::read_dir(&proc).into_iter().flatten().flatten();
        Self { all, processes: entries.filter_map(|entry| process(entry.path())).collect() }
    }
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn used_and_idle(text: &str) -> Option<(u64, u64)> {
    let numbers = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let numbers: Vec<u64> = numbers.take(8).filter_map(|number| number.parse().ok()).collect();
    let idle = numbers.get(3)? + numbers.get(4).unwrap_or(&0);
    Some((numbers.iter().sum::<u64>() - idle, idle))
}

/// The name of a process may have spaces and brackets: it ends at the last one.
fn stat(text: &str) -> Option<Stat> {
    let (before, after) = text.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split(' ').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(Stat {
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        ticks: number(11)? + number(12)?,
        pages: number(21)?,
    })
}

fn compare(root: &Path, before: &Sample, after: &Sample) -> Running {
    let users = host::text(&root.join("etc/passwd")).unwrap_or_default();
    let ticks = clock_ticks_per_second().max(1);
    let elapsed = MEASURED.as_secs_f64() * ticks as f64;
    let mut processes: Vec<Process> = after
        .processes
        .iter()
        .map(|(&id, now)| {
            let earlier = before.processes.get(&id).map_or(now.ticks, |stat| stat.ticks);
            let path = root.join(format!("proc/{id}"));
            let line = host::text(&path.join("cmdline")).map(|line| line.replace('\0', " "));
            // A thread of the kernel has no command line.
            let command = line.map_or_else(|| format!("[{}]", now.name), |line| line.trim_end().to_owned());
            Process {
                id,
                user: owner(&path, &users),
                state: now.state,
                cpu: now.ticks.saturating_sub(earlier) as f64 / elapsed * 100.0,
                memory_bytes: now.pages * page_size() as u64,
                seconds: now.ticks / ticks,
                command,
            }
        })
        .collect();
    processes.sort_by(|a, b| b.cpu.total_cmp(&a.cpu).then(b.seconds.cmp(&a.seconds)).then(a.id.cmp(&b.id)));
    let used = before.all.zip(after.all).and_then(|(before, after)| {
        let (used, idle) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        (used + idle > 0).then(|| used as f64 / (used + idle) as f64 * 100.0)
    });
    let load = host::text(&root.join("proc/loadavg")).and_then(|text| load(&text));
    Running { load, used, processes }
}

/// The user of a process: its effective one.
fn owner(path: &Path, users: &str) -> String {
    let status = host::text(&path.join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let id = line.split_whitespace().nth(1).unwrap_or("?");
    let mut known = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    known.find(|fields| fields.get(2) == Some(&id)).map_or(id, |fields| fields[0]).to_owned()
}

fn load(text: &str) -> Option<[f64; 3]> {
    let mut numbers = text.split(' ').map_while(|number| number.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

/// The characters of a command line that are shown; JSON has all.
const COMMAND: usize = 100;

fn text(found: &Running) -> String {
    let load = found.load.map(|[one, five, fifteen]| {
        format!("load average: {one:.2}, {five:.2}, {fifteen:.2} (1, 5, 15 minutes)\n")
    });
    let used = found.used.map(|used| format!("processors: {used:.1}% in use\n"));
    let row = |process: &Process| {
        let time = format!("{}:{:02}", process.seconds / 60, process.seconds % 60);
        let memory = format!("{:.1}", process.memory_bytes as f64 / f64::from(1 << 20));
        let (id, state) = (process.id.to_string(), process.state.to_string());
        vec![
            id,
            process.user.clone(),
            state,
            format!("{:.1}", process.cpu),
            memory,
            time,
            process.command.chars().take(COMMAND).collect(),
        ]
    };
    let rows: Vec<Vec<String>> = found.processes.iter().map(row).collect();
    let table = tabulate(&["PID", "User", "State", "CPU %", "MiB", "Time", "Command"], &rows);
    load.into_iter().chain(used).collect::<String>() + "\n" + &table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let text =
            "7 (a) b) R 1 7 7 0 -1 4194304 9 0 0 0 150 50 0 0 20 0 1 0 99 1000 25 18446744073709551615";
        let expected = Stat { name: "a) b".to_owned(), state: 'R', ticks: 200, pages: 25 };
        assert_eq!(stat(text), Some(expected));
        assert_eq!((stat("7 (a"), stat("")), (None, None));
    }

    #[test]
    fn waiting_for_a_disk_is_idle() {
        assert_eq!(used_and_idle("cpu  10 1 5 100 4 0 2 0 0 0\ncpu0 1"), Some((18, 104)));
        assert_eq!(used_and_idle("intr 5"), None);
    }

    #[test]
    fn this_process_is_among_them() {
        let root = Path::new("/");
        let sample = Sample::read(root);
        let found = compare(root, &sample, &Sample::read(root));
        let own = found.processes.iter().find(|process| process.id == std::process::id()).expect("it runs");
        assert!(own.memory_bytes > 0 && !own.command.is_empty(), "{own:?}");
        let text = text(&found);
        assert!(text.starts_with("load average: ") && text.contains("\nPID "), "{text}");
    }
}
