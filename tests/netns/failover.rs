//! `protocols failover`: a branch and its head office with WireGuard by one link, IPsec by another, and OpenVPN over TCP by a third.

use crate::daemon::key_pair;
use crate::ipsec::GROUPS;
use crate::openvpn_ends::write_keys;
use crate::openvpn_tree::body;
use crate::support::{PATIENCE, lab, postern};
use lab::postern::Postern;
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::net::UdpSocket;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// What waits is looked at every 15 seconds.
const LOOKED_AT: Duration = Duration::from_secs(60);
/// The links between the sites.
const LINKS: [&str; 3] = ["one", "two", "three"];
/// A device of the branch, and a server of head office.
const DEVICE: &str = "10.2.0.9";
const SERVER: &str = "10.1.0.9";

/// One of the two sites.
struct Site<'a> {
    own: u8,
    other: u8,
    name: &'a str,
    private: &'a str,
    public: &'a str,
}

impl Site<'_> {
    /// Its two tunnels to the other site.
    fn tunnels(&self) -> String {
        let Self { own, other, name, private, public } = self;
        let wireguard = format!("set interfaces wireguard wg0 peer {name}");
        let ipsec = format!("set vpn ipsec site-to-site peer {name}");
        format!(
            "set interfaces wireguard wg0 address 10.99.0.{own}/24
set interfaces wireguard wg0 private-key {private}
set interfaces wireguard wg0 port 51820
{wireguard} public-key {public}
{wireguard} address 198.51.100.{other}
{wireguard} port 51820
{wireguard} allowed-ips 10.{other}.0.0/24
{wireguard} allowed-ips 10.99.0.{other}/32
{wireguard} persistent-keepalive 1
{GROUPS}set vpn ipsec authentication psk sites id 203.0.113.1
set vpn ipsec authentication psk sites id 203.0.113.2
set vpn ipsec authentication psk sites secret right
{ipsec} authentication mode pre-shared-secret
{ipsec} ike-group SITES
{ipsec} default-esp-group SITES
{ipsec} connection-type initiate
{ipsec} local-address 203.0.113.{own}
{ipsec} remote-address 203.0.113.{other}
{ipsec} tunnel 1 local prefix 10.{own}.0.0/24
{ipsec} tunnel 1 remote prefix 10.{other}.0.0/24
{ipsec} tunnel 2 local prefix 10.97.0.{own}/32
{ipsec} tunnel 2 remote prefix 10.97.0.{other}/32
"
        )
    }

    /// A third tunnel, which may pass where only HTTPS does.
    fn openvpn(&self, files: &TempDir) -> String {
        let Self { own, other, .. } = self;
        let passive = ["protocol tcp-passive", "local-port 443", "tls role passive"].as_slice();
        let active = ["protocol tcp-active", "remote-host 198.18.0.1", "remote-port 443", "tls role active"];
        let (certificate, more) = if *own == 1 { ("server", passive) } else { ("client", active.as_slice()) };
        let pki = format!(
            "set pki ca ca certificate {}\nset pki certificate {certificate} certificate {}\n\
             set pki certificate {certificate} private key {}\n",
            body(files, "ca.pem"),
            body(files, &format!("{certificate}.pem")),
            body(files, &format!("{certificate}.key")),
        );
        let addresses = [
            "mode site-to-site".to_owned(),
            format!("local-address 10.98.0.{own}"),
            format!("remote-address 10.98.0.{other}"),
            "tls ca-certificate ca".to_owned(),
            format!("tls certificate {certificate}"),
            "keep-alive interval 1".to_owned(),
            "keep-alive failure-count 4".to_owned(),
        ];
        let lines = addresses.into_iter().chain(more.iter().map(|line| (*line).to_owned()));
        pki + &lines.map(|line| format!("set interfaces openvpn vtun0 {line}\n")).collect::<String>()
    }

    /// The group of both.
    fn group(&self) -> String {
        let Self { other, .. } = self;
        format!(
            "set protocols failover group sites prefix 10.{other}.0.0/24
set protocols failover group sites member 10 interface wg0
set protocols failover group sites member 20 interface ipsec0
set protocols failover group sites member 30 interface vtun0
set protocols failover group sites hold-time 2
set service path-monitor target wg address 10.99.0.{other}
set service path-monitor target wg interface wg0
set service path-monitor target ip address 10.97.0.{other}
set service path-monitor target ip interface ipsec0
set service path-monitor disable-mtu-search
"
        )
    }
}

struct Sites {
    lab: Lab,
    branch: Postern,
    office: Postern,
    process: Process,
    texts: [[String; 2]; 2],
}

impl Sites {
    fn start() -> Option<Self> {
        let mut lab = lab(&["device", "branch", "office", "server", "provider"][..])?;
        for (a, b) in [
            (("device", "lan", "10.2.0.9/24"), ("branch", "lan", "10.2.0.1/24")),
            (("server", "lan", "10.1.0.9/24"), ("office", "lan", "10.1.0.1/24")),
            (("branch", "one", "198.51.100.2/24"), ("office", "one", "198.51.100.1/24")),
            (("branch", "two", "203.0.113.2/24"), ("office", "two", "203.0.113.1/24")),
            (("branch", "three", "198.18.0.2/24"), ("office", "three", "198.18.0.1/24")),
            (("branch", "wan0", "192.0.2.1/24"), ("provider", "wan0", "192.0.2.9/24")),
        ] {
            lab.connect(a, b).expect("veth");
        }
        for (name, words) in [
            ("device", "route add default via 10.2.0.1"),
            ("server", "route add default via 10.1.0.1"),
            ("branch", "route add default via 192.0.2.9"),
            ("provider", "route add 10.2.0.0/24 via 192.0.2.1"),
            ("provider", "address add 10.1.0.9/32 dev lo"),
            ("branch", "address add 10.97.0.2/32 dev lo"),
            ("office", "address add 10.97.0.1/32 dev lo"),
        ] {
            lab.ip(name, words).expect("a route");
        }
        for name in ["branch", "office"] {
            let values =
                ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.wan0.rp_filter=0"];
            for value in values.iter().take(if name == "branch" { 3 } else { 2 }) {
                lab.run(name, "sysctl", &["-qw", value]).expect("it forwards, and filters nothing");
            }
        }
        // What leaves the branch in clear comes to the provider.
        let table = "table inet count { chain arriving { type filter hook prerouting priority 0; \
                     ip daddr 10.1.0.0/24 counter; }; }";
        lab.run("provider", "nft", &[table]).expect("nft is there");
        let (branch_keys, office_keys) = (key_pair(), key_pair());
        let sites = [
            Site { own: 2, other: 1, name: "office", private: &branch_keys.0, public: &office_keys.1 },
            Site { own: 1, other: 2, name: "branch", private: &office_keys.0, public: &branch_keys.1 },
        ];
        let files = tempfile::tempdir().expect("a folder");
        write_keys(&files);
        let texts = sites.map(|site| [site.tunnels() + &site.openvpn(&files), site.group()]);
        let mut branch = Postern::new(&lab, "branch", postern()).expect("a folder");
        let mut office = Postern::new(&lab, "office", postern()).expect("a folder");
        branch.write(&texts[0].concat());
        office.write(&texts[1].concat());
        office.start(&mut lab, "info", LOOKED_AT).expect("it starts");
        let process = branch.start(&mut lab, "info", LOOKED_AT).expect("it starts");
        Some(Self { lab, branch, office, process, texts })
    }

    fn pings(&self) -> bool {
        self.lab.run("device", "ping", &["-c", "1", "-W", "1", SERVER]).is_ok()
    }

    /// The interface that packets of the device to the server leave by.
    fn way(&self) -> String {
        let asked = format!("route get {SERVER} from {DEVICE} iif lan");
        let found = self.lab.ip("branch", &asked).unwrap_or_else(|error| error.to_string());
        let mut words = found.split_whitespace().skip_while(|word| *word != "dev");
        words.nth(1).unwrap_or_default().to_owned()
    }

    /// Packets that came to the provider in clear.
    fn in_clear(&self) -> u64 {
        let shown =
            self.lab.run("provider", "nft", &["list", "table", "inet", "count"]).expect("it is there");
        let mut words = shown.split_whitespace().skip_while(|word| *word != "packets");
        words.nth(1).and_then(|word| word.parse().ok()).expect("a number")
    }

    /// Whether the device gets a packet in clear from the provider with this source.
    fn arrives(&self, source: &str) -> bool {
        let bound = |name: &str, at: (&str, u16)| {
            self.lab.enter(name, || UdpSocket::bind(at)).expect("entered").expect("it is free")
        };
        // Any port: a child that another test has just made may still have the last one.
        let (receiver, sender) = (bound("device", (DEVICE, 0)), bound("provider", (source, 0)));
        let to = receiver.local_addr().expect("it is bound");
        receiver.set_read_timeout(Some(Duration::from_millis(500))).expect("a time");
        sender.send_to(b"from outside", to).expect("sent");
        receiver.recv(&mut [0; 64]).is_ok()
    }

    fn shown(gateway: &Postern, more: &[&str]) -> String {
        let output = Self::ask(gateway, &[&["failover"], more].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn ask(gateway: &Postern, words: &[&str]) -> Output {
        let socket = gateway.socket.to_string_lossy();
        Command::new(postern()).arg("show").args(words).args(["--api", &socket]).output().expect("it runs")
    }

    /// The interface that a site uses.
    fn used(gateway: &Postern) -> String {
        let json: Value = serde_json::from_str(&Self::shown(gateway, &["--json"])).expect("JSON");
        let members = json["groups"][0]["members"].as_array().cloned().unwrap_or_default();
        let used = members.iter().find(|member| member["is_used"] == true);
        used.and_then(|member| member["interface"].as_str()).unwrap_or_default().to_owned()
    }

    /// Waits until both sites use an interface, and packets pass.
    fn becomes(&self, interface: &str) {
        let both = || [&self.branch, &self.office].iter().all(|site| Self::used(site) == interface);
        wait_until(2 * PATIENCE, both).unwrap_or_else(|error| {
            panic!("{interface}: {error}: {}\n{}", Self::shown(&self.branch, &[]), self.branch.logged())
        });
        wait_until(PATIENCE, || self.arrives("192.0.2.9")).expect("what is not of head office arrives");
        assert!(!self.arrives(SERVER), "in clear from head office, by {interface}");
        wait_until(PATIENCE, || self.pings()).unwrap_or_else(|error| {
            let rules = self.lab.ip("branch", "route show table all").unwrap_or_default();
            panic!("{interface}: {error}\n{rules}\n{}", self.branch.logged())
        });
    }

    fn reload(&self, with_group: bool) {
        for (gateway, [tunnels, group]) in [&self.branch, &self.office].into_iter().zip(&self.texts) {
            gateway.write(&if with_group { [&**tunnels, group].concat() } else { tunnels.clone() });
            let socket = gateway.socket.to_string_lossy();
            let output =
                Command::new(postern()).args(["reload", "--api", &socket]).output().expect("it runs");
            assert!(output.status.success(), "{output:?}");
        }
    }
}

#[test]
fn packets_take_the_first_tunnel_that_is_up_and_none_leaves_in_clear() {
    let Some(mut sites) = Sites::start() else { return };
    let socket = sites.lab.enter("device", || UdpSocket::bind((DEVICE, 0))).expect("entered").expect("free");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A stream of packets, so that there is something that could leave.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = socket.send_to(b"in clear", (SERVER, 7777));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| watch(&mut sites)));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = watched {
            std::panic::resume_unwind(panic);
        }
    });
    assert_eq!(sites.in_clear(), 0);
}

fn watch(sites: &mut Sites) {
    // The first that is up may be another one.
    wait_until(PATIENCE, || Sites::shown(&sites.branch, &[]).matches(" up ").count() == 3)
        .unwrap_or_else(|error| panic!("{error}: {}", Sites::shown(&sites.branch, &[])));
    sites.becomes("wg0");
    assert_eq!(sites.way(), "wg0");

    sites.lab.ip("office", "link set one down").expect("set");
    sites.becomes("ipsec0");
    assert_eq!(sites.way(), "ipsec0");
    assert!(
        sites.branch.logged().contains("group sites: packets take ipsec0 (peer office) now, and not wg0")
    );
    let shown = Sites::shown(&sites.branch, &[]);
    assert!(shown.starts_with("sites: 10.1.0.0/24, switched once; back after 2 s\n"), "{shown}");
    let health = || String::from_utf8(Sites::ask(&sites.branch, &["health"]).stdout).expect("text");
    let told = "Packets to 10.1.0.0/24 take ipsec0 (peer office), and not wg0 (peer office).";
    wait_until(PATIENCE, || health().contains(told)).unwrap_or_else(|error| panic!("{error}: {}", health()));

    sites.lab.ip("office", "link set two down").expect("set");
    sites.becomes("vtun0");
    assert_eq!(sites.way(), "vtun0");
    sites.lab.ip("office", "link set two up").expect("set");
    sites.becomes("ipsec0");
    sites.lab.ip("office", "link set one up").expect("set");
    sites.becomes("wg0");
    assert_eq!(sites.way(), "wg0");

    // All of them: nothing is better than what is used.
    for link in LINKS {
        sites.lab.ip("office", &format!("link set {link} down")).expect("set");
    }
    std::thread::sleep(Duration::from_secs(8));
    assert!(!sites.pings() && !sites.arrives(SERVER));
    assert_eq!(sites.in_clear(), 0, "{}", sites.branch.logged());
    for link in LINKS {
        sites.lab.ip("office", &format!("link set {link} up")).expect("set");
    }
    sites.becomes("wg0");

    // Without the group policies of IPsec precede all routes, as before.
    sites.reload(false);
    wait_until(PATIENCE, || sites.way() == "ipsec0" && sites.pings()).expect("by IPsec");
    sites.reload(true);
    sites.becomes("wg0");

    // It dies while its first tunnel is down, and the next one begins anew.
    sites.lab.ip("office", "link set one down").expect("set");
    sites.becomes("ipsec0");
    sites.process.signal(Signal::KILL);
    wait_until(PATIENCE, || sites.lab.ended(sites.process).is_some()).expect("it is dead");
    assert!(!sites.pings());
    assert_eq!(sites.in_clear(), 0);
    sites.process = sites.branch.start(&mut sites.lab, "info", LOOKED_AT).expect("it starts");
    sites.becomes("ipsec0");
    assert_eq!(sites.in_clear(), 0, "{}", sites.branch.logged());
}
