//! With a small router: our own program, built for 64-bit or 32-bit ARM, in an emulated machine of one core with a stock Debian kernel.
//! Its other end is the program of this processor.

use crate::kernel::{Ends, exchange_files};
use crate::machine::{ARM32, ARM64, Board, Machine, NETWORK, Start, site};
use crate::support::{answers, lab, postern, unavailable};
use crypto::{PrivateKey, Secret};
use lab::postern::Postern;
use lab::{Lab, has_program, wait_until};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything is slow where a machine is emulated.
const PATIENCE: Duration = Duration::from_secs(240);
/// WireGuard, and the networks of both IPsec sites.
const TUNNELS: [Ends; 2] =
    [Ends { ours: "10.90.0.1", theirs: "10.90.0.2" }, Ends { ours: "10.1.0.1", theirs: "10.2.0.1" }];

/// What `make test ARM=1` builds for a target, which takes as long as half of the other tests; says aloud if it is missing.
fn built(target: &str, board: &Board) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/arm").join(target);
    // A program of an earlier commit may be there.
    let is_wanted = std::env::var_os("ARM").is_some_and(|it| !it.is_empty());
    if is_wanted && folder.join("tree/bin/postern").is_file() && has_program(board.emulator()) {
        return Some(folder);
    }
    unavailable("needs the program for ARM and an emulator of it: make test ARM=1, as root");
    None
}

/// The configuration of one of both ends, 1 being ours.
fn configuration(end: u8) -> String {
    let keys = [1, 2].map(|seed| PrivateKey::new(Secret::new([seed; 32])));
    let [own, other] = [usize::from(end) - 1, 2 - usize::from(end)];
    let private = crypto::PublicKey(*keys[own].secret().expose());
    let (public, theirs) = (keys[other].public(), 3 - end);
    let connection = if end == 1 { "none" } else { "initiate" };
    site(end, connection, "set vpn ipsec esp-group E proposal 1 encryption aes256gcm128\n")
        + &format!(
            "set interfaces wireguard wg0 address 10.90.0.{end}/24
set interfaces wireguard wg0 private-key {private}
set interfaces wireguard wg0 port 51820
set interfaces wireguard wg0 peer b public-key {public}
set interfaces wireguard wg0 peer b address 192.0.2.{theirs}
set interfaces wireguard wg0 peer b port 51820
set interfaces wireguard wg0 peer b allowed-ips 10.90.0.{theirs}/32
"
        )
}

/// What the machine does when it boots.
fn script() -> String {
    let site = configuration(2);
    let sends =
        TUNNELS.map(|ends| format!("nc {} 5001 < /file > /dev/null 2>&1; sleep 1;", ends.ours)).concat();
    format!(
        "mkdir -p /run /dev/net; [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200\n\
         ip link set lo up; ip link set eth0 up\n\
         ip addr add 192.0.2.2/24 dev eth0; ip addr add 10.2.0.1/24 dev lo\n\
         cat > /site.conf <<'END'\n{site}END\n\
         chmod 600 /site.conf\n\
         postern show system cpu; postern show crypto\n\
         LOG_LEVEL=info postern run --config /site.conf --api /postern.sock > /log 2>&1 &\n\
         daemon=$!\n\
         while ! grep -q 'is in force' /log; do sleep 1; done\n\
         cat /log; echo; echo SERVES\n\
         ( while true; do nc -l -p 5000 | md5sum | sed 's/^/RECEIVED /'; done ) &\n\
         dd if=/dev/urandom of=/file bs=1024 count=1024 2> /dev/null; md5sum < /file | sed 's/^/SENDS /'\n\
         ( while true; do {sends} done ) &\n\
         while true; do sleep 1; sed -n 's/^VmRSS:/RESIDENT/p' /proc/$daemon/status; done\n"
    )
}

/// Our end, in the namespace that has the machine's network.
fn start(lab: &mut Lab) -> Postern {
    lab.ip("a", "tuntap add outside mode tap").expect("TAP exists");
    for address in ["192.0.2.1/24 dev outside", "10.1.0.1/24 dev lo"] {
        lab.ip("a", &format!("address add {address}")).expect("an address");
    }
    for link in ["lo", "outside"] {
        lab.ip("a", &format!("link set {link} up")).expect("it is there");
    }
    let mut gateway = Postern::new(lab, "a", postern()).expect("a folder");
    gateway.write(&configuration(1));
    gateway.start(lab, "info", Duration::from_secs(30)).expect("it serves");
    gateway
}

/// Lets the program of a target carry files between a machine and us; what the machine has said.
fn carries_files(target: &str, board: &Board) -> Option<String> {
    let built = built(target, board)?;
    let mut lab = lab(&["a"])?;
    let _gateway = start(&mut lab);
    let (tree, script) = (built.join("tree"), script());
    let boot = Start {
        board,
        modules: "site",
        programs: &[],
        tree: Some(&tree),
        script: &script,
        hardware: NETWORK,
    };
    let machine = Machine::boot(&mut lab, "a", &built, &boot);
    machine.says("\nSERVES\n", PATIENCE);
    for ends in TUNNELS {
        wait_until(PATIENCE, || answers(&lab, "a", ends.theirs)).expect("the tunnel is there");
        exchange_files(&lab, &machine, ends);
    }
    let resident: u64 = machine.word_after("RESIDENT").and_then(|it| it.parse().ok()).expect("kilobytes");
    println!("{resident} kB resident with a tunnel of each protocol");
    let said = machine.said();
    assert!(lab.ended(machine.process).is_none(), "{said}");
    Some(said)
}

/// The line of `show crypto` about our own engine.
fn engine_of(said: &str) -> &str {
    said.lines().find(|line| line.starts_with("multi-buffer")).expect("engines are listed")
}

#[test]
fn a_router_of_64_bit_arm_has_tunnels_of_wireguard_and_ipsec_with_us() {
    let Some(said) = carries_files("aarch64", &ARM64) else { return };
    // What the processor has is found, and used.
    assert!(said.contains("Cortex-A53") && said.contains("PMULL"), "{said}");
    assert!(engine_of(&said).contains("NEON"), "{said}");
}

#[test]
fn a_router_of_32_bit_arm_has_tunnels_of_wireguard_and_ipsec_with_us() {
    let Some(said) = carries_files("armv7", &ARM32) else { return };
    // The multi-buffer engine has no instructions of its own there.
    assert!(said.contains("Cortex-A15") && engine_of(&said).contains("portable"), "{said}");
}
