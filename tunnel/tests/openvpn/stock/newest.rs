//! Against OpenVPN 2.7, which `make setup` brings: epoch keys.

use super::{PROGRAM, Running, client_of_stock, is_inside_with, server_of_stock};
use crate::network::Setup;
use std::path::PathBuf;
use tunnel::openvpn::limits::EPOCH_PACKETS;

/// OpenVPN 2.7, if it is there.
pub fn newest() -> Option<PathBuf> {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.peers/openvpn/openvpn");
    if !program.exists() {
        assert!(std::env::var_os("NO_SKIP").is_none(), "needs OpenVPN 2.7: make setup");
        eprintln!("SKIPPED: needs OpenVPN 2.7: make setup");
        return None;
    }
    Some(program)
}

/// Whether the test runs inside of a namespace, with OpenVPN 2.7.
fn is_inside_with_newest(test: &str) -> bool {
    newest().is_some_and(|program| is_inside_with(test, &[(PROGRAM, program.as_os_str())]))
}

/// Sends the first packet of later epochs, and then a ping.
fn go_on(running: &mut Running, epochs: u64) {
    let now = running.now().monotonic;
    let (session, sa) = running.host.outbound.iter().next().expect("connected");
    let session = *session;
    sa.assign((epochs * EPOCH_PACKETS) as usize, now).expect("there are numbers left");
    let [own, theirs] = if session == 0 { [2, 1] } else { [1, 2] };
    let sequence = running.host.received.len() as u16 + epochs as u16 + 100;
    assert!(running.ping(session, [10, 99, 0, own], [10, 99, 0, theirs], sequence), "{epochs} epochs later");
}

#[test]
fn epoch_keys_and_later_epochs() {
    if !is_inside_with_newest("newest::epoch_keys_and_later_epochs") {
        return;
    }
    let setup = Setup::new();
    let arguments = ["--tls-crypt static.key"];
    for cipher in ["AES-256-GCM", "CHACHA20-POLY1305"] {
        let cipher = format!("--data-ciphers {cipher}");
        let arguments = [arguments[0], &cipher];
        let (mut running, mut stock) = client_of_stock(&setup, setup.tls_crypt().1, &arguments);
        assert!(stock.log().contains("aead-epoch"), "{}", stock.log());
        // OpenVPN sends in an epoch that is not before the one it receives: its answers are in later epochs, too.
        for epochs in [1, 1, 3] {
            go_on(&mut running, epochs);
        }
        drop((running, stock));
        let (mut running, mut stock) = server_of_stock(&setup, setup.tls_crypt().0, &arguments);
        assert!(stock.log().contains("aead-epoch"), "{}", stock.log());
        for epochs in [1, 1, 3] {
            go_on(&mut running, epochs);
        }
    }
}
