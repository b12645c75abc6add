//! Ports of `postern secgw` whose interface another process has.

use crate::secgw::file;
use crate::support::{PATIENCE, postern};
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// A gateway with two TAP interfaces, of which `t0` is the test's; it logs to a file.
fn start(lab: &mut Lab, folder: &Path) -> Process {
    let path = folder.join("alone.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let mut command = lab.command("alone", postern());
    command.args(["secgw", "-l", "0", "--no-pci", "--vdev", "net_tap0,iface=t0"]);
    command.args(["--vdev", "net_tap1,iface=t1", "--", "-P", "-p", "0x3", "-u", "0x2", "-f"]).arg(&path);
    command.args(["--config", "(0,0,0),(1,0,0)", "--api"]).arg(folder.join("sock"));
    command.stdout(File::create(folder.join("statistics")).expect("it can be made"));
    command.stderr(File::create(folder.join("log")).expect("it can be made"));
    lab.start(&mut command).expect("it starts")
}

#[test]
fn a_tap_interface_that_another_process_is_closing_is_waited_for_but_not_for_long() {
    let Some(mut lab) = crate::support::lab(&["alone"]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let said = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    let open = |lab: &Lab| lab.enter("alone", || port::tap::open("t0").expect("it can be made"));
    let held = open(&lab).expect("no panic");
    let gateway = start(&mut lab, folder.path());
    std::thread::sleep(Duration::from_secs(1));
    assert!(lab.ended(gateway).is_none() && lab.ip("alone", "link show t1").is_err(), "{}", said());
    drop(held);
    wait_until(PATIENCE, || said().contains("packets are forwarded"))
        .unwrap_or_else(|error| panic!("{error}: {}", said()));
    lab.kill(gateway, Signal::TERM);

    let held = open(&lab).expect("no panic");
    let gateway = start(&mut lab, folder.path());
    let mut status = None;
    wait_until(PATIENCE, || {
        status = lab.ended(gateway);
        status.is_some()
    })
    .expect("it gives up");
    assert!(status.is_some_and(|status| !status.success()), "{status:?}");
    assert!(said().contains("interface t0 exists already and is in use"), "{}", said());
    drop(held);
}
