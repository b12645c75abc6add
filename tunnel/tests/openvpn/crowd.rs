//! A thousand clients at one server: its memory; and hundreds that connect at once.

use crate::host::{Core, Host};
use crate::network::{CLIENT, SERVER, Setup, Weather};
use crate::seconds;
use std::process::Command;
use std::time::Duration;

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
