//! Addresses by DHCP: of dnsmasq, and of a server that says what no server should.

use crate::support::{PATIENCE, lab, postern, skip};
use lab::files::Files;
use lab::postern::Postern;
use lab::{Lab, Process, has_program, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const WAN: &str = "set interfaces ethernet wan0 address dhcp\n";

/// A tunnel whose peer never answers.
const TUNNEL: &str = "set interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=\n\
                      set interfaces wireguard wg0 peer b public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
                      set interfaces wireguard wg0 peer b allowed-ips 10.1.0.0/16\n";

/// A router without addresses, and two providers.
struct Site {
    lab: Lab,
    gateway: Postern,
    process: Option<Process>,
    root: Files,
}

impl Site {
    fn new() -> Option<Self> {
        if !has_program("udhcpc") || !has_program("dnsmasq") {
            skip("needs udhcpc and dnsmasq");
            return None;
        }
        let lab = lab(&["router", "provider", "other"])?;
        lab.connect(("router", "wan0", "192.0.2.1/24"), ("provider", "wan0", "192.0.2.9/24")).expect("veth");
        lab.connect(("router", "wan1", "198.51.100.1/24"), ("other", "wan1", "198.51.100.9/24"))
            .expect("veth");
        for link in ["wan0", "wan1"] {
            lab.ip("router", &format!("address flush dev {link}")).expect("none");
            lab.ip("router", &format!("link set {link} down")).expect("down");
        }
        // By which a server of ours answers.
        lab.ip("provider", "route add 255.255.255.255/32 dev wan0").expect("a route");
        let gateway = Postern::new(&lab, "router", postern()).expect("a folder");
        let root = Files::default();
        std::os::unix::fs::symlink("/proc", root.path().join("proc")).expect("a folder");
        for link in ["wan0", "wan1"] {
            root.write(&format!("sys/class/net/{link}"), "", 0o600);
        }
        root.write("etc/resolv.conf", "nameserver 203.0.113.53\n", 0o644);
        Some(Self { lab, gateway, process: None, root })
    }

    fn start(&mut self, text: &str) {
        self.gateway.write(text);
        let root = self.root.path().display().to_string();
        let words = ["run", "--machine-root", &root];
        let process = self.gateway.start_with(&mut self.lab, &words, "info", PATIENCE).expect("it starts");
        self.process = Some(process);
    }

    /// Starts a server of a network, which says that its router is `router`.
    fn serve(&mut self, namespace: &str, link: &str, network: &str, router: &str, more: &[&str]) -> Process {
        let mut command = self.lab.command(namespace, "dnsmasq");
        let leases = self.root.named(&format!("leases-{namespace}"));
        command.args([
            "--no-daemon",
            "--port=0",
            "--conf-file=/dev/null",
            "--no-ping",
            "--dhcp-authoritative",
        ]);
        command.arg(format!("--interface={link}")).arg(format!("--dhcp-leasefile={leases}"));
        command.arg(format!("--dhcp-range={network}.50,{network}.59,255.255.255.0,120"));
        command.arg(format!("--dhcp-option=3,{router}")).arg(format!("--dhcp-option=6,{network}.9"));
        command.arg(format!("--log-facility={}", self.root.named(&format!("log-{namespace}"))));
        command.args(more).stderr(std::process::Stdio::null());
        self.lab.start(&mut command).expect("dnsmasq starts")
    }

    fn ask(&self, words: &[&str]) -> (bool, String) {
        let output = Command::new(postern()).args(words).arg("--api").arg(&self.gateway.socket).output();
        let output = output.expect("it runs");
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    }

    fn reload(&self, text: &str) {
        self.gateway.write(text);
        let (done, said) = self.ask(&["reload"]);
        assert!(done, "{said}");
    }

    fn leases(&self) -> String {
        self.ask(&["show", "dhcp", "client", "leases"]).1
    }

    fn has(&self, words: &str, what: &str) -> bool {
        self.lab.ip("router", words).expect("ip").contains(what)
    }

    fn comes(&self, words: &str, what: &str) {
        wait_until(PATIENCE, || self.has(words, what)).unwrap_or_else(|_| {
            let present = self.lab.ip("router", words).expect("ip");
            panic!("{what}: {present}\n{}\n{}", self.leases(), self.gateway.logged())
        });
    }

    fn goes(&self, words: &str, what: &str) {
        wait_until(PATIENCE, || !self.has(words, what)).unwrap_or_else(|_| {
            panic!("{what} stays: {}\n{}", self.lab.ip("router", words).expect("ip"), self.gateway.logged())
        });
    }

    /// The processes of clients of an interface.
    fn clients(&self, link: &str) -> Vec<i32> {
        let pids = lab::run("ip", ["netns", "pids", &self.lab.namespace("router")]).expect("ip");
        let is_client = |pid: &&str| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.first().is_some_and(|it| it.ends_with(b"udhcpc")) && words.contains(&link.as_bytes())
        };
        pids.split_whitespace().filter(is_client).filter_map(|pid| pid.parse().ok()).collect()
    }

    /// The process of the supervisor.
    fn supervisor(&self) -> Option<i32> {
        let pids = lab::run("ip", ["netns", "pids", &self.lab.namespace("router")]).expect("ip");
        let is_it = |pid: &&str| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).skip(1).eq([b"dhcp-clients".as_slice(), b""])
        };
        pids.split_whitespace().find(is_it).and_then(|pid| pid.parse().ok())
    }

    /// Whether a server has heard that its address is free.
    fn is_released(&self, namespace: &str) -> bool {
        self.root.read(&format!("log-{namespace}")).is_some_and(|log| log.contains("DHCPRELEASE"))
    }

    fn signal_client(&self, link: &str, signal: Signal) {
        let pid = self.clients(link)[0];
        kill_process(Pid::from_raw(pid).expect("a process"), signal).expect("it is ours");
    }
}

const ADDRESSES: &str = "-4 address show dev wan0";
const ROUTES: &str = "-4 route show default";

#[test]
fn an_interface_has_what_its_server_gives_until_its_line_goes() {
    let Some(mut site) = Site::new() else { return };
    let server = site.serve("provider", "wan0", "192.0.2", "192.0.2.9", &["--domain=site.example"]);
    // What is wrong with another default route is not wrong with the lease.
    site.start(&[WAN, "set protocols static route 0.0.0.0/0 next-hop 203.0.113.99 distance 9\n"].concat());
    site.comes(ADDRESSES, "inet 192.0.2.5");
    site.comes(ROUTES, "default via 192.0.2.9 dev wan0 proto 217 metric 210");
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", site.clients("wan0")[0])).expect("it runs");
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    let leases = site.leases();
    assert!(leases.contains("192.0.2.9  ") && leases.contains("site.example"), "{leases}");
    let (_, json) = site.ask(&["show", "dhcp", "client", "leases", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["leases"][0]["remaining_seconds"].as_u64() >= Some(60), "{json}");
    assert_eq!(json["leases"][0]["lease"]["name_servers"][0], "192.0.2.9", "{json}");

    let names = || site.root.read("etc/resolv.conf").unwrap_or_default();
    wait_until(PATIENCE, || {
        names().contains("nameserver 192.0.2.9") && names().contains("search site.example")
    })
    .unwrap_or_else(|_| panic!("{}\n{}", names(), site.gateway.logged()));

    // What another program takes away is put back, and a link that was down gets its route again.
    site.lab.ip("router", "address flush dev wan0").expect("flushed");
    site.comes(ADDRESSES, "inet 192.0.2.5");
    site.comes(ROUTES, "192.0.2.9");
    site.lab.ip("router", "link set wan0 down").expect("down");
    site.comes(ROUTES, "192.0.2.9");

    // A renewal brings another router.
    site.lab.kill(server, Signal::KILL);
    site.serve("provider", "wan0", "192.0.2", "192.0.2.8", &[]);
    std::thread::sleep(Duration::from_millis(500));
    site.signal_client("wan0", Signal::USR1);
    site.comes(ROUTES, "via 192.0.2.8");
    assert!(!site.has(ROUTES, "192.0.2.9"));

    // A client that ends is started again, and so is the supervisor; the address stays meanwhile.
    let before = site.clients("wan0");
    site.signal_client("wan0", Signal::KILL);
    wait_until(PATIENCE, || site.clients("wan0").len() == 1 && site.clients("wan0") != before)
        .expect("it is started again");
    assert!(site.has(ADDRESSES, "inet 192.0.2.5"));
    wait_until(PATIENCE, || !site.leases().contains("has ended")).expect("it is bound again");
    let supervisor = site.supervisor().and_then(Pid::from_raw).expect("it runs");
    kill_process(supervisor, Signal::KILL).expect("it is ours");
    let is_another = || site.supervisor().is_some_and(|it| it != supervisor.as_raw_pid());
    wait_until(PATIENCE, || is_another() && site.clients("wan0").len() == 1).expect("it is started again");
    assert!(site.has(ADDRESSES, "inet 192.0.2.5"));

    // Options of the client: the new one has the address of the former.
    site.reload(&[WAN, "set interfaces ethernet wan0 dhcp-options host-name branch\n"].concat());
    wait_until(PATIENCE, || site.root.read("log-provider").is_some_and(|log| log.contains("branch")))
        .expect("the server is told");
    assert!(site.has(ADDRESSES, "inet 192.0.2.5") && !site.is_released("provider"));

    // A tunnel that is configured later does not take away the address by which its peer is reached.
    site.reload(&[WAN, &TUNNEL.replace("10.1.0.0/16", "192.0.0.0/16")].concat());
    assert!(site.has(ADDRESSES, "inet 192.0.2.5"), "{}", site.gateway.logged());
    assert!(site.gateway.logged().contains("interface wan0 keeps 192.0.2.5"), "{}", site.gateway.logged());

    // Options of the route.
    site.reload(&[WAN, "set interfaces ethernet wan0 dhcp-options default-route-distance 7\n"].concat());
    site.comes(ROUTES, "metric 7");
    assert!(!site.has(ROUTES, "metric 210"));
    site.reload(&[WAN, "set interfaces ethernet wan0 dhcp-options no-default-route\n"].concat());
    site.goes(ROUTES, "192.0.2");
    assert!(site.has(ADDRESSES, "inet 192.0.2.5"));
    // The line goes.
    site.reload("set interfaces ethernet wan0 mtu 1400\n");
    site.goes(ADDRESSES, "inet");
    assert_eq!(site.clients("wan0"), [0; 0]);
    wait_until(PATIENCE, || site.is_released("provider")).expect("the server gets the address back");
    let names = || site.root.read("etc/resolv.conf").unwrap_or_default();
    wait_until(PATIENCE, || names() == "nameserver 203.0.113.53\n").unwrap_or_else(|_| panic!("{}", names()));
    assert!(site.leases().contains("no interface gets its address by DHCP"));
}

#[test]
fn two_interfaces_have_two_routes_and_a_daemon_that_was_killed_leaves_both() {
    let Some(mut site) = Site::new() else { return };
    site.serve("provider", "wan0", "192.0.2", "192.0.2.9", &[]);
    site.serve("other", "wan1", "198.51.100", "198.51.100.9", &["--dhcp-vendorclass=set:box,a box"]);
    let both = [
        WAN,
        &WAN.replace("wan0", "wan1"),
        "set interfaces ethernet wan1 dhcp-options vendor-class-id 'a box'\n",
    ]
    .concat();
    site.start(&both);
    site.comes(ROUTES, "via 192.0.2.9 dev wan0 proto 217 metric 210");
    site.comes(ROUTES, "via 198.51.100.9 dev wan1 proto 217 metric 211");
    let process = site.process.take().expect("it runs");
    process.signal(Signal::KILL);
    wait_until(PATIENCE, || site.lab.ended(process).is_some()).expect("it is dead");
    wait_until(PATIENCE, || site.clients("wan0").is_empty()).expect("no client is left alone");
    let left = [ADDRESSES, ROUTES].map(|words| site.lab.ip("router", words).expect("ip")).concat();
    assert!(
        left.contains("inet 192.0.2.5") && left.contains("via 192.0.2.9"),
        "{left}{}",
        site.gateway.logged()
    );
    // The next daemon takes over what is there, and what its configuration has lost goes.
    site.start(WAN);
    assert!(site.has(ADDRESSES, "inet 192.0.2.5"), "it stays until a server says something else");
    site.goes("-4 address show dev wan1", "inet");
    site.comes(ROUTES, "via 192.0.2.9 dev wan0 proto 217 metric 210");
    wait_until(PATIENCE, || site.leases().contains("192.0.2.5")).expect("it is bound again");
}

/// What a server says beside the address.
struct Says {
    address: [u8; 4],
    options: Vec<(u8, Vec<u8>)>,
}

/// Answers all requests of a client (RFC 2131, RFC 2132), until it is told to stop.
fn answer(socket: &UdpSocket, says: &Says, stop: &AtomicBool) {
    let mut packet = [0; 1500];
    while !stop.load(Ordering::Relaxed) {
        let Ok(length) = socket.recv(&mut packet) else { continue };
        let options = packet.get(240..length).unwrap_or_default();
        let kind = options.windows(3).find(|it| it[..2] == [53, 1]).map_or(0, |it| it[2]);
        // A discover is offered, a request is acknowledged.
        let Some(answer) = [(1, 2), (3, 5)].into_iter().find(|(it, _)| *it == kind).map(|(_, answer)| answer)
        else {
            continue;
        };
        let mut reply = packet[..240].to_vec();
        reply[0] = 2;
        reply[16..20].copy_from_slice(&says.address);
        reply.extend([53, 1, answer, 54, 4, 192, 0, 2, 9]);
        for (number, value) in &says.options {
            reply.extend([*number, value.len() as u8]);
            reply.extend(value);
        }
        reply.push(255);
        reply.resize(reply.len().max(300), 0);
        let _ = socket.send_to(&reply, (Ipv4Addr::BROADCAST, 68));
    }
}

/// Runs a server that says this, as long as `during` runs.
fn while_served(site: &Site, says: &Says, during: impl FnOnce()) {
    let socket =
        site.lab.enter("provider", || UdpSocket::bind("0.0.0.0:67")).expect("a namespace").expect("free");
    socket.set_broadcast(true).expect("allowed");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| answer(&socket, says, &stop));
        // Also where an assertion fails.
        let _stops = Stops(&stop);
        during();
    });
}

/// Ends a thread when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn option(number: u8, value: &[u8]) -> (u8, Vec<u8>) {
    (number, value.to_vec())
}

#[test]
fn what_a_hostile_server_says_is_not_taken_and_a_lease_ends() {
    let Some(mut site) = Site::new() else { return };
    let marker = site.root.at("reached");
    let command = format!("$(touch {0});`touch {0}`\n", marker.display());
    let text = [WAN, TUNNEL, "set interfaces ethernet wan1 address 10.2.0.1/24\n"].concat();
    site.start(&text);
    wait_until(PATIENCE, || site.leases().contains("no server answers")).expect("there is none");
    let mask = option(1, &[255, 255, 255, 0]);
    let lease = option(51, &[0, 0, 0, 20]);
    // It starts again at once with other options, and after a pause without.
    let restart = |site: &Site, name: &str| {
        site.reload(&format!("{text}set interfaces ethernet wan0 dhcp-options host-name {name}\n"));
    };
    for (name, address, mask, said) in [
        ("one", [127, 0, 0, 1], [255, 255, 255, 0], "cannot be used: \"127.0.0.1\""),
        ("two", [192, 0, 2, 50], [128, 0, 0, 0], "cannot be used: \"192.0.2.50\""),
        // Packets to the networks of a tunnel and of another link would go elsewhere.
        (
            "three",
            [10, 1, 5, 7],
            [255, 255, 255, 0],
            "10.1.5.7/24 by DHCP is refused: a tunnel protects 10.1.0.0/16",
        ),
        (
            "four",
            [10, 1, 5, 7],
            [255, 0, 0, 0],
            "10.1.5.7/8 by DHCP is refused: a tunnel protects 10.1.0.0/16",
        ),
        ("five", [10, 2, 0, 5], [255, 255, 255, 128], "wan1 has 10.2.0.1/24"),
    ] {
        let says = Says { address, options: vec![option(1, &mask), lease.clone()] };
        while_served(&site, &says, || {
            restart(&site, name);
            wait_until(PATIENCE, || site.leases().contains(said))
                .unwrap_or_else(|_| panic!("{said}: {}\n{}", site.leases(), site.gateway.logged()));
            // It would stay bound to that.
            wait_until(PATIENCE, || site.clients("wan0").is_empty()).expect("the client ends");
        });
        assert!(!site.has(ADDRESSES, "inet"), "{address:?}");
    }
    restart(&site, "six");
    let options = vec![
        mask,
        lease,
        // Of routers, the one on the network counts.
        option(3, &[203, 0, 113, 1, 192, 0, 2, 9]),
        option(6, &[127, 0, 0, 1, 9, 9, 9, 9]),
        option(15, command.as_bytes()),
        option(12, command.as_bytes()),
    ];
    let says = Says { address: [192, 0, 2, 50], options };
    while_served(&site, &says, || site.comes(ADDRESSES, "inet 192.0.2.50/24"));
    assert!(site.has(ROUTES, "via 192.0.2.9"));
    assert!(!marker.exists() && !site.leases().contains("touch"), "{}", site.leases());
    // Nobody answers a new client; the lease counts until it expires.
    restart(&site, "last");
    wait_until(PATIENCE, || site.leases().contains("no server answers")).expect("there is none");
    assert!(site.has(ADDRESSES, "inet 192.0.2.50/24"), "{}", site.gateway.logged());
    site.goes(ADDRESSES, "inet");
    site.goes(ROUTES, "192.0.2.9");
}
