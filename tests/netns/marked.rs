//! Connections that carry the gateway's mark: revocation lists are fetched over them.

use crate::closed::{PATIENCE, WORLD, everything, lab, running, tunnel};
use crate::support::skip;
use lab::{Lab, has_program, wait_until};

/// Whether a host answers a TCP connection of the gateway, if only to refuse it.
fn answers_tcp(lab: &Lab, mark: u32, to: &str) -> bool {
    let program = format!(
        "import socket, sys\ns = socket.socket()\ns.settimeout(2)\ns.setsockopt(socket.SOL_SOCKET, 36, {mark})\n\
         s.bind(('10.1.0.1', 0))\nsys.exit(s.connect_ex(('{to}', 9)) != 111)"
    );
    lab.run("a", "python3", &["-c", &program]).is_ok()
}

#[test]
fn marked_tcp_goes_around_a_tunnel_for_everything_and_around_no_other() {
    let Some(mut lab) = lab() else { return };
    if !has_program("python3") {
        return skip("needs python3");
    }
    wait_until(PATIENCE, || answers_tcp(&lab, 0, WORLD)).expect("the lab leads outside");
    let a = running(&mut lab, &everything());
    wait_until(PATIENCE, || answers_tcp(&lab, 220, WORLD)).expect("marked TCP leaves");
    assert!(!answers_tcp(&lab, 0, WORLD), "unmarked");
    let narrow = tunnel("narrow", ["192.168.77.1", "192.168.77.3"], "10.1.0.0/24", "198.51.100.0/24");
    a.write(&format!("{}{narrow}", everything()));
    a.0.reload();
    wait_until(PATIENCE, || !answers_tcp(&lab, 220, WORLD)).expect("the closer tunnel protects it");
}
