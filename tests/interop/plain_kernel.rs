//! A kernel without nf_tables: a stock Debian kernel in an emulated machine, with only the module TUN loaded.

use crate::machine::{Machine, Start, kernel};
use crate::support::{lab, postern, skip};
use std::path::PathBuf;
use std::time::Duration;

/// Everything is slow where a machine is emulated.
const PATIENCE: Duration = Duration::from_secs(300);

/// A site whose peer never answers.
const SITE: &str = "set vpn ipsec esp-group E proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 prf prfsha256
set vpn ipsec ike-group I proposal 1 dh-group 31
set vpn ipsec authentication psk b id 192.0.2.1
set vpn ipsec authentication psk b id 192.0.2.2
set vpn ipsec authentication psk b secret 'of a test'
set vpn ipsec site-to-site peer b authentication mode pre-shared-secret
set vpn ipsec site-to-site peer b authentication local-id 192.0.2.1
set vpn ipsec site-to-site peer b authentication remote-id 192.0.2.2
set vpn ipsec site-to-site peer b connection-type none
set vpn ipsec site-to-site peer b ike-group I
set vpn ipsec site-to-site peer b local-address 192.0.2.1
set vpn ipsec site-to-site peer b remote-address 192.0.2.2
set vpn ipsec site-to-site peer b tunnel 1 esp-group E
set vpn ipsec site-to-site peer b tunnel 1 local prefix 10.1.0.0/24
set vpn ipsec site-to-site peer b tunnel 1 remote prefix 10.2.0.0/24
";

#[test]
fn a_kernel_without_nf_tables_is_warned_of_and_its_routes_protect() {
    let Some(kernel) = kernel(&[]) else { return };
    if !kernel.join("order-plain").is_file() {
        return skip("needs more modules in .peers (make setup)");
    }
    let Some(mut lab) = lab(&["a"]) else { return };
    let script = format!(
        "mkdir -p /run /dev/net; [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200\n\
         ip link set lo up; ip addr add 192.0.2.1/24 dev lo; ip addr add 10.1.0.1/24 dev lo\n\
         cat > /site.conf <<'END'\n{SITE}END\n\
         chmod 600 /site.conf\n\
         LOG_LEVEL=info postern run --config /site.conf --api /postern.sock > /log 2>&1 &\n\
         while ! grep -q 'is in force' /log; do sleep 1; done\n\
         cat /log; ip route show table 220; echo SERVES; sleep 1000\n"
    );
    let programs: &[PathBuf] = &[postern()];
    let start = Start { modules: "plain", programs, tree: None, script: &script, hardware: &[] };
    let machine = Machine::boot(&mut lab, "a", &kernel, &start);
    machine.says("\nSERVES\n", PATIENCE);
    let said = machine.said();
    let warning = said.lines().find(|line| line.contains("WARN") && line.contains("nf_tables"));
    assert!(warning.is_some(), "{said}");
    assert!(said.contains("10.2.0.0/24 dev ipsec0"), "{said}");
}
