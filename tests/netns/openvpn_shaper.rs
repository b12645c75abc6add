//! `shaper`: a client sends no more than it says, however much comes from inside.

use crate::openvpn_client_ends::Client;
use crate::openvpn_ends::{CLIENT_END, Program, SERVER, SERVER_END};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Bytes a second.
const LIMIT: u64 = 50_000;
/// What may be sent at once, and handshakes.
const SLACK: u64 = 30_000;

#[test]
fn a_client_sends_no_more_than_its_shaper_says() {
    let Some(mut client) = Client::sites(Program::Ours) else { return };
    client.start(Program::Ours, SERVER_END, "");
    client.start(Program::Ours, CLIENT_END, &format!("shaper {LIMIT}\n"));
    client.wait("connected", |it| it.reaches(SERVER));
    let received = || -> u64 {
        let shown = client.lab.ip("b", "-s -j link show dev outside").expect("it is there");
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        shown[0]["stats64"]["rx"]["bytes"].as_u64().expect("a number")
    };
    let (began, before) = (Instant::now(), received());
    let offered = client.lab.enter("a", || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let mut offered = 0;
        while began.elapsed() < Duration::from_secs(3) {
            // Nobody listens there, and a full queue is what is tested.
            offered += (0..10).filter_map(|_| socket.send_to(&[0; 1000], (SERVER, 9)).ok()).sum::<usize>();
            std::thread::sleep(Duration::from_millis(1));
        }
        offered
    });
    let offered = offered.expect("the namespace is there") as u64;
    let sent = received() - before;
    let allowed = LIMIT * began.elapsed().as_millis() as u64 / 1000 + SLACK;
    assert!(sent <= allowed, "{sent} of {offered} bytes, and {allowed} were allowed\n{}", client.logs());
    assert!(sent > 0 && offered > 3 * allowed, "{sent} of {offered} bytes\n{}", client.logs());
}
