//! The threads that carry packets: how long each has run, and what workers hand off.

use super::Shown;
use super::model::{Handoff, Thread, Threads};
use crate::thread_name::is_thread_of;
use crate::tunnel_interface::Counters;
use axum::Json;
use axum::extract::State;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) async fn threads(State(shown): State<Shown>) -> Json<Threads> {
    Json(shown.threads())
}

impl Shown {
    pub(crate) fn threads(&self) -> Threads {
        let interfaces: Vec<Arc<dyn Counters>> = self.interfaces().collect();
        let names: Vec<&str> = interfaces.iter().map(|interface| interface.name()).collect();
        let mut threads = of_process(Path::new("/proc/self/task"), &names);
        threads.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        Threads { threads, handoffs: interfaces.iter().filter_map(|it| handoff(&**it)).collect() }
    }
}

fn handoff(interface: &dyn Counters) -> Option<Handoff> {
    let threads = interface.crypto_threads()?;
    let counters = threads.counters();
    Some(Handoff {
        interface: interface.name().to_owned(),
        crypto_threads: threads.count(),
        handed_off: counters.handed_off.load(Ordering::Relaxed),
        taken_back: counters.taken_back.load(Ordering::Relaxed),
        waiting: threads.backlog(),
    })
}

/// The threads of these interfaces.
fn of_process(tasks: &Path, interfaces: &[&str]) -> Vec<Thread> {
    let entries = fs::read_dir(tasks).into_iter().flatten().flatten();
    let thread = |entry: fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).ok();
        let name = read("comm")?.trim_end().to_owned();
        interfaces.iter().find(|interface| is_thread_of(&name, interface))?;
        // proc_pid_schedstat(5): the time on a processor, then that of waiting for one.
        let schedstat = read("schedstat")?;
        let mut times = schedstat.split_whitespace().map_while(|word| word.parse().ok());
        let (nanoseconds, waited) = (times.next()?, times.next().unwrap_or_default());
        let status = read("status").unwrap_or_default();
        let processors = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let processors = processors.unwrap_or_default().trim().to_owned();
        let id = entry.file_name().to_string_lossy().parse().ok()?;
        Some(Thread { id, name, nanoseconds, waited, processors })
    };
    entries.filter_map(thread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_of_the_interfaces_are_shown() {
        let tasks = tempfile::tempdir().expect("a folder");
        let all = [
            ("7", "wg0 out", "5000 1 2"),
            ("8", "wg01 out", "1 1 1"),
            ("9", "averylongin out", "9 9 9"),
            ("10", "wg0 in", "not a number"),
            ("11", "postern", "3 3 3"),
        ];
        for (id, name, ran) in all {
            let folder = tasks.path().join(id);
            fs::create_dir(&folder).expect("a new name");
            fs::write(folder.join("comm"), format!("{name}\n")).expect("it can be written");
            fs::write(folder.join("schedstat"), ran).expect("it can be written");
            let status = format!("Name:\t{name}\nCpus_allowed:\tf\nCpus_allowed_list:\t0-{id}\n");
            fs::write(folder.join("status"), status).expect("it can be written");
        }
        let mut found = of_process(tasks.path(), &["wg0", "averylonginterface"]);
        found.sort_by_key(|thread| thread.id);
        let expected = [(7, "wg0 out", 5000, 1), (9, "averylongin out", 9, 9)];
        let expected = expected.map(|(id, name, nanoseconds, waited)| Thread {
            id,
            name: name.to_owned(),
            nanoseconds,
            waited,
            processors: format!("0-{id}"),
        });
        assert_eq!(found, expected);
    }
}
