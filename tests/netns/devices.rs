//! `postern bench rfc2544` through devices that encrypt: an encryptor with SAs of every form, and a
//! WireGuard gateway.

use crate::support::{PATIENCE, daemon, postern};
use crate::tester::{counts, is_carried, measure, scene, start_gateway, test_gateway};
use lab::{Lab, wait_until};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// SAs of every form: the words behind the keys, for packets from the device and to it.
const FORMS: [[&str; 2]; 5] = [
    ["mode ipv4-tunnel src 192.0.2.1 dst 192.0.2.2", "mode ipv4-tunnel src 192.0.2.2 dst 192.0.2.1"],
    ["mode ipv6-tunnel src 2001:db8::1 dst 2001:db8::2", "mode ipv6-tunnel src 2001:db8::2 dst 2001:db8::1"],
    [
        "mode ipv4-tunnel src 192.0.2.1 dst 192.0.2.2 type no-offload udp-encap",
        "mode ipv4-tunnel src 192.0.2.2 dst 192.0.2.1 type no-offload udp-encap",
    ],
    [
        "mode ipv6-tunnel src 2001:db8::1 dst 2001:db8::2 type no-offload udp-encap",
        "mode ipv6-tunnel src 2001:db8::2 dst 2001:db8::1 type no-offload udp-encap",
    ],
    ["mode transport", "mode transport"],
];

/// The file of the encryptor: each SA is for a network of each family.
fn file() -> String {
    let mut text = String::new();
    for (number, forms) in FORMS.iter().enumerate() {
        for ((way, form), spi) in ["out", "in"].into_iter().zip(forms).zip([100 + number, 200 + number]) {
            let key = |count: usize| vec![format!("{spi:02x}"); count].join(":");
            let (cbc, gcm) = ("cipher_algo aes-128-cbc cipher_key", "aead_algo aes-128-gcm aead_key");
            let keys = if number == 1 {
                format!("{cbc} {} auth_algo sha1-hmac auth_key {}", key(16), key(20))
            } else {
                format!("{gcm} {}", key(20))
            };
            let _ = writeln!(text, "sa {way} {spi} {keys} {form}");
            let word = if way == "out" { "dst" } else { "src" };
            for (family, net) in
                [("ipv4", format!("198.19.{number}.0/24")), ("ipv6", format!("2001:2:0:800{number}::/64"))]
            {
                let _ = writeln!(
                    text,
                    "sp {family} {way} esp protect {spi} pri 1 {word} {net} sport 0:65535 dport 0:65535"
                );
            }
        }
    }
    for (family, near, far) in [
        ("ipv4", "198.18.0.0/16", ["198.19.0.0/16", "192.0.2.0/24"]),
        ("ipv6", "2001:2::/49", ["2001:2:0:8000::/49", "2001:db8::/64"]),
    ] {
        let _ = writeln!(text, "rt {family} dst {near} port 0");
        for net in far {
            let _ = writeln!(text, "rt {family} dst {net} port 1");
        }
    }
    text + "neigh port 0 02:25:44:00:00:01\nneigh port 1 02:25:44:00:00:02\n"
}

/// Starts the encryptor between `d0` and `d1`, and waits until it serves.
fn encrypt(lab: &mut Lab, file: &Path) {
    let socket = file.with_extension("sock");
    let mut command = lab.command("device", postern());
    command.args(["secgw", "-l", "0", "--no-pci", "--vdev", "net_af_xdp0,iface=d0"]);
    command.args(["--vdev", "net_af_xdp1,iface=d1", "--", "-P", "-p", "0x3", "-u", "0x2", "-f"]).arg(file);
    command.args(["--config", "(0,0,0),(1,0,0)", "--api"]).arg(&socket).stdout(Stdio::null());
    lab.start(&mut command).expect("it starts");
    let serves = || {
        let shown = Command::new(postern()).args(["show", "secgw", "--api"]).arg(&socket).output();
        shown.is_ok_and(|output| output.status.success())
    };
    wait_until(PATIENCE, serves).expect("it serves");
}

/// Every frame was encrypted under the right SA, and none was in clear or damaged.
fn is_protected(report: &Value, what: &str) {
    is_carried(report, what);
    let trials = report["sizes"][0]["trials"].as_array().expect("a list");
    for name in ["clear", "repeated", "other_sa"] {
        let sum: u64 = trials.iter().map(|trial| trial[name].as_u64().expect("a count")).sum();
        assert_eq!(sum, 0, "{what}, {name}: {report:#}");
    }
}

#[test]
fn an_encryptor_is_tested_with_sas_of_every_form_and_frames_of_both_families() {
    let Some(mut lab) = scene() else { return };
    for interface in ["d0", "d1"] {
        // The kernel's own messages would meet no policy.
        lab.run("device", "sysctl", &["-qw", &format!("net.ipv6.conf.{interface}.disable_ipv6=1")])
            .expect("it can be set");
    }
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("device.cfg");
    std::fs::write(&path, file()).expect("it can be written");
    encrypt(&mut lab, &path);
    for family in ["", "--ipv6"] {
        let esp = format!("--esp {} --streams {} {family}", path.display(), 2 * FORMS.len());
        let report = measure(&lab, &format!("--tx t0 --rx t1 --both {esp} --test throughput"));
        is_protected(&report, family);
        let of = |name: &str| report["esp"][name].as_array().expect("a list").clone();
        let used = |sa: &Value| sa[2].as_u64().expect("a number");
        assert_eq!((of("opens").len(), of("seals").len()), (FORMS.len(), FORMS.len()), "{report:#}");
        assert!(
            of("opens").iter().all(|sa| used(sa) > 0) && of("seals").iter().all(|sa| used(sa) > 1),
            "{report:#}"
        );
        let opened: u64 = of("opens").iter().map(used).sum();
        assert!(opened >= counts(&report)[1] / 3, "{opened}: {report:#}");
    }
}

#[test]
fn our_wireguard_gateway_is_tested_over_both_families() {
    let Some(mut lab) = scene() else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let _gateway = start_gateway(&mut lab, &daemon(), file.path()).expect("it starts");
    test_gateway(&lab, file.path(), "postern");
}
