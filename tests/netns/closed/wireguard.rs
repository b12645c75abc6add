//! What a WireGuard tunnel is to protect does not leave in clear.

use super::{PATIENCE, V6, WORLD, WORLD_6, ends, lab, leaks, open, reaches, running, traces, tunnel};
use crate::daemon::key_pair;
use crate::ipsec::{GROUPS, Gateway};
use crate::openvpn_ends::write_keys;
use crate::openvpn_tree::body;
use lab::taken::Taken;
use lab::{Lab, wait_until};
use rustix::process::Signal;

/// WireGuard on the first site, to a peer that never answers.
fn wireguard(allowed: &[&str], more: &str) -> String {
    let (private, public) = (key_pair().0, key_pair().1);
    let set = "set interfaces wireguard wg0";
    let allowed: String = allowed.iter().map(|it| format!("{set} peer b allowed-ips {it}\n")).collect();
    format!(
        "{set} private-key {private}\n{set} address 10.66.0.1/24\n{set} address fd66::1/64\n\
         {set} peer b public-key {public}\n{set} peer b address 192.168.77.2\n{set} peer b port 51820\n\
         {allowed}{more}"
    )
}

const ALLOWED: [&str; 4] = ["10.20.0.0/16", "2001:db8::/32", "10.66.0.0/24", "fd66::2/128"];

fn ways(lab: &Lab) -> Vec<String> {
    let targets = ["10.20.0.8", WORLD_6, "10.66.0.2", "fd66::2"];
    targets.map(|to| lab.ip("a", &format!("route get {to}")).unwrap_or_else(|error| error.to_string())).into()
}

fn lead_inside(lab: &Lab) {
    let inside = || ways(lab).iter().all(|way| way.contains("dev wg0"));
    wait_until(PATIENCE, inside).unwrap_or_else(|error| panic!("{error}: {:?}", ways(lab)));
}

fn lead_nowhere(lab: &Lab) {
    let closed =
        || ways(lab).iter().all(|way| way.contains("unreachable") || way.contains("No route to host"));
    wait_until(PATIENCE, closed).unwrap_or_else(|error| panic!("{error}: {:?}", ways(lab)));
}

#[test]
fn routes_and_addresses_of_wireguard_come_back_and_are_closed_meanwhile() {
    let Some(mut lab) = lab() else { return };
    let mut a = running(&mut lab, &wireguard(&ALLOWED, ""));
    lead_inside(&lab);
    lab.ip("a", "link set wg0 down").expect("it goes down");
    lead_nowhere(&lab);
    assert!(!leaks(&lab, "0.0.0.0", "10.20.0.8") && !leaks(&lab, "::", WORLD_6));
    lab.ip("a", "link set wg0 up").expect("it goes up");
    lead_inside(&lab);
    let addresses = || lab.ip("a", "address show dev wg0").expect("it is there");
    wait_until(PATIENCE, || addresses().contains("fd66::1/64")).expect("the address is back");
    for address in ["10.66.0.1/24", "fd66::1/64"] {
        lab.ip("a", &format!("address delete {address} dev wg0")).expect("it is there");
        wait_until(PATIENCE, || addresses().contains(address)).expect("the address is back");
        lead_inside(&lab);
    }
    lab.ip("a", "route delete 10.20.0.0/16 dev wg0").expect("it is there");
    lead_inside(&lab);
    lab.ip("a", "link delete wg0").expect("it goes");
    lead_nowhere(&lab);
    let is_told = || {
        let status = a.command("status").output().expect("it runs");
        String::from_utf8_lossy(&status.stdout).contains("wg0 was deleted by another program")
    };
    wait_until(PATIENCE, is_told).expect("it is not up");
    a.0.reload();
    assert!(!is_told());
    lead_inside(&lab);
    ends(&mut lab, &mut a.0, Signal::TERM);
    lead_nowhere(&lab);
    a.0.start(&mut lab);
    lead_inside(&lab);
    ends(&mut lab, &mut a.0, Signal::KILL);
    lead_nowhere(&lab);
    open(&lab).expect("it opens");
    assert_eq!(traces(&lab), "");
}

#[test]
fn a_wireguard_tunnel_for_everything_stays_closed() {
    let Some(mut lab) = lab() else { return };
    let mut a = running(&mut lab, &wireguard(&["0.0.0.0/0", "::/0"], ""));
    for step in ["link set wg0 down", "link delete wg0"] {
        lab.ip("a", step).expect("it goes");
        assert!(!leaks(&lab, "0.0.0.0", WORLD) && !leaks(&lab, "::", WORLD_6), "{step}");
    }
    for signal in [Signal::KILL, Signal::TERM] {
        ends(&mut lab, &mut a.0, signal);
        assert!(!leaks(&lab, "0.0.0.0", WORLD) && !leaks(&lab, "::", WORLD_6), "{signal:?}");
        a.0.start(&mut lab);
    }
    a.0.reload();
    let route = lab.ip("a", &format!("route get {WORLD}")).expect("a route");
    assert!(route.contains("dev wg0"), "{route}");
}

/// The first site with these tunnels, and with an interface for 10.20.0.0/16 that is refused: another program has its port.
fn with_refused(lab: &mut Lab, others: &str) -> (Gateway, Taken) {
    let taken = lab.take("a", "0.0.0.0:51999").expect("free");
    let wrong = wireguard(&["10.20.0.0/16"], "set interfaces wireguard wg0 port 51999\n");
    let a = running(lab, &(others.to_owned() + &wrong));
    assert!(!leaks(lab, "0.0.0.0", "10.20.0.8"), "what it is to protect is closed");
    (a, taken)
}

#[test]
fn one_wrong_wireguard_interface_is_that_interfaces_error() {
    let Some(mut lab) = lab() else { return };
    let (a, taken) = with_refused(&mut lab, &(GROUPS.to_owned() + &tunnel("six", V6, "fd01::/64", "::/0")));
    assert!(!a.peer("six").is_null());
    assert!(!leaks(&lab, "fd01::1", WORLD_6));
    drop(taken);
    assert!(a.0.reload().contains("is in force"));
    let route = lab.ip("a", "route get 10.20.0.8").expect("a route");
    assert!(route.contains("dev wg0"), "{route}");
}

#[test]
fn a_refused_interface_that_is_no_longer_configured_closes_nothing() {
    let Some(mut lab) = lab() else { return };
    let others = GROUPS.to_owned() + &tunnel("six", V6, "fd01::/64", "2001:db8::/32");
    let (a, _taken) = with_refused(&mut lab, &others);
    a.write(&others);
    assert!(a.0.reload().contains("is in force"));
    assert!(reaches(&lab, "0.0.0.0", "10.20.0.8"), "it is no longer to be protected");
}

#[test]
fn a_prefix_that_goes_to_another_tunnel_is_closed_all_the_while() {
    let Some(mut lab) = lab() else { return };
    let text = wireguard(&["10.20.0.0/16"], "");
    let a = running(&mut lab, &text);
    let seen = tempfile::NamedTempFile::new().expect("a file");
    let mut monitor = lab.command("a", "stdbuf");
    let monitor = monitor.args(["-oL", "ip", "monitor", "route"]).stdout(seen.reopen().expect("a file"));
    let monitor = lab.start(monitor).expect("it starts");
    let said = || std::fs::read_to_string(seen.path()).expect("it writes");
    wait_until(PATIENCE, || {
        ["add", "delete"].iter().all(|it| lab.ip("a", &format!("route {it} 192.0.2.0/24 dev lo")).is_ok())
            && said().contains("192.0.2.0/24")
    })
    .expect("it listens");
    a.write(&text.replace(" wg0 ", " wg1 "));
    assert!(a.0.reload().contains("is in force"));
    let inside = || lab.ip("a", "route get 10.20.0.8").is_ok_and(|way| way.contains("dev wg1"));
    wait_until(PATIENCE, inside).expect("the other tunnel has it");
    lab.ip("a", "route add 192.0.3.0/24 dev lo").expect("a route");
    wait_until(PATIENCE, || said().contains("192.0.3.0/24")).expect("all is seen");
    lab.kill(monitor, Signal::TERM);
    let said = said();
    assert!(said.contains("10.20.0.0/16 dev wg1"), "{said}");
    assert!(!said.contains("Deleted unreachable 10.20.0.0/16"), "{said}");
}

/// Lines of a second interface, whose peer never answers.
fn second(port: u16, allowed: &str) -> String {
    wireguard(&[allowed], &format!("set interfaces wireguard wg0 port {port}\n"))
        .lines()
        .filter(|line| !line.contains(" address 10.66.") && !line.contains(" address fd66:"))
        .map(|line| line.replace(" wg0 ", " wg1 ") + "\n")
        .collect()
}

#[test]
fn a_prefix_that_moves_to_an_interface_that_is_refused_stays_closed() {
    let Some(mut lab) = lab() else { return };
    let first = wireguard(&["10.20.0.0/16", "10.21.0.0/16"], "");
    let without = first.replace("set interfaces wireguard wg0 peer b allowed-ips 10.20.0.0/16\n", "");
    let a = running(&mut lab, &(first + &second(51_998, "10.22.0.0/16")));
    let inside = |name: &str| {
        let way = || lab.ip("a", "route get 10.20.0.8").is_ok_and(|way| way.contains(&format!("dev {name}")));
        wait_until(PATIENCE, way).expect("it is routed");
    };
    inside("wg0");
    let taken = lab.take("a", "0.0.0.0:51999").expect("free");
    a.write(&(without.clone() + &second(51_999, "10.20.0.0/16")));
    let said = a.0.reload();
    assert!(said.contains("is not in force for interfaces wireguard wg1,"), "{said}");
    assert!(said.contains("10.20.0.0/16: blocked"), "{said}");
    assert!(!leaks(&lab, "0.0.0.0", "10.20.0.8"), "no tunnel has it: it left in clear");
    // It is neither forgotten when the next configuration is refused too,
    a.0.reload();
    assert!(!leaks(&lab, "0.0.0.0", "10.20.0.8"), "after another reload");
    // nor kept when it is no longer to be protected.
    a.write(&(without.clone() + &second(51_999, "10.22.0.0/16")));
    assert!(a.0.reload().contains("is not in force for interfaces wireguard wg1,"));
    assert!(reaches(&lab, "0.0.0.0", "10.20.0.8"));
    drop(taken);
    a.write(&(without + &second(51_999, "10.20.0.0/16")));
    assert!(a.0.reload().contains("is in force"));
    inside("wg1");
}

fn commits(a: &Gateway, edit: &str) {
    let mut command = a.command("configure");
    let output = command.args(["-c", edit, "-c", "commit"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_a_start_or_a_reload_refused_stays_closed_through_commits_about_other_things() {
    let Some(mut lab) = lab() else { return };
    let others = second(51_998, "10.22.0.0/16");
    let (a, taken) = with_refused(&mut lab, &others);
    for mtu in [1400, 1390] {
        commits(&a, &format!("set interfaces wireguard wg1 mtu {mtu}"));
        assert!(!leaks(&lab, "0.0.0.0", "10.20.0.8"), "after a commit");
    }
    assert!(a.0.reload().contains("is not in force for interfaces wireguard wg0,"));
    commits(&a, "set interfaces wireguard wg1 mtu 1380");
    assert!(!leaks(&lab, "0.0.0.0", "10.20.0.8"), "after a reload and a commit");
    // A served interface opens what is deleted of it.
    commits(&a, "delete interfaces wireguard wg1");
    assert!(lab.ip("a", "route get 10.22.0.8").is_ok_and(|way| way.contains("dev outside")));
    assert!(!leaks(&lab, "0.0.0.0", "10.20.0.8"));
    drop(taken);
    assert!(a.0.reload().contains("is in force"));
    assert!(lab.ip("a", "route get 10.20.0.8").is_ok_and(|way| way.contains("dev wg0")));
    // With that, nothing is left out any more.
    commits(&a, "delete interfaces wireguard wg0");
    assert!(reaches(&lab, "0.0.0.0", "10.20.0.8"));
}

#[test]
fn a_refused_part_outlives_saving_and_restarts() {
    let Some(mut lab) = lab() else { return };
    let others = second(51_998, "10.22.0.0/16");
    let (mut a, taken) = with_refused(&mut lab, &others);
    commits(&a, "set interfaces wireguard wg1 mtu 1400");
    let says = |a: &Gateway, words: &[&str]| {
        let words: Vec<&str> = words.iter().flat_map(|it| ["-c", it]).collect();
        let output = a.command("configure").args(words).output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let said = says(&a, &["save"]);
    assert!(said.contains("interfaces wireguard wg0: saved, but not in force"), "{said}");
    let file = std::fs::read_to_string(&a.0.file).expect("it is there");
    assert!(file.contains("wg1 mtu 1400") && file.contains("wg0 port 51999"), "{file}");
    // A commit that is not saved, and a restart in the same boot.
    commits(&a, "set interfaces wireguard wg1 mtu 1390");
    for signal in [Signal::KILL, Signal::TERM] {
        lab.kill(a.0.process.expect("it runs"), signal);
        assert!(!leaks(&lab, "0.0.0.0", "10.20.0.8"), "while no daemon runs");
        a.0.start(&mut lab);
        assert!(!leaks(&lab, "0.0.0.0", "10.20.0.8"), "after a restart");
        commits(
            &a,
            &format!("set interfaces wireguard wg1 mtu {}", if signal == Signal::KILL { 1380 } else { 1370 }),
        );
        assert!(!leaks(&lab, "0.0.0.0", "10.20.0.8"), "after a commit");
    }
    // A commit that is about the part fails by it.
    let edit = "set interfaces wireguard wg0 peer b allowed-ips 10.23.0.0/16";
    let said = says(&a, &[edit, "commit"]);
    assert!(said.contains("UDP port 51999 is in use"), "{said}");
    // A part that no file has: a commit puts it in force, and a restart refuses it.
    lab.ip("b", "address add 10.24.0.8/32 dev lo").expect("an address");
    let third = second(51_997, "10.24.0.0/16").replace("wg1", "wg3");
    let edits: Vec<&str> = third.lines().filter(|line| line.contains(" wg3 ")).chain(["commit"]).collect();
    let said = says(&a, &edits);
    assert!(lab.ip("a", "route get 10.24.0.8").is_ok_and(|way| way.contains("dev wg3")), "{said}");
    lab.kill(a.0.process.expect("it runs"), Signal::KILL);
    let second_port = lab.take("a", "0.0.0.0:51997").expect("free");
    a.0.start(&mut lab);
    commits(&a, "set interfaces wireguard wg1 mtu 1360");
    lab.kill(a.0.process.expect("it runs"), Signal::KILL);
    a.0.start(&mut lab);
    assert!(!leaks(&lab, "0.0.0.0", "10.24.0.8"), "after two restarts");
    drop((taken, second_port));
    lab.kill(a.0.process.expect("it runs"), Signal::KILL);
    a.0.start(&mut lab);
    assert!(lab.ip("a", "route get 10.20.0.8").is_ok_and(|way| way.contains("dev wg0")), "it is tried again");
    let commands = says(&a, &["run show configuration commands"]);
    assert!(commands.contains("wg1 mtu 1360") && commands.contains("wg0 port 51999"), "{commands}");
    assert!(lab.ip("a", "route get 10.24.0.8").is_ok_and(|way| way.contains("dev wg3")));
}

#[test]
fn an_openvpn_client_that_a_reload_refuses_closes_what_it_is_for_until_it_is_deleted() {
    let Some(mut lab) = lab() else { return };
    let others = second(51_998, "10.22.0.0/16");
    let a = running(&mut lab, &others);
    assert!(reaches(&lab, "0.0.0.0", WORLD));
    let files = tempfile::tempdir().expect("a folder");
    write_keys(&files);
    let key = |name: &str| body(&files, name);
    let pki = format!(
        "set pki ca ca certificate {}\nset pki certificate own certificate {}\nset pki certificate own private key {}\n",
        key("ca.pem"),
        key("client.pem"),
        key("client.key")
    );
    let lines = [
        "mode client",
        "remote-host 192.168.77.2",
        "replace-default-route",
        "tls ca-certificate ca",
        "tls certificate own",
        "openvpn-option 'tls-crypt /nowhere/key'",
    ];
    let client = pki + &lines.map(|line| format!("set interfaces openvpn vtun0 {line}\n")).concat();
    a.write(&(others.clone() + &client));
    let said = a.0.reload();
    assert!(said.contains("is not in force for interfaces openvpn vtun0,"), "{said}");
    assert!(!leaks(&lab, "0.0.0.0", WORLD), "it is refused before anything is made of it");
    commits(&a, "set interfaces wireguard wg1 mtu 1400");
    assert!(!leaks(&lab, "0.0.0.0", WORLD), "after a commit");
    a.write(&others);
    assert!(a.0.reload().contains("is in force"));
    assert!(reaches(&lab, "0.0.0.0", WORLD), "it is no longer to be protected");
}

#[test]
fn a_prefix_that_moves_to_ipsec_that_is_refused_stays_closed() {
    let Some(mut lab) = lab() else { return };
    let first = wireguard(&["10.20.0.0/16", "10.21.0.0/16"], "");
    let without = first.replace("set interfaces wireguard wg0 peer b allowed-ips 10.20.0.0/16\n", "");
    let other = format!("{GROUPS}{}", tunnel("other", V6, "fd01::/64", "2001:db8::/32"));
    let a = running(&mut lab, &(first + &other));
    // Another program is in the way of one of the networks, and IPsec is refused as a whole.
    lab.ip("a", "route add 10.23.0.0/16 dev outside table 220").expect("a route");
    let moved = tunnel("moved", ["192.168.77.1", "192.168.77.3"], "10.1.0.0/24", "10.20.0.0/16");
    let refused = tunnel("refused", ["192.168.77.1", "192.168.77.4"], "10.1.0.0/24", "10.23.0.0/16");
    a.write(&format!("{without}{other}{moved}{refused}"));
    let said = a.0.reload();
    assert!(said.contains("is not in force for vpn ipsec,"), "{said}");
    for from in ["0.0.0.0", "10.1.0.1"] {
        assert!(!leaks(&lab, from, "10.20.0.8"), "no tunnel has it: it left in clear from {from}");
    }
    lab.ip("a", "route delete 10.23.0.0/16 dev outside table 220").expect("it is there");
    assert!(a.0.reload().contains("is in force"));
    assert!(!a.peer("moved").is_null());
}

#[test]
fn the_route_of_another_program_is_left_alone() {
    let Some(mut lab) = lab() else { return };
    let theirs =
        ["10.20.0.0/16 via 192.168.77.2 dev outside", "2001:db8::/32 via fd77::2 dev outside metric 1024"];
    for route in theirs {
        lab.ip("a", &format!("route add {route} proto static")).expect("a route");
    }
    for allowed in ["10.20.0.0/16", "2001:db8::/32"] {
        let a = Gateway::new(&lab, "a");
        a.write(&wireguard(&[allowed], ""));
        let output = a.0.command(&lab).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(&format!("interface wg0: route {allowed} via ")), "{said}");
        assert!(
            said.contains(" dev outside proto static") && said.contains("fix: ip route delete "),
            "{said}"
        );
    }
    for (family, route) in [("-4", "10.20.0.0/16 via 192.168.77.2"), ("-6", "2001:db8::/32 via fd77::2")] {
        let routes = lab.ip("a", &format!("{family} route show")).expect("routes");
        assert!(routes.contains(route), "{routes}");
    }
    open(&lab).expect("it opens");
    // With another metric there is room for both.
    lab.ip("a", "route delete 10.20.0.0/16").expect("it is there");
    lab.ip("a", "route add 10.20.0.0/16 via 192.168.77.2 metric 100").expect("a route");
    let mut a = running(&mut lab, &wireguard(&["10.20.0.0/16"], "set system open-at-exit\n"));
    let route = lab.ip("a", "route get 10.20.0.8").expect("a route");
    assert!(route.contains("dev wg0"), "{route}");
    ends(&mut lab, &mut a.0, Signal::TERM);
    let routes = lab.ip("a", "route show").expect("routes");
    assert!(routes.contains("10.20.0.0/16 via 192.168.77.2"), "{routes}");
    assert_eq!(traces(&lab), "");
}
