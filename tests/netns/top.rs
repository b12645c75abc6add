//! `postern top`: on a real terminal, and as lines without one.

mod terminal;

use crate::daemon::{Site, started};
use crate::support::{PATIENCE, answers, postern, tcp_arrives_whole};
use lab::{Lab, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use terminal::Terminal;

fn up() -> Option<(Lab, Site, Site)> {
    let (lab, a, b, _) = started()?;
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    Some((lab, a, b))
}

fn top(site: &Site, options: &[&str]) -> Command {
    let mut command = Command::new(postern());
    command.arg("top").args(options).arg("--api").arg(&site.socket);
    command
}

/// The rate in a row of the screen, in kbit/s.
fn rate(screen: &str, row: &str) -> Option<f64> {
    let line = screen.lines().find(|line| line.starts_with(row))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let unit = words.iter().position(|word| word.ends_with("bit/s"))?;
    let factor = match words[unit] {
        "bit/s" => 1e-3,
        "kbit/s" => 1.0,
        "Mbit/s" => 1e3,
        _ => 1e6,
    };
    Some(factor * words[unit - 1].parse::<f64>().ok()?)
}

#[test]
fn rates_move_on_a_terminal_a_restart_is_told_and_the_terminal_gets_its_mode_back() {
    let Some((mut lab, mut a, _b)) = up() else { return };
    let mut terminal = Terminal::start(top(&a, &[]), 110, 24);
    terminal.shows("wg0 other ");
    terminal.shows("threads: ");
    assert!(!terminal.is_cooked(), "keys come one by one");
    let mut most: f64 = 0.0;
    wait_until(PATIENCE, || {
        tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 4 << 20).expect("the tunnel carries");
        most = most.max(rate(&terminal.screen(), "wg0 other").unwrap_or_default());
        most > 100.0
    })
    .unwrap_or_else(|_| panic!("no rate:\n{}", terminal.screen()));
    let falls = || rate(&terminal.screen(), "wg0 other").is_some_and(|rate| rate < 10.0);
    wait_until(PATIENCE, falls).expect("and goes back");
    // The selected row is explained.
    terminal.types("n\x1b[B\r");
    terminal.shows("wg0 other (Esc closes");
    terminal.shows("postern explain interfaces wireguard wg0 peer other");
    terminal.shows("postern show bottleneck wg0");
    terminal.types("q");
    terminal.ends(0);
    assert!(terminal.is_cooked() && terminal.has_left(), "{}", terminal.screen());

    let mut terminal = Terminal::start(top(&a, &[]), 110, 24);
    terminal.shows("wg0 other ");
    let process = a.process.expect("it was started");
    a.signal(Signal::TERM);
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    terminal.shows("no answer for ");
    terminal.resize(90, 12);
    a.start(&mut lab);
    terminal.shows("connected again after ");
    terminal.shows("the daemon was restarted");
    terminal.shows("wg0 other ");
    terminal.shows("1/2  q quit");
    terminal.signal(Signal::TERM);
    terminal.ends(128 + 15);
    assert!(terminal.is_cooked() && terminal.has_left(), "{}", terminal.screen());
}

#[test]
fn without_a_terminal_there_are_lines_or_json_objects() {
    let Some((lab, a, _b)) = up() else { return };
    let mut child = top(&a, &["--json"]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let sent = |value: &Value| {
        let rows = value["rows"].as_array().expect("rows").iter();
        let peer = rows.filter(|row| row["peer"] == "other").map(|row| row["sent_bytes"].as_u64());
        peer.flatten().sum::<u64>()
    };
    let mut next =
        || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("read")).expect("JSON") };
    let first = sent(&next());
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
    let later = (0..5).map(|_| next()).find(|value| sent(value) > first + (1 << 20)).expect("it moves");
    assert_eq!(later["rows"][0]["kind"], "interface", "{later:#}");
    child.kill().expect("it runs");
    child.wait().expect("it ends");

    let said = top(&a, &["--once"]).output().expect("it runs");
    let text = String::from_utf8(said.stdout).expect("text");
    assert!(said.status.success() && text.lines().count() == 2, "{text}");
    assert!(text.contains(" wireguard wg0 other up in ") && !text.contains('\u{1b}'), "{text}");
    a.signal(Signal::TERM);
    wait_until(PATIENCE, || !a.socket.exists()).expect("it ends");
    let said = top(&a, &[]).output().expect("it runs");
    assert_eq!(said.status.code(), Some(2), "{said:?}");
}
