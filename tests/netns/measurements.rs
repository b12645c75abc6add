//! The measurements of IKE, in small: they measure, and say what they promise.

use crate::support::postern;
use serde_json::Value;
use std::process::{Command, Stdio};

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
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
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
