//! What tests of `postern bench rfc2544` have in common: a tester beside a device, short trials, and what a device must have done.

use crate::support::postern;
use lab::wireguard::{Daemon, Gateway, private_key};
use lab::{Lab, Outcome};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A tester and a device, connected by two veth pairs: `t0` to `d0`, `t1` to `d1`.
pub fn scene() -> Option<Lab> {
    let lab = crate::support::lab(&["tester", "device"])?;
    let [tester, device] = ["tester", "device"].map(|name| lab.namespace(name));
    for number in 0..2 {
        let (near, far) = (format!("t{number}"), format!("d{number}"));
        let words =
            ["link", "add", &near, "netns", &tester, "type", "veth", "peer", "name", &far, "netns", &device];
        lab::run("ip", words).expect("a veth pair can be made");
        lab.ip("tester", &format!("link set {near} up")).expect("it is there");
        lab.ip("device", &format!("link set {far} up")).expect("it is there");
    }
    Some(lab)
}

/// What the tester says in short trials of a few thousand frames a second, which a busy machine carries too.
pub fn measure(lab: &Lab, words: &str) -> Value {
    measure_in(lab, "tester", words)
}

pub fn measure_in(lab: &Lab, namespace: &str, words: &str) -> Value {
    let mut command: Command = lab.command(namespace, postern());
    command.args("bench rfc2544 --json --line 0.004 --seconds 0.1 --size 128".split(' '));
    let output = command.args(words.split_whitespace()).output().expect("it runs");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The counts of all trials through the device: sent, received, lost, duplicated, reordered, corrupted.
pub fn counts(report: &Value) -> [u64; 6] {
    let trials = report["sizes"][0]["trials"].as_array().expect("a list");
    let through = trials.iter().filter(|trial| trial["purpose"] != "calibration");
    through.fold([0; 6], |sum, trial| {
        let of = |name: &str| trial[name].as_u64().expect("a count");
        let names = ["sent", "received", "lost", "duplicated", "reordered", "corrupted"];
        std::array::from_fn(|place| sum[place] + of(names[place]))
    })
}

/// A bridge or a router forwards whole frames in order, each once, and at some rate without loss.
pub fn is_carried(report: &Value, what: &str) {
    let [sent, received, _, duplicated, reordered, corrupted] = counts(report);
    assert!(sent > 300 && received * 10 > sent * 9, "{what}: {report:#}");
    assert_eq!([duplicated, reordered, corrupted], [0; 3], "{what}: {report:#}");
    let size = &report["sizes"][0];
    let pdr = size["throughput"][0]["rate"].as_f64();
    assert!(pdr.is_some_and(|rate| rate > 100.0), "{what}: {report:#}");
    assert!(size["calibration"]["most"].as_f64().is_some_and(|rate| rate > 4000.0), "{what}: {report:#}");
}

/// The UDP port of the gateway and of the tester.
const PORT: u16 = 51_820;

/// Starts a WireGuard gateway between `d0` and `d1`, whose peer is the tester at `t1`, and writes the tester's file.
pub fn start_gateway(lab: &mut Lab, daemon: &Daemon, file: &Path) -> Outcome<Gateway> {
    let interface = lab.interface("wg");
    let gateway = Gateway::start(lab, daemon, "device", &interface)?;
    let (device, tester) = (private_key(PORT, 0), private_key(PORT, 1));
    gateway.set(&format!(
        "private_key={}\nlisten_port={PORT}\npublic_key={}\nallowed_ip=198.19.0.0/16\nallowed_ip=2001:2:0:8000::/49\n",
        base16ct::lower::encode_string(device.secret().expose()),
        base16ct::lower::encode_string(&tester.public().0),
    ))?;
    for words in ["address add 198.18.0.1/16 dev d0", "address add 2001:2::1/49 dev d0 nodad"] {
        lab.ip("device", words)?;
    }
    for words in ["address add 192.0.2.1/24 dev d1", "address add 2001:db8::1/64 dev d1 nodad"] {
        lab.ip("device", words)?;
    }
    lab.ip("device", &format!("link set {interface} up mtu 1420"))?;
    for net in ["198.19.0.0/16", "2001:2:0:8000::/49"] {
        lab.ip("device", &format!("route replace {net} dev {interface}"))?;
    }
    for word in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
        lab.run("device", "sysctl", &["-qw", word])?;
    }
    std::fs::write(
        file,
        format!(
            "[Interface]\nPrivateKey = {}\nListenPort = {PORT}\n[Peer]\nPublicKey = {}\n\
             AllowedIPs = 198.18.0.0/16, 2001:2::/49\nEndpoint = ENDPOINT\n",
            // A private key has the same form in base64 as a public one.
            crypto::PublicKey(*tester.secret().expose()),
            device.public(),
        ),
    )?;
    Ok(gateway)
}

/// Tests the gateway with frames of both families inside, and WireGuard over both outside.
pub fn test_gateway(lab: &Lab, file: &Path, what: &str) {
    let text = std::fs::read_to_string(file).expect("it was written");
    for (endpoint, own, family) in
        [("192.0.2.1:51820", "192.0.2.2", ""), ("[2001:db8::1]:51820", "2001:db8::2", "--ipv6")]
    {
        std::fs::write(file, text.replace("ENDPOINT", endpoint)).expect("it can be written");
        let outside = endpoint.rsplit_once(':').expect("a port").0.trim_matches(['[', ']']);
        let inside = if family.is_empty() { "198.18.0.1" } else { "2001:2::1" };
        let wireguard = format!("--wireguard {} --wireguard-address {own}", file.display());
        let words = format!(
            "--tx t0 --rx t1 --both {family} --streams 8 {wireguard} --routers {inside} {outside} --test throughput"
        );
        let report = measure(lab, &words);
        is_carried(&report, what);
        let trials = report["sizes"][0]["trials"].as_array().expect("a list");
        for name in ["clear", "repeated"] {
            let sum: u64 = trials.iter().map(|trial| trial[name].as_u64().expect("a count")).sum();
            assert_eq!(sum, 0, "{what}, {name}: {report:#}");
        }
        let of = |name: &str| report["wireguard"][name].as_u64().expect("a number");
        assert!(of("handshakes") >= 1 && of("opened") > counts(&report)[1] / 3, "{what}: {report:#}");
    }
}
