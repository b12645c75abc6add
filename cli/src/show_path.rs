//! `postern show path`: round-trip time, loss and MTU of the tunnels that are probed.

use crate::Failure;
use crate::answer::Answer;
use crate::output::{NOT_UP, printable};
use crate::request::Request;
use crate::tabulate::tabulate;
use gateway::path::model::{Mtu, Path, Paths, Reflector, State, milliseconds};
use std::fmt::Write as _;

pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    let mut found = request.ask::<Paths>()?;
    if let Some(name) = request.value("TARGET") {
        for paths in &mut found {
            paths.targets.retain(|path| path.target == name);
            paths.reflector = None;
        }
        if found.iter().all(|paths| paths.targets.is_empty()) {
            return Err(format!("no target is called {name}\n  fix: postern show path").into());
        }
    }
    let is_ill = |path: &Path| path.problem.is_some();
    let status = if found.iter().flat_map(|paths| &paths.targets).any(is_ill) { NOT_UP } else { 0 };
    Ok(Answer::new(found, |found| text(found)).with_status(status))
}

const HEADS: [&str; 9] = ["Target", "Tunnel", "Address", "Probe", "State", "RTT", "Deviation", "Loss", "MTU"];

fn text(found: &[Paths]) -> String {
    let paths: Vec<&Path> = found.iter().flat_map(|paths| &paths.targets).collect();
    let reflectors = || found.iter().filter_map(|paths| paths.reflector.as_ref());
    let mut text = String::new();
    if !paths.is_empty() {
        let rows: Vec<Vec<String>> = paths.iter().map(|path| row(path)).collect();
        text = tabulate(&HEADS, &rows);
    } else if reflectors().next().is_none() {
        return "no tunnel is probed\n  fix: set service path-monitor target NAME address ADDRESS, or \
                set service path-monitor interface wg0\n"
            .to_owned();
    }
    for path in paths {
        if let Some(problem) = &path.problem {
            let _ = writeln!(text, "\n{}: {problem}", printable(&path.target));
            if let Some(remedy) = &path.remedy {
                let _ = writeln!(text, "  fix: {remedy}");
            }
        }
    }
    for reflector in reflectors() {
        text += &reflected(reflector);
    }
    text
}

fn reflected(Reflector { listen, answered, malformed, limited, unsent }: &Reflector) -> String {
    format!(
        "\nReflector at {}: {answered} probes answered, {limited} above the rate, {malformed} malformed, {unsent} not sent\n",
        listen.join(", ")
    )
}

fn row(path: &Path) -> Vec<String> {
    let tunnel = path.tunnel.map(|number| format!(" {number}")).unwrap_or_default();
    vec![
        printable(&path.target),
        format!("{} {}{tunnel}", path.interface, printable(&path.peer)),
        path.address.clone(),
        path.protocol.name().to_owned(),
        path.state.name().to_owned(),
        round_trip(path.rtt_seconds),
        round_trip(path.rtt_deviation_seconds),
        path.loss_ratio.map_or_else(|| "-".to_owned(), |part| format!("{:.1}%", 100.0 * part)),
        mtu(path),
    ]
}

/// A round-trip time; a dash where there is none.
pub(crate) fn round_trip(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), milliseconds)
}

fn mtu(path: &Path) -> String {
    let size = path.path_mtu_bytes.map(|size| size.to_string()).unwrap_or_default();
    match path.mtu {
        Mtu::Unknown if path.state == State::New => "-".to_owned(),
        Mtu::Unknown => "unknown".to_owned(),
        Mtu::Searching => "searching".to_owned(),
        Mtu::Fits => size,
        Mtu::Told => format!("{size} told"),
        Mtu::BlackHole => format!("{size} black-hole").trim_start().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Path {
        Path {
            target: "berlin".to_owned(),
            interface: "wg0".to_owned(),
            peer: "berlin".to_owned(),
            address: "10.2.0.1".to_owned(),
            state: State::Answers,
            loss_ratio: Some(0.05),
            rtt_seconds: Some(0.01234),
            rtt_deviation_seconds: Some(0.0004),
            path_mtu_bytes: Some(1320),
            mtu: Mtu::BlackHole,
            problem: Some("Packets are lost.".to_owned()),
            remedy: Some("set interfaces wireguard wg0 mtu 1320".to_owned()),
            ..Path::default()
        }
    }

    #[test]
    fn a_black_hole_stands_below_the_table_with_its_fix() {
        let reflector =
            Reflector { listen: vec!["10.1.0.1:862".to_owned()], answered: 7, ..Reflector::default() };
        let shown = text(&[Paths { targets: vec![path()], reflector: Some(reflector) }]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[2],
            "berlin    wg0 berlin  10.2.0.1   icmp     answers  12.3 ms  0.40 ms      5.0%    1320 black-hole"
        );
        assert_eq!(
            lines[4..6],
            ["berlin: Packets are lost.", "  fix: set interfaces wireguard wg0 mtu 1320"]
        );
        assert!(lines[7].starts_with("Reflector at 10.1.0.1:862: 7 probes answered"), "{shown}");
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_without_targets_it_says_what_to_type() {
        let new = Path { target: "a".to_owned(), ..Path::default() };
        let shown = text(&[Paths { targets: vec![new], reflector: None }]);
        assert!(
            shown.lines().nth(2).is_some_and(|line| line.contains("new") && line.ends_with('-')),
            "{shown}"
        );
        assert!(text(&[Paths::default()]).contains("fix: set service path-monitor"));
        let times = [None, Some(0.000_041), Some(0.05), Some(1.5)].map(round_trip);
        assert_eq!(times, ["-", "0.04 ms", "50.0 ms", "1500 ms"]);
    }
}
