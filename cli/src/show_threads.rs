//! `postern show datapath threads`: how busy the threads are that carry packets.

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use ::bench::report::table;
use gateway::api::model::Threads;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How long they are watched.
const WATCHED: Duration = Duration::from_secs(1);

/// What they did meanwhile.
#[derive(Debug, Default, Serialize)]
struct Busy {
    threads: Vec<Thread>,
    handoffs: Vec<Handoffs>,
}

/// A thread.
#[derive(Debug, Serialize)]
struct Thread {
    name: String,
    id: u32,
    /// Of the time of one processor.
    load: f64,
    /// Of what all of them worked.
    share: f64,
    /// Where it may run.
    processors: String,
}

/// What the workers of an interface handed off.
#[derive(Debug, Serialize)]
struct Handoffs {
    interface: String,
    crypto_threads: usize,
    handed_off_per_second: f64,
    taken_back_per_second: f64,
    backlog: usize,
}

pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    let (before, begun) = (request.ask::<Threads>()?, Instant::now());
    std::thread::sleep(WATCHED);
    let (after, seconds) = (request.ask::<Threads>()?, begun.elapsed().as_secs_f64());
    Ok(Answer::new(Busy::between(&joined(before), &joined(after), seconds), tables))
}

/// Of all daemons.
fn joined(answers: Vec<Threads>) -> Threads {
    answers.into_iter().fold(Threads::default(), |mut all, one| {
        all.threads.extend(one.threads);
        all.handoffs.extend(one.handoffs);
        all
    })
}

impl Busy {
    fn between(before: &Threads, after: &Threads, seconds: f64) -> Self {
        let ran = |thread: &gateway::api::model::Thread| {
            let earlier = before.threads.iter().find(|it| it.id == thread.id && it.name == thread.name);
            let since = earlier.map_or(0, |earlier| earlier.nanoseconds);
            thread.nanoseconds.saturating_sub(since) as f64 / 1e9
        };
        let all: f64 = after.threads.iter().map(ran).sum();
        let thread = |thread: &gateway::api::model::Thread| Thread {
            name: thread.name.clone(),
            id: thread.id,
            load: ran(thread) / seconds,
            share: if all > 0.0 { ran(thread) / all } else { 0.0 },
            processors: thread.processors.clone(),
        };
        let handoff = |now: &gateway::api::model::Handoff| {
            let earlier = before.handoffs.iter().find(|it| it.interface == now.interface);
            let rate = |now: u64, earlier: Option<u64>| {
                now.saturating_sub(earlier.unwrap_or_default()) as f64 / seconds
            };
            Handoffs {
                interface: now.interface.clone(),
                crypto_threads: now.crypto_threads,
                handed_off_per_second: rate(now.handed_off, earlier.map(|it| it.handed_off)),
                taken_back_per_second: rate(now.taken_back, earlier.map(|it| it.taken_back)),
                backlog: now.waiting,
            }
        };
        Self {
            threads: after.threads.iter().map(thread).collect(),
            handoffs: after.handoffs.iter().map(handoff).collect(),
        }
    }
}

fn tables(busy: &Busy) -> String {
    let percent = |part: f64| format!("{:.0}%", 100.0 * part);
    let row = |thread: &Thread| {
        let parts = [thread.load, thread.share].map(percent);
        let id = vec![thread.name.clone(), thread.id.to_string()];
        [id, parts.to_vec(), vec![thread.processors.clone()]].concat()
    };
    let rows: Vec<_> = busy.threads.iter().map(row).collect();
    let mut text = table(&["Thread", "ID", "Load", "Share", "Processors"], &rows);
    if busy.handoffs.is_empty() {
        let _ = write!(text, "\nnothing is handed off: no interface has crypto threads\n");
        return text;
    }
    let row = |it: &Handoffs| {
        let rates = [it.handed_off_per_second, it.taken_back_per_second].map(|rate| format!("{rate:.0}"));
        let count = vec![it.interface.clone(), it.crypto_threads.to_string()];
        [count, rates.to_vec(), vec![it.backlog.to_string()]].concat()
    };
    let rows: Vec<_> = busy.handoffs.iter().map(row).collect();
    let heads = ["Interface", "Crypto threads", "Bursts handed off/s", "Taken back/s", "Backlog"];
    text + "\n" + &table(&heads, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::api::model::{Handoff, Thread};

    fn at(out: u64, crypto: u64, handed_off: u64) -> Threads {
        let thread = |id, name: &str, nanoseconds| Thread {
            id,
            name: name.to_owned(),
            nanoseconds,
            waited: 0,
            processors: "0-3".to_owned(),
        };
        let handoff = Handoff {
            interface: "wg0".to_owned(),
            crypto_threads: 2,
            handed_off,
            taken_back: handed_off / 10,
            waiting: 3,
        };
        Threads {
            threads: vec![thread(4, "wg0 out", out), thread(6, "wg0 crypto", crypto)],
            handoffs: vec![handoff],
        }
    }

    #[test]
    fn loads_are_of_the_time_between() {
        let busy = Busy::between(&at(1_000_000_000, 0, 1000), &at(2_500_000_000, 500_000_000, 5000), 2.0);
        let text = tables(&busy);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[2], ["wg0", "out", "4", "75%", "75%", "0-3"], "{text}");
        assert_eq!(lines[3], ["wg0", "crypto", "6", "25%", "25%", "0-3"], "{text}");
        assert_eq!(lines[7], ["wg0", "2", "2000", "200", "3"], "{text}");
    }

    #[test]
    fn without_crypto_threads_it_says_so() {
        let text = tables(&Busy::between(&Threads::default(), &Threads::default(), 1.0));
        assert!(text.contains("no interface has crypto threads"), "{text}");
    }
}
