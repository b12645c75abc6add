//! What is revoked, as files and servers say while the daemon runs: lists by charon's own tool, answers of OpenSSL's responder.

use super::authorities::{Authorities, sites};
use super::certificates::P256;
use super::{Ours, reaches};
use crate::support::skip;
use lab::strongswan::StrongSwan;
use lab::{Lab, has_program, wait_until};
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long it may take until a server that was not there is asked again, and then the peer.
const LONG: Duration = Duration::from_secs(90);

/// Starts a server on the side of charon.
fn serve(lab: &mut Lab, program: &str, arguments: &[&str]) {
    let mut command: Command = lab.command("b", program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    lab.start(&mut command).expect("it starts");
}

/// Waits until charon's call is answered, or the daemon says why not.
fn wait_for_call(lab: &Lab, daemon: &Ours, charon: &StrongSwan, failure: Option<&str>) {
    let told = || daemon.peer()["failure"].to_string();
    let is_so = || match (charon.initiate(lab, "net"), failure) {
        (called, None) => called.is_ok(),
        (called, Some(failure)) => called.is_err() && told().contains(failure),
    };
    wait_until(LONG, is_so).unwrap_or_else(|error| panic!("{failure:?}: {error}\n{}", daemon.tell(charon)));
}

/// Two sites, and certificates that name lists at this address of the second.
fn with_lists_at(address: &str) -> Option<(Lab, Authorities)> {
    let lab = sites()?;
    if !has_program("python3") {
        skip("needs python3, which is not installed");
        return None;
    }
    let authorities = P256.authorities();
    let place = |file: &str| format!("http://{address}:8080/{file}.crl");
    authorities.issue("between-b", "root", &["--ca", "--crl", &place("root")]).expect("the tool works");
    authorities.issue("b", "between-b", &["--crl", &place("between-b")]).expect("the tool works");
    Some((lab, authorities))
}

/// Makes the lists and serves them there.
fn serve_lists(lab: &mut Lab, authorities: &Authorities, address: &str) {
    for authority in ["root", "between-b"] {
        authorities.revoke(authority, &[]).expect("the tool works");
    }
    let folder = authorities.path("");
    serve(lab, "python3", &["-m", "http.server", "8080", "--bind", address, "--directory", &folder]);
}

/// Nothing is configured but where the certificates say that lists are: no set-up without them, and one as soon as they are
/// there.
#[test]
fn a_peer_is_served_once_the_lists_that_it_needs_are_fetched() {
    let Some((mut lab, authorities)) = with_lists_at("192.168.77.2") else { return };
    let charon = P256.charon(&mut lab, &authorities, "");
    let strict = ["PEER authentication x509 revocation strict"];
    let daemon = Ours::start(&mut lab, "a", &P256.ours(&authorities, &["root"], &strict));
    wait_for_call(&lab, &daemon, &charon, Some("has no revocation status, though one is required"));
    wait_for_call(&lab, &daemon, &charon, Some("is not reached"));
    serve_lists(&mut lab, &authorities, "192.168.77.2");
    wait_for_call(&lab, &daemon, &charon, None);
    assert!(reaches(&lab, "b", "10.1.0.1"), "{}", daemon.tell(&charon));
}

/// Lists are outside, and so is everything else behind the tunnel that waits for them. The first call is served: it waits until
/// they are there.
#[test]
fn lists_outside_are_fetched_beside_a_tunnel_for_everything() {
    let Some((mut lab, authorities)) = with_lists_at("198.51.100.80") else { return };
    // Not on the link, to which this machine may send all the same.
    lab.ip("b", "address add 198.51.100.80/32 dev lo").expect("an address");
    lab.ip("a", "route add default via 192.168.77.2").expect("a route");
    serve_lists(&mut lab, &authorities, "198.51.100.80");
    wait_until(LONG, || connects(&lab, "b")).expect("it listens");
    assert!(connects(&lab, "a"), "nothing is protected yet");
    let charon = P256.charon(&mut lab, &authorities, "");
    let all = [
        "PEER authentication x509 revocation strict",
        "PEER tunnel 1 remote prefix 0.0.0.0/0",
        // What is sent meanwhile must not make us call first.
        "PEER connection-type none",
    ];
    let daemon = Ours::start(&mut lab, "a", &P256.ours(&authorities, &["root"], &all));
    daemon.wait(&charon, "what is to be protected is closed", || !connects(&lab, "a"));
    let called = charon.initiate(&lab, "net");
    assert!(called.is_ok(), "the first call: {called:?}\n{}", daemon.tell(&charon));
    assert!(reaches(&lab, "b", "10.1.0.1"), "{}", daemon.tell(&charon));
    assert!(!connects(&lab, "a"), "other programs are not let out");
}

/// Whether a program without rights of its own reaches the server from a site, from the address that fits.
fn connects(lab: &Lab, site: &str) -> bool {
    let program = "import socket; socket.create_connection(('198.51.100.80', 8080), 2)";
    let mut command: Command = lab.command(site, "python3");
    command.args(["-c", program]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().expect("it runs").success()
}

/// No signal is sent: the file is noticed.
#[test]
fn a_file_of_lists_is_read_again_when_it_changes() {
    let Some(mut lab) = sites() else { return };
    let authorities = P256.authorities();
    for authority in ["root", "between-b"] {
        authorities.revoke(authority, &[]).expect("the tool works");
    }
    let charon = P256.charon(&mut lab, &authorities, "");
    let strict = ["PEER authentication x509 revocation strict"];
    let mut configuration = P256.ours(&authorities, &["root", "between-b"], &strict);
    for authority in ["root", "between-b"] {
        let file = authorities.path(&format!("{authority}.crl"));
        let _ = writeln!(configuration, "set pki ca {authority} crl-file {file}");
    }
    let daemon = Ours::start(&mut lab, "a", &configuration);
    wait_for_call(&lab, &daemon, &charon, None);
    charon.swanctl(&lab, &["--terminate", "--ike", "site"]).expect("it ends");
    authorities.revoke("between-b", &["b"]).expect("the tool works");
    wait_until(LONG, || {
        let is_refused = charon.initiate(&lab, "net").is_err();
        let _ = charon.swanctl(&lab, &["--terminate", "--ike", "site"]);
        is_refused
    })
    .unwrap_or_else(|error| panic!("{error}\n{}", daemon.tell(&charon)));
    wait_for_call(&lab, &daemon, &charon, Some("C=CH, O=Sites, CN=b is revoked"));
}

#[test]
fn ocsp_says_who_is_revoked() {
    for (status, failure) in [("V", None), ("R", Some("C=CH, O=Sites, CN=b is revoked"))] {
        let Some(mut lab) = sites() else { return };
        if !has_program("openssl") {
            return skip("needs openssl, which is not installed");
        }
        let authorities = P256.authorities();
        let place = ["--ocsp", "http://192.168.77.2:8081/"];
        authorities.issue("b", "between-b", &place).expect("the tool works");
        let certificate = authorities.path("b.pem");
        let said =
            lab::run("openssl", ["x509", "-in", &certificate, "-noout", "-serial"]).expect("it reads it");
        let serial = said.trim().trim_start_matches("serial=").to_owned();
        let when = if status == "R" { "250101000000Z" } else { "" };
        let index = authorities.path("index.txt");
        std::fs::write(&index, format!("{status}\t491231235959Z\t{when}\t{serial}\tunknown\t/CN=b\n"))
            .expect("a file");
        let charon = P256.charon(&mut lab, &authorities, "");
        let [issuer, key] = ["between-b.pem", "between-b.key"].map(|file| authorities.path(file));
        let database = ["ocsp", "-port", "8081", "-index", &index, "-CA", &issuer, "-ndays", "7"];
        serve(&mut lab, "openssl", &[&database[..], &["-rsigner", &issuer, "-rkey", &key]].concat());
        let if_uri = ["PEER authentication x509 revocation ifuri"];
        let daemon = Ours::start(&mut lab, "a", &P256.ours(&authorities, &["root"], &if_uri));
        wait_for_call(&lab, &daemon, &charon, failure);
        if failure.is_none() {
            assert!(reaches(&lab, "b", "10.1.0.1"), "{}", daemon.tell(&charon));
        }
    }
}
