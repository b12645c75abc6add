//! What tunnels are to protect does not leave in clear: whatever rules and routes come and go, and whether a gateway runs.

mod wireguard;

use crate::daemon::Site;
use crate::ipsec::{GROUPS, Gateway, peer};
use crate::support::{answers, ask, postern, sites, sites_and, skip};
use lab::{Lab, has_program, wait_until};
use rustix::process::Signal;
use std::net::UdpSocket;
use std::time::Duration;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Deletes the table of a name with raw messages: there need be no `nft`.
const DELETE_TABLE: &str = r#"
import socket, struct, sys
name = sys.argv[1].encode() + b"\0"
attribute = struct.pack("HH", 4 + len(name), 1) + name + b"\0" * (-len(name) % 4)
def message(kind, flags, family, resource, body):
    return struct.pack("IHHII", 20 + len(body), kind, flags, 0, 0) + struct.pack(">BBH", family, 0, resource) + body
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
s.bind((0, 0))
s.send(message(16, 1, 0, 10, b"") + message(10 << 8 | 2, 5, 1, 0, attribute) + message(17, 1, 0, 10, b""))
code = struct.unpack("i", s.recv(4096)[16:20])[0]
sys.exit(code and "error %d" % -code)
"#;

/// A peer of the first site that need not answer: prefixes are protected before the tunnel is up.
pub(crate) fn tunnel(name: &str, outside: [&str; 2], local: &str, remote: &str) -> String {
    let [ours, theirs] = outside;
    format!(
        "set vpn ipsec authentication psk {name} id {ours}\n\
         set vpn ipsec authentication psk {name} id {theirs}\n\
         set vpn ipsec authentication psk {name} secret right\n"
    ) + &peer(0, name, outside, [local, remote], "trap")
}

const V4: [&str; 2] = ["192.168.77.1", "192.168.77.2"];
const V6: [&str; 2] = ["fd77::1", "fd77::2"];

pub(crate) fn everything() -> String {
    format!(
        "{GROUPS}{}{}",
        tunnel("four", V4, "10.1.0.0/24", "0.0.0.0/0"),
        tunnel("six", V6, "fd01::/64", "::/0")
    )
}

/// Two sites. The first has a network inside and its default routes through the second, which has addresses of the world.
pub(crate) fn lab() -> Option<Lab> {
    let lab = sites()?;
    for address in ["10.1.0.1/24", "fd01::1/64"] {
        lab.ip("a", &format!("address add {address} dev lo")).expect("an address");
    }
    for address in
        ["198.51.100.8/32", "203.0.113.8/32", "2001:db8::8/128", "2001:db8:1::8/128", "10.20.0.8/32"]
    {
        lab.ip("b", &format!("address add {address} dev lo nodad")).expect("an address");
    }
    for route in ["default via 192.168.77.2", "default via fd77::2"] {
        lab.ip("a", &format!("route add {route}")).expect("a route");
    }
    for route in ["10.1.0.0/24 via 192.168.77.1", "fd01::/64 via fd77::1"] {
        lab.ip("b", &format!("route add {route}")).expect("a route");
    }
    Some(lab)
}

/// Whether something that the first site sends arrives at the second in clear. From an address, or from whichever fits.
fn leaks(lab: &Lab, from: &str, to: &str) -> bool {
    let server = lab.enter("b", || UdpSocket::bind((to, 0))).expect("entered").expect("a port");
    server.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
    let target = server.local_addr().expect("it is bound");
    // That it is refused is as good as that it is lost.
    let _ = lab.enter("a", || {
        let client = UdpSocket::bind((from, 0))?;
        (0..3).try_for_each(|_| client.send_to(b"in clear", target).map(|_| ()))
    });
    server.recv(&mut [0; 64]).is_ok()
}

/// Whether it does at last: neighbours must find each other first.
fn reaches(lab: &Lab, from: &str, to: &str) -> bool {
    wait_until(PATIENCE, || leaks(lab, from, to)).is_ok()
}

pub(crate) const WORLD: &str = "198.51.100.8";
const WORLD_6: &str = "2001:db8::8";

fn nothing_protected_leaks(lab: &Lab, when: &str) {
    for (from, to) in [("10.1.0.1", WORLD), ("10.1.0.1", "203.0.113.8"), ("fd01::1", WORLD_6)] {
        assert!(!leaks(lab, from, to), "{when}: {from} to {to} in clear");
    }
}

fn rules(lab: &Lab) -> String {
    ["rule show", "-6 rule show"].map(|words| lab.ip("a", words).expect("rules")).concat()
}

/// What is left of a gateway, or there of one that runs.
pub fn traces(lab: &Lab) -> String {
    let of_family = |family: &str| {
        let routes = lab.ip("a", &format!("{family} route show table all proto 219")).unwrap_or_default();
        let rules = lab.ip("a", &format!("{family} rule show")).expect("rules");
        let ours = rules.lines().filter(|line| line.contains("proto 219"));
        routes + &ours.fold(String::new(), |all, line| all + line + "\n")
    };
    let table = if delete_table(lab, "never-was").is_err_and(|error| error.contains("error 2")) {
        if guard_is_there(lab) { "guard\n" } else { "" }
    } else {
        ""
    };
    of_family("-4") + &of_family("-6") + table
}

fn delete_table(lab: &Lab, name: &str) -> Result<(), String> {
    lab.run("a", "python3", &["-c", DELETE_TABLE, name]).map(|_| ()).map_err(|error| error.to_string())
}

/// By whether a packet that a rule of another brings outside is dropped.
fn guard_is_there(lab: &Lab) -> bool {
    for family in ["-4", "-6"] {
        lab.ip("a", &format!("{family} rule add priority 100 lookup main")).expect("a rule");
    }
    let is_there = !leaks(lab, "10.1.0.1", WORLD) && !leaks(lab, "fd01::1", WORLD_6);
    for family in ["-4", "-6"] {
        lab.ip("a", &format!("{family} rule delete priority 100")).expect("a rule");
    }
    is_there
}

pub(crate) fn running(lab: &mut Lab, text: &str) -> Gateway {
    let mut gateway = Gateway::new(lab, "a");
    gateway.write(text);
    gateway.0.start(lab);
    gateway
}

fn ends(lab: &mut Lab, site: &mut Site, signal: Signal) {
    let process = site.process.take().expect("it was started");
    if signal == Signal::KILL {
        lab.kill(process, signal);
    } else {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(process.id() as i32).expect("a number"),
            signal,
        )
        .expect("it lives");
        wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    }
    let _ = std::fs::remove_file(&site.socket);
}

#[test]
fn a_closer_route_does_not_lead_around_a_tunnel_for_everything() {
    let Some(mut lab) = lab() else { return };
    assert!(
        reaches(&lab, "10.1.0.1", WORLD) && reaches(&lab, "fd01::1", WORLD_6),
        "the lab does not lead outside"
    );
    let _a = running(&mut lab, &everything());
    nothing_protected_leaks(&lab, "at first");
    for route in
        ["0.0.0.0/1 via 192.168.77.2", "198.51.100.0/24 via 192.168.77.2", "2001:db8::/32 via fd77::2"]
    {
        lab.ip("a", &format!("route add {route}")).expect("a route");
    }
    nothing_protected_leaks(&lab, "with closer routes");
    // What this machine sends without saying from where goes inside too.
    assert!(!leaks(&lab, "0.0.0.0", WORLD) && !leaks(&lab, "::", WORLD_6));
    let route = lab.ip("a", &format!("route get {WORLD}")).expect("a route");
    assert!(route.contains("dev ipsec0") && route.contains("src 10.1.0.1"), "{route}");
    // But what no policy protects is as it was.
    assert!(reaches(&lab, V4[0], WORLD) && reaches(&lab, V6[0], WORLD_6));
    assert!(answers(&lab, "a", V4[1]) && answers(&lab, "a", V6[1]));
    assert!(answers(&lab, "a", "10.1.0.1"));
}

#[test]
fn what_is_forwarded_does_not_lead_around_a_tunnel_for_everything() {
    let Some(mut lab) = sites_and(&["h"]) else { return };
    lab.connect(("a", "lan", "10.1.0.1/24"), ("h", "lan", "10.1.0.5/24")).expect("veth exists");
    lab.ip("h", "route add default via 10.1.0.1").expect("a route");
    lab.ip("b", &format!("address add {WORLD}/32 dev lo")).expect("an address");
    lab.ip("b", "route add 10.1.0.0/24 via 192.168.77.1").expect("a route");
    lab.ip("a", "route add 198.51.100.0/24 via 192.168.77.2").expect("a route");
    lab.enter("a", || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
        .expect("entered")
        .expect("it forwards");
    wait_until(PATIENCE, || answers(&lab, "h", WORLD)).expect("the lab forwards");
    let _a = running(&mut lab, &everything());
    assert!(!answers(&lab, "h", WORLD), "in clear");
    lab.ip("a", "rule add priority 10 lookup main").expect("a rule");
    assert!(!answers(&lab, "h", WORLD), "in clear, by the rule of another");
    if has_program("iptables") {
        let mark = ["-t", "mangle", "-A", "PREROUTING", "-i", "lan", "-j", "MARK", "--set-mark", "220"];
        lab.run("a", "iptables", &mark).expect("a mark");
        assert!(!answers(&lab, "h", WORLD), "in clear, with the mark of our own packets");
    } else {
        skip("needs iptables");
    }
    assert!(answers(&lab, "h", "10.1.0.1"), "its gateway");
}

/// What the guard has held back, as `show drops` has it.
fn held_back(gateway: &Gateway) -> u64 {
    let said = ask(&["show", "drops", "--all", "--api", &gateway.0.socket.to_string_lossy()]);
    let all = said["drops"].as_array().expect("a list");
    let found = all.iter().find(|drop| drop["reason"] == "outside-tunnel").expect("it is listed");
    found["outbound"].as_u64().expect("a number")
}

#[test]
fn an_unexpected_rule_leaks_nothing() {
    let Some(mut lab) = lab() else { return };
    let narrow = tunnel("narrow", V4, "10.1.0.0/24", "10.20.0.0/16");
    let mut a = running(
        &mut lab,
        &format!("{}{narrow}", everything())
            .replace("peer narrow remote-address 192.168.77.2", "peer narrow remote-address 192.168.77.3"),
    );
    assert!(guard_is_there(&lab));
    lab.ip("a", "rule add priority 100 lookup main").expect("a rule");
    let before = held_back(&a);
    assert!(before >= 2, "what was tried until now counts: {before}");
    assert!(!leaks(&lab, "10.1.0.1", "10.20.0.8"));
    let after = held_back(&a);
    assert!(after > before, "held back: {before}, then {after}");
    // Another table takes the place of this one, and of that of an earlier daemon.
    a.write(&everything());
    a.0.reload();
    assert!(held_back(&a) >= after);
    ends(&mut lab, &mut a.0, Signal::KILL);
    nothing_protected_leaks(&lab, "after its end");
    a.0.start(&mut lab);
    assert!(held_back(&a) > 0, "what was held back while there was no daemon");
    assert!(reaches(&lab, V4[0], WORLD), "what no policy protects follows the rule");
}

#[test]
fn what_the_user_excepts_is_reached_in_clear() {
    let Some(mut lab) = lab() else { return };
    let narrow = tunnel("narrow", ["192.168.77.1", "192.168.77.3"], "10.1.0.0/24", "198.51.100.8/32");
    let excepted = "set vpn ipsec passthrough 203.0.113.0/24\nset vpn ipsec passthrough 198.51.100.0/24\n\
         set vpn ipsec passthrough 2001:db8:1::/48\n";
    let a = running(&mut lab, &format!("{}{narrow}{excepted}", everything()));
    assert!(reaches(&lab, "10.1.0.1", "203.0.113.8") && reaches(&lab, "fd01::1", "2001:db8:1::8"));
    assert!(reaches(&lab, "0.0.0.0", "203.0.113.8"));
    assert!(!leaks(&lab, "10.1.0.1", WORLD), "a tunnel leads closer");
    assert!(!leaks(&lab, "fd01::1", WORLD_6));
    a.write(&everything());
    a.0.reload();
    nothing_protected_leaks(&lab, "without exceptions");
}

#[test]
fn what_others_delete_is_put_back() {
    let Some(mut lab) = lab() else { return };
    let _a = running(
        &mut lab,
        &format!(
            "{}{}",
            everything(),
            tunnel("narrow", ["192.168.77.1", "192.168.77.3"], "10.1.0.0/24", "10.20.0.0/16")
        ),
    );
    let all = rules(&lab);
    for (family, priority) in [("-4", 220), ("-4", 222), ("-6", 222), ("-4", 225), ("-6", 224)] {
        lab.ip("a", &format!("{family} rule delete priority {priority}")).expect("there is such a rule");
        wait_until(PATIENCE, || rules(&lab) == all)
            .unwrap_or_else(|error| panic!("{error}: {}", rules(&lab)));
    }
    for table in ["220", "221", "222"] {
        let routes = || lab.ip("a", &format!("route show table {table}")).unwrap_or_default();
        let before = routes();
        assert!(before.contains("unreachable"), "{before}");
        lab.ip("a", &format!("route flush table {table}")).expect("routes");
        wait_until(PATIENCE, || routes() == before).unwrap_or_else(|error| panic!("{error}: {}", routes()));
    }
    delete_table(&lab, "postern-guard").expect("it is there");
    wait_until(PATIENCE, || guard_is_there(&lab)).expect("it is put back");
}

#[test]
fn who_keeps_deleting_is_named_and_not_fought_in_a_loop() {
    let Some(mut lab) = lab() else { return };
    let a = running(&mut lab, &everything());
    let log = || std::fs::read_to_string(&a.0.log).unwrap_or_default();
    let named = wait_until(PATIENCE, || {
        let _ = lab.ip("a", "rule delete priority 222");
        log().contains("another program keeps deleting")
    });
    named.unwrap_or_else(|error| panic!("{error}: {}", log()));
    assert!(log().contains("ManageForeignRoutingPolicyRules=no"));
    wait_until(PATIENCE, || rules(&lab).contains("222:")).expect("it is put back all the same");
}

#[test]
fn however_a_gateway_ends_what_it_protected_stays_closed() {
    let Some(mut lab) = lab() else { return };
    let mut a = running(&mut lab, &everything());
    for signal in [Signal::TERM, Signal::KILL, Signal::INT] {
        ends(&mut lab, &mut a.0, signal);
        assert!(lab.ip("a", "link show ipsec0").is_err());
        nothing_protected_leaks(&lab, &format!("after {signal:?}"));
        assert!(guard_is_there(&lab), "after {signal:?}");
        assert!(reaches(&lab, V4[0], WORLD) && reaches(&lab, V6[0], WORLD_6), "what no policy protects");
        a.0.start(&mut lab);
        nothing_protected_leaks(&lab, "with the next");
    }
    // A prefix that is no longer in the configuration is opened.
    ends(&mut lab, &mut a.0, Signal::TERM);
    a.write(&format!("{GROUPS}{}", tunnel("six", V6, "fd01::/64", "::/0")));
    a.0.start(&mut lab);
    assert!(reaches(&lab, "10.1.0.1", WORLD) && !leaks(&lab, "fd01::1", WORLD_6));
    ends(&mut lab, &mut a.0, Signal::TERM);
    open(&lab).expect("it opens");
    assert_eq!(traces(&lab), "");
    assert!(reaches(&lab, "fd01::1", WORLD_6));
}

#[test]
fn what_was_protected_stays_closed_when_rules_and_routes_are_deleted_after_the_end() {
    let Some(mut lab) = lab() else { return };
    let narrow = tunnel("narrow", ["192.168.77.1", "192.168.77.3"], "10.1.0.0/24", "10.20.0.0/16");
    let mut a = running(&mut lab, &format!("{}{narrow}", everything()));
    let none = rules_of_others(&lab);
    for signal in [Signal::TERM, Signal::KILL] {
        ends(&mut lab, &mut a.0, signal);
        for family in ["-4", "-6"] {
            // As systemd-networkd does at its start.
            while lab.ip("a", &format!("{family} rule delete proto 219")).is_ok() {}
            for table in ["220", "221", "222"] {
                let _ = lab.ip("a", &format!("{family} route flush table {table}"));
            }
        }
        let left = [rules(&lab), lab.ip("a", "route show table all proto 219").unwrap_or_default()].concat();
        assert_eq!(left, none, "after {signal:?} the guard is alone");
        nothing_protected_leaks(&lab, &format!("after {signal:?}, without rules and routes"));
        assert!(!leaks(&lab, "10.1.0.1", "10.20.0.8"));
        assert!(reaches(&lab, V4[0], WORLD) && reaches(&lab, V6[0], WORLD_6), "what no policy protects");
        a.0.start(&mut lab);
        assert!(rules(&lab).contains("222:"), "the next start puts them back");
    }
}

/// The rules, without those of ours.
fn rules_of_others(lab: &Lab) -> String {
    let rules = rules(lab);
    rules
        .lines()
        .filter(|line| !line.contains("proto 219"))
        .fold(String::new(), |all, line| all + line + "\n")
}

/// `postern open` at the first site.
pub fn open(lab: &Lab) -> Result<String, String> {
    let api = "/run/postern/there-is-none.sock";
    let program = postern();
    lab.run("a", program.to_str().expect("a path"), &["open", "--api", api])
        .map_err(|error| error.to_string())
}

#[test]
fn nothing_is_left_if_the_user_asks_for_it() {
    let Some(mut lab) = lab() else { return };
    let mut a = running(&mut lab, &format!("{}set system open-at-exit\n", everything()));
    nothing_protected_leaks(&lab, "while it runs");
    let refused = {
        let program = postern();
        let socket = a.0.socket.to_string_lossy().into_owned();
        lab.run("a", program.to_str().expect("a path"), &["open", "--api", &socket])
    };
    assert!(refused.is_err_and(|error| error.to_string().contains("fix: systemctl stop postern")));
    ends(&mut lab, &mut a.0, Signal::TERM);
    assert_eq!(traces(&lab), "");
    assert!(reaches(&lab, "10.1.0.1", WORLD) && reaches(&lab, "fd01::1", WORLD_6));
}

#[test]
fn what_is_to_be_protected_can_be_closed_before_the_gateway_starts() {
    let Some(mut lab) = lab() else { return };
    let mut a = Gateway::new(&lab, "a");
    a.write(&everything());
    let (program, file) = (postern(), a.0.file.to_string_lossy().into_owned());
    let close = ["close", "--config", &file, "--api", "/run/postern/there-is-none.sock"];
    lab.run("a", program.to_str().expect("a path"), &close).expect("it closes");
    nothing_protected_leaks(&lab, "before the start");
    assert!(guard_is_there(&lab));
    a.0.start(&mut lab);
    nothing_protected_leaks(&lab, "with the gateway");
    ends(&mut lab, &mut a.0, Signal::TERM);
    open(&lab).expect("it opens");
    assert_eq!(traces(&lab), "");
}

#[test]
fn a_failed_start_leaves_closed_what_it_was_to_protect() {
    let Some(mut lab) = lab() else { return };
    let taken = lab.take("a", "0.0.0.0:500").expect("free");
    let mut a = Gateway::new(&lab, "a");
    a.write(&everything());
    let output = a.0.command(&lab).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("UDP port 500 is in use"), "{said}");
    nothing_protected_leaks(&lab, "after a failed start");
    drop(taken);
    a.0.start(&mut lab);
    nothing_protected_leaks(&lab, "after another");
}

#[test]
fn one_wrong_peer_is_that_peers_error() {
    let Some(mut lab) = lab() else { return };
    let wrong = tunnel("wrong", ["192.168.77.1", "192.168.77.4"], "10.1.0.0/24", "10.20.0.0/16")
        .replace("authentication mode pre-shared-secret", "authentication mode x509")
        + "set vpn ipsec site-to-site peer wrong authentication x509 certificate none\n\
           set vpn ipsec site-to-site peer wrong authentication x509 ca-certificate none\n\
           set pki ca none certificate AAAA\nset pki certificate none certificate AAAA\n\
           set pki certificate none private key AAAA\n";
    let six = tunnel("six", V6, "fd01::/64", "::/0");
    let a = running(&mut lab, &format!("{GROUPS}{six}{wrong}"));
    let log = std::fs::read_to_string(&a.0.log).expect("it logs");
    assert!(log.contains("vpn ipsec site-to-site peer wrong is not served"), "{log}");
    assert!(!a.peer("six").is_null(), "the other is served: {log}");
    assert!(!leaks(&lab, "fd01::1", WORLD_6) && !leaks(&lab, "10.1.0.1", "10.20.0.8"));
    assert!(reaches(&lab, "10.1.0.1", WORLD), "no tunnel protects it");
    // It is tried again with the next configuration.
    a.write(&format!(
        "{GROUPS}{six}{}",
        tunnel("wrong", ["192.168.77.1", "192.168.77.4"], "10.1.0.0/24", "10.20.0.0/16")
    ));
    assert!(a.0.reload().contains("is in force"));
    assert!(!a.peer("wrong").is_null());
    a.write(&format!("{GROUPS}{six}"));
    a.0.reload();
    assert!(reaches(&lab, "10.1.0.1", "10.20.0.8"), "it is no longer to be protected");
}

#[test]
fn of_tunnels_and_exceptions_the_closest_decides() {
    let Some(mut lab) = lab() else { return };
    lab.ip("b", "address add 10.20.7.8/32 dev lo").expect("an address");
    let tunnel = tunnel("one", ["192.168.77.1", "192.168.77.3"], "10.1.0.0/24", "10.20.0.0/16");
    let excepted = "set vpn ipsec passthrough 10.0.0.0/8\nset vpn ipsec passthrough 10.20.7.0/24\n";
    let _a = running(&mut lab, &format!("{GROUPS}{tunnel}{excepted}"));
    assert!(reaches(&lab, "10.1.0.1", "10.20.7.8"), "an exception within the tunnel");
    assert!(!leaks(&lab, "10.1.0.1", "10.20.0.8"), "a tunnel within an exception");
}

#[test]
fn without_routes_of_ours_what_is_protected_does_not_leave_in_clear_either() {
    let Some(mut lab) = lab() else { return };
    assert!(reaches(&lab, "10.1.0.1", "10.20.0.8"), "the lab leads there");
    let tunnel = tunnel("one", ["192.168.77.1", "192.168.77.3"], "10.1.0.0/24", "10.20.0.0/16");
    let alone = "set vpn ipsec options disable-route-autoinstall\n";
    let _a = running(&mut lab, &format!("{GROUPS}{tunnel}{alone}"));
    assert!(!leaks(&lab, "10.1.0.1", "10.20.0.8"));
    assert!(!lab.ip("a", "route show table all").expect("routes").contains("10.20.0.0/16"));
}
