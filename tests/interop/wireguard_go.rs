//! With wireguard-go, in both directions, and under its own test script.

use crate::support::{PLAN, answers, daemon, sites, skip, tcp_arrives_whole, udp_echoes};
use crate::tester;
use lab::wireguard::{Daemon, Gateway, Tunnel};
use std::path::{Path, PathBuf};

/// The program, if it was built.
pub fn wireguard_go() -> Option<Daemon> {
    // Tests run in the folder of their package.
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/wireguard-go");
    match Daemon::find_wireguard_go(built.is_file().then_some(built)) {
        Ok(daemon) => Some(daemon),
        Err(error) => {
            skip(&error.to_string());
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
    let share = |keys: [&str; 2]| {
        let peer =
            |gateway: &Gateway| gateway.value("public_key").expect("it answers").expect("it has a peer");
        let publics = [0, 1].map(|end| peer(&tunnel.gateways[end]));
        // Without their peers both have no session any more: the next packet needs a handshake, with the new key.
        for end in [0, 1] {
            tunnel.gateways[end]
                .set(&format!("public_key={}\nremove=true\n", publics[end]))
                .expect("accepted");
        }
        for end in [0, 1] {
            let request = format!(
                "public_key={}\npreshared_key={}\nendpoint={}:51820\nallowed_ip={}/32\n",
                publics[end],
                keys[end].repeat(32),
                PLAN.outside[1 - end],
                tunnel.inside[1 - end]
            );
            tunnel.gateways[end].set(&request).expect("accepted");
        }
    };
    share(["11", "22"]);
    let reached = || (0..7).any(|_| answers(&lab, "a", &tunnel.inside[1]));
    assert!(!reached(), "the keys are not the same, and a second attempt makes no difference");
    share(["11", "11"]);
    assert!(reached(), "both have the key");
    share(["33", "33"]);
    tcp_arrives_whole(&lab, "b", "a", &tunnel.inside[0], 1 << 20).expect("both have the other key");
}

#[test]
fn wireguard_go_is_a_device_under_test() {
    let Some(peer) = wireguard_go() else { return };
    let Some(mut lab) = tester::scene() else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let _gateway = tester::start_gateway(&mut lab, &peer, file.path()).expect("it starts");
    tester::test_gateway(&lab, file.path(), "wireguard-go");
}

/// The script that wireguard-go's own developers test it with, unmodified.
#[test]
fn the_test_script_of_wireguard_go_passes() {
    let Some(script) = script() else {
        return skip("tests/netns.sh of wireguard-go is not in Go's module cache; make setup brings it");
    };
    let missing: Vec<&str> = ["wg", "iperf3", "ncat", "iptables", "ss", "ping"]
        .into_iter()
        .filter(|p| !lab::has_program(p))
        .collect();
    if !missing.is_empty() || !rustix::process::geteuid().is_root() {
        return skip(&format!("needs root, and {}", missing.join(", ")));
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
