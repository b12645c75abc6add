//! Site to site with OpenVPN, which is the server of TLS, then its client.

use super::newest::newest;
use super::{OpenVpn, PROGRAM, Running, is_inside, is_inside_with, server};
use crate::host::{Core, Host};
use crate::network::Setup;
use std::time::Duration;
use tunnel::openvpn::Cause;
use tunnel::openvpn::keepalive::{Keepalive, Silence};
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::peer::Timing;

const TLS_CRYPT: &str = "--tls-crypt static.key";
/// The end of OpenVPN.
const SERVER: &str = "--tls-server --dh none --local 127.0.0.1 --port 1194 --ifconfig 10.99.0.1 10.99.0.2";
const CLIENT: &str = "--tls-client --nobind --remote 127.0.0.1 --ifconfig 10.99.0.2 10.99.0.1";

fn pair() -> Setup {
    let silence = Some(Silence { after: Duration::from_secs(6), exits: false });
    let client_keepalive = Keepalive { ping: Some(Duration::from_secs(1)), silence };
    let server_ping = [Some(Duration::from_secs(1)), Some(Duration::from_secs(6))];
    Setup { is_pair: true, client_keepalive, server_ping, ..Setup::new() }
}

/// Our client of TLS, and OpenVPN.
fn our_client(setup: &Setup, arguments: &[&str]) -> (Running, OpenVpn) {
    let mut openvpn = OpenVpn::start_as(setup, true, &[SERVER], arguments);
    openvpn.wait_for("link remote: [AF");
    let host = Host::new(Core::Client(Box::new(setup.client(setup.tls_crypt().1, 1))), "127.0.0.1:1");
    let mut running = Running::new(host, 0);
    running.connect();
    running.assert_pings_server();
    (running, openvpn)
}

/// Our server of TLS, and OpenVPN.
fn our_server(setup: &Setup, arguments: &[&str]) -> (Running, OpenVpn) {
    let mut running = Running::new(server(setup, setup.tls_crypt().0), super::PORT);
    let mut openvpn = OpenVpn::start_as(setup, false, &[CLIENT], arguments);
    running.assert_pings_client(&mut openvpn);
    (running, openvpn)
}

/// Pings both ways, for which keys are renewed by both ends, and what OpenVPN has logged.
fn both_ways(setup: &Setup, arguments: &[&str]) -> [String; 2] {
    let (mut running, mut openvpn) = our_client(setup, arguments);
    running.run_until(Duration::from_secs(4), |_| false);
    assert!(running.ping(0, [10, 99, 0, 2], [10, 99, 0, 1], 9), "{:?}", running.host.closed);
    let first = openvpn.log();
    drop((running, openvpn));
    let (mut running, mut openvpn) = our_server(setup, arguments);
    running.run_until(Duration::from_secs(4), |_| false);
    let session = *running.host.connected.keys().next().expect("connected");
    assert!(running.ping(session, [10, 99, 0, 1], [10, 99, 0, 2], 9), "{:?}", running.host.closed);
    [first, openvpn.log()]
}

#[test]
fn data_keys_are_negotiated_and_renewed() {
    if !is_inside("pair::data_keys_are_negotiated_and_renewed") {
        return;
    }
    for log in both_ways(&pair(), &[TLS_CRYPT, "--keepalive 1 6", "--reneg-sec 2"]) {
        assert!(log.contains("TLS_export=1, DATA_v2=1"), "{log}");
        assert!(log.matches("TLSv1.3").count() > 1, "{log}");
    }
    let mut setup = pair();
    setup.client_ciphers = vec![DataCipher::by_name("AES-256-CBC").expect("known")];
    setup.server_ciphers.clone_from(&setup.client_ciphers);
    for timing in [&mut setup.client_timing, &mut setup.server_timing] {
        *timing = Timing { renegotiate: Some(Duration::from_secs(2)), ..Timing::default() };
    }
    let ciphers = "--data-ciphers AES-256-CBC --auth SHA256";
    both_ways(&setup, &[TLS_CRYPT, "--keepalive 1 6", ciphers]);
}

#[test]
fn with_openvpn_2_7() {
    let Some(program) = newest() else { return };
    if is_inside_with("pair::with_openvpn_2_7", &[(PROGRAM, program.as_os_str())]) {
        for log in both_ways(&pair(), &[TLS_CRYPT, "--keepalive 1 6", "--reneg-sec 2"]) {
            assert!(log.contains("TLS_export=1, DATA_v2=1"), "{log}");
        }
    }
}

/// OpenVPN knows where we are, and begins before we do: its resets are not answers to ours.
#[test]
fn an_end_that_has_begun_before_is_answered() {
    if !is_inside("pair::an_end_that_has_begun_before_is_answered") {
        return;
    }
    let setup = pair();
    let mut openvpn = OpenVpn::start_as(
        &setup,
        true,
        &[SERVER, "--remote 127.0.0.1 5001"],
        &[TLS_CRYPT, "--keepalive 1 20"],
    );
    let host = Host::new(Core::Client(Box::new(setup.client(setup.tls_crypt().1, 1))), "127.0.0.1:1");
    let mut running = Running::new(host, 5001);
    // Its second reset has come: the third is sent later than our client may wait.
    running.run_until(Duration::from_secs(4), |_| false);
    running.connect();
    let is_up = |running: &mut Running| !running.host.connected.is_empty();
    assert!(
        running.run_until(Duration::from_secs(20), is_up),
        "{:?}\n{}",
        running.host.refused,
        openvpn.log()
    );
    running.assert_pings_server();
}

/// OpenVPN is killed without a word, or ends with one.
#[test]
fn an_end_that_begins_again_is_followed() {
    if !is_inside("pair::an_end_that_begins_again_is_followed") {
        return;
    }
    let setup = pair();
    let arguments = [TLS_CRYPT, "--keepalive 1 6", "--explicit-exit-notify 1"];
    let (mut running, mut openvpn) = our_server(&setup, &arguments);
    openvpn.child.kill().expect("killed");
    drop(openvpn);
    openvpn = OpenVpn::start_as(&setup, false, &[CLIENT], &arguments);
    running.assert_pings_client(&mut openvpn);
    assert_eq!(running.host.connected.len(), 1, "{:?}", running.host.closed);
    openvpn.terminate();
    let is_told = |running: &mut Running| running.host.closed.contains(&Cause::Exited);
    assert!(running.run_until(Duration::from_secs(20), is_told), "{:?}", running.host.closed);
    drop((running, openvpn));
    let (mut running, mut openvpn) = our_client(&setup, &arguments);
    // We begin again, without a word.
    let again = Core::Client(Box::new(setup.client(setup.tls_crypt().1, 9)));
    running.host = Host::new(again, "127.0.0.1:1");
    running.connect();
    running.assert_pings_server();
    openvpn.child.kill().expect("killed");
    let is_gone = |running: &mut Running| running.host.closed.contains(&Cause::Gone(6));
    assert!(running.run_until(Duration::from_secs(20), is_gone), "{:?}", running.host.closed);
}
