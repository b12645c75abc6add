//! A thousand clients at one server: its memory; and hundreds that connect at once.

use crate::host::{Core, Host};
use crate::network::{CLIENT, SERVER, Setup, Weather};
use crate::seconds;
use std::process::Command;
use std::time::Duration;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::server::ServerWrap;
use tunnel::openvpn::wrap::WrapKeys;

const CLIENTS: usize = 1000;
/// What they may occupy: 60 KiB for each, with its TLS and its keys.
const MOST_BYTES: usize = 60 << 20;
/// Set for the process of its own in which memory is measured: other tests would count, too.
const ALONE: &str = "OPENVPN_CROWD_ALONE";

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

fn setup() -> Setup {
    Setup { max_clients: CLIENTS, ..Setup::new() }
}

#[test]
fn a_thousand_clients_occupy_less_than_60_mib() {
    if std::env::var_os(ALONE).is_none() {
        let name = "crowd::a_thousand_clients_occupy_less_than_60_mib";
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        let output =
            command.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        eprintln!("{}", text.lines().find(|line| line.contains("KiB for each")).unwrap_or_default());
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let setup = setup();
    let mut network = setup.network(setup.tls_crypt(), 1);
    let mut before = 0;
    // The first clients warm up the allocator.
    for number in 0..CLIENTS + 20 {
        if number == 20 {
            before = resident();
        }
        let core = Core::Client(Box::new(setup.client(setup.tls_crypt().1, number as u64 + 10)));
        network.hosts[CLIENT] =
            Host::new(core, &format!("198.18.{}.{}:5000", number / 250, number % 250 + 1));
        network.connect(CLIENT);
        network.run(Duration::from_millis(100));
        let is_full = number >= CLIENTS;
        assert_ne!(network.is_connected(CLIENT), is_full, "{number}: {:?}", network.hosts[CLIENT].closed);
        // What belongs to the test.
        network.log = Vec::new();
        network.hosts[SERVER].requests = Vec::new();
    }
    let grown = resident().saturating_sub(before);
    eprintln!("{} KiB for each of {} clients", grown / (CLIENTS - 20) / 1024, CLIENTS - 20);
    assert_eq!(network.hosts[SERVER].connected.len(), CLIENTS);
    assert!(grown < MOST_BYTES, "{grown} bytes");
}

#[test]
fn hundreds_of_clients_that_connect_at_once_are_served_at_once() {
    const AT_ONCE: usize = 150;
    let setup = setup();
    let mut network = setup.network_of(setup.tls_crypt(), AT_ONCE as u16, 1);
    network.weather = Weather { lost: 0, duplicated: 20, damaged: 0, delay: Duration::from_millis(40) };
    for client in 1..=AT_ONCE {
        network.connect(client);
    }
    network.run(seconds(1));
    let failed: Vec<_> = network.hosts[1..].iter().flat_map(|host| &host.closed).collect();
    assert_eq!((network.hosts[SERVER].connected.len(), failed), (AT_ONCE, vec![]));
}

/// An office of 150 users behind one NAT: its line was down, and all connect again.
#[test]
fn hundreds_of_clients_behind_one_address_that_connect_at_once_are_served_soon() {
    const AT_ONCE: usize = 150;
    let setup = setup();
    let no_wrap = (ServerWrap::Shared(WrapKeys::none()), ClientWrap::Shared(WrapKeys::none()));
    // Without a wrap any sender may begin, and clients send again what was refused.
    for (wraps, within) in [(setup.tls_crypt(), 1), (no_wrap, 35)] {
        let addresses = (0..AT_ONCE).map(|number| format!("198.18.0.1:{}", 5000 + number));
        let mut network = setup.network_at(wraps, addresses, 1);
        (1..=AT_ONCE).for_each(|client| network.connect(client));
        network.run(seconds(within));
        assert_eq!(network.hosts[SERVER].connected.len(), AT_ONCE, "within {within} s");
    }
}

/// Their verdicts wait for a program: with a certificate, a client does not count as one that has not authenticated.
#[test]
fn clients_that_wait_for_a_verdict_do_not_keep_out_others_of_their_address() {
    const AT_ONCE: usize = 60;
    let setup = setup();
    let no_wrap = (ServerWrap::Shared(WrapKeys::none()), ClientWrap::Shared(WrapKeys::none()));
    let addresses = (0..AT_ONCE).map(|number| format!("198.18.0.1:{}", 5000 + number));
    let mut network = setup.network_at(no_wrap, addresses, 2);
    network.hosts[SERVER].verdict = None;
    (1..=AT_ONCE).for_each(|client| network.connect(client));
    network.run(seconds(15));
    assert_eq!(network.hosts[SERVER].unanswered.len(), AT_ONCE);
}
