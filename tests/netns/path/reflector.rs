//! The reflector and the sender, against packets of scapy.

use super::{becomes, is_measured, number, paths, started};
use crate::support::{PATIENCE, skip};
use lab::{Lab, output};
use std::process::Command;
use std::time::Duration;

const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/netns/path/oracle.py");
/// Debian's packages are for this one.
const PYTHON: &str = "/usr/bin/python3";

fn has_scapy() -> bool {
    let found = Command::new(PYTHON).args(["-c", "import scapy.contrib.stamp"]).output();
    let has = found.is_ok_and(|found| found.status.success());
    if !has {
        skip("needs python3-scapy");
    }
    has
}

fn oracle(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = lab.command("a", PYTHON);
    command.arg(ORACLE).args(arguments);
    command
}

#[test]
fn another_implementation_finds_the_reflector_right_and_garbage_ends_nothing() {
    if !has_scapy() {
        return;
    }
    let Some((lab, _a, b, _)) = started([&[], &["reflector listen-address 10.66.0.2"]]) else { return };
    let said = output(&mut oracle(&lab, &["ask", "10.66.0.2"])).expect("all claims hold");
    assert_eq!(said.lines().count(), 6, "{said}");
    let reflector = paths(&b.socket)["reflector"].clone();
    let said = lab::wait_until(PATIENCE, || {
        let counted = &paths(&b.socket)["reflector"];
        number(&counted["answered"]) >= 10.0 && number(&counted["malformed"]) >= 5.0
    });
    said.unwrap_or_else(|error| panic!("{error}: {reflector:#}"));
}

#[test]
fn a_flood_gets_as_many_answers_as_the_rate_allows() {
    if !has_scapy() {
        return;
    }
    let monitor = ["reflector listen-address 10.66.0.2", "reflector rate 5"];
    let Some((lab, _a, b, _)) = started([&[], &monitor]) else { return };
    let said = output(&mut oracle(&lab, &["flood", "10.66.0.2", "500"])).expect("it ends");
    let (answered, seconds) = said.trim().split_once(' ').expect("two numbers");
    let (answered, seconds): (f64, f64) = (answered.parse().expect("one"), seconds.parse().expect("one"));
    assert!(answered >= 1.0 && answered <= 5.0 * seconds + 2.0, "{said}");
    // A busy machine drops some of them in the tunnel, or before the socket: more are sent until enough are counted.
    let limited = || {
        let is_enough = number(&paths(&b.socket)["reflector"]["limited"]) >= 400.0;
        if !is_enough {
            output(&mut oracle(&lab, &["flood", "10.66.0.2", "100"])).expect("it ends");
        }
        is_enough
    };
    lab::wait_until(2 * PATIENCE, limited).expect("others are counted");
}

#[test]
fn a_reflector_of_another_kind_is_measured() {
    if !has_scapy() {
        return;
    }
    let monitor = [
        "target b address 10.66.0.2",
        "target b interface wg0",
        "target b protocol stamp",
        "target b port 8620",
    ];
    let Some((mut lab, a, _b, _)) = started([&monitor, &[]]) else { return };
    let mut command = lab.command("b", PYTHON);
    command.args([ORACLE, "reflect", "10.66.0.2", "8620"]);
    lab.start(&mut command).expect("it starts");
    let path = becomes(&a.socket, "b", 2 * PATIENCE, is_measured);
    assert!(number(&path["rtt_least_seconds"]) < Duration::from_secs(1).as_secs_f64(), "{path:#}");
    becomes(&a.socket, "b", PATIENCE, |it| it["mtu"] == "fits");
}
