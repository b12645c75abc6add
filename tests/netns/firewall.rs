//! The zone firewall of a site's router, with packets that pass it and packets that must not.

use crate::router::{DEVICE, FORWARDING, PROVIDER, Site};
use crate::support::PATIENCE;
use lab::{Lab, wait_until};
use rustix::net::sockopt::set_ipv6_unicast_hops;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const STATES: &str = "\
    set system ipv6 forwarding\n\
    set firewall global-options state-policy established action accept\n\
    set firewall global-options state-policy related action accept\n\
    set firewall global-options state-policy invalid action drop\n";
const ZONES: &str = "\
    set firewall zone LAN member interface lan\n\
    set firewall zone WAN member interface wan0\n\
    set firewall zone WAN from LAN firewall name OUT\n\
    set firewall zone WAN from LAN firewall ipv6-name OUT6\n\
    set firewall ipv4 name OUT default-action accept\n\
    set firewall ipv4 name OUT rule 10 action reject\n\
    set firewall ipv4 name OUT rule 10 protocol tcp_udp\n\
    set firewall ipv4 name OUT rule 10 destination port 25,137-139\n\
    set firewall ipv4 name OUT rule 20 action drop\n\
    set firewall ipv4 name OUT rule 20 protocol tcp\n\
    set firewall ipv4 name OUT rule 20 destination address 192.0.2.0/24\n\
    set firewall ipv4 name OUT rule 20 destination port 26\n\
    set firewall ipv6 name OUT6 rule 10 action accept\n\
    set firewall ipv6 name OUT6 rule 10 protocol ipv6-icmp\n\
    set firewall ipv6 name OUT6 rule 10 icmpv6 type-name echo-request\n";
/// What the machine itself lets in and out.
const LOCAL: &str = "\
    set firewall zone ME local-zone\n\
    set firewall zone ME default-action reject\n\
    set firewall zone ME from LAN firewall name IN\n\
    set firewall zone ME from LAN firewall ipv6-name IN6\n\
    set firewall zone WAN from ME firewall name SENT\n\
    set firewall ipv4 name IN rule 10 action accept\n\
    set firewall ipv4 name IN rule 10 protocol tcp\n\
    set firewall ipv4 name IN rule 10 destination port 22\n\
    set firewall ipv6 name IN6 rule 10 action accept\n\
    set firewall ipv6 name IN6 rule 10 protocol ipv6-icmp\n\
    set firewall ipv6 name IN6 rule 10 icmpv6 type-name echo-request\n\
    set firewall ipv4 name SENT rule 10 action accept\n\
    set firewall ipv4 name SENT rule 10 protocol icmp\n\
    set firewall ipv4 name SENT rule 10 icmp type-name echo-request\n";

fn start(text: &str) -> Option<Site> {
    Site::start_with(text, prepare)
}

fn prepare(lab: &Lab) {
    for (name, words) in [
        ("provider", "route add 10.2.0.0/24 via 192.0.2.1"),
        ("device", "address add fd01::9/64 dev lan nodad"),
        ("router", "address add fd01::1/64 dev lan nodad"),
        ("router", "address add fd02::1/64 dev wan0 nodad"),
        ("provider", "address add fd02::9/64 dev wan0 nodad"),
        ("device", "-6 route add default via fd01::1"),
        ("provider", "-6 route add default via fd02::1"),
        ("device", "link set lo up"),
        ("router", "link set lo up"),
    ] {
        lab.ip(name, words).unwrap_or_else(|error| panic!("{name}: {words}: {error}"));
    }
}

fn pings(lab: &Lab, from: &str, to: &str) -> bool {
    lab.run(from, "ping", &["-c", "1", "-W", "1", to]).is_ok()
}

/// How a connection to a server that listens goes.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Open,
    Refused,
    Silent,
}

fn connects(lab: &Lab, from: &str, server: &str, to: &str) -> Outcome {
    let to: SocketAddr = to.parse().expect("literal");
    let listener = lab.enter(server, || TcpListener::bind(to)).expect("a namespace").expect("free");
    let tried = lab.enter(from, || TcpStream::connect_timeout(&to, Duration::from_secs(1)));
    drop(listener);
    match tried.expect("a namespace") {
        Ok(_) => Outcome::Open,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Outcome::Refused,
        Err(_) => Outcome::Silent,
    }
}

fn table(site: &Site) -> String {
    site.lab.run("router", "nft", &["list", "table", "inet", "postern-firewall"]).unwrap_or_default()
}

/// Packets of a line of `show firewall`, in the part that begins so.
fn counted(site: &Site, part: &str, rule: &str) -> u64 {
    let shown = site.show(&["show", "firewall"]);
    let lines = shown.lines().skip_while(|line| *line != part);
    let line = lines.into_iter().find(|line| line.split_whitespace().next() == Some(rule));
    let line = line.unwrap_or_else(|| panic!("{part} {rule}: {shown}"));
    let mut words = line.split_whitespace().rev();
    words.nth(1).and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn what_zones_allow_passes_with_its_answers_and_nothing_else_does() {
    let Some(site) = start(&[FORWARDING, STATES, ZONES].concat()) else { return };
    let lab = &site.lab;
    wait_until(PATIENCE, || pings(lab, "device", PROVIDER)).expect("out, and its answer in");
    assert!(!pings(lab, "provider", DEVICE), "{}", table(&site));
    assert_eq!(connects(lab, "device", "provider", "192.0.2.9:80"), Outcome::Open);
    assert_eq!(connects(lab, "device", "provider", "192.0.2.9:25"), Outcome::Refused, "by the router");
    assert_eq!(connects(lab, "device", "provider", "192.0.2.9:138"), Outcome::Refused);
    assert_eq!(connects(lab, "device", "provider", "192.0.2.9:26"), Outcome::Silent);
    assert_eq!(connects(lab, "provider", "device", "10.2.0.9:80"), Outcome::Silent);
    // Rule sets are for one version of IP.
    assert!(pings(lab, "device", "fd02::9") && !pings(lab, "provider", "fd01::9"));
    assert_eq!(connects(lab, "device", "provider", "[fd02::9]:80"), Outcome::Silent);
    // A zone without a local one leaves the machine alone.
    assert!(pings(lab, "provider", "192.0.2.1") && pings(lab, "router", DEVICE));

    assert!(counted(&site, "ipv4 name OUT", "10") >= 2 && counted(&site, "ipv4 name OUT", "20") >= 1);
    assert!(counted(&site, "ipv4 name OUT", "default") >= 2);
    let json: serde_json::Value =
        serde_json::from_str(&site.show(&["show", "firewall", "--json"])).expect("JSON");
    assert_eq!(json["zones"][0]["interfaces"][0], "lan", "{json}");
    assert!(json["zones"][0]["default_count"]["packets"].as_u64() >= Some(2), "{json}");
    assert!(json["rule_sets"][1]["rules"][0]["count"]["bytes"].as_u64() >= Some(64), "{json}");
    let zones = site.show(&["show", "firewall", "zone-policy"]);
    assert!(zones.contains("OUT6") && !zones.contains("echo-request"), "{zones}");

    // An interface of no zone, and the zones.
    let without: String = ZONES
        .lines()
        .filter(|line| !line.contains("interface lan"))
        .map(|line| format!("{line}\n"))
        .collect();
    let (done, said) = site.reload(&[FORWARDING, STATES, &without].concat());
    assert!(!done && said.contains("set firewall zone LAN member interface IF"), "{said}");
    let (done, said) = site.reload(&[FORWARDING, "set firewall zone WAN member interface wan0\n"].concat());
    assert!(done, "{said}");
    assert!(
        site.gateway.logged().contains("state-policy related action accept"),
        "{}",
        site.gateway.logged()
    );
    assert!(!pings(lab, "device", PROVIDER) && !pings(lab, "provider", DEVICE));
    // All of it goes.
    let (done, said) = site.reload(FORWARDING);
    assert!(done, "{said}");
    assert!(pings(lab, "device", PROVIDER) && pings(lab, "provider", DEVICE));
    assert_eq!(table(&site), "");
    assert!(site.show(&["show", "firewall"]).contains("there is no zone"));
}

#[test]
fn the_machine_itself_is_a_zone_in_which_neighbours_are_found() {
    let Some(site) = start(&[FORWARDING, STATES, ZONES, LOCAL].concat()) else { return };
    let lab = &site.lab;
    wait_until(PATIENCE, || pings(lab, "device", PROVIDER)).expect("the rest goes on");
    assert_eq!(connects(lab, "device", "router", "10.2.0.1:22"), Outcome::Open, "{}", table(&site));
    assert_eq!(connects(lab, "device", "router", "10.2.0.1:23"), Outcome::Silent, "by its rule set");
    assert_eq!(connects(lab, "provider", "router", "192.0.2.1:22"), Outcome::Refused, "by the zone");
    assert!(!pings(lab, "provider", "192.0.2.1"));
    assert!(pings(lab, "router", PROVIDER) && !pings(lab, "router", DEVICE), "{}", table(&site));
    assert_eq!(connects(lab, "router", "provider", "192.0.2.9:80"), Outcome::Silent);
    assert!(pings(lab, "router", "127.0.0.1"));
    assert_eq!(connects(lab, "router", "router", "127.0.0.1:8080"), Outcome::Open);
    assert_eq!(connects(lab, "router", "router", "10.2.0.1:8080"), Outcome::Open, "it is the machine, by lo");
    // Neighbours are found anew.
    for name in ["device", "router", "provider"] {
        lab.ip(name, "neighbour flush all").expect("flushed");
    }
    assert!(pings(lab, "device", "fd01::1") && pings(lab, "device", "fd02::9"), "{}", table(&site));
    assert!(!pings(lab, "provider", "fd02::1"));
    // The path MTU of a later link is told to the sender, as state related.
    lab.ip("router", "link set wan0 mtu 1300").expect("an MTU");
    let large =
        |size: &str| lab.run("device", "ping", &["-c", "2", "-W", "1", "-M", "do", "-s", size, PROVIDER]);
    large("1372").expect_err("it does not fit");
    large("1200").expect("it fits");
    let route = lab.ip("device", &format!("route get {PROVIDER}")).expect("a route");
    assert!(route.contains("mtu 1300"), "{route}");

    let (done, said) =
        site.reload(&[FORWARDING, STATES, ZONES, &LOCAL.replace("port 22", "port 23")].concat());
    assert!(done, "{said}");
    let log = site.gateway.logged();
    assert!(log.contains("no rule lets in new connections to SSH (TCP port 22); to let"), "{log}");
}

#[test]
fn the_table_outlives_the_daemon_and_is_put_back_if_it_is_taken_away() {
    let Some(mut site) = start(&[FORWARDING, STATES, ZONES].concat()) else { return };
    wait_until(PATIENCE, || pings(&site.lab, "device", PROVIDER)).expect("out");
    site.lab.run("router", "nft", &["delete", "table", "inet", "postern-firewall"]).expect("deleted");
    wait_until(PATIENCE, || table(&site).contains("to-WAN")).expect("it is put back");
    let said = || site.gateway.logged().contains("postern-firewall went and is put back");
    wait_until(PATIENCE, said).expect("a line of the log");
    let open = "add rule inet postern-firewall to-LAN accept";
    site.lab
        .run("router", "nft", &["insert", "rule", "inet", "postern-firewall", "to-LAN", "accept"])
        .expect(open);
    wait_until(PATIENCE, || !pings(&site.lab, "provider", DEVICE)).expect("what was added is gone");

    // What is wrong changes nothing.
    let before = table(&site);
    for (wrong, said) in [
        ("set firewall zone DMZ member interface wan0\n", "has it, too"),
        ("set firewall ipv4 name OUT rule 30 protocol tcp\n", "rule 30 action accept, drop or reject"),
    ] {
        let (done, answer) = site.reload(&[FORWARDING, STATES, ZONES, wrong].concat());
        assert!(!done && answer.contains(said), "{answer}");
    }
    let rules = |text: &str| {
        let words = text.split_whitespace().filter(|word| word.parse::<u64>().is_err());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rules(&table(&site)), rules(&before));

    site.process.signal(rustix::process::Signal::KILL);
    wait_until(PATIENCE, || site.lab.ended(site.process).is_some()).expect("it is dead");
    assert!(pings(&site.lab, "device", PROVIDER) && !pings(&site.lab, "provider", DEVICE));
    // The next daemon takes over what it is told meanwhile.
    site.gateway.write(
        &[FORWARDING, STATES, &ZONES.replace("OUT default-action accept", "OUT default-action drop")]
            .concat(),
    );
    site.process = Site::run(&mut site.lab, &mut site.gateway, &site.root);
    wait_until(PATIENCE, || !pings(&site.lab, "device", PROVIDER)).expect("what it is told meanwhile");
}

/// Ends threads when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// UDP packets from the provider to the device, which no policy allows. The sockets are made once: a program that another
/// test starts holds a copy of each until its `exec`, so that an address is not always free again at once.
struct Forbidden {
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Forbidden {
    fn new(site: &Site) -> Self {
        let socket = |name: &str, at: &str| {
            site.lab.enter(name, || UdpSocket::bind(at)).expect("a namespace").expect("free")
        };
        let receiver = socket("device", "10.2.0.9:7777");
        receiver.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        Self { sender: socket("provider", "192.0.2.9:0"), receiver }
    }

    /// Sends as long as others are changed; how many arrived, and how many were sent.
    fn during(&self, site: &mut Site, mut change: impl FnMut(&mut Site)) -> (u64, u64) {
        let (stop, arrived, sent) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            // Also if an assertion of `change` fails.
            let _stops = Stops(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let received = self.receiver.recv(&mut [0; 64]).is_ok();
                    arrived.fetch_add(u64::from(received), Ordering::Relaxed);
                }
            });
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let was_sent = self.sender.send_to(b"forbidden", "10.2.0.9:7777").is_ok();
                    sent.fetch_add(u64::from(was_sent), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
            change(site);
        });
        (arrived.load(Ordering::Relaxed), sent.load(Ordering::Relaxed))
    }
}

#[test]
fn nothing_that_is_forbidden_passes_while_policies_are_replaced() {
    let Some(mut site) = start(&[FORWARDING, STATES, ZONES].concat()) else { return };
    wait_until(PATIENCE, || pings(&site.lab, "device", PROVIDER)).expect("out");
    let forbidden = Forbidden::new(&site);
    // Names change, interfaces change their zones, rules come and go: the packets are in none of these policies.
    let others = [
        ZONES.replace("WAN", "NET"),
        ZONES.replace("OUT default-action accept", "OUT default-action drop"),
        "set firewall zone ALL member interface wan0\nset firewall zone ALL member interface lan\n\
         set firewall zone ALL intra-zone-filtering action drop\n"
            .to_owned(),
        format!("{ZONES}set firewall zone GUEST member interface guest0\n"),
        ZONES.to_owned(),
    ];
    let (arrived, sent) = forbidden.during(&mut site, |site| {
        for other in others.iter().cycle().take(20) {
            let (done, said) = site.reload(&[FORWARDING, STATES, other].concat());
            assert!(done, "{said}");
        }
        site.process.signal(rustix::process::Signal::KILL);
        wait_until(PATIENCE, || site.lab.ended(site.process).is_some()).expect("it is dead");
        site.process = Site::run(&mut site.lab, &mut site.gateway, &site.root);
        std::thread::sleep(Duration::from_millis(300));
    });
    assert!(sent > 1000, "only {sent} were sent");
    assert_eq!(arrived, 0, "of {sent}: {}", table(&site));
    assert!(pings(&site.lab, "device", PROVIDER), "{}", table(&site));
    // The same packets arrive without a policy: the test would see them.
    let (arrived, sent) = forbidden.during(&mut site, |site| {
        let (done, said) = site.reload(FORWARDING);
        assert!(done, "{said}");
        std::thread::sleep(Duration::from_millis(300));
    });
    assert!(arrived > 0, "of {sent}");
}

#[test]
fn an_interface_that_leaves_its_zone_as_it_is_set_down_passes_nothing_on_the_way() {
    let up = "set interfaces ethernet wan0 address 192.0.2.1/24\n";
    let Some(mut site) = start(&[FORWARDING, STATES, up, ZONES].concat()) else { return };
    wait_until(PATIENCE, || pings(&site.lab, "device", PROVIDER)).expect("out");
    let forbidden = Forbidden::new(&site);
    let (arrived, sent) = forbidden.during(&mut site, |site| {
        for _ in 0..5 {
            // Without zones nothing is forbidden, and there is no way in.
            let down = [FORWARDING, "set interfaces ethernet wan0 disable\n"].concat();
            for text in [down, [FORWARDING, STATES, up, ZONES].concat()] {
                let (done, said) = site.reload(&text);
                assert!(done, "{said}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    assert!(sent > 1000 && arrived == 0, "{arrived} of {sent}");
    // The same packets arrive without a policy: the test would see them.
    let (arrived, sent) = forbidden.during(&mut site, |site| {
        let (done, said) = site.reload(&[FORWARDING, up].concat());
        assert!(done, "{said}");
        std::thread::sleep(Duration::from_millis(300));
    });
    assert!(arrived > 0, "of {sent}");
}

/// Another program that owns the table, so that the kernel refuses every change of ours.
struct Owner(Child);

impl Owner {
    fn start(lab: &Lab) -> Self {
        let mut command = lab.command("router", "nft");
        let mut child =
            command.arg("-i").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("nft starts");
        let own = b"add table inet postern-firewall { flags owner; }\n";
        child.stdin.as_mut().expect("a pipe").write_all(own).expect("it reads");
        let owned = || {
            let list = lab.run("router", "nft", &["list", "table", "inet", "postern-firewall"]);
            list.is_ok_and(|list| list.contains("flags owner"))
        };
        wait_until(PATIENCE, owned).expect("it owns the table");
        Self(child)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The end of its input ends it, and the kernel removes its table.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_refused_firewall_keeps_back_forwarding_and_nat_at_a_reload_and_at_the_start() {
    let nat = "set nat destination rule 10 inbound-interface name wan0\n\
               set nat destination rule 10 protocol udp\n\
               set nat destination rule 10 destination port 7777\n\
               set nat destination rule 10 translation address 10.2.0.9\n";
    let Some(mut site) = start("set system allow-empty\n") else { return };
    let text = [FORWARDING, STATES, ZONES, nat].concat();
    let owner = Owner::start(&site.lab);
    let (done, said) = site.reload(&text);
    assert!(!done && said.contains("nat: not applied, as firewall was refused"), "{said}");
    assert_eq!((site.forwards(), site.table()), ("0".to_owned(), String::new()), "{said}");
    assert!(!pings(&site.lab, "provider", DEVICE));

    // Nothing can be filtered at the start either: the daemon ends, and its supervisor starts it again.
    site.process.signal(rustix::process::Signal::KILL);
    wait_until(PATIENCE, || site.lab.ended(site.process).is_some()).expect("it is dead");
    let root = site.root.path().display().to_string();
    let words = ["run", "--machine-root", &root];
    site.gateway
        .start_with(&mut site.lab, &words, "info", PATIENCE)
        .map(|_| ())
        .expect_err("nothing is served");
    assert_eq!((site.forwards(), site.table()), ("0".to_owned(), String::new()));

    drop(owner);
    site.process = Site::run(&mut site.lab, &mut site.gateway, &site.root);
    wait_until(PATIENCE, || pings(&site.lab, "device", PROVIDER)).expect("out");
    assert!(!pings(&site.lab, "provider", DEVICE) && site.table().contains("7777"));
}

#[test]
fn rules_decide_about_router_advertisements_and_neighbours_are_found_without_one() {
    let rule = "set firewall ipv6 name IN6 rule 5 action drop\n\
                set firewall ipv6 name IN6 rule 5 protocol ipv6-icmp\n\
                set firewall ipv6 name IN6 rule 5 icmpv6 type-name nd-router-advert\n";
    let Some(site) = start(&[FORWARDING, STATES, ZONES, LOCAL, rule].concat()) else { return };
    let send = |kind: u8, hops: u32| {
        let message = [&[kind][..], &[0; 15]].concat();
        let to: SocketAddrV6 = "[fd01::1]:0".parse().expect("literal");
        let sent = site.lab.enter("device", || {
            let socket = socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6))?;
            set_ipv6_unicast_hops(&socket, Some(hops as u8))?;
            sendto(&socket, &message, SendFlags::empty(), &to)
        });
        sent.expect("a namespace").expect("sent");
    };
    let default = || counted(&site, "ipv6 name IN6", "default");
    send(134, 255);
    wait_until(PATIENCE, || counted(&site, "ipv6 name IN6", "5") >= 1)
        .unwrap_or_else(|_| panic!("{}", table(&site)));
    // A router solicitation has no rule: it passes, unless a router has forwarded it.
    let before = default();
    send(133, 64);
    wait_until(PATIENCE, || default() > before).expect("dropped");
    let before = default();
    send(133, 255);
    site.lab.ip("router", "neighbour flush all").expect("flushed");
    assert!(pings(&site.lab, "device", "fd01::1"), "{}", table(&site));
    assert_eq!(default(), before);
}
