//! `postern run`: a configuration file in VyOS's words, in force from start to end.

use crate::closed::open;
use crate::support::{PATIENCE, answers, ask, postern, sites, tcp_arrives_whole};
use lab::postern::Postern;
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A gateway with one WireGuard interface.
pub struct Site {
    gateway: Postern,
    pub private: String,
}

impl Deref for Site {
    type Target = Postern;

    fn deref(&self) -> &Postern {
        &self.gateway
    }
}

impl DerefMut for Site {
    fn deref_mut(&mut self) -> &mut Postern {
        &mut self.gateway
    }
}

/// A pair of keys made by the program itself.
pub fn key_pair() -> (String, String) {
    let arguments = ["generate", "pki", "wireguard", "key-pair"];
    let output = std::process::Command::new(postern()).args(arguments).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("it is text");
    let line =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).expect("it is there").to_owned();
    (line("Private key: "), line("Public key: "))
}

impl Site {
    pub fn new(lab: &Lab, namespace: &str, private: &str) -> Self {
        let gateway = Postern::new(lab, namespace, postern()).expect("a folder");
        Self { gateway, private: private.to_owned() }
    }

    pub fn write(&self, lines: &[String]) {
        let fixed = format!("set interfaces wireguard wg0 private-key {}\n", self.private);
        let text: String =
            lines.iter().map(|line| format!("set interfaces wireguard wg0 {line}\n")).collect();
        self.gateway.write(&(fixed + &text));
    }

    /// Starts it, and waits until it serves and has said so: a reload says the same.
    pub fn start(&mut self, lab: &mut Lab) {
        let before = self.logged().len();
        self.gateway.start(lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}"));
        let said = || self.logged()[before..].contains(" is in force");
        wait_until(PATIENCE, said).unwrap_or_else(|error| panic!("{error}:\n{}", self.logged()));
    }

    /// Starts it.
    pub fn spawn(&mut self, lab: &mut Lab) -> Process {
        let command = self.command(lab);
        self.gateway.spawn(lab, command, "info").expect("it starts")
    }

    /// Has the daemon read the file again, and waits until it logs the result.
    pub fn reload(&self) -> String {
        let said = || self.logged();
        let before = said().len();
        self.signal(Signal::HUP);
        let ended = || ["in force", "is unchanged"].iter().any(|words| said()[before..].contains(words));
        wait_until(PATIENCE, ended).unwrap_or_else(|error| panic!("{error}:\n{}", said()));
        said()[before..].to_owned()
    }

    pub fn peer(&self, name: &str) -> serde_json::Value {
        let socket = self.socket.to_string_lossy().into_owned();
        let said = ask(&["show", "interfaces", "wireguard", "--api", &socket]);
        let peers = said["interfaces"][0]["peers"].as_array().expect("a list").clone();
        peers.into_iter().find(|peer| peer["name"] == name).unwrap_or_default()
    }
}

pub fn lines(end: usize, other: &str, more: &[&str]) -> Vec<String> {
    let fixed = [
        format!("address 10.66.0.{}/24", end + 1),
        "port 51820".to_owned(),
        format!("peer other public-key {other}"),
        "peer other allowed-ips 10.66.0.0/24".to_owned(),
        format!("peer other allowed-ips 10.{}.0.0/16", 50 - end),
        format!("peer other address 192.168.77.{}", 2 - end),
        "peer other port 51820".to_owned(),
    ];
    fixed.into_iter().chain(more.iter().map(|line| (*line).to_owned())).collect()
}

pub fn started() -> Option<(Lab, Site, Site, [String; 2])> {
    let mut lab = sites()?;
    let (a_keys, b_keys) = (key_pair(), key_pair());
    let (mut a, mut b) = (Site::new(&lab, "a", &a_keys.0), Site::new(&lab, "b", &b_keys.0));
    a.write(&lines(0, &b_keys.1, &[]));
    b.write(&lines(1, &a_keys.1, &[]));
    a.start(&mut lab);
    b.start(&mut lab);
    Some((lab, a, b, [a_keys.1, b_keys.1]))
}

#[test]
fn a_file_makes_a_tunnel_with_addresses_and_routes() {
    let Some((mut lab, a, _b, _)) = started() else { return };
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 4 << 20).expect("the tunnel carries");
    let routes = lab.ip("a", "route show dev wg0").expect("it is there");
    assert!(routes.contains("10.50.0.0/16") && !routes.contains("10.66.0.0/24 proto 219"), "{routes}");
    a.signal(Signal::TERM);
    let process = a.process.expect("it was started");
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    assert!(lab.ip("a", "link show wg0").is_err(), "interface, addresses and routes are gone");
    assert!(!a.socket.exists());
}

#[test]
fn a_new_configuration_touches_only_what_has_changed() {
    let Some((lab, a, _b, publics)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let handshake = a.peer("other")["latest_handshake"].clone();
    // Packets flow all the while; not one may be lost.
    let pinging = std::thread::scope(|scope| {
        let lab = &lab;
        let pinging = scope.spawn(move || {
            lab.run("a", "ping", &["-c", "100", "-i", "0.02", "-W", "1", "-q", "10.66.0.2"]).expect("it runs")
        });
        std::thread::sleep(Duration::from_millis(400));
        let (_, unauthenticated) = key_pair();
        let more = [
            "description 'new words'".to_owned(),
            "mtu 1380".to_owned(),
            "address 10.67.0.1/24".to_owned(),
            format!("peer stranger public-key {unauthenticated}"),
            "peer stranger allowed-ips 10.68.0.0/16".to_owned(),
        ];
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        a.write(&lines(0, &publics[1], &more));
        a.signal(Signal::HUP);
        wait_until(PATIENCE, || a.peer("stranger") != serde_json::Value::Null).expect("it is added");
        a.write(&lines(0, &publics[1], &[]));
        a.signal(Signal::HUP);
        wait_until(PATIENCE, || a.peer("stranger") == serde_json::Value::Null).expect("it is removed");
        pinging.join().expect("ping ends")
    });
    assert!(pinging.contains(" 0% packet loss"), "{pinging}");
    assert_eq!(a.peer("other")["latest_handshake"], handshake, "the session was kept");
    let addresses = lab.ip("a", "address show wg0").expect("it is there");
    assert!(!addresses.contains("10.67.0.1") && addresses.contains("mtu 1420"), "{addresses}");
}

/// The segment size that one end of a new TCP connection between the sites takes, as the other end announced it: of the end at
/// `b`. The options in each segment are counted too.
fn segment_size(lab: &Lab, from: &str, to: &str, address: &str) -> u32 {
    let listener = lab.enter(to, || TcpListener::bind((address, 0))).expect("entered").expect("a port");
    let target = listener.local_addr().expect("bound");
    let connect = || TcpStream::connect_timeout(&target, PATIENCE);
    let stream = lab.enter(from, connect).expect("entered").expect("it is there");
    let filter = format!("( sport = :{0} or dport = :{0} )", target.port());
    let mut mss = None;
    // The end that is called is established only when it has the last message of the handshake.
    let found = wait_until(PATIENCE, || {
        let said = lab.run("b", "ss", &["-tinH", "state", "established", &filter]).expect("ss is there");
        mss = said.split_whitespace().find_map(|word| word.strip_prefix("mss:")?.parse::<u32>().ok());
        mss.is_some()
    });
    found.expect("ss shows the connection");
    drop(stream);
    // Time stamps take 12 bytes.
    12 + mss.expect("it is found")
}

#[test]
fn segments_of_tcp_are_clamped_where_that_is_set() {
    let Some((lab, a, b, publics)) = started() else { return };
    b.write(&lines(1, &publics[0], &["peer other allowed-ips fd66::/64", "address fd66::2/64"]));
    assert!(b.reload().contains("in force"));
    let with = |more: &[&str]| {
        let more: Vec<&str> =
            more.iter().copied().chain(["peer other allowed-ips fd66::/64", "address fd66::1/64"]).collect();
        a.write(&lines(0, &publics[1], &more));
        assert!(a.reload().contains("in force"));
        // What `a` announces when it calls and when it is called, over IPv4 and IPv6.
        [
            segment_size(&lab, "a", "b", "10.66.0.2"),
            segment_size(&lab, "b", "a", "10.66.0.1"),
            segment_size(&lab, "a", "b", "fd66::2"),
            segment_size(&lab, "b", "a", "fd66::1"),
        ]
    };
    assert_eq!(with(&[]), [1380, 1380, 1360, 1360]);
    assert_eq!(with(&["ip adjust-mss 1000"]), [1000, 1000, 1360, 1360]);
    assert_eq!(with(&["ip adjust-mss 1200", "ipv6 adjust-mss 900"]), [1200, 1200, 900, 900]);
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
    tcp_arrives_whole(&lab, "b", "a", "fd66::1", 1 << 20).expect("the tunnel carries");
    // A kernel that announces more than fits.
    for route in ["10.66.0.2/32 dev wg0 advmss 1460", "fd66::2/128 dev wg0 advmss 1440"] {
        lab.ip("a", &format!("route add {route}")).expect("a route");
    }
    assert_eq!(with(&["mtu 1300"]), [1380, 1380, 1360, 1360], "what fits at the other end");
    assert_eq!(with(&["mtu 1300", "ip adjust-mss clamp-mss-to-pmtu"]), [1260, 1260, 1360, 1360]);
    assert_eq!(with(&["mtu 1300", "ipv6 adjust-mss clamp-mss-to-pmtu"]), [1380, 1380, 1240, 1240]);
}

#[test]
fn a_wrong_file_is_refused_and_the_old_one_stays_in_force() {
    let Some((lab, a, _b, publics)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let before = a.peer("other")["latest_handshake"].clone();
    a.write(&lines(0, &publics[1], &["mtu 1300", "adress 10.0.0.1/8"]));
    let logged = a.reload();
    assert!(
        logged.contains("is unchanged") && logged.contains("unknown word \"adress\""),
        "the file was read, and refused: {logged}"
    );
    assert!(answers(&lab, "a", "10.66.0.2"));
    assert_eq!(a.peer("other")["latest_handshake"], before, "the session was kept");
    let link = lab.ip("a", "link show wg0").expect("it is there");
    assert!(link.contains("mtu 1420"), "nothing of the wrong file is in force: {link}");
    let output =
        std::process::Command::new(postern()).args(["run", "--check", "--config"]).arg(&a.file).output();
    let said = String::from_utf8_lossy(&output.expect("it runs").stderr).into_owned();
    assert!(
        said.contains(":10:30: unknown word \"adress\"") && said.contains("did you mean address?"),
        "{said}"
    );
}

#[test]
fn a_port_that_is_taken_stops_the_start() {
    let Some(mut lab) = sites() else { return };
    let taken = lab.take("a", "0.0.0.0:51820").expect("free");
    let mut site = Site::new(&lab, "a", &key_pair().0);
    site.write(&lines(0, &key_pair().1, &[]));
    let output = site.command(&lab).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("UDP port 51820 is in use") && said.contains("fix:"),
        "{said}"
    );
    assert!(lab.ip("a", "link show wg0").is_err(), "nothing is left behind");
    drop(taken);
    site.start(&mut lab);
}

#[test]
fn a_tunnel_for_everything_does_not_swallow_itself() {
    let Some((mut lab, a, _b, publics)) = started() else { return };
    a.write(&lines(0, &publics[1], &["peer other allowed-ips 0.0.0.0/0"]));
    a.signal(Signal::HUP);
    let ruled = |lab: &Lab| lab.ip("a", "rule show").is_ok_and(|text| text.contains("0xca6c"));
    wait_until(PATIENCE, || ruled(&lab)).expect("policy routing is set up");
    let route = lab.ip("a", "route get 203.0.113.1").expect("it is routed");
    assert!(route.contains("dev wg0"), "{route}");
    assert!(answers(&lab, "a", "10.66.0.2"), "the tunnel's own datagrams still go outside");
    a.signal(Signal::TERM);
    let process = a.process.expect("it was started");
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    assert!(ruled(&lab), "what it protected stays closed");
    open(&lab).expect("it opens");
    assert!(!ruled(&lab), "the rules are gone");
}
