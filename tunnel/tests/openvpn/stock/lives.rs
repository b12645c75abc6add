//! Renewals, exits and refusals, against OpenVPN as server and as client.

use super::modes::{no_wrap, tls_auth};
use super::{OpenVpn, Running, client_of_stock, is_inside, server_of_stock};
use crate::host::Core;
use crate::network::Setup;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::peer::Timing;
use tunnel::openvpn::server::ServerWrap;
use tunnel::openvpn::wrap::Role;
use tunnel::openvpn::{Cause, Verdict, verify};

use zeroize::Zeroizing;

const TLS_CRYPT: &str = "--tls-crypt static.key";

/// Sends an echo request every 20 ms; returns how many were sent, and how many were answered.
fn stream(running: &mut Running, session: u32, from: [u8; 4], to: [u8; 4], time: Duration) -> (usize, usize) {
    let mut sequence = 1000;
    let mut due = std::time::Instant::now();
    running.host.received.clear();
    running.run_until(time, |running| {
        if std::time::Instant::now() >= due {
            due += Duration::from_millis(20);
            sequence += 1;
            let now = running.now();
            running.host.send(now, session, &super::echo_request(from, to, sequence));
        }
        false
    });
    running.run_until(Duration::from_millis(500), |_| false);
    // The kernel sends other packets too.
    let is_reply = |(_, packet): &&(u32, Vec<u8>)| packet.len() == 84 && packet[20] == 0;
    (usize::from(sequence) - 1000, running.host.received.iter().filter(is_reply).count())
}

const CLIENT: [u8; 4] = [10, 99, 0, 2];
const SERVER: [u8; 4] = [10, 99, 0, 1];

/// Keys for this number of seconds.
fn timing(seconds: u64) -> Timing {
    Timing { renegotiate: Some(Duration::from_secs(seconds)), ..Timing::default() }
}

type Wraps = fn(&Setup) -> (ServerWrap, ClientWrap);

/// Sends packets both ways for `time`, in which keys are renewed at least twice and no packet is lost. The side with the
/// shorter lifetime of keys renews.
fn renew(ours: u64, wraps: Wraps, server: &[&str], client: &[&str], time: u64) {
    let mut setup = Setup::new();
    (setup.client_timing, setup.server_timing) = (timing(ours), timing(ours));
    let (mut running, openvpn) = client_of_stock(&setup, wraps(&setup).1, server);
    renewed(&mut running, openvpn, 0, (CLIENT, SERVER), time);
    let (mut running, openvpn) = server_of_stock(&setup, wraps(&setup).0, client);
    let session = *running.host.connected.keys().next().expect("connected");
    renewed(&mut running, openvpn, session, (SERVER, CLIENT), time);
}

fn renewed(running: &mut Running, mut openvpn: OpenVpn, session: u32, ends: ([u8; 4], [u8; 4]), time: u64) {
    let (sent, received) = stream(running, session, ends.0, ends.1, Duration::from_secs(time));
    assert_eq!((sent, running.host.closed.len()), (received, 0), "{:?}", running.host.closed);
    let negotiations = openvpn.log().matches("Control Channel: TLSv1.3").count();
    assert!(negotiations >= 3, "{negotiations}");
}

#[test]
fn stock_renews_and_no_packet_is_lost() {
    if is_inside("lives::stock_renews_and_no_packet_is_lost") {
        renew(3600, Setup::tls_crypt, &[TLS_CRYPT, "--reneg-sec 4"], &[TLS_CRYPT, "--reneg-sec 4"], 11);
    }
}

#[test]
fn we_renew_and_no_packet_is_lost() {
    if is_inside("lives::we_renew_and_no_packet_is_lost") {
        renew(4, Setup::tls_crypt, &[TLS_CRYPT], &[TLS_CRYPT], 11);
    }
}

#[test]
fn both_renew_at_once_and_no_packet_is_lost() {
    if is_inside("lives::both_renew_at_once_and_no_packet_is_lost") {
        renew(4, Setup::tls_crypt, &[TLS_CRYPT, "--reneg-sec 4"], &[TLS_CRYPT, "--reneg-sec 4"], 11);
    }
}

/// Dynamic tls-crypt takes the key of tls-auth too, or none.
#[test]
fn keys_are_renewed_under_tls_auth_and_without_a_wrap() {
    if is_inside("lives::keys_are_renewed_under_tls_auth_and_without_a_wrap") {
        let server = ["--tls-auth static.key 0", "--auth SHA512", "--reneg-sec 3"];
        let client = ["--tls-auth static.key 1", "--auth SHA512", "--reneg-sec 3"];
        renew(3600, tls_auth, &server, &client, 8);
        renew(3600, no_wrap, &["--reneg-sec 3"], &["--reneg-sec 3"], 8);
    }
}

#[test]
fn derived_keys_are_renewed_and_no_packet_is_lost() {
    if is_inside("lives::derived_keys_are_renewed_and_no_packet_is_lost") {
        let mut setup = Setup::new();
        (setup.client_features, setup.server_features) = (0, 0);
        let arguments = [TLS_CRYPT, "--reneg-sec 3"];
        let (mut running, openvpn) = client_of_stock(&setup, setup.tls_crypt().1, &arguments);
        renewed(&mut running, openvpn, 0, (CLIENT, SERVER), 8);
        let (mut running, openvpn) = server_of_stock(&setup, setup.tls_crypt().0, &arguments);
        let session = *running.host.connected.keys().next().expect("connected");
        renewed(&mut running, openvpn, session, (SERVER, CLIENT), 8);
    }
}

#[test]
fn stock_follows_our_client_to_another_port() {
    if is_inside("lives::stock_follows_our_client_to_another_port") {
        let setup = Setup::new();
        let (mut running, _openvpn) = client_of_stock(&setup, setup.tls_crypt().1, &[TLS_CRYPT]);
        running.move_to_another_port();
        assert!(running.ping(0, CLIENT, SERVER, 2));
    }
}

#[test]
fn user_name_and_password_are_checked() {
    if !is_inside("lives::user_name_and_password_are_checked") {
        return;
    }
    let mut setup = Setup::new();
    let directory = OpenVpn::directory();
    let script = "#!/bin/sh\n[ \"$username\" = berta ] && [ \"$password\" = 'gr\u{fc}n 7' ]\n";
    std::fs::write(directory.join("verify.sh"), script).expect("written");
    let status = Command::new("chmod").arg("755").arg(directory.join("verify.sh")).status();
    assert!(status.expect("chmod runs").success());
    std::fs::write(directory.join("user.txt"), "berta\ngr\u{fc}n 7\n").expect("written");
    let credentials = |password: &str| Credentials {
        user: String::from("berta"),
        password: Zeroizing::new(password.to_owned()),
    };
    setup.credentials = credentials("gr\u{fc}n 7");
    let server = [TLS_CRYPT, "--script-security 3", "--auth-user-pass-verify ./verify.sh via-env"];
    drop(client_of_stock(&setup, setup.tls_crypt().1, &server));
    let client = [TLS_CRYPT, "--auth-user-pass user.txt"];
    let both = server_of_stock(&setup, setup.tls_crypt().0, &client);
    assert_eq!(both.0.host.requests[0].credentials, setup.credentials);
    drop(both);
    setup.credentials = credentials("wrong");
    let (mut running, _openvpn) = super::client_with_stock(&setup, setup.tls_crypt().1, &server);
    assert!(running.run_until(Duration::from_secs(20), |running| !running.host.closed.is_empty()));
    assert_eq!(running.host.closed, [Cause::Refused(String::new())]);
}

#[test]
fn exits_are_told_both_ways() {
    if !is_inside("lives::exits_are_told_both_ways") {
        return;
    }
    let setup = Setup::new();
    let (mut running, mut openvpn) = client_of_stock(&setup, setup.tls_crypt().1, &[TLS_CRYPT]);
    let now = running.now();
    running.host.call(now, |core, out| match core {
        Core::Client(client) => client.stop(now, out),
        Core::Server(_) => unreachable!("a client"),
    });
    running.run_until(Duration::from_millis(100), |_| false);
    openvpn.wait_for("CC-EEN exit message received by peer");
    drop((running, openvpn));
    let arguments = [TLS_CRYPT, "--explicit-exit-notify 1"];
    let (mut running, openvpn) = server_of_stock(&setup, setup.tls_crypt().0, &arguments);
    openvpn.terminate();
    assert!(running.run_until(Duration::from_secs(5), |running| running.host.closed == [Cause::Exited]));
}

#[test]
fn a_refused_stock_client_is_told_why() {
    if !is_inside("lives::a_refused_stock_client_is_told_why") {
        return;
    }
    let setup = Setup::new();
    let (mut running, mut openvpn) = super::server_with_stock(&setup, setup.tls_crypt().0, &[TLS_CRYPT]);
    running.host.verdict = Some(Verdict::Refuse { reason: String::from("not today") });
    assert!(running.run_until(Duration::from_secs(10), |_| openvpn.has_logged("AUTH_FAILED,not today")));
}

#[test]
fn a_revoked_stock_client_is_refused_with_a_reason() {
    if !is_inside("lives::a_revoked_stock_client_is_refused_with_a_reason") {
        return;
    }
    let setup = Setup::new();
    let (mut running, mut openvpn) = super::server_with_stock(&setup, setup.tls_crypt().0, &[TLS_CRYPT]);
    let mut check = setup.authority.check(Role::Client);
    check.add_list(&setup.authority.revocation_list(&[&setup.client])).expect("a list");
    let config = verify::server_config(setup.server.identity(), Arc::new(check)).expect("valid");
    match &mut running.host.core {
        Core::Server(server) => server.set_tls(config),
        Core::Client(_) => unreachable!("a server"),
    }
    assert!(running.run_until(Duration::from_secs(10), |running| !running.host.closed.is_empty()));
    let cause = running.host.closed[0].to_string();
    assert_eq!(cause, "the peer's certificate is refused: it, or a CA of its chain, is revoked");
    assert!(running.run_until(Duration::from_secs(5), |_| {
        openvpn.has_logged("Received fatal SSL alert: certificate revoked")
    }));
}

#[test]
fn wrong_keys_get_no_answer() {
    if !is_inside("lives::wrong_keys_get_no_answer") {
        return;
    }
    let setup = Setup::new();
    let wrap = ServerWrap::Shared(tunnel::openvpn::wrap::WrapKeys::none());
    let (mut running, _openvpn) = super::server_with_stock(&setup, wrap, &[TLS_CRYPT]);
    assert!(running.run_until(Duration::from_secs(3), |running| !running.host.refused.is_empty()));
    assert!(running.host.connected.is_empty() && running.host.outgoing.is_empty());
}
