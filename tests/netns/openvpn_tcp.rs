//! OpenVPN over TCP: connections that end, clients that do not read, and others that are no clients.

use crate::openvpn_ends::{Ends, Program};
use crate::support::{PATIENCE, dropped, tcp_arrives_whole, unavailable};
use lab::wait_until;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

const OURS: [Program; 2] = [Program::Ours; 2];
/// Seconds in which a connection must authenticate.
const WINDOW: &str = "tcp\nhand-window 8";

/// A connection to the server from an address of the client's site.
fn connection(from: Ipv4Addr) -> Option<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("there are descriptors");
    bind(&socket, &SocketAddr::from((from, 0))).expect("the site has the address");
    let server: SocketAddr = "192.168.77.2:1194".parse().expect("literal");
    connect(&socket, &server).ok().map(|()| TcpStream::from(socket))
}

/// Whether the server has ended a connection.
fn has_ended(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
    match stream.read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn connections_of_others_end_and_a_session_goes_on() {
    let Some(ends) = Ends::start_over(WINDOW, OURS, Some(3600)) else { return };
    let source = Ipv4Addr::new(192, 168, 77, 10);
    ends.lab.ip("a", &format!("address add {source}/24 dev outside")).expect("it is free");
    let many = || (0..320).filter_map(|_| connection(source)).collect();
    let mut idle: Vec<TcpStream> = ends.lab.enter("a", many).expect("root may");
    let server = ends.interface_of_server();
    let refused = || dropped(&server, "too-many-connections") >= 320 - 256;
    assert!(wait_until(PATIENCE, refused).is_ok(), "more than 256 of one source: {}", ends.logs());
    // One byte of a length, a length without a packet, and what is no packet.
    for (stream, bytes) in idle.iter_mut().zip([&[0][..], &[0, 100], &[0, 3, 1, 2, 3]]) {
        let _ = stream.write_all(bytes);
    }
    assert!(ends.is_connected(), "{}", ends.logs());
    ends.carries_everything();
    let mut ended = || {
        idle.retain_mut(|stream| !has_ended(stream));
        idle.is_empty()
    };
    assert!(wait_until(PATIENCE, &mut ended).is_ok(), "{}", ends.logs());
    for wrong in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0], &[0xff; 4096]] {
        let mut stream = ends.lab.enter("a", || connection(source)).expect("root may").expect("it listens");
        let _ = stream.write_all(wrong);
        assert!(wait_until(Duration::from_secs(2), || has_ended(&mut stream)).is_ok(), "at once");
    }
    assert_eq!(dropped(&server, "bad-framing"), 3);
    assert!(ends.is_connected(), "{}", ends.logs());
}

#[test]
fn a_client_that_does_not_read_delays_no_other() {
    // Small buffers, so that few packets fill them.
    const BUFFERS: &str = "tcp\nsndbuf 65536\nrcvbuf 65536";
    const FLOOD: usize = 20_000;
    let Some(mut ends) = Ends::start_over(BUFFERS, OURS, Some(3600)) else { return };
    let other = ends.start_other_client();
    ends.signal_client(Signal::STOP);
    let flood = || {
        let socket = UdpSocket::bind("10.9.0.1:0").expect("the address of the server");
        (0..FLOOD).for_each(|_| _ = socket.send_to(&[7; 1200], "10.9.0.2:9"));
    };
    ends.lab.enter("b", flood).expect("root may");
    let server = ends.interface_of_server();
    assert!(dropped(&server, "tcp-queue-full") > 0, "{}", ends.logs());
    tcp_arrives_whole(&ends.lab, "b", "c", other, 8 << 20).expect("another client");
    ends.signal_client(Signal::CONT);
    ends.wait_until_connected();
    ends.carries_everything();
}

#[test]
fn a_connection_that_is_cut_is_made_again() {
    let Some(ends) = Ends::start_over("tcp", OURS, Some(3600)) else { return };
    let sessions = || ends.log_of_server().matches("connected with client").count();
    let before = sessions();
    // Not each kernel lets a program end the connections of others.
    let cut = ends.lab.run("b", "ss", &["-K", "-H", "sport", "=", "1194"]).unwrap_or_default();
    if !cut.contains("ESTAB") && !cut.contains("1194") {
        return unavailable("the kernel cannot end a connection (INET_DIAG_DESTROY)");
    }
    let again = wait_until(PATIENCE, || sessions() > before && ends.is_connected());
    assert!(again.is_ok(), "{}", ends.logs());
    ends.carries_everything();
}

#[test]
fn ipv6_carries_the_connection() {
    let Some(ends) = Ends::start_over("tcp6", OURS, Some(3600)) else { return };
    ends.carries_everything();
    let listening = ends.lab.run("b", "ss", &["-Hltn", "sport", "=", "1194"]).expect("it runs");
    // A server of tcp6 takes IPv4 too.
    assert!(listening.contains("[::]:1194") && listening.contains("0.0.0.0:1194"), "{listening}");
    let established = ends.lab.run("b", "ss", &["-Htn", "sport", "=", "1194"]).expect("it runs");
    let is_v4 = |line: &str| line.split_whitespace().any(|word| word.starts_with("192."));
    assert!(!established.is_empty() && !established.lines().any(is_v4), "{established}");
}
