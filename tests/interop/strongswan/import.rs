//! Configurations of a strongSwan at our site: it has its tunnel to the other site, ends, and `postern import` and the daemon take
//! its place.

use super::authorities::{Authorities, Keys, sites as sites_with_keys};
use super::{Ours, TheirSa, reaches, sites, theirs};
use crate::support::postern;
use lab::Lab;
use lab::strongswan::StrongSwan;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// Imports files; returns the lines, which are valid, and the report.
fn imported(format: &str, files: &[&Path]) -> (String, String) {
    let output = Command::new(postern()).args(["import", format]).args(files).output().expect("it runs");
    let report = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.success(), "{report}");
    assert!(!report.contains("a secret of both"), "{report}");
    (String::from_utf8(output.stdout).expect("UTF-8"), report)
}

/// The lines serve a tunnel with this charon, both ways.
fn serves(lab: &mut Lab, lines: &str, report: &str, charon: &StrongSwan) {
    let daemon = Ours::start(lab, "a", lines);
    daemon.wait_for_tunnels(lab, charon);
    for (from, to) in [("a", "10.2.0.1"), ("b", "10.1.0.1")] {
        assert!(reaches(lab, from, to), "from {from}\n{lines}\n{report}\n{}", daemon.tell(charon));
    }
}

/// swanctl.conf of our site, with how both sides authenticate.
fn swanctl(local: &str, remote: &str) -> String {
    format!(
        "defaults {{\n version = 2\n proposals = aes256gcm16-prfsha256-ecp256\n local_addrs = 192.168.77.1\n encap = yes\n }}\n\
         connections {{ other-site : defaults {{\n remote_addrs = 192.168.77.2\n dpd_delay = 30s\n\
         local {{\n {local}\n }}\n remote {{\n {remote}\n }}\n\
         children {{ net {{ local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24\n esp_proposals = aes256gcm16\n start_action = start\n }} }} }} }}\n"
    )
}

/// Waits until strongSwan at our site has the tunnel, and ends it.
fn has_a_tunnel_and_ends(lab: &mut Lab, ours: &StrongSwan, charon: &StrongSwan) {
    let is_up = || TheirSa::all(&charon.sas(lab).unwrap_or_default()).len() == 1;
    lab::wait_until(super::PATIENCE, is_up)
        .unwrap_or_else(|error| panic!("{error}\n{}\n--- b:\n{}", ours.log(), charon.log()));
    ours.end(lab, Signal::TERM);
    let is_down = || TheirSa::all(&charon.sas(lab).unwrap_or_default()).is_empty();
    lab::wait_until(super::PATIENCE, is_down).unwrap_or_else(|error| panic!("{error}\n{}", charon.log()));
}

#[test]
fn a_swanctl_conf_with_a_secret_is_served_in_the_place_of_strongswan() {
    let Some(mut lab) = sites() else { return };
    let psk = |id: &str| format!("auth = psk\n id = {id}");
    let conf = swanctl(&psk("192.168.77.1"), &psk("192.168.77.2"))
        + "secrets { ike-other { id = 192.168.77.2\n secret = \"a secret of both sites\"\n } }\n";
    let charon = StrongSwan::start(&mut lab, "b", &theirs("", ""), "").expect("it starts");
    let ours = StrongSwan::start(&mut lab, "a", &conf, "").expect("it starts");
    has_a_tunnel_and_ends(&mut lab, &ours, &charon);
    let (lines, report) = imported("swanctl", &[&ours.file("swanctl.conf")]);
    serves(&mut lab, &lines, &report, &charon);
}

#[test]
fn a_swanctl_conf_with_certificates_is_served_in_the_place_of_strongswan() {
    let Some(mut lab) = sites_with_keys() else { return };
    let keys = Keys { authorities: "ecdsa --size 256", hosts: "ecdsa --size 256" };
    let authorities =
        Authorities::new(keys, [&["a.sites.example"], &["b.sites.example"]]).expect("the tool works");
    let charon = StrongSwan::start(&mut lab, "b", "", "").expect("it starts");
    let ours = StrongSwan::start(&mut lab, "a", "", "").expect("it starts");
    for (side, files) in
        [(&charon, ["b.pem", "b.key", "between-b.pem"]), (&ours, ["a.pem", "a.key", "between-a.pem"])]
    {
        for (file, folder) in
            files.into_iter().zip(["x509", "private", "x509ca"]).chain([("root.pem", "x509ca")])
        {
            authorities.hand(file, &side.file(folder)).expect("a copy");
        }
    }
    let its = theirs("", "")
        .replacen("auth = psk\n id = 192.168.77.2", "certs = b.pem\n id = b.sites.example", 1)
        .replacen("auth = psk\n id = 192.168.77.1", "id = a.sites.example", 1);
    charon.reconfigure(&lab, &its).expect("it reads them");
    let conf = swanctl(
        "auth = pubkey\n certs = a.pem\n id = a.sites.example",
        "auth = pubkey\n id = b.sites.example",
    );
    ours.reconfigure(&lab, &conf).expect("it reads them");
    has_a_tunnel_and_ends(&mut lab, &ours, &charon);
    let (lines, report) = imported("swanctl", &[&ours.file("swanctl.conf")]);
    assert!(lines.contains("authentication mode x509"), "{lines}\n{report}");
    serves(&mut lab, &lines, &report, &charon);
}

#[test]
fn an_ipsec_conf_with_its_secrets_is_served_in_the_place_of_strongswan() {
    let Some(mut lab) = sites() else { return };
    let folder = tempfile::TempDir::new().expect("a folder");
    let [conf, secrets] = ["ipsec.conf", "ipsec.secrets"].map(|name| folder.path().join(name));
    let text = "conn %default\n    keyexchange=ikev2\n    ike=aes256gcm16-prfsha256-ecp256!\n    esp=aes256gcm16!\n\
        \x20   authby=secret\n    reauth=no\n\nconn other-site\n    left=192.168.77.1\n    leftsubnet=10.1.0.0/24\n\
        \x20   right=192.168.77.2\n    rightsubnet=10.2.0.0/24\n    auto=start\n";
    std::fs::write(&conf, text).expect("a file");
    std::fs::write(&secrets, "192.168.77.1 192.168.77.2 : PSK \"a secret of both sites\"\n").expect("a file");
    let (lines, report) = imported("ipsec-conf", &[&conf]);
    let charon = StrongSwan::start(&mut lab, "b", &theirs("", ""), "").expect("it starts");
    serves(&mut lab, &lines, &report, &charon);
}
