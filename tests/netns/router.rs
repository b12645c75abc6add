//! The router of a site: what the machine itself does for the devices behind it.

use crate::support::{PATIENCE, lab, postern};
use lab::files::Files;
use lab::postern::Postern;
use lab::{Lab, Process, wait_until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::time::Duration;

/// The router's address outside, which the provider knows, and a device inside, which it does not.
pub const OUTSIDE: &str = "192.0.2.1";
pub const PROVIDER: &str = "192.0.2.9";
pub const DEVICE: &str = "10.2.0.9";
/// What waits is looked at every 15 seconds.
const LOOKED_AT: Duration = Duration::from_secs(60);

pub const FORWARDING: &str = "set system ip forwarding\n";
const NAT: &str = "\
    set nat source rule 10 destination address 192.0.2.9\n\
    set nat source rule 10 protocol tcp\n\
    set nat source rule 10 destination port 7000-7009\n\
    set nat source rule 10 exclude\n\
    set nat source rule 20 outbound-interface name wan*\n\
    set nat source rule 20 source address 10.2.0.0/24\n\
    set nat source rule 20 translation address masquerade\n\
    set nat destination rule 10 inbound-interface name !lan\n\
    set nat destination rule 10 protocol tcp\n\
    set nat destination rule 10 destination port 8080,8081\n\
    set nat destination rule 10 translation address 10.2.0.9\n\
    set nat destination rule 10 translation port 80\n";

/// A router between a device and its provider.
pub struct Site {
    pub lab: Lab,
    pub gateway: Postern,
    pub process: Process,
    pub root: Files,
}

impl Site {
    pub fn start(text: &str) -> Option<Self> {
        Self::start_with(text, |_| {})
    }

    pub fn start_with(text: &str, prepare: impl FnOnce(&Lab)) -> Option<Self> {
        let mut lab = lab(&["device", "router", "provider"])?;
        lab.connect(("device", "lan", "10.2.0.9/24"), ("router", "lan", "10.2.0.1/24")).expect("veth");
        lab.connect(("router", "wan0", "192.0.2.1/24"), ("provider", "wan0", "192.0.2.9/24")).expect("veth");
        lab.ip("device", "route add default via 10.2.0.1").expect("a route");
        lab.run("router", "sysctl", &["-qw", "net.ipv4.ip_forward=0"]).expect("it does not forward");
        prepare(&lab);
        let mut gateway = Postern::new(&lab, "router", postern()).expect("a folder");
        gateway.write(text);
        // A machine has one daemon that changes it. Here several run, each with a kernel of its own as far as this matters.
        let root = Files::default();
        std::os::unix::fs::symlink("/proc", root.path().join("proc")).expect("a folder");
        let process = Self::run(&mut lab, &mut gateway, &root);
        Some(Self { lab, gateway, process, root })
    }

    pub fn run(lab: &mut Lab, gateway: &mut Postern, root: &Files) -> Process {
        let root = root.path().display().to_string();
        gateway.start_with(lab, &["run", "--machine-root", &root], "info", LOOKED_AT).expect("it starts")
    }

    pub fn ask(&self, words: &[&str]) -> Output {
        Command::new(postern()).args(words).arg("--api").arg(&self.gateway.socket).output().expect("it runs")
    }

    pub fn show(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn reload(&self, text: &str) -> (bool, String) {
        self.gateway.write(text);
        let output = self.ask(&["reload"]);
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    pub fn reaches_the_provider(&self) -> bool {
        self.lab.run("device", "ping", &["-c", "1", "-W", "1", PROVIDER]).is_ok()
    }

    pub fn table(&self) -> String {
        self.lab.run("router", "nft", &["list", "table", "inet", "postern-nat"]).unwrap_or_default()
    }

    pub fn forwards(&self) -> String {
        self.lab.run("router", "sysctl", &["-n", "net.ipv4.ip_forward"]).expect("a value").trim().to_owned()
    }

    /// Connections that a rule has translated.
    pub fn connections(&self, rule: &str) -> u64 {
        let shown = self.show(&["show", "nat"]);
        let line = shown.lines().find(|line| line.starts_with(rule));
        let line = line.unwrap_or_else(|| panic!("{rule}: {shown}"));
        line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a number")
    }

    /// Connects from one namespace to `to`, where a server in another listens on `at`; from where the server sees it.
    pub fn connection(&self, from: &str, to: &str, server: &str, at: &str) -> Option<SocketAddr> {
        let listener = self.lab.enter(server, || TcpListener::bind(at)).expect("a namespace").expect("free");
        let to: SocketAddr = to.parse().expect("literal");
        let stream = self.lab.enter(from, || TcpStream::connect_timeout(&to, Duration::from_secs(2)));
        let mut client = stream.expect("a namespace").ok()?;
        let (mut served, seen) = listener.accept().expect("it is there");
        client.write_all(b"hello").expect("open");
        let mut read = [0; 5];
        served.read_exact(&mut read).expect("open");
        assert_eq!(&read, b"hello");
        Some(seen)
    }
}

#[test]
fn devices_reach_the_provider_by_the_address_of_the_router_and_are_reached_by_its_ports() {
    let Some(site) = Site::start(&[FORWARDING, NAT].concat()) else { return };
    assert_eq!(site.forwards(), "1", "{}", site.gateway.logged());
    wait_until(PATIENCE, || site.reaches_the_provider()).expect("the device reaches the provider");
    let seen = site.connection("device", "192.0.2.9:9000", "provider", "192.0.2.9:9000").expect("connected");
    assert_eq!(seen.ip().to_string(), OUTSIDE, "the source is the router's");
    for port in ["192.0.2.1:8080", "192.0.2.1:8081"] {
        let seen = site.connection("provider", port, "device", "10.2.0.9:80").expect("connected");
        assert_eq!(seen.ip().to_string(), PROVIDER);
    }
    // What is excluded keeps its source, which the provider has no way back to.
    assert_eq!(site.connection("device", "192.0.2.9:7005", "provider", "192.0.2.9:7005"), None);
    assert!(site.connections("source 10") >= 1 && site.connections("source 20") >= 2);
    assert_eq!(site.connections("destination 10"), 2);
    let json: serde_json::Value = serde_json::from_str(&site.show(&["show", "nat", "--json"])).expect("JSON");
    assert_eq!(json["rules"][1]["translation"], "masquerade", "{json}");
    assert_eq!(json["rules"][2]["destination"], "any:8080,8081", "{json}");

    // Another program takes the table away.
    site.lab.run("router", "nft", &["delete", "table", "inet", "postern-nat"]).expect("deleted");
    wait_until(PATIENCE, || site.table().contains("masquerade")).expect("it is put back");
    assert!(site.gateway.logged().contains("postern-nat went and is put back"), "{}", site.gateway.logged());

    // A rule goes, and the rest stays.
    let without: String = NAT
        .lines()
        .filter(|line| !line.contains("destination rule"))
        .map(|line| format!("{line}\n"))
        .collect();
    let (done, said) = site.reload(&[FORWARDING, &without].concat());
    assert!(done, "{said}");
    assert!(!site.table().contains("dnat") && site.table().contains("masquerade"), "{}", site.table());
    assert_eq!(site.connection("provider", "192.0.2.1:8080", "device", "10.2.0.9:80"), None);

    // All of it goes, and the kernel is as it was.
    let (done, said) = site.reload("set system allow-empty\n");
    assert!(done, "{said}");
    assert_eq!((site.table(), site.forwards()), (String::new(), "0".to_owned()));
    assert!(site.show(&["show", "nat"]).contains("there is no rule"));
}

#[test]
fn a_wrong_rule_changes_nothing_and_the_rules_outlive_a_killed_daemon() {
    let Some(mut site) = Site::start(&[FORWARDING, NAT].concat()) else { return };
    let before = site.table();
    assert!(before.contains("comment \"source 20\""), "{before}");
    for (wrong, said) in [
        (
            "set nat source rule 30 outbound-interface name wan0\n",
            "set nat source rule 30 translation address masquerade",
        ),
        ("set nat destination rule 30 translation port 80\n", "set nat destination rule 30 protocol tcp_udp"),
        ("set system ip disable-forwarding\n", "delete system ip disable-forwarding"),
    ] {
        let (done, answer) = site.reload(&[FORWARDING, NAT, wrong].concat());
        assert!(!done && answer.contains(said), "{answer}");
    }
    assert!(site.table().contains("comment \"source 20\""));
    assert_eq!(site.forwards(), "1");

    site.process.signal(rustix::process::Signal::KILL);
    wait_until(PATIENCE, || site.lab.ended(site.process).is_some()).expect("it is dead");
    assert!(site.reaches_the_provider(), "the kernel goes on");
    site.gateway.write(&[FORWARDING, "set nat source rule 20 translation address 192.0.2.1\n"].concat());
    site.process = Site::run(&mut site.lab, &mut site.gateway, &site.root);
    wait_until(PATIENCE, || site.table().contains("snat ip to 192.0.2.1"))
        .expect("what it was told meanwhile");
    assert!(!site.table().contains("masquerade") && !site.table().contains("dnat"), "{}", site.table());
    let seen = site.connection("device", "192.0.2.9:7005", "provider", "192.0.2.9:7005").expect("connected");
    assert_eq!(seen.ip().to_string(), OUTSIDE);
    assert!(
        site.lab.run("provider", "ping", &["-c", "1", "-W", "1", DEVICE]).is_err(),
        "there is no way inside"
    );
}

/// Addresses and routes of the router itself; the device behind it is on a bridge.
const NETWORK: &str = "\
    set interfaces bridge br0 member interface lan\n\
    set interfaces bridge br0 address 10.2.0.1/24\n\
    set interfaces ethernet wan0 address 192.0.2.1/24\n\
    set interfaces ethernet wan0 address fd02::1/64\n\
    set interfaces ethernet wan0 mtu 1400\n\
    set interfaces loopback lo address 10.255.0.1/32\n\
    set protocols static route 0.0.0.0/0 next-hop 192.0.2.9\n\
    set protocols static route 203.0.113.0/24 blackhole distance 5\n\
    set protocols static route6 fd99::/64 next-hop fd02::9\n";
/// Behind the provider.
const FAR: &str = "198.51.100.1";

impl Site {
    fn reaches_far(&self) -> bool {
        self.lab.run("device", "ping", &["-c", "1", "-W", "1", FAR]).is_ok()
    }

    fn ip(&self, words: &str) -> String {
        self.lab.ip("router", words).expect("ip")
    }

    fn has(&self, words: &str, what: &str) -> bool {
        self.ip(words).contains(what)
    }
}

fn without_addresses(lab: &Lab) {
    for link in ["lan", "wan0"] {
        lab.ip("router", &format!("address flush dev {link}")).expect("none");
        lab.ip("router", &format!("link set {link} down")).expect("down");
    }
    lab.ip("provider", &format!("address add {FAR}/32 dev lo")).expect("an address");
    lab.ip("provider", "link set lo up").expect("up");
}

#[test]
fn links_and_routes_are_those_of_the_configuration() {
    let text = [FORWARDING, NAT, NETWORK].concat();
    let Some(mut site) = Site::start_with(&text, without_addresses) else { return };
    wait_until(PATIENCE, || site.reaches_far()).unwrap_or_else(|error| {
        panic!("{error}: {}{}{}", site.ip("address"), site.ip("route"), site.gateway.logged())
    });
    assert!(site.has("link show dev wan0", "mtu 1400") && site.has("link show dev lan", "master br0"));
    assert!(
        site.has("address show dev lo", "10.255.0.1/32") && site.has("-6 route", "fd99::/64 via fd02::9")
    );
    assert!(site.has("route", "blackhole 203.0.113.0/24"), "{}", site.ip("route"));
    // What others have set is theirs.
    site.ip("address add 172.31.0.1/24 dev wan0");
    site.ip("route add 100.64.0.0/10 via 192.0.2.9");

    // Another program takes away an address, and with it the kernel the routes; or a route alone; or the whole bridge.
    for gone in ["address delete 192.0.2.1/24 dev wan0", "route delete default", "link delete br0"] {
        site.ip(gone);
        wait_until(PATIENCE, || site.reaches_far()).unwrap_or_else(|error| panic!("{gone}: {error}"));
    }
    let log = site.gateway.logged();
    assert!(log.contains("went and is put back") || log.contains("and 1 more"), "{log}");

    // A change of one line touches nothing else.
    let (done, said) = site.reload(&text.replace("10.255.0.1", "10.255.0.2"));
    assert!(done, "{said}");
    assert!(
        site.has("address show dev lo", "10.255.0.2/32") && !site.has("address show dev lo", "10.255.0.1/32")
    );
    assert!(site.reaches_far());

    // Everything outlives a killed daemon; what the configuration has lost meanwhile goes with the next start.
    site.process.signal(rustix::process::Signal::KILL);
    wait_until(PATIENCE, || site.lab.ended(site.process).is_some()).expect("it is dead");
    assert!(site.reaches_far(), "the kernel goes on");
    site.gateway.write("set interfaces ethernet wan0 address 192.0.2.1/24\n");
    site.process = Site::run(&mut site.lab, &mut site.gateway, &site.root);
    wait_until(PATIENCE, || !site.has("link", "br0")).expect("the bridge is gone");
    assert!(
        !site.has("route", "default") && !site.has("address show dev lo", "10.255.0.2"),
        "{}",
        site.ip("route")
    );
    assert!(!site.has("-6 address show dev wan0", "fd02::1"), "{}", site.ip("-6 address show dev wan0"));
    assert!(site.has("address show dev wan0", "192.0.2.1/24"));
    assert!(site.has("address show dev wan0", "172.31.0.1/24"), "that is another's");
    assert!(site.has("route", "100.64.0.0/10"), "so is that");
}

#[test]
fn what_is_not_there_is_waited_for_and_what_is_anothers_is_refused() {
    let Some(site) =
        Site::start_with("set interfaces ethernet wan0 address 192.0.2.1/24\n", without_addresses)
    else {
        return;
    };
    let text = "set interfaces ethernet wan0 address 192.0.2.1/24\nset interfaces ethernet usb0 address 10.9.0.1/24\n\
                set protocols static route 10.10.0.0/16 next-hop 10.9.0.9\n";
    let (_, said) = site.reload(text);
    assert!(said.contains("interfaces ethernet usb0") && said.contains("ip -brief link"), "{said}");
    assert!(site.has("address show dev wan0", "192.0.2.1/24"));
    site.ip("link add usb0 type veth peer name usb1");
    site.ip("link set usb1 up");
    wait_until(LOOKED_AT, || site.has("route", "10.10.0.0/16 via 10.9.0.9"))
        .unwrap_or_else(|error| panic!("{error}: {}", site.gateway.logged()));
    assert!(site.has("address show dev usb0", "10.9.0.1/24"));

    site.ip("link add br7 type bridge");
    let (done, said) = site.reload(&[text, "set interfaces bridge br7 address 10.7.0.1/24\n"].concat());
    assert!(!done && said.contains("br7 is there already, of another program"), "{said}");
    assert!(
        !site.has("address show dev br7", "10.7.0.1") && site.has("address show dev usb0", "10.9.0.1/24")
    );
}

#[test]
fn what_the_machine_has_of_its_own_is_there_again_when_lines_go_or_are_refused() {
    let Some(site) = Site::start_with("set system allow-empty\n", without_addresses) else { return };
    site.ip("address add 192.0.2.1/24 dev wan0");
    site.ip("link set wan0 up");
    site.ip("route add default via 192.0.2.9");
    site.ip("route add 10.50.0.0/16 via 192.0.2.9 metric 1");
    site.ip("link add br7 type bridge");
    let is_as_it_was = || {
        site.has("link show dev wan0", "mtu 1500")
            && site.has("address show dev wan0", "192.0.2.1/24")
            && site.has("route", "default via 192.0.2.9")
    };
    let own = "set interfaces ethernet wan0 address 192.0.2.1/24\nset interfaces ethernet wan0 mtu 1300\n";
    for (wrong, why) in [
        ("set interfaces bridge br7 address 10.7.0.1/24\n", "br7 is there already, of another program"),
        ("set protocols static route 10.50.0.0/16 next-hop 192.0.2.9\n", "set another distance"),
    ] {
        let output = site.ask(&["configure", "-c", "set system open-at-exit", "-c", "commit"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines: Vec<&str> = own.lines().chain(wrong.lines()).collect();
        let mut words = vec!["configure"];
        words.extend(lines.iter().flat_map(|line| ["-c", line]));
        let output = site.ask(&[&words[..], &["-c", "commit"]].concat());
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!output.status.success() && said.contains(why), "{said}");
        assert!(is_as_it_was(), "{why}: {}{}", site.ip("address show dev wan0"), site.ip("route"));
    }
    let (done, said) = site.reload(own);
    assert!(done && site.has("link show dev wan0", "mtu 1300"), "{said}");
    let (done, said) = site.reload("set system allow-empty\n");
    assert!(done && is_as_it_was(), "{said}: {}", site.ip("address show dev wan0"));
    // What another program sets of a link is no change of ours, and is not undone.
    let (done, said) = site.reload("set interfaces ethernet wan0 address 192.0.2.1/24\n");
    assert!(done, "{said}");
    site.ip("link set wan0 mtu 1440");
    let (done, said) = site.reload("set interfaces ethernet wan0 address 198.51.100.1/24\n");
    assert!(done && site.has("link show dev wan0", "mtu 1440"), "{said}");
    // A link that looks like ours and cannot be deleted keeps nothing else back.
    site.lab.run("router", "ip", &["link", "set", "lo", "alias", "made by postern"]).expect("named");
    let (done, said) = site.reload("set interfaces ethernet wan0 address 198.51.100.2/24\n");
    assert!(site.has("address show dev wan0", "198.51.100.2/24"), "{done} {said}");
}

#[test]
fn many_rules_of_nat_are_put_in_force_once() {
    let rules: String = (1..=1500)
        .map(|rule| {
            let (high, low) = (rule / 250, rule % 250 + 1);
            format!(
                "set nat source rule {rule} source address 10.{high}.{low}.0/24\n\
                 set nat source rule {rule} translation address 192.0.2.1\n"
            )
        })
        .collect();
    let Some(site) = Site::start(&[FORWARDING, &rules].concat()) else { return };
    assert_eq!(site.show(&["show", "nat"]).lines().count(), 1502);
    // Another program's change of its own table overflows nothing, and is none of ours.
    site.lab.run("router", "nft", &["add", "table", "inet", "other"]).expect("added");
    std::thread::sleep(Duration::from_secs(3));
    let log = site.gateway.logged();
    assert!(!log.contains("put back") && !log.contains("keeps deleting"), "{log}");
    site.lab.run("router", "nft", &["delete", "table", "inet", "postern-nat"]).expect("deleted");
    wait_until(PATIENCE, || site.table().contains("source 1500")).expect("it is put back");
}
