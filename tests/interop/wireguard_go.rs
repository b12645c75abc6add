//! With wireguard-go, in both directions, and under its own test script.

use crate::support::{PLAN, daemon, sites, tcp_arrives_whole, udp_echoes};
use bench::gateway_under_test::{Daemon, Tunnel};
use std::path::{Path, PathBuf};

fn wireguard_go() -> Option<Daemon> {
    // Tests run in the folder of their package.
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/wireguard-go");
    match Daemon::find_wireguard_go(built.is_file().then_some(built)) {
        Ok(daemon) => Some(daemon),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

#[test]
fn we_call_wireguard_go_and_it_calls_us() {
    let Some(peer) = wireguard_go() else { return };
    let ours = daemon();
    for (daemons, name) in [([&ours, &peer], "we call"), ([&peer, &ours], "it calls")] {
        let Some(mut lab) = sites() else { return };
        // The first packet is the first site's ping: it initiates.
        let tunnel = Tunnel::start_between(&mut lab, daemons, &PLAN, &[]).expect(name);
        for (from, to, end) in [("a", "b", 1), ("b", "a", 0)] {
            tcp_arrives_whole(&lab, from, to, &tunnel.inside[end], 20 << 20)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            tcp_arrives_whole(&lab, from, to, &tunnel.inside_v6[end], 4 << 20)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            let sizes = [0, 1, 100, 1352];
            assert_eq!(udp_echoes(&lab, from, to, &tunnel.inside[end], &sizes).expect("UDP"), 4, "{name}");
        }
    }
}

#[test]
fn a_preshared_key_meets_on_both_sides() {
    let Some(peer) = wireguard_go() else { return };
    let Some(mut lab) = sites() else { return };
    let tunnel = Tunnel::start_between(&mut lab, [&daemon(), &peer], &PLAN, &[]).expect("a tunnel");
    for (gateway, key) in tunnel.gateways.iter().zip(["11", "11"]) {
        let public = gateway.value("public_key").expect("it answers").expect("it has a peer");
        gateway.set(&format!("public_key={public}\npreshared_key={}\n", key.repeat(32))).expect("accepted");
    }
    // A new handshake takes the new key: both sides begin anew.
    for (site, gateway) in ["a", "b"].iter().zip(&tunnel.gateways) {
        lab.ip(site, &format!("link set {} down", gateway.interface)).expect("it is there");
        lab.ip(site, &format!("link set {} up", gateway.interface)).expect("it is there");
        lab.ip(
            site,
            &format!("address replace {} dev {}", tunnel.inside_v6[0].clone() + "9/64", gateway.interface),
        )
        .ok();
    }
    tcp_arrives_whole(&lab, "a", "b", &tunnel.inside[1], 1 << 20).expect("both have the key");
}

/// The script that wireguard-go's own developers test it with, unmodified.
#[test]
fn the_test_script_of_wireguard_go_passes() {
    let Some(script) = script() else {
        return eprintln!(
            "SKIPPED: tests/netns.sh of wireguard-go is not in Go's module cache; make setup brings it"
        );
    };
    let missing: Vec<&str> = ["wg", "iperf3", "ncat", "iptables", "ss", "ping"]
        .into_iter()
        .filter(|p| !bench::lab::has_program(p))
        .collect();
    if !missing.is_empty() || !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: needs root, and {}", missing.join(", "));
    }
    let program = format!("{} wireguard", crate::support::postern().display());
    let output = std::process::Command::new("bash").arg(&script).arg(program).output().expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(30).collect();
    assert!(output.status.success(), "{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
}

fn script() -> Option<PathBuf> {
    let output = std::process::Command::new("go").args(["env", "GOMODCACHE"]).output().ok()?;
    let modules = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()).join("golang.zx2c4.com");
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir(modules).ok()?.flatten().map(|entry| entry.path()).collect();
    versions.sort();
    versions.into_iter().rev().map(|version| version.join("tests/netns.sh")).find(|path| path.is_file())
}
