//! Against OpenVPN itself, in a network namespace. The test runs itself again inside of the namespace, where the program
//! has a TUN device and the core a UDP socket. A ping through the tunnel is answered by the kernel behind the device.

mod framing;
mod lives;
mod modes;
mod newest;
mod pair;

use crate::host::{Core, Host};
use crate::network::Setup;
use framing::Deframer;
use packet::checksum::Sum;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};
use tunnel::openvpn::Verdict;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::server::ServerWrap;
use tunnel::{Now, Time};

/// Set inside of the namespace, to the directory for files.
const INSIDE: &str = "OPENVPN_TEST_INSIDE";
/// The program, if it is not the installed one.
const PROGRAM: &str = "OPENVPN_TEST_PROGRAM";
const PORT: u16 = 1194;

/// Whether the test runs inside of a namespace. If not, it is run again in one.
fn is_inside(test: &str) -> bool {
    is_inside_with(test, &[])
}

/// The same, with more variables inside.
fn is_inside_with(test: &str, variables: &[(&str, &OsStr)]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let is_installed = Command::new("openvpn").arg("--version").output().is_ok();
    if !is_root || !is_installed {
        assert!(std::env::var_os("NO_SKIP").is_none(), "needs root and openvpn");
        eprintln!("SKIPPED: needs root and openvpn");
        return false;
    }
    let namespace = Namespace::new(test);
    let itself = std::env::current_exe().expect("a program");
    let output = Command::new("ip")
        .args(["netns", "exec", &namespace.name, "timeout", "100"])
        .arg(itself)
        .args(["--exact", &format!("stock::{test}"), "--nocapture"])
        .env(INSIDE, &namespace.files)
        .envs(variables.iter().copied())
        .output()
        .expect("ip runs");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    if std::env::var_os("SHOW_LOGS").is_some() {
        eprintln!("{text}");
    }
    false
}

/// A network namespace, and a directory of the same name for files.
struct Namespace {
    name: String,
    files: PathBuf,
}

impl Namespace {
    fn new(test: &str) -> Self {
        let short = test.rsplit(':').next().unwrap_or(test);
        let name = format!("ovpn-{}-{short}", std::process::id());
        run(&["netns", "add", &name]);
        run(&["-n", &name, "link", "set", "lo", "up"]);
        let files = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&files).expect("a directory");
        Self { name, files }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What a test that was interrupted has left.
        let left = Command::new("ip").args(["netns", "pids", &self.name]).output().expect("ip runs");
        for id in String::from_utf8_lossy(&left.stdout).split_whitespace() {
            let _ = Command::new("kill").args(["-9", id]).status();
        }
        run(&["netns", "del", &self.name]);
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

fn run(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().expect("ip runs").success(), "{arguments:?}");
}

/// A running OpenVPN, and its files.
struct OpenVpn {
    child: Child,
    lines: Receiver<String>,
    log: Vec<String>,
}

impl OpenVpn {
    /// Where its files are.
    fn directory() -> PathBuf {
        std::env::var_os(INSIDE).expect("inside of the namespace").into()
    }

    fn start(setup: &Setup, is_server: bool, arguments: &[&str]) -> Self {
        let role: &[&str] = if is_server {
            &[
                "--server 10.99.0.0 255.255.255.0 --topology subnet --dh none",
                "--local 127.0.0.1 --port 1194 --remote-cert-tls client",
            ]
        } else {
            &["--client --nobind --remote 127.0.0.1 --remote-cert-tls server"]
        };
        Self::start_as(setup, is_server, role, arguments)
    }

    fn start_as(setup: &Setup, is_server: bool, role: &[&str], arguments: &[&str]) -> Self {
        let directory = Self::directory();
        let own = if is_server { &setup.server } else { &setup.client };
        let files = [
            ("ca.pem", setup.authority.pem()),
            ("own.pem", own.pem.clone()),
            ("key.pem", own.key.serialize_pem()),
            ("static.key", setup.key.to_file().to_string()),
        ];
        for (name, text) in files {
            std::fs::write(directory.join(name), text).expect("written");
        }
        let mut command = Command::new(std::env::var_os(PROGRAM).unwrap_or_else(|| "openvpn".into()));
        command.current_dir(&directory).args(["--dev", "tun0", "--dev-type", "tun", "--verb", "4"]);
        command.args(["--ca", "ca.pem", "--cert", "own.pem", "--key", "key.pem", "--disable-dco"]);
        command.args(["--script-security", "2"]);
        let arguments = role.iter().chain(arguments).flat_map(|line| line.split(' '));
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
        let mut child = command.spawn().expect("openvpn starts");
        let output = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, log: Vec::new() }
    }

    /// Asks it to end.
    fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(id).status().expect("kill runs").success());
    }

    /// What it has logged so far.
    fn log(&mut self) -> String {
        self.log.extend(self.lines.try_iter());
        self.log.join("\n")
    }

    fn has_logged(&mut self, text: &str) -> bool {
        self.log().contains(text)
    }

    fn wait_for(&mut self, text: &str) {
        let start = Instant::now();
        while !self.has_logged(text) {
            assert!(start.elapsed() < Duration::from_secs(20), "no {text:?} in\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for OpenVpn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() || std::env::var_os("SHOW_LOGS").is_some() {
            eprintln!("{}", self.log());
        }
    }
}

/// The socket of a host.
enum Socket {
    Udp(UdpSocket),
    /// One connection, with what was received and is not complete.
    Tcp(TcpStream, Deframer),
}

impl Socket {
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) {
        match self {
            // A refused datagram is lost.
            Self::Udp(socket) => drop(socket.send_to(bytes, to)),
            Self::Tcp(stream, _) => stream.write_all(&framing::frame(bytes).expect("short")).expect("sent"),
        }
    }

    /// Waits 20 ms at most; returns packets and their source.
    fn receive(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let (mut buffer, limit) = ([0; 4096], Some(Duration::from_millis(20)));
        match self {
            Self::Udp(socket) => {
                socket.set_read_timeout(limit).expect("set");
                let received = socket.recv_from(&mut buffer);
                received.map(|(length, from)| vec![(from, buffer[..length].to_vec())]).unwrap_or_default()
            }
            Self::Tcp(stream, deframer) => {
                stream.set_read_timeout(limit).expect("set");
                let from = stream.peer_addr().expect("connected");
                let length = stream.read(&mut buffer).unwrap_or(0);
                deframer.receive(&buffer[..length]);
                let next =
                    || deframer.next_packet(framing::LONGEST).expect("well-formed").map(<[u8]>::to_vec);
                std::iter::from_fn(next).map(|packet| (from, packet)).collect()
            }
        }
    }
}

/// A host on a socket, in real time.
struct Running {
    host: Host,
    socket: Socket,
    start: Instant,
}

impl Running {
    fn new(host: Host, port: u16) -> Self {
        Self::on(host, Socket::Udp(UdpSocket::bind(("127.0.0.1", port)).expect("bound")))
    }

    fn on(host: Host, socket: Socket) -> Self {
        Self { host, socket, start: Instant::now() }
    }

    fn move_to_another_port(&mut self) {
        self.socket = Socket::Udp(UdpSocket::bind(("127.0.0.1", 0)).expect("bound"));
    }

    fn now(&self) -> Now {
        let wall = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        Now { monotonic: Time::from_nanoseconds(1) + self.start.elapsed(), wall }
    }

    fn flush(&mut self) {
        for (to, bytes) in std::mem::take(&mut self.host.outgoing) {
            self.socket.send(to, &bytes);
        }
    }

    /// Runs until a condition holds, for `limit` at most; returns whether it holds.
    fn run_until(&mut self, limit: Duration, mut condition: impl FnMut(&mut Self) -> bool) -> bool {
        let end = Instant::now() + limit;
        loop {
            self.flush();
            if condition(self) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            for (from, bytes) in self.socket.receive() {
                let now = self.now();
                self.host.handle(now, from, &bytes);
            }
            let now = self.now();
            if self.host.next_timeout().is_some_and(|at| at <= now.monotonic) {
                self.host.handle_timeout(now);
            }
        }
    }

    fn connect(&mut self) {
        let now = self.now();
        self.host.connect(now, ([127, 0, 0, 1], PORT).into());
    }

    /// Waits until our client has connected, and its ping is answered.
    fn assert_pings_server(&mut self) {
        let connected = self.run_until(Duration::from_secs(20), |running| !running.host.connected.is_empty());
        assert!(connected, "{:?} {:?}", self.host.closed, self.host.refused);
        assert!(self.ping(0, [10, 99, 0, 2], [10, 99, 0, 1], 1), "{:?}", self.host.refused);
    }

    /// Waits until OpenVPN's client has connected, and answers a ping.
    fn assert_pings_client(&mut self, openvpn: &mut OpenVpn) {
        let is_up = |_: &mut Self| openvpn.has_logged("Initialization Sequence Completed");
        let connected = self.run_until(Duration::from_secs(20), is_up);
        assert!(connected, "{:?} {:?}", self.host.closed, self.host.refused);
        let session = *self.host.connected.keys().next().expect("connected");
        assert!(self.ping(session, [10, 99, 0, 1], [10, 99, 0, 2], 1), "{:?}", self.host.refused);
    }

    /// Sends an echo request to `to` until an answer comes.
    fn ping(&mut self, session: u32, from: [u8; 4], to: [u8; 4], sequence: u16) -> bool {
        let request = echo_request(from, to, sequence);
        let mut sent = None::<Instant>;
        self.host.received.clear();
        self.run_until(Duration::from_secs(10), |running| {
            if sent.is_none_or(|at| at.elapsed() > Duration::from_millis(200)) {
                let now = running.now();
                running.host.send(now, session, &request);
                sent = Some(Instant::now());
            }
            running.host.received.iter().any(|(_, packet)| is_echo_reply(packet, to, sequence))
        })
    }
}

/// An ICMP echo request (RFC 792) of 84 bytes.
fn echo_request(from: [u8; 4], to: [u8; 4], sequence: u16) -> Vec<u8> {
    let mut packet = vec![0x5a; 84];
    packet[..12].copy_from_slice(&[0x45, 0, 0, 84, 0, 1, 0, 0, 64, 1, 0, 0]);
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    let sum = Sum::of(&packet[..20]).checksum();
    packet[10..12].copy_from_slice(&sum);
    packet[20..26].copy_from_slice(&[8, 0, 0, 0, 0x12, 0x34]);
    packet[26..28].copy_from_slice(&sequence.to_be_bytes());
    let sum = Sum::of(&packet[20..]).checksum();
    packet[22..24].copy_from_slice(&sum);
    packet
}

fn is_echo_reply(packet: &[u8], from: [u8; 4], sequence: u16) -> bool {
    packet.len() == 84
        && packet[12..16] == from
        && packet[20] == 0
        && packet[26..28] == sequence.to_be_bytes()
}

/// Our client, connecting to OpenVPN's server with these arguments.
fn client_with_stock(setup: &Setup, wrap: ClientWrap, arguments: &[&str]) -> (Running, OpenVpn) {
    let mut openvpn = OpenVpn::start(setup, true, arguments);
    openvpn.wait_for("Initialization Sequence Completed");
    let host = Host::new(Core::Client(Box::new(setup.client(wrap, 1))), "127.0.0.1:1");
    let mut running = Running::new(host, 0);
    running.connect();
    (running, openvpn)
}

/// The same, after a ping has been answered.
fn client_of_stock(setup: &Setup, wrap: ClientWrap, arguments: &[&str]) -> (Running, OpenVpn) {
    let (mut running, openvpn) = client_with_stock(setup, wrap, arguments);
    running.assert_pings_server();
    (running, openvpn)
}

/// Our server, and OpenVPN's client with these arguments.
fn server_with_stock(setup: &Setup, wrap: ServerWrap, arguments: &[&str]) -> (Running, OpenVpn) {
    let running = Running::new(server(setup, wrap), PORT);
    (running, OpenVpn::start(setup, false, arguments))
}

fn server(setup: &Setup, wrap: ServerWrap) -> Host {
    let mut host = Host::new(Core::Server(Box::new(setup.server(wrap, 1))), "127.0.0.1:1194");
    let push = ["topology subnet", "ifconfig 10.99.0.2 255.255.255.0", "route-gateway 10.99.0.1", "ping 10"];
    host.verdict = Some(Verdict::Accept { push: push.map(str::to_owned).to_vec() });
    host
}

/// The same, after a ping has been answered.
fn server_of_stock(setup: &Setup, wrap: ServerWrap, arguments: &[&str]) -> (Running, OpenVpn) {
    let (mut running, mut openvpn) = server_with_stock(setup, wrap, arguments);
    running.assert_pings_client(&mut openvpn);
    (running, openvpn)
}

/// Our client with OpenVPN's server on TCP, then the reverse.
fn over_tcp(setup: &Setup, (server_wrap, client_wrap): (ServerWrap, ClientWrap)) {
    let arguments = ["--tls-crypt static.key", "--proto tcp-server"];
    let mut openvpn = OpenVpn::start(setup, true, &arguments);
    openvpn.wait_for("Initialization Sequence Completed");
    let stream = TcpStream::connect(("127.0.0.1", PORT)).expect("connected");
    let host = Host::new(Core::Client(Box::new(setup.client(client_wrap, 1))), "127.0.0.1:1");
    let mut running = Running::on(host, Socket::Tcp(stream, Deframer::default()));
    running.connect();
    running.assert_pings_server();
    drop((running, openvpn));
    // The port of the connection that was closed first is not free yet.
    let listener = TcpListener::bind(("127.0.0.1", PORT + 1)).expect("bound");
    let port = format!("--rport {}", PORT + 1);
    let arguments = ["--tls-crypt static.key", "--proto tcp-client", &port];
    let mut openvpn = OpenVpn::start(setup, false, &arguments);
    let (stream, _) = listener.accept().expect("a connection");
    let mut running = Running::on(server(setup, server_wrap), Socket::Tcp(stream, Deframer::default()));
    running.assert_pings_client(&mut openvpn);
}
