//! Counters that are read again and again, as rates.

use super::overwrite;
use crate::answer::{Answer, Form};
use crate::output::{self, bytes, timestamp};
use crate::tabulate::tabulate;
use crate::{Failure, Outcome};
use serde::Serialize;
use std::io::Write;
use std::time::{Duration, Instant};

/// How often the counters are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// What one peer or interface has carried, received and sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) state: String,
    pub(super) bytes: [u64; 2],
    /// What is wrong with it.
    pub(super) trouble: Option<String>,
}

/// The rates between two readings.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Rate {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    state: String,
    received_bits_per_second: f64,
    sent_bits_per_second: f64,
    received_bytes: u64,
    sent_bytes: u64,
    reason: Option<String>,
}

/// The rates of one moment, as a line of JSON.
#[derive(Debug, Serialize)]
struct Moment {
    /// Seconds since 1970.
    at: u64,
    rates: Vec<Rate>,
}

/// Shows the rates until interrupted. `what` is the head of the first column.
pub(super) fn watch(
    what: &'static str,
    read: impl Fn() -> Result<Vec<Reading>, Failure> + 'static,
) -> Result<Answer, Failure> {
    // So that it fails at once where nothing can be read.
    read()?;
    Ok(Answer::going(move |out, form| follow(what, &read, out, form)))
}

fn follow(
    what: &str,
    read: &impl Fn() -> Result<Vec<Reading>, Failure>,
    out: &mut dyn Write,
    form: Form,
) -> Outcome {
    let mut before = (Instant::now(), read().unwrap_or_default());
    if form.terminal && !form.json {
        out.write_all(b"\x1b[2J")?;
        overwrite(out, "measuring\n")?;
    }
    loop {
        std::thread::sleep(INTERVAL);
        // A daemon that restarts is there again soon.
        let read = read();
        let why = read.as_ref().err().map(ToString::to_string);
        let now = (Instant::now(), read.unwrap_or_default());
        let rates = rates(&before.1, &now.1, now.0.duration_since(before.0));
        before = now;
        let at = output::now();
        if form.json {
            writeln!(out, "{}", serde_json::to_string(&Moment { at, rates })?)?;
            out.flush()?;
        } else if form.terminal {
            overwrite(out, &screen(what, at, &rates, why.as_deref()))?;
        } else {
            let time = timestamp(at);
            out.write_all(rates.iter().map(|rate| line(&time, rate)).collect::<String>().as_bytes())?;
            if let Some(why) = why {
                writeln!(out, "{time} {}", why.lines().next().unwrap_or_default())?;
            }
            out.flush()?;
        }
    }
}

fn rates(before: &[Reading], now: &[Reading], elapsed: Duration) -> Vec<Rate> {
    let seconds = elapsed.as_secs_f64().max(f64::EPSILON);
    let rate = |reading: &Reading| {
        let earlier = before.iter().find(|it| (&it.name, it.kind) == (&reading.name, reading.kind));
        // Counters of a peer begin anew if it was removed and added: then there is no difference.
        let earlier = earlier.map_or(reading.bytes, |it| it.bytes);
        let [received, sent] = [0, 1].map(|at| {
            let more = reading.bytes[at].checked_sub(earlier[at]).unwrap_or(reading.bytes[at]);
            more as f64 * 8.0 / seconds
        });
        Rate {
            name: reading.name.clone(),
            kind: reading.kind,
            state: reading.state.clone(),
            received_bits_per_second: received,
            sent_bits_per_second: sent,
            received_bytes: reading.bytes[0],
            sent_bytes: reading.bytes[1],
            reason: reading.trouble.clone(),
        }
    };
    now.iter().map(rate).collect()
}

fn screen(what: &str, at: u64, rates: &[Rate], why: Option<&str>) -> String {
    let row = |rate: &Rate| {
        vec![
            rate.name.clone(),
            rate.kind.to_owned(),
            rate.state.clone(),
            bits(rate.received_bits_per_second),
            bits(rate.sent_bits_per_second),
            bytes(rate.received_bytes),
            bytes(rate.sent_bytes),
            rate.reason.clone().unwrap_or_default(),
        ]
    };
    let sum = |of: fn(&Rate) -> f64| bits(rates.iter().map(of).sum());
    let all = [sum(|rate| rate.received_bits_per_second), sum(|rate| rate.sent_bits_per_second)];
    let head = [what, "Type", "State", "In", "Out", "Total in", "Total out", "Reason"];
    format!(
        "{}  in {}  out {}  (Ctrl-C ends)\n\n{}{}\n",
        timestamp(at),
        all[0],
        all[1],
        tabulate(&head, &rates.iter().map(row).collect::<Vec<_>>()),
        why.unwrap_or_default()
    )
}

/// One line for what reads them one by one.
fn line(time: &str, rate: &Rate) -> String {
    let reason = rate.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!(
        "{time} {} {} {} in {} out {}{reason}\n",
        rate.kind,
        rate.name,
        rate.state,
        bits(rate.received_bits_per_second),
        bits(rate.sent_bits_per_second)
    )
}

/// A rate in the unit that leaves one to three digits before the point.
pub(crate) fn bits(rate: f64) -> String {
    let mut value = rate;
    for unit in ["bit/s", "kbit/s", "Mbit/s"] {
        if value < 999.95 {
            return if unit == "bit/s" { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.2} Gbit/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(name: &str, bytes: [u64; 2]) -> Reading {
        Reading { name: name.to_owned(), kind: "ipsec", state: "up".to_owned(), bytes, trouble: None }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before = [reading("berlin", [1000, 0]), reading("rome", [9000, 9000])];
        let now = [reading("berlin", [251_000, 125]), reading("rome", [500, 0]), reading("oslo", [700, 700])];
        let found = rates(&before, &now, Duration::from_secs(2));
        let shown: Vec<[String; 2]> = found
            .iter()
            .map(|rate| [bits(rate.received_bits_per_second), bits(rate.sent_bits_per_second)])
            .collect();
        assert_eq!(shown[0], ["1.0 Mbit/s", "500 bit/s"]);
        assert_eq!(shown[1], ["2.0 kbit/s", "0 bit/s"], "counted anew");
        assert_eq!(shown[2], ["0 bit/s", "0 bit/s"], "not known before");
    }

    #[test]
    fn a_line_has_one_peer_and_a_screen_all() {
        let mut peer = reading("berlin", [0, 0]);
        peer.trouble = Some("no answer".to_owned());
        let found = rates(&[], &[peer], Duration::from_secs(1));
        assert_eq!(
            line("1970-01-01T00:00:00Z", &found[0]),
            "1970-01-01T00:00:00Z ipsec berlin up in 0 bit/s out 0 bit/s (no answer)\n"
        );
        let screen = screen("Peer", 0, &found, None);
        assert!(
            screen.starts_with("1970-01-01T00:00:00Z  in 0 bit/s  out 0 bit/s")
                && screen.contains("\nberlin  ipsec "),
            "{screen}"
        );
    }

    #[test]
    fn rates_have_a_unit_that_fits() {
        assert_eq!(
            [0.0, 999.0, 1000.0, 999_949.0, 12_345_678.9, 2.5e9].map(bits),
            ["0 bit/s", "999 bit/s", "1.0 kbit/s", "999.9 kbit/s", "12.3 Mbit/s", "2.50 Gbit/s"]
        );
    }
}
