//! What `top` prints without a terminal: a line a row, or a JSON object, each second.

use super::draw::age;
use super::readings::{Kind, Moment, Readings, Row};
use super::{INTERVAL, Source};
use crate::Outcome;
use crate::answer::Form;
use crate::monitor::rates::bits;
use crate::output::{now, timestamp};
use crate::show_path::round_trip;
use std::io::Write;

/// Prints the rates each second, or once.
pub(super) fn follow(mut source: Source, once: bool, out: &mut dyn Write, form: Form) -> Outcome {
    let mut readings = Readings::default();
    readings.add(source.read()?);
    loop {
        std::thread::sleep(INTERVAL);
        match source.read() {
            Ok(reading) => {
                let moment = readings.add(reading);
                if form.json {
                    writeln!(out, "{}", serde_json::to_string(&moment)?)?;
                } else {
                    out.write_all(text(&moment).as_bytes())?;
                }
            }
            Err(error) if once => return Err(error),
            // A daemon that restarts is there again soon.
            Err(error) => missing(out, form, &error.to_string())?,
        }
        out.flush()?;
        if once {
            return Ok(());
        }
    }
}

fn missing(out: &mut dyn Write, form: Form, why: &str) -> Outcome {
    let at = now();
    let why = why.lines().next().unwrap_or_default();
    if form.json {
        writeln!(out, "{}", serde_json::json!({ "at": at, "error": why }))?;
    } else {
        writeln!(out, "{} {why}", timestamp(at))?;
    }
    Ok(())
}

/// A line for each row, in the order of their names.
pub(super) fn text(moment: &Moment) -> String {
    let time = timestamp(moment.at);
    let restarted =
        moment.restarted.iter().map(|socket| format!("{time} {} was restarted\n", socket.display()));
    let mut rows: Vec<(String, &Row)> = moment.rows.iter().map(|row| (row.name(), row)).collect();
    rows.sort_by(|(a, _), (b, _)| config::tree::natural_order(a, b));
    restarted.chain(rows.iter().map(|(name, row)| line(&time, name, row, moment.at))).collect()
}

fn line(time: &str, name: &str, row: &Row, now: u64) -> String {
    let rates = format!(
        "in {} out {} lost/s {:.0}",
        bits(row.received_bits_per_second),
        bits(row.sent_bits_per_second),
        row.lost_per_second
    );
    let kind = match row.kind {
        Kind::Interface => format!("interface {name} tunnels {}", row.tunnels),
        Kind::Peer => format!("{} {name}", row.protocol()),
    };
    let engine = row.engine.as_deref().unwrap_or("-");
    let path = row.loss_ratio.map_or_else(String::new, |loss| {
        format!(" rtt {} loss {:.0}%", round_trip(row.rtt_seconds), 100.0 * loss)
    });
    format!(
        "{time} {kind} {} {rates} handshake {} engine {engine}{path}\n",
        row.state,
        age(row.last_handshake, now)
    )
}
