//! An accelerator on a bus, switched on and off by commits under traffic: two gateways in an emulated machine to which qemu adds
//! virtio-crypto. Its device does AES-CBC; the kernel's driver offers it to AF_ALG.

use crate::machine::{Machine, Start, X86, kernel, site};
use crate::support::{lab, postern, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Everything is slow where a machine is emulated.
const PATIENCE: Duration = Duration::from_secs(500);
/// The memory holds the programs as well.
const DEVICE: [&str; 6] =
    ["-m", "1024", "-object", "cryptodev-backend-builtin,id=c0", "-device", "virtio-crypto-pci,cryptodev=c0"];

/// What the first gateway does with the device.
const SWITCH: &str =
    "set system acceleration qat\nset system crypto engine aes-128-cbc+hmac-sha256-128 af-alg\n";
/// The ESP proposal: the device does AES-CBC.
const ESP: &str = "set vpn ipsec esp-group E proposal 1 encryption aes128\nset vpn ipsec esp-group E proposal 1 hash sha256\n";

/// What is done in the machine. Of `show crypto` each line begins with the moment at which it was asked for.
fn script() -> String {
    let [one, two] = [site(1, "initiate", ESP) + SWITCH, site(2, "respond", ESP)];
    format!(
        "mkdir -p /run /var/run /var/lib /dev/net; [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200\n\
         cat > /1.conf <<'END'\n{one}END\n\
         cat > /2.conf <<'END'\n{two}END\n\
         chmod 600 /1.conf /2.conf\n\
         IP netns add n1; IP netns add n2\n\
         IP link add v1 netns n1 type veth peer name v2 netns n2\n\
         for n in 2 1; do\n\
         IP -n n$n link set lo up; IP -n n$n address add 10.$n.0.1/24 dev lo\n\
         IP -n n$n address add 192.0.2.$n/24 dev v$n; IP -n n$n link set v$n up\n\
         LOG_LEVEL=info IP netns exec n$n postern run --config /$n.conf --api /$n.sock --state /state$n \
         --no-machine --no-https > /$n.log 2>&1 &\n\
         while ! grep -q 'is in force' /$n.log; do sleep 1; done\n\
         done\n\
         ask() {{ postern $@ --api /1.sock; }}\n\
         moment() {{ echo \"$1 $(ask show crypto --json | busybox tr -d '\\n')\"; }}\n\
         change() {{ postern configure --api /1.sock -c \"$1 system acceleration qat\" -c commit && echo DID $1; sleep 3; }}\n\
         on() {{ IP netns exec n1 $@; }}\n\
         until on pinger -c 1 -W 5 -I 10.1.0.1 10.2.0.1 > /dev/null 2>&1; do sleep 1; done\n\
         on pinger -q -i 0.1 -c 700 -W 20 -I 10.1.0.1 10.2.0.1 > /ping 2>&1 &\n\
         ping=$!\n\
         echo BEGIN; sleep 3; moment ON; sleep 3; moment STILL-ON\n\
         change delete; moment OFF; sleep 3; moment STILL-OFF\n\
         change set; moment AGAIN; sleep 3; moment STILL-AGAIN\n\
         kill -0 $ping && echo UNDER TRAFFIC\n\
         wait $ping; cat /ping; cat /1.log\n\
         echo END; sleep 1000\n"
    )
}

/// Packets that the device has encrypted and decrypted at a moment.
fn carried(said: &str, moment: &str) -> [u64; 2] {
    let line = said.lines().find_map(|line| line.strip_prefix(&format!("{moment} ")));
    let line = line.unwrap_or_else(|| panic!("no {moment} in\n{said}"));
    let answer: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let engines = answer["engines"].as_array().unwrap_or_else(|| panic!("{line}"));
    let device = engines.iter().find(|engine| engine["name"] == "af-alg").expect("it is an engine");
    assert_eq!(device["accelerator"], true, "{device}");
    ["sealed", "opened"].map(|way| device[way]["packets"].as_u64().unwrap_or_else(|| panic!("{device}")))
}

/// A program under another name: busybox has one of its name. `ip` takes what follows two letters of its name for a command.
fn renamed(folder: &Path, program: &str, name: &str) -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&paths).chain(["/usr/sbin", "/sbin", "/bin"].map(PathBuf::from));
    let found = places.map(|place| place.join(program)).find(|path| path.is_file()).expect("it was seen");
    let path = folder.join(name);
    std::fs::copy(found, &path).expect("a copy");
    path
}

#[test]
fn a_device_is_switched_on_and_off_by_commits_and_no_packet_is_lost() {
    let Some(kernel) = kernel(&["ip", "ping"]) else { return };
    if !kernel.join("order-device").is_file() {
        return skip("needs more modules in .peers (make setup)");
    }
    let Some(mut lab) = lab(&["a"]) else { return };
    let folder = TempDir::new().expect("a folder");
    let programs = &[postern(), renamed(folder.path(), "ip", "IP"), renamed(folder.path(), "ping", "pinger")];
    let script = script();
    let start =
        Start { board: &X86, modules: "device", programs, tree: None, script: &script, hardware: &DEVICE };
    let machine = Machine::boot(&mut lab, "a", &kernel, &start);
    machine.says("\nEND\n", PATIENCE);
    let said = machine.said();
    for sign in ["DID delete", "DID set", "UNDER TRAFFIC", "700 received, 0% packet loss"] {
        assert!(said.contains(sign), "no {sign}: {said}");
    }
    let [on, still_on, off, still_off, again, still_again] =
        ["ON", "STILL-ON", "OFF", "STILL-OFF", "AGAIN", "STILL-AGAIN"].map(|moment| carried(&said, moment));
    for way in [0, 1] {
        assert!(on[way] < still_on[way], "the device carries: {said}");
        assert_eq!(off[way], still_off[way], "the processor carries: {said}");
        assert!(again[way] < still_again[way], "the device carries again: {said}");
    }
}
