//! One of two sites with programs, `passtos` and a management interface over TCP. Its peer is in another network namespace, and has an
//! interface of the same name.

use crate::openvpn_ends::{CLIENT_END, Program, SERVER_END, path};
use crate::openvpn_sites::Sites;
use crate::support::{PATIENCE, ask};
use lab::wait_until;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const MANAGEMENT: &str = "127.0.0.1:7505";

impl Sites {
    /// Starts both ends with this interface; `a` has all that is asked about.
    fn start_with_programs(&mut self, interface: &str) {
        let file = |name: &str| path(&self.files, name).to_string_lossy().into_owned();
        let script = format!(
            "#!/bin/sh\necho \"$script_type $* dev=$dev trusted=$trusted_ip signal=$signal\" >> {}\n",
            file("told")
        );
        std::fs::write(file("hook"), script).expect("ours");
        std::fs::set_permissions(file("hook"), std::fs::Permissions::from_mode(0o755)).expect("ours");
        std::fs::write(file("password"), "s3cret\n").expect("ours");
        let common = format!("dev {interface}\ntls-crypt {}\nkeepalive 1 10\n", file("static.key"));
        let hook = file("hook");
        let own = format!(
            "remote 192.168.77.2\npasstos\nscript-security 2\nup {hook}\ndown {hook}\nipchange {hook}\n\
             management 127.0.0.1 7505 {}\n{common}",
            file("password"),
        );
        self.start(Program::Ours, SERVER_END, &common);
        let served = || shows(&Path::new("/run/postern").join(format!("{interface}.sock")), interface);
        assert!(wait_until(PATIENCE, served).is_ok(), "{}", self.logs());
        self.start(Program::Ours, CLIENT_END, &own);
        self.wait_until_connected();
    }

    fn told(&self) -> Vec<String> {
        let text = std::fs::read_to_string(path(&self.files, "told")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Sends packets with this DS field from `a`, each after the answer to the one before.
    fn send(&self, address: &str, count: &str, field: &str) {
        let sent = self.lab.run("a", "ping", &["-A", "-q", "-c", count, "-Q", field, address]);
        assert!(sent.is_ok(), "{sent:?}\n{}", self.logs());
    }

    /// The packets with DSCP EF that a site has received: outside in UDP, inside of IPv4, and inside of IPv6.
    fn expedited(&self, site: &str) -> Vec<u64> {
        let listed = self.lab.run(site, "nft", &["list", "table", "inet", "marks"]).expect("it is there");
        let counts = listed.split("packets ").skip(1);
        counts.map(|rest| rest.split(' ').next().and_then(|it| it.parse().ok()).expect("a count")).collect()
    }

    fn count_expedited(&self, site: &str, interface: &str) {
        let rules = format!(
            "table inet marks {{\nchain in {{\ntype filter hook prerouting priority -300\n\
             iifname outside meta l4proto udp ip dscp ef counter\niifname {interface} ip dscp ef counter\n\
             iifname {interface} ip6 dscp ef counter\n}}\n}}"
        );
        self.lab.run(site, "nft", &[&rules]).expect("nftables is there");
    }
}

/// Whether a socket has the API of a process with this interface.
fn shows(socket: &Path, interface: &str) -> bool {
    let is_there = std::os::unix::net::UnixStream::connect(socket).is_ok();
    is_there && ask(&["show", "offloads", "--api", &socket.to_string_lossy()]).to_string().contains(interface)
}

/// A program at the management interface, which reads until a line begins so.
struct Manager(BufReader<TcpStream>);

impl Manager {
    fn asks(&mut self, line: &str, begin: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("it is connected");
        let mut text = String::new();
        loop {
            let from = text.len();
            let read = self.0.read_line(&mut text);
            assert!(matches!(read, Ok(1..)), "{begin:?} has not come: {read:?}\n{text}");
            if text[from..].starts_with(begin) {
                return text;
            }
        }
    }
}

#[test]
fn a_site_runs_programs_copies_the_ds_field_and_is_managed_over_tcp() {
    let Some(mut sites) = Sites::new(&[]) else { return };
    let interface = sites.lab.interface("same");
    sites.start_with_programs(&interface);
    // Two processes have an interface of this name, and both are found.
    let namespace = Path::new("/run/netns").join(sites.lab.namespace("a"));
    let number = std::fs::metadata(namespace).expect("it is there").ino();
    let own = Path::new("/run/postern").join(format!("{interface}@{number}.sock"));
    assert!(shows(&own, &interface), "{}", sites.logs());
    // Programs: `up` before the peer is found.
    let told = || sites.told().len() >= 2;
    assert!(wait_until(PATIENCE, told).is_ok(), "{}", sites.logs());
    let lines = sites.told();
    assert!(lines[0].starts_with(&format!("up {interface} 1500 ")), "{lines:?}");
    assert!(lines[0].contains("10.9.0.2 10.9.0.1 init") && lines[0].contains("trusted= "), "{lines:?}");
    assert!(lines[1].starts_with("ipchange ") && lines[1].contains("192.168.77.2 1194"), "{lines:?}");
    assert!(lines[1].contains("trusted=192.168.77.2"), "{lines:?}");
    // The DS field outside is that of the packet inside; the peer has no `passtos`.
    for site in ["a", "b"] {
        sites.count_expedited(site, &interface);
    }
    sites.send("10.9.0.1", "20", "0xb8");
    assert_eq!(sites.expedited("b"), [20, 20, 0]);
    sites.send("fd09::1", "10", "0xb8");
    assert_eq!(sites.expedited("b"), [30, 20, 10]);
    sites.send("10.9.0.1", "5", "0");
    assert_eq!(sites.expedited("b"), [30, 20, 10], "without a mark inside");
    assert_eq!(sites.expedited("a")[0], 0, "answers are marked inside only");
    // The management interface is on the loopback interface of its namespace.
    let connect = || TcpStream::connect(MANAGEMENT);
    assert!(sites.lab.enter("b", connect).expect("it is there").is_err());
    let stream = sites.lab.enter("a", connect).expect("it is there").expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut manager = Manager(BufReader::new(stream));
    manager.asks("wrong", "ENTER PASSWORD:ERROR: bad password");
    manager.asks("s3cret", "ENTER PASSWORD:SUCCESS: password is correct");
    let state = manager.asks("state", "END");
    assert!(state.contains(",CONNECTED,SUCCESS,10.9.0.2,192.168.77.2,1194,"), "{state}");
    manager.asks("signal SIGTERM", "SUCCESS: signal SIGTERM thrown");
    let ended = || sites.told().iter().any(|line| line.starts_with(&format!("down {interface} 1500 ")));
    assert!(wait_until(PATIENCE, ended).is_ok(), "{:?}\n{}", sites.told(), sites.logs());
    assert!(sites.told().last().is_some_and(|line| line.contains("signal=sigterm")), "{:?}", sites.told());
}
