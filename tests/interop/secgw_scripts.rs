//! Under DPDK's own tests of ipsec-secgw, as they are, with `postern secgw` in its place.

use crate::support::{lab, skip};
use std::path::Path;
use std::process::Command;

/// What the runner exits with if something is missing.
const MISSING: i32 = 77;

#[test]
fn the_packet_tests_of_ipsec_secgw_pass() {
    // It says so if there is no root.
    let Some(_lab) = lab(&[]) else { return };
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/secgw-scripts.sh");
    let run = Command::new(runner).args([env!("CARGO_BIN_EXE_postern"), "-p"]).output().expect("it runs");
    let said = [run.stdout, run.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if run.status.code() == Some(MISSING) {
        return skip(&said);
    }
    assert!(run.status.success(), "{said}");
    // unittest counts what it ran: neither file may be empty.
    for count in ["Ran 5 tests", "Ran 20 tests"] {
        assert!(said.contains(count), "no {count} in\n{said}");
    }
}
