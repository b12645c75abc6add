//! A kernel without nf_tables: a stock Debian kernel in an emulated machine, with only the module TUN loaded.

use crate::machine::{Machine, Start, X86, kernel, site};
use crate::support::{lab, postern, skip};
use std::path::PathBuf;
use std::time::Duration;

/// Everything is slow where a machine is emulated.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn a_kernel_without_nf_tables_is_warned_of_and_its_routes_protect() {
    let Some(kernel) = kernel(&[]) else { return };
    if !kernel.join("order-plain").is_file() {
        return skip("needs more modules in .peers (make setup)");
    }
    let Some(mut lab) = lab(&["a"]) else { return };
    // Its peer never answers.
    let site = site(1, "none", "set vpn ipsec esp-group E proposal 1 encryption aes256gcm128\n");
    let script = format!(
        "mkdir -p /run /dev/net; [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200\n\
         ip link set lo up; ip addr add 192.0.2.1/24 dev lo; ip addr add 10.1.0.1/24 dev lo\n\
         cat > /site.conf <<'END'\n{site}END\n\
         chmod 600 /site.conf\n\
         LOG_LEVEL=info postern run --config /site.conf --api /postern.sock > /log 2>&1 &\n\
         while ! grep -q 'is in force' /log; do sleep 1; done\n\
         cat /log; ip route show table 220; echo SERVES; sleep 1000\n"
    );
    let programs: &[PathBuf] = &[postern()];
    let start = Start { board: &X86, modules: "plain", programs, tree: None, script: &script, hardware: &[] };
    let machine = Machine::boot(&mut lab, "a", &kernel, &start);
    machine.says("\nSERVES\n", PATIENCE);
    let said = machine.said();
    let warning = said.lines().find(|line| line.contains("WARN") && line.contains("nf_tables"));
    assert!(warning.is_some(), "{said}");
    assert!(said.contains("10.2.0.0/24 dev ipsec0"), "{said}");
}
