//! Addresses and names for the devices of a site, by a real dnsmasq with the files that the helper writes.

use super::Root;
use super::programs::apply;
use crate::support::{PATIENCE, lab, skip};
use lab::{Lab, has_program, wait_until};
use serde_json::Value;
use std::process::Stdio;

const SUBNET: &str = "set service dhcp-server shared-network-name LAN subnet 10.2.0.0/24";
const DNS: &str = "set service dns forwarding";
const DHCP_FILE: &str = "etc/postern-machine/postern-dhcp-server.conf";
const DNS_FILE: &str = "etc/postern-machine/postern-dns-forwarding.conf";

/// A machine with dnsmasq, and without systemd.
fn machine() -> Root {
    let root = Root::new();
    root.write("usr/sbin/dnsmasq", "#!/bin/sh\nexec /usr/sbin/dnsmasq \"$@\"\n", 0o755);
    root
}

/// A device behind a router, and a name server outside.
fn site() -> Option<Lab> {
    let lab = lab(&["device", "router", "outside"])?;
    if !has_program("dnsmasq") || !has_program("busybox") {
        skip("needs dnsmasq and busybox");
        return None;
    }
    lab.connect(("device", "lan", "169.254.7.7/32"), ("router", "lan", "10.2.0.1/24")).expect("veth");
    lab.connect(("router", "wan", "192.0.2.1/24"), ("outside", "wan", "192.0.2.9/24")).expect("veth");
    Some(lab)
}

/// What a device is told by DHCP: its address, router, name server and domain.
fn told(lab: &Lab, root: &Root) -> Option<String> {
    let (script, answer) = (root.at("udhcpc"), root.at("answer"));
    let text = format!(
        "#!/bin/sh\n[ \"$1\" != bound ] || echo \"$ip/$mask $router $dns $domain $lease\" > {}\n",
        answer.display()
    );
    root.write("udhcpc", &text, 0o755);
    let script = script.display().to_string();
    let words = ["udhcpc", "-i", "lan", "-n", "-q", "-f", "-t", "5", "-T", "1", "-s", &script];
    lab.run("device", "busybox", &words).ok()?;
    root.read("answer").map(|text| text.trim().to_owned())
}

/// Starts dnsmasq with a file of the helper.
fn serve(lab: &mut Lab, root: &Root, file: &str) {
    let text = root.read(file).expect("it was written");
    let leases = root.at("leases").display().to_string();
    root.write("served.conf", &text.replace("/var/lib/misc/postern-dhcp-server.leases", &leases), 0o644);
    let mut command = lab.command("router", "dnsmasq");
    command.args(["--keep-in-foreground", "--user=root", "--pid-file="]);
    command.arg(format!("--conf-file={}", root.at("served.conf").display()));
    lab.start(command.stdout(Stdio::null()).stderr(Stdio::null())).expect("it starts");
}

#[test]
fn devices_get_addresses_of_the_range_or_their_own() {
    let Some(mut lab) = site() else { return };
    let root = machine();
    let lines = [
        format!("{SUBNET} range 0 start 10.2.0.100"),
        format!("{SUBNET} range 0 stop 10.2.0.101"),
        format!("{SUBNET} lease 600"),
        format!("{SUBNET} option default-router 10.2.0.1"),
        format!("{SUBNET} option name-server 10.2.0.1"),
        format!("{SUBNET} option domain-name site.example"),
        format!("{SUBNET} static-mapping printer mac 02:00:5e:10:00:01"),
        format!("{SUBNET} static-mapping printer ip-address 10.2.0.9"),
    ];
    let answer = apply(&root, "service dhcp-server", &lines.join("\n"));
    assert_eq!(answer["refused"], Value::Null, "{answer}");
    assert!(answer["findings"][0]["why"].as_str().is_some_and(|why| why.contains("no systemd")), "{answer}");
    serve(&mut lab, &root, DHCP_FILE);
    let mut found = None;
    wait_until(PATIENCE, || {
        found = told(&lab, &root);
        found.is_some()
    })
    .expect("an answer");
    let first = found.expect("it is there");
    assert!(
        first.starts_with("10.2.0.10") && first.ends_with("/24 10.2.0.1 10.2.0.1 site.example 600"),
        "{first}"
    );
    lab.ip("device", "link set lan address 02:00:5e:10:00:01").expect("another card");
    let own = told(&lab, &root).expect("an answer");
    assert!(own.starts_with("10.2.0.9/24 10.2.0.1"), "{own}");

    // What is not there any more goes with its file.
    let answer = apply(&root, "service dhcp-server", "");
    assert_eq!((&answer["refused"], root.read(DHCP_FILE)), (&Value::Null, None), "{answer}");
}

#[test]
fn names_are_asked_of_the_name_server_of_their_domain() {
    let Some(mut lab) = site() else { return };
    let root = machine();
    let mut outside = lab.command("outside", "dnsmasq");
    outside.args([
        "--keep-in-foreground",
        "--no-resolv",
        "--no-hosts",
        "--conf-file=/dev/null",
        "--pid-file=",
    ]);
    outside.args(["--user=root", "--port=5353", "--address=/office.example/10.1.0.9"]);
    lab.start(outside.stdout(Stdio::null()).stderr(Stdio::null())).expect("it starts");
    let lines = [
        format!("{DNS} listen-address 10.2.0.1"),
        format!("{DNS} domain office.example name-server 192.0.2.9 port 5353"),
    ];
    let answer = apply(&root, "service dns forwarding", &lines.join("\n"));
    assert_eq!(answer["refused"], Value::Null, "{answer}");
    serve(&mut lab, &root, DNS_FILE);
    lab.ip("device", "address add 10.2.0.7/24 dev lan").expect("an address");
    let asked = |name: &str, of: &str| {
        lab.run("device", "busybox", &["nslookup", "-type=a", name, of]).unwrap_or_default()
    };
    wait_until(PATIENCE, || asked("a.office.example", "10.2.0.1").contains("10.1.0.9"))
        .unwrap_or_else(|error| panic!("{error}: {}", asked("a.office.example", "10.2.0.1")));
    assert!(!asked("a.other.example", "10.2.0.1").contains("10.1.0.9"));
    // It is asked inside only.
    let from_outside =
        lab.run("outside", "busybox", &["nslookup", "-type=a", "a.office.example", "192.0.2.1"]);
    assert!(!from_outside.unwrap_or_default().contains("10.1.0.9"));
}

#[test]
fn a_file_that_dnsmasq_refuses_is_not_put_in_force() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root, as the helper does");
    }
    let root = machine();
    let right = [format!("{DNS} listen-address 10.2.0.1"), format!("{DNS} name-server 192.0.2.9")].join("\n");
    assert_eq!(apply(&root, "service dns forwarding", &right)["refused"], Value::Null);
    let before = root.read(DNS_FILE);
    root.write("usr/sbin/dnsmasq", "#!/bin/sh\necho dnsmasq: bad option at line 3 >&2\nexit 1\n", 0o755);
    let answer = apply(&root, "service dns forwarding", &right.replace("192.0.2.9", "192.0.2.8"));
    assert!(answer["refused"].as_str().is_some_and(|said| said.contains("bad option at line 3")), "{answer}");
    assert_eq!(root.read(DNS_FILE), before);
}
