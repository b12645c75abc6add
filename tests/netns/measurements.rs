//! The demo and the measurements, in small: they measure, and say what they promise.

use crate::support::postern;
use lab::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a measurement says with `--json`; none where it cannot run.
fn measured(words: &str) -> Option<Value> {
    if !rustix::process::geteuid().is_root() {
        crate::support::skip("needs root to make network namespaces");
        return None;
    }
    if std::thread::available_parallelism().is_ok_and(|it| it.get() < 2) {
        crate::support::unavailable("needs two cores");
        return None;
    }
    let mut command = Command::new(postern());
    let output = command.args(words.split(' ')).arg("--json").stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let said = Command::new(postern()).arg("--version").output().expect("it runs");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let [program, engines] = ["program", "engines"].map(|name| &report["machine"][name]);
    let commit = program["commit"].as_str().expect("a commit");
    assert!(said.contains(&format!("\ncommit: {commit}\n")), "{said}: {program:#}");
    assert!(engines[0]["version"].as_str().is_some_and(|version| said.contains(version)), "{engines:#}");
    Some(report)
}

#[test]
fn set_ups_and_tunnels_are_counted() {
    let words = "bench ike --peer none --suite aes128-sha256-x25519 --setups 60 --rounds 1 --tunnels 60";
    let Some(report) = measured(words) else { return };
    let round = &report["rates"][0]["rounds"][0];
    assert_eq!(round["failed"], 0, "{report:#}");
    assert!(round["rate"].as_f64().is_some_and(|rate| rate > 1.0), "{report:#}");
    assert!(round["cpu_us"].as_f64().is_some_and(|cpu| cpu > 1.0), "{report:#}");
    let rekeys = &report["rekeys"][0]["rounds"][0];
    assert!(rekeys["rate"].as_f64().is_some_and(|rate| rate > 1.0), "{report:#}");
    assert_eq!(rekeys["failed"], 0, "{report:#}");
    assert_eq!(report["tunnels"]["count"], 60);
    let memory = |name: &str| report["tunnels"][name].as_f64().unwrap_or_default();
    assert!(memory("memory_established") > memory("memory_empty"), "{report:#}");
}

#[test]
fn a_new_peer_gets_through_a_flood_of_ike() {
    let Some(report) = measured("bench flood --protocol ike --rate 2000 --seconds 1 --rounds 1") else {
        return;
    };
    let floods = report["floods"].as_array().expect("a list");
    assert_eq!(floods.len(), 5);
    for flood in floods {
        assert!(flood["speed"].as_f64().is_some_and(|speed| speed > 0.0), "{flood:#}");
        assert!(flood["handshake_ms"].as_f64().is_some_and(|time| time > 0.0), "{flood:#}");
    }
}

/// Whether all of a tunnel's measurements were made.
fn all_are_made(report: &Value) {
    assert_eq!(report["failures"], Value::Array(Vec::new()), "{report:#}");
    let results = report["results"].as_array().expect("a list");
    for wanted in
        ["round trip, idle, median", "TCP, 1 stream", "TCP, 4 streams", "TCP, 1 stream: both gateways"]
    {
        let found = results.iter().find(|result| result["name"] == wanted);
        let value = found.and_then(|result| result["values"][0][0].as_f64());
        assert!(value.is_some_and(|value| value > 0.0), "{wanted}: {report:#}");
    }
}

#[test]
fn tunnels_are_measured() {
    for protocol in ["tunnel", "ipsec"] {
        let words = format!("bench {protocol} --peer none --seconds 1 --rounds 1");
        let Some(report) = measured(&words) else { return };
        all_are_made(&report);
    }
}

#[test]
fn openvpn_is_measured_by_thread_and_by_subtraction() {
    let pairs = ["postern", "postern-cbc-sha256", "postern-sha256", "postern-none"];
    let words = pairs.map(|pair| format!(" --pair {pair}")).concat();
    let Some(report) = measured(&format!("bench openvpn --seconds 1 --rounds 1{words}")) else { return };
    assert_eq!(report["failures"], Value::Array(Vec::new()), "{report:#}");
    for measurement in report["measurements"].as_array().expect("a list") {
        let of_pairs = measurement["runs"].as_array().expect("one for each pair");
        assert_ne!(of_pairs[0], Value::Array(Vec::new()), "{measurement:#}");
        // A pair for subtraction makes two of the transfers.
        for runs in of_pairs.iter().filter(|runs| runs.as_array().is_some_and(|runs| !runs.is_empty())) {
            assert!(runs[0]["value"].as_f64().is_some_and(|value| value > 0.0), "{measurement:#}");
            if measurement["cost_unit"].is_null() {
                continue;
            }
            let threads = runs[0]["server"]["threads"].as_object().expect("by thread");
            assert!(threads.contains_key("in"), "{measurement:#}");
        }
    }
    let told = report["bottlenecks"].as_array().expect("a list");
    assert!(
        told.len() == 2 && told.iter().all(|it| it.to_string().contains("the bottleneck is ")),
        "{told:?}"
    );
}

#[test]
fn a_flood_of_handshakes_is_measured() {
    let Some(report) = measured("bench flood --rate 2000 --seconds 1 --rounds 1") else { return };
    let floods = report["floods"].as_array().expect("a list");
    assert!(!floods.is_empty());
    for flood in floods {
        assert!(flood["sent_rate"].as_f64().is_some_and(|rate| rate > 1000.0), "{flood:#}");
        assert!(flood["handshake_ms"].as_f64().is_some_and(|time| time > 0.0), "{flood:#}");
    }
}

#[test]
fn many_peers_are_measured() {
    let Some(report) = measured("bench peers --peers 50 --rounds 1 --rest 1") else { return };
    assert_eq!(report["peers"], 50);
    assert!(report["storm_seconds"][0].as_f64().is_some_and(|seconds| seconds > 0.0), "{report:#}");
    let memory = |name: &str| report[name].as_f64().unwrap_or_default();
    assert!(memory("memory_established") >= memory("memory_configured"), "{report:#}");
}

#[test]
fn the_data_path_alone_is_measured_stage_by_stage() {
    for (protocol, stages) in [("wireguard", 8), ("esp", 8)] {
        let words = format!("bench pipeline --protocol {protocol} --seconds 0.01");
        let Some(report) = measured(&words) else { return };
        for load in report["loads"].as_array().expect("a list") {
            for way in ["inbound", "outbound"] {
                let parts = load[way]["stages"].as_array().expect("a list");
                let costs: Vec<f64> = parts.iter().filter_map(|part| part[1].as_f64()).collect();
                let total = load[way]["total"].as_f64().expect("a number");
                let most = costs.iter().copied().fold(0.0, f64::max);
                assert!(costs.len() >= stages && most > 0.0 && total > 0.0, "{load:#}");
            }
        }
    }
}

#[test]
fn ciphers_and_the_choice_between_engines_are_measured() {
    let words =
        "bench crypto --cipher aes-128-gcm --cipher chacha20-poly1305 --seconds 0.001 --without nothing";
    let Some(report) = measured(words) else { return };
    let rows = report["rows"].as_array().expect("a list");
    let has = |engine: &str, cipher| rows.iter().any(|row| row["engine"] == engine && row["name"] == cipher);
    for engine in report["engines"].as_array().expect("a list") {
        let name = engine["name"].as_str().expect("a name");
        let cipher = if name == "multi-buffer" { "chacha20-poly1305" } else { "aes-128-gcm" };
        assert!(has(name, cipher), "{report:#}");
    }
    let words = "bench choice --cipher aes-128-gcm --seconds 0.0005";
    let Some(report) = measured(words) else { return };
    assert!(report["ciphers"][0]["places"].as_u64().is_some_and(|places| places > 0), "{report:#}");
    let Some(report) = measured("bench system") else { return };
    assert!(report["copies"][0]["bytes_per_second"].as_f64().is_some_and(|speed| speed > 1.0), "{report:#}");
}

#[test]
fn the_demo_shows_what_a_tunnel_can_do() {
    if !rustix::process::geteuid().is_root() {
        return crate::support::skip("needs root to make network namespaces");
    }
    let mut command = Command::new(postern());
    let output = command.args(["demo", "--seconds", "1"]).stdin(Stdio::null()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let row = said.lines().find(|line| line.starts_with("TCP, 1 stream")).unwrap_or_default();
    let numbers: Vec<f64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // The number of streams is not among them: a comma follows no number there.
    assert!(numbers.len() >= 2 && numbers.iter().all(|&number| number > 0.0), "{said}");
}

#[test]
fn a_measurement_that_is_told_to_end_leaves_nothing() {
    if !rustix::process::geteuid().is_root() {
        return crate::support::skip("needs root to make network namespaces");
    }
    let patience = Duration::from_secs(30);
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = Command::new(postern());
        command.args(["bench", "tunnel", "--peer", "none", "--seconds", "60"]);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = quiet.spawn().expect("it runs");
        let id = child.id();
        let mut processes = Vec::new();
        wait_until(patience, || {
            let namespaces = namespaces_of(id);
            processes = namespaces.iter().flat_map(|name| processes_in(name)).collect();
            namespaces.len() >= 2 && processes.len() >= 2
        })
        .expect("two sites, and something in each");
        kill_process(Pid::from_child(&child), signal).expect("it lives");
        let mut status = None;
        wait_until(patience, || {
            status = child.try_wait().expect("it is ours");
            status.is_some()
        })
        .expect("it ends");
        assert_eq!(status.and_then(|status| status.code()), Some(128 + signal.as_raw()));
        assert_eq!(namespaces_of(id), [] as [String; 0]);
        wait_until(patience, || !processes.iter().any(|process| runs(process))).expect("no process is left");
    }
}

/// The network namespaces that a measurement has made.
fn namespaces_of(measurement: u32) -> Vec<String> {
    let ours = format!("postern-{measurement}-");
    let listed = ip(&["netns", "list"]);
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with(&ours)).map(str::to_owned).collect()
}

/// The folders in `/proc` of the processes of a namespace.
fn processes_in(namespace: &str) -> Vec<PathBuf> {
    let listed = ip(&["netns", "pids", namespace]);
    listed.lines().map(|id| Path::new("/proc").join(id.trim())).collect()
}

fn ip(words: &[&str]) -> String {
    let output = Command::new("ip").args(words).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a process runs; one that has ended may still wait for its parent to hear of it.
fn runs(process: &Path) -> bool {
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("(zombie)"))
}

#[test]
fn the_serial_stages_are_measured_and_the_speed_with_more_processors_predicted() {
    let Some(report) = measured("bench scaling --seconds 1") else { return };
    let rows = report["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 16, "two protocols, four loads, two directions: {report:#}");
    for row in rows {
        let [serial, cipher] = ["serial", "cipher"].map(|name| row[name].as_f64().expect("a number"));
        assert!(serial > 1.0 && cipher > 1.0, "{row:#}");
        let predicted: Vec<f64> = row["predicted"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|pair| pair[1].as_f64().expect("a number"))
            .collect();
        assert!(predicted.len() == 6 && predicted.is_sorted() && predicted[0] > 0.0, "{row:#}");
    }
    assert!(report["measured"][0][1].as_f64().is_some_and(|gigabits| gigabits > 0.0), "{report:#}");
}

#[test]
fn the_ceiling_carries_what_a_gateway_carries() {
    let words = "bench tunnel --peer ceiling --seconds 1 --rounds 1 --only reverse";
    let Some(report) = measured(words) else { return };
    assert_eq!(report["daemons"][1][0], "ceiling");
    assert_eq!(report["failures"].as_array().map(Vec::len), Some(0), "{report:#}");
    for quantity in report["results"].as_array().expect("a list") {
        let medians = quantity["medians"].as_array().expect("a list");
        assert!(medians.iter().all(|median| median.as_f64().is_some_and(|it| it > 0.0)), "{quantity:#}");
    }
}
