//! IPsec between two daemons: status, explanations, restarts and removal.

mod explanations;
mod packets;
mod receive_threads;

use crate::daemon::Site;
use crate::support::{PATIENCE, answers, ask, postern, sites, sites_and, tcp_arrives_whole};
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::net::UdpSocket;
use std::process::{Command, Stdio};

const IKE: &str = "set vpn ipsec ike-group SITES proposal 1";
const ESP: &str = "set vpn ipsec esp-group SITES proposal 1";
const SECRET: &str = "set vpn ipsec authentication psk sites secret";

/// A site, and what was asked of it by its socket.
pub struct Gateway(pub Site);

impl Gateway {
    pub fn new(lab: &Lab, namespace: &'static str) -> Self {
        Self(Site::new(lab, namespace, ""))
    }

    pub fn write(&self, text: &str) {
        std::fs::write(&self.0.file, text).expect("a file");
    }

    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(postern());
        command.args(words.split(' ')).arg("--api").arg(&self.0.socket).stdin(Stdio::null());
        command
    }

    /// What a command says.
    pub fn says(&self, words: &str) -> String {
        let output = self.command(words).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn peer(&self, name: &str) -> Value {
        let socket = self.0.socket.to_string_lossy().into_owned();
        let said = ask(&["show", "vpn", "ipsec", "sa", "--api", &socket]);
        let peers = said["peers"].as_array().expect("a list").clone();
        peers.into_iter().find(|peer| peer["name"] == name).unwrap_or_default()
    }

    /// The SPIs of a peer's first tunnel.
    pub fn spis(&self, peer: &str) -> Vec<u64> {
        let sas = self.peer(peer)["tunnels"][0]["sas"].as_array().cloned().unwrap_or_default();
        sas.iter().filter_map(|sa| sa["spi_in"].as_u64()).collect()
    }

    pub fn comes_up(&self, peer: &str) {
        if wait_until(PATIENCE, || self.spis(peer).len() == 1).is_err() {
            let log = std::fs::read_to_string(&self.0.log).unwrap_or_default();
            panic!("{}\n{log}", self.explained(peer).1);
        }
    }

    /// The exit status of `explain`, and what it says.
    pub fn explained(&self, peer: &str) -> (Option<i32>, String) {
        let output = self.command(&format!("explain vpn ipsec peer {peer}")).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The explanation of a failure, as soon as there is one.
    fn explains(&self, peer: &str) -> String {
        // The other side may not have started when it was called first.
        let answered = || !self.explained(peer).1.contains("has not answered");
        let failed = || !self.peer(peer)["failure"].is_null() && answered();
        let known = wait_until(PATIENCE, failed);
        let (code, said) = self.explained(peer);
        known.unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!(code, Some(1), "it is down: {said}");
        said
    }
}

/// The groups of all tests.
pub const GROUPS: &str = "set vpn ipsec esp-group SITES proposal 1 encryption aes256gcm128\n\
     set vpn ipsec ike-group SITES proposal 1 encryption aes256gcm128\n\
     set vpn ipsec ike-group SITES proposal 1 dh-group 31\n\
     set vpn ipsec ike-group SITES proposal 1 prf prfsha256\n";

/// A peer, from the side of this end.
pub fn peer(end: usize, name: &str, addresses: [&str; 2], inside: [&str; 2], start: &str) -> String {
    let (local, remote) = (addresses[end], addresses[1 - end]);
    let (ours, theirs) = (inside[end], inside[1 - end]);
    let set = format!("set vpn ipsec site-to-site peer {name}");
    format!(
        "{set} authentication mode pre-shared-secret\n\
         {set} authentication local-id {local}\n\
         {set} authentication remote-id {remote}\n\
         {set} connection-type {start}\n\
         {set} ike-group SITES\n\
         {set} local-address {local}\n\
         {set} remote-address {remote}\n\
         {set} tunnel 1 esp-group SITES\n\
         {set} tunnel 1 local prefix {ours}\n\
         {set} tunnel 1 remote prefix {theirs}\n"
    )
}

const OUTSIDE: [&str; 2] = ["192.168.77.1", "192.168.77.2"];
const OUTSIDE_6: [&str; 2] = ["fd77::1", "fd77::2"];
const INSIDE: [&str; 2] = ["10.10.0.0/16", "10.20.0.0/16"];
const INSIDE_OF_SECOND: [&str; 2] = ["10.11.0.0/16", "10.21.0.0/16"];

/// What an end is configured with: the first calls, the second waits.
pub fn configuration(end: usize) -> String {
    let start = ["initiate", "none"][end];
    let ids: String = OUTSIDE
        .iter()
        .chain(&OUTSIDE_6)
        .map(|id| format!("set vpn ipsec authentication psk sites id {id}\n"))
        .collect();
    format!("{GROUPS}{ids}{SECRET} right\n")
        + &peer(end, "other", OUTSIDE, INSIDE, start)
        + &peer(end, "second", OUTSIDE_6, INSIDE_OF_SECOND, start)
}

/// Two sites with networks behind them, and their daemons, configured as `change` leaves it.
pub fn started(change: impl Fn(usize, String) -> String) -> Option<(Lab, [Gateway; 2])> {
    Some(started_in(sites()?, change))
}

/// The same, in a lab that has these sites.
fn started_in(mut lab: Lab, change: impl Fn(usize, String) -> String) -> (Lab, [Gateway; 2]) {
    let gateways = [("a", 0), ("b", 1)].map(|(site, end)| {
        lab.ip(site, &format!("address add 10.{}0.0.1/32 dev lo", end + 1)).expect("an address");
        let mut gateway = Gateway::new(&lab, site);
        gateway.write(&change(end, configuration(end)));
        gateway.0.start(&mut lab);
        gateway
    });
    (lab, gateways)
}

/// The sites, and a host in the network of the first, whose gateway forwards.
fn with_a_host() -> Option<Lab> {
    let lab = sites_and(&["h"])?;
    lab.connect(("a", "lan", "10.10.0.2/24"), ("h", "lan", "10.10.0.5/24")).expect("veth exists");
    lab.ip("h", "route add default via 10.10.0.2").expect("a route");
    lab.enter("a", || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
        .expect("it is there")
        .expect("it forwards");
    Some(lab)
}

/// `other` is for everything within `wide`, also the network of the first site.
fn hub(wide: &'static str) -> impl Fn(usize, String) -> String {
    move |_, text| text.replace(INSIDE[0], "10.10.0.0/24").replace(INSIDE[1], wide)
}

#[test]
fn a_remote_prefix_that_contains_our_network_leaves_it_to_us() {
    for wide in ["10.0.0.0/8", "0.0.0.0/0"] {
        let Some(lab) = with_a_host() else { return };
        let (lab, [a, _b]) = started_in(lab, hub(wide));
        a.comes_up("other");
        a.comes_up("second");
        let near = lab.ip("a", "route get 10.10.0.5").expect("a route");
        assert!(!near.contains("ipsec0"), "{wide}: {near}");
        assert!(answers(&lab, "h", "10.10.0.2"), "{wide}: its gateway");
        assert!(answers(&lab, "h", "10.20.0.1"), "{wide}: the other site");
    }
}

/// Whether a thread of the process with this name is running.
fn is_running(process: Process, thread: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("it lives");
    let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).ok();
    tasks.flatten().filter_map(stat).any(|stat| stat.contains(&format!(" ({thread}) R ")))
}

#[test]
fn a_gateway_that_ends_while_it_computes_keys_leaves_nothing_at_its_peer() {
    let started = started(|end, text| {
        let text = text.lines().filter(|line| !line.contains("peer second"));
        // The group whose keys take longest, hundreds of milliseconds with the answer.
        let text = text.map(|line| line.replace("dh-group 31", "dh-group 18") + "\n").collect::<String>();
        text + ["set vpn ipsec ike-group SITES lifetime 10\n", ""][end]
    });
    let Some((_lab, [a, b])) = started else { return };
    b.comes_up("other");
    let has_logged = |site: &Gateway, words: &str| site.0.logged().contains(words);
    let process = a.0.process.expect("it was started");
    // The answer has arrived, and its secret is being computed; or it was computed too quickly to be seen.
    wait_until(PATIENCE, || {
        has_logged(&b, "IKE is rekeyed")
            && (is_running(process, "ipsec0 jobs") || has_logged(&a, "IKE is rekeyed"))
    })
    .expect("a rekeying");
    a.0.signal(Signal::TERM);
    wait_until(PATIENCE, || has_logged(&b, "connection ended: the peer closed it"))
        .unwrap_or_else(|error| panic!("{error}: {}", b.0.logged()));
}

#[test]
fn messages_of_ike_that_come_to_nothing_are_counted_by_reason() {
    let Some((lab, [a, _b])) = started(|_, text| text) else { return };
    a.comes_up("other");
    let counted = |reason: &str| {
        let said = ask(&["show", "drops", "--all", "--api", &a.0.socket.to_string_lossy()]);
        let all = said["drops"].as_array().expect("a list").clone();
        all.iter().find(|drop| drop["reason"] == reason).and_then(|drop| drop["handshake"].as_u64())
    };
    let before =
        ["bad-ike-message", "unknown-ike-sa", "ike-socket-ipv4-full", "esp-socket-ipv4-full"].map(counted);
    assert!(before.iter().all(Option::is_some), "{before:?}");
    // INFORMATIONAL of an IKE SA that there is not, and something else of the same length.
    let mut message = [7; 28];
    message[16..20].copy_from_slice(&[0, 0x20, 37, 0x08]);
    message[24..].copy_from_slice(&28u32.to_be_bytes());
    lab.enter("b", || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
        for bytes in [message, [7; 28]] {
            socket.send_to(&bytes, (OUTSIDE[0], 500)).expect("there is a route");
        }
    })
    .expect("it has the namespace");
    let is_counted = || ["bad-ike-message", "unknown-ike-sa"].iter().all(|reason| counted(reason) > Some(0));
    wait_until(PATIENCE, is_counted).expect("both are counted");
}

#[test]
fn a_tunnel_carries_and_is_shown() {
    let Some((lab, [a, b])) = started(|_, text| text) else { return };
    a.comes_up("other");
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 4 << 20).expect("the tunnel carries");
    let table = a.says("show vpn ipsec sa");
    let row = table.lines().find(|line| line.starts_with("other-tunnel-1")).expect("it is listed");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1], "up", "{table}");
    assert!(cells[3].ends_with("/4M") || cells[3].ends_with("/5M"), "{table}");
    assert_eq!(cells[5..8], ["192.168.77.2", "192.168.77.2", "AES_GCM_16_256"], "{table}");
    assert!(b.peer("other")["tunnels"][0]["received_bytes"].as_u64().is_some_and(|bytes| bytes > 4 << 20));
    assert!(a.says("show vpn ipsec sa detail").contains("other: #"));
    assert!(a.says("show vpn ike sa peer other").contains("CURVE_25519"));
    assert!(a.says("show vpn ipsec status").contains("\n2 Active IPsec Tunnels, of 2\n"));
    assert!(a.says("show vpn ike secrets").contains("set by vpn ipsec authentication psk sites secret\n"));
    let details = &a.peer("other")["tunnels"][0]["sas"][0];
    assert_eq!((&details["state"], &details["local"][0]), (&"installed".into(), &INSIDE[0].into()));
    let connections = a.says("show vpn ipsec connections");
    let words: Vec<&str> = connections.lines().nth(2).unwrap_or_default().split_whitespace().collect();
    assert_eq!(words[..4], ["other", "up", "IKEv2", "192.168.77.2"], "{connections}");
    assert!(b.says("show vpn ipsec policy").contains("src 10.20.0.0/16 dst 10.10.0.0/16"));
    assert!(b.says("explain vpn ipsec peer other").starts_with("vpn ipsec site-to-site peer other: up\n"));
    let wrong = a.command("explain vpn ipsec peer othr").output().expect("it runs");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("did you mean other?"));
}

#[test]
fn threads_that_unauthenticated_sources_send_to_have_no_rights() {
    let Some((_lab, [a, _b])) = started(|_, text| text) else { return };
    let process = a.0.process.expect("it was started").id();
    let mut seen = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).expect("it lives").flatten() {
        let read = |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let name = read("comm");
        if ["ipsec0 ike", "ipsec0 control", "ipsec0 in", "ipsec0 out"].contains(&name.trim()) {
            seen += 1;
            let status = read("status");
            let rights =
                status.lines().filter(|line| line.starts_with("CapPrm:") || line.starts_with("CapEff:"));
            assert!(
                rights.clone().count() == 2
                    && rights.clone().all(|line| line.ends_with("\t0000000000000000")),
                "{name}{status}"
            );
        }
    }
    assert_eq!(seen, 4);
}

#[test]
fn an_interface_that_goes_down_ends_its_connections_and_begins_them_when_it_comes_up() {
    let Some((lab, [a, b])) = started(|_, text| text) else { return };
    let before = begun(&a, "other");
    lab.ip("a", "link set ipsec0 down").expect("it goes down");
    wait_until(PATIENCE, || a.spis("other").is_empty() && b.spis("other").is_empty())
        .expect("both ends know");
    lab.ip("a", "link set ipsec0 up").expect("it comes up");
    assert_ne!(begun(&a, "other"), before);
}

#[test]
fn a_reset_makes_new_sas_for_that_tunnel_alone() {
    let Some((lab, [a, _b])) = started(|_, text| text) else { return };
    let (other, second) = (begun(&a, "other"), begun(&a, "second"));
    a.says("reset vpn ipsec site-to-site peer other");
    wait_until(PATIENCE, || a.spis("other").len() == 1 && a.spis("other") != other).expect("another SPI");
    let other = a.spis("other");
    a.says("reset vpn ipsec-peer other tunnel 1");
    wait_until(PATIENCE, || a.spis("other").len() == 1 && a.spis("other") != other).expect("another SPI");
    assert_eq!(a.spis("second"), second, "the others stay");
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 1 << 20).expect("the tunnel carries");
    let wrong = a.command("reset vpn ipsec-peer other tunnel 9").output().expect("it runs");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("its tunnels are 1"));
    a.says("restart vpn");
    wait_until(PATIENCE, || a.spis("second").len() == 1 && a.spis("second") != second).expect("another SPI");
}

/// The SPIs of a tunnel that has come up.
fn begun(gateway: &Gateway, peer: &str) -> Vec<u64> {
    gateway.comes_up(peer);
    gateway.spis(peer)
}

#[test]
fn what_happens_to_a_peer_is_told_by_its_name() {
    let short = |_, text: String| text + "set vpn ipsec esp-group SITES life-packets 1000\n";
    let Some((lab, [a, _b])) = started(short) else { return };
    a.comes_up("other");
    let log = || std::fs::read_to_string(&a.0.log).unwrap_or_default();
    assert!(log().contains("calling peer other at 192.168.77.2:500"), "{}", log());
    let is_told = |what: &str| {
        let told = wait_until(PATIENCE, || log().contains(what));
        assert!(told.is_ok(), "{what}: {}", log());
    };
    is_told("other-tunnel-1 is up, SPI ");
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 16 << 20).expect("the tunnel carries");
    is_told("other-tunnel-1 is rekeyed, SPI ");
    let text = configuration(0);
    a.write(&(text.clone() + "delete vpn ipsec site-to-site peer other\n"));
    assert!(a.0.reload().contains("in force"));
    is_told("peer other: connection ended: it was closed here");
    assert!(!log().contains("of the past"), "{}", log());
}

#[test]
fn a_reload_touches_only_peers_that_have_changed() {
    let Some((_lab, [a, b])) = started(|_, text| text) else { return };
    let (other, second) = (begun(&a, "other"), begun(&a, "second"));
    assert!(a.0.reload().contains("in force"));
    assert_eq!((a.spis("other"), a.spis("second")), (other.clone(), second.clone()), "nothing was changed");
    let moved = "set vpn ipsec site-to-site peer second authentication local-id second\n";
    b.write(&(configuration(1) + "set vpn ipsec site-to-site peer second authentication remote-id second\n"));
    a.write(&(configuration(0) + moved));
    assert!(b.0.reload().contains("in force"));
    assert!(a.0.reload().contains("in force"));
    wait_until(PATIENCE, || a.spis("second").len() == 1 && a.spis("second") != second)
        .expect("it initiates again");
    assert_eq!(a.spis("other"), other, "that one was not changed");
    assert_eq!(b.spis("other").len(), 1);
}

#[test]
fn a_reload_leaves_alone_what_is_there_of_a_peer_that_has_changed() {
    let Some((lab, [a, b])) = started(|_, text| text) else { return };
    let other = begun(&a, "other");
    let set = "set vpn ipsec site-to-site peer other";
    let more = |end: usize, ours: &str, theirs: &str| {
        let labels = format!(
            "{set} description x\n{set} replay-window 512\nset vpn ipsec ike-group SITES lifetime 4000\n"
        );
        let tunnel = format!(
            "{set} tunnel 2 local prefix {ours}\n{set} tunnel 2 remote prefix {theirs}\n{set} tunnel 2 esp-group SITES\n"
        );
        configuration(end) + &labels + &tunnel
    };
    b.write(&more(1, "10.29.0.0/24", "10.19.0.0/24"));
    a.write(&more(0, "10.19.0.0/24", "10.29.0.0/24"));
    assert!(b.0.reload().contains("in force") && a.0.reload().contains("in force"));
    let is_up = |peer: &Value| peer["tunnels"][1]["sas"].as_array().is_some_and(|sas| sas.len() == 1);
    wait_until(PATIENCE, || is_up(&a.peer("other")) && is_up(&b.peer("other")))
        .expect("the second tunnel comes up");
    assert_eq!(a.spis("other"), other, "the first stays");
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 1 << 20).expect("and carries");
    a.write(&configuration(0));
    assert!(a.0.reload().contains("in force"));
    wait_until(PATIENCE, || !is_up(&b.peer("other"))).expect("the peer is told");
    assert_eq!(a.spis("other"), other, "the first stays");
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 1 << 20).expect("and carries");
}

#[test]
fn an_unresolvable_peer_does_not_stop_the_others() {
    let nowhere = |end, text: String| match end {
        0 => text.replace("remote-address fd77::2", "remote-address nowhere.invalid"),
        _ => text,
    };
    let Some((lab, [a, _b])) = started(nowhere) else { return };
    a.comes_up("other");
    let other = a.spis("other");
    // One that is served stays as it was.
    let set = "set vpn ipsec site-to-site peer other remote-address";
    a.write(
        &nowhere(0, configuration(0))
            .replace(&format!("{set} 192.168.77.2"), &format!("{set} nowhere.invalid")),
    );
    assert!(a.0.reload().contains("nowhere.invalid has no address now"));
    assert_eq!(a.spis("other"), other);
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 1 << 20).expect("the tunnel carries");
}

#[test]
fn the_end_of_a_daemon_is_told_to_the_peer_and_leaves_nothing_if_that_is_set() {
    let Some((mut lab, [a, b])) = started(|_, text| text + "set system open-at-exit\n") else { return };
    b.comes_up("other");
    b.comes_up("second");
    let rules = |lab: &Lab| lab.ip("a", "rule show").expect("rules");
    assert!(rules(&lab).contains("220"), "{}", rules(&lab));
    a.0.signal(Signal::TERM);
    let process = a.0.process.expect("it was started");
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    assert!(lab.ip("a", "link show ipsec0").is_err(), "the interface is gone");
    assert!(!rules(&lab).contains("220"), "{}", rules(&lab));
    assert!(!lab.ip("a", "route show table all").expect("routes").contains("10.20.0.0/16"));
    wait_until(PATIENCE, || !b.peer("other")["up"].as_bool().unwrap_or(true)).expect("the peer was told");
    let table = b.says("show vpn ipsec sa");
    let row = table.lines().find(|line| line.starts_with("other-tunnel-1")).expect("it is listed");
    assert!(row.contains("down") && row.contains("waits for the peer to call"), "{table}");
}
