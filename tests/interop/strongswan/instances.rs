//! Many branches of one configured peer: each charon that authenticates has its own session, its own SAs, and its own part of
//! the configured prefix.

use super::{Ours, PATIENCE, TheirSa, site_labs};
use crate::support::{answers, tcp_arrives_whole};
use lab::strongswan::StrongSwan;
use lab::{Lab, wait_until};
use serde_json::Value;
use std::process::Command;

/// A hub at site a, and branches at b and c, each on a link of its own.
fn hub_and_branches() -> Option<Lab> {
    let lab = site_labs(&["a", "b", "c"])?;
    lab.ip("c", "address add 10.3.0.1/16 dev lo").expect("an address");
    for (branch, number) in [("b", 2), ("c", 3)] {
        let ours = format!("192.168.7{number}.1/24");
        let theirs = format!("192.168.7{number}.2/24");
        lab.connect(("a", &format!("to-{branch}"), &ours), (branch, "outside", &theirs))
            .expect("veth exists");
    }
    Some(lab)
}

/// One peer for all branches: of any address and identity, with any part of 10.0.0.0/8.
const HUB: &str = "
    set vpn ipsec esp-group E proposal 1 encryption aes256gcm128
    set vpn ipsec ike-group I proposal 1 encryption aes256gcm128
    set vpn ipsec ike-group I proposal 1 prf prfsha256
    set vpn ipsec ike-group I proposal 1 dh-group 19
    set vpn ipsec authentication psk all id %any
    set vpn ipsec authentication psk all secret 'a secret of all branches'
    set vpn ipsec site-to-site peer branches authentication mode pre-shared-secret
    set vpn ipsec site-to-site peer branches authentication local-id hub.example
    set vpn ipsec site-to-site peer branches authentication remote-id %any
    set vpn ipsec site-to-site peer branches connection-type none
    set vpn ipsec site-to-site peer branches ike-group I
    set vpn ipsec site-to-site peer branches default-esp-group E
    set vpn ipsec site-to-site peer branches remote-address any
    set vpn ipsec site-to-site peer branches tunnel 1 local prefix 10.1.0.0/16
    set vpn ipsec site-to-site peer branches tunnel 1 remote prefix 10.0.0.0/8
";

/// The configuration of a branch: its address, its identity and the prefix behind it.
fn branch(link: u8, name: &str, prefix: &str, more: &str) -> String {
    format!(
        "connections {{ hub {{\n version = 2\n local_addrs = 192.168.7{link}.2\n remote_addrs = 192.168.7{link}.1\n\
         proposals = aes256gcm16-prfsha256-ecp256\n encap = yes\n keyingtries = 0\n {more}\n\
         local {{ auth = psk\n id = {name}.example\n }}\n remote {{ auth = psk\n id = hub.example\n }}\n\
         children {{ net {{ local_ts = {prefix}\n remote_ts = 10.1.0.0/16\n esp_proposals = aes256gcm16\n\
         start_action = start\n }} }}\n }} }}\n\
         secrets {{ ike-all {{ secret = \"a secret of all branches\"\n }} }}\n"
    )
}

/// The instances of the peer, by their names.
fn instance(daemon: &Ours, name: &str) -> Option<Value> {
    let name = format!("branches/{name}.example");
    daemon.peers().into_iter().find(|peer| peer["name"] == *name)
}

/// Whether an instance has one pair of SAs, which its charon has too.
fn is_up(lab: &Lab, daemon: &Ours, name: &str, charon: &StrongSwan) -> bool {
    let Some(instance) = instance(daemon, name) else { return false };
    let theirs = TheirSa::all(&charon.sas(lab).unwrap_or_default());
    match instance["tunnels"][0]["sas"].as_array().map(Vec::as_slice) {
        Some([sa]) => instance["up"] == true && theirs.len() == 1 && theirs[0].is(sa),
        _ => false,
    }
}

/// The hub with both branches connected.
fn connected() -> Option<(Lab, Ours, [StrongSwan; 2])> {
    let mut lab = hub_and_branches()?;
    let daemon = Ours::start(&mut lab, "a", HUB);
    let charons = [(2, "b"), (3, "c")].map(|(link, site)| {
        let configuration = branch(link, site, &format!("10.{link}.0.0/16"), "");
        StrongSwan::start(&mut lab, site, &configuration, "").expect("it starts")
    });
    for (name, charon) in ["b", "c"].into_iter().zip(&charons) {
        daemon.wait(charon, "the branch is an instance", || is_up(&lab, &daemon, name, charon));
    }
    Some((lab, daemon, charons))
}

fn carries(lab: &Lab, site: &str, number: u8) {
    for (from, to, address) in [("a", site, format!("10.{number}.0.1")), (site, "a", "10.1.0.1".to_owned())] {
        tcp_arrives_whole(lab, from, to, &address, 1 << 20)
            .unwrap_or_else(|error| panic!("from {from} to {to}: {error}"));
    }
}

#[test]
fn two_branches_are_served_by_one_configured_peer() {
    let Some((lab, daemon, [b, c])) = connected() else { return };
    carries(&lab, "b", 2);
    carries(&lab, "c", 3);
    for (name, number) in [("b", 2), ("c", 3)] {
        let shown = instance(&daemon, name).expect("it is up");
        assert_eq!(shown["remote_id"], format!("{name}.example"));
        assert_eq!(shown["remote_address"], format!("192.168.7{number}.2"));
        assert_eq!(shown["tunnels"][0]["remote"][0], format!("10.{number}.0.0/16"));
    }
    // No branch has this part: nothing leaves for it.
    assert!(lab.ip("a", "route get 10.4.0.1").expect("a route").contains("ipsec0"));
    assert!(!answers(&lab, "a", "10.4.0.1"));
    // A branch that ends takes its policy along, and the other one stays.
    b.swanctl(&lab, &["--terminate", "--ike", "hub"]).expect("it ends");
    daemon.wait(&b, "the instance is gone", || instance(&daemon, "b").is_none());
    assert!(!answers(&lab, "a", "10.2.0.1"));
    assert!(lab.ip("a", "route get 10.2.0.1").expect("a route").contains("ipsec0"));
    assert!(is_up(&lab, &daemon, "c", &c));
    carries(&lab, "c", 3);
    b.initiate(&lab, "net").expect("it comes back");
    daemon.wait(&b, "it is an instance again", || is_up(&lab, &daemon, "b", &b));
    carries(&lab, "b", 2);
}

#[test]
fn a_branch_that_died_takes_the_place_of_its_past() {
    let Some((mut lab, daemon, [mut b, c])) = connected() else { return };
    let before = instance(&daemon, "b").expect("it is up")["ike"]["number"].clone();
    b.kill(&mut lab);
    b.restart(&mut lab).expect("it starts");
    daemon.wait(&b, "the instance has a new session", || {
        instance(&daemon, "b").is_some_and(|it| it["ike"]["number"] != before)
            && is_up(&lab, &daemon, "b", &b)
    });
    carries(&lab, "b", 2);
    assert!(is_up(&lab, &daemon, "c", &c));
    assert_eq!(daemon.peers().len(), 3, "the configured peer and two instances");
}

#[test]
fn a_branch_does_not_get_the_prefix_of_another() {
    let Some((lab, daemon, [b, c])) = connected() else { return };
    c.swanctl(&lab, &["--terminate", "--ike", "hub"]).expect("it ends");
    daemon.wait(&c, "the instance is gone", || instance(&daemon, "c").is_none());
    c.reconfigure(&lab, &branch(3, "c", "10.2.128.0/17", "")).expect("it is loaded");
    assert!(c.initiate(&lab, "net").is_err(), "{}", daemon.tell(&c));
    let said = || daemon.log().contains("packets to 10.2.128.0/17 are those of b.example");
    wait_until(PATIENCE, said).unwrap_or_else(|error| panic!("{error}: {}", daemon.tell(&c)));
    assert!(is_up(&lab, &daemon, "b", &b));
    carries(&lab, "b", 2);
}

#[test]
fn an_instance_is_reset_and_explained_by_its_name() {
    let Some((lab, daemon, [b, c])) = connected() else { return };
    let says = |arguments: &[&str]| {
        let mut command = Command::new(crate::support::postern());
        let output =
            command.args(arguments).arg("--api").arg(&daemon.gateway.socket).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let table = says(&["show", "vpn", "ipsec", "sa"]);
    for name in ["branches/b.example-tunnel-1", "branches/c.example-tunnel-1"] {
        assert!(table.lines().any(|line| line.starts_with(name) && line.contains(" up ")), "{table}");
    }
    assert!(!table.contains("branches-tunnel-1"), "{table}");
    let said = says(&["explain", "vpn", "ipsec", "peer", "branches/c.example"]);
    assert!(said.contains("peer branches/c.example: up\n"), "{said}");
    let said = says(&["explain", "vpn", "ipsec", "peer", "branches"]);
    assert!(said.contains("peer branches: 2 instances\n"), "{said}");
    let number = |name: &str| instance(&daemon, name).map(|it| it["ike"]["number"].clone());
    let before = ["b", "c"].map(number);
    says(&["reset", "vpn", "ipsec", "site-to-site", "peer", "branches/b.example"]);
    daemon.wait(&b, "it is closed", || number("b") != before[0]);
    if instance(&daemon, "b").is_none() {
        b.initiate(&lab, "net").expect("it comes back");
    }
    daemon.wait(&b, "it is connected again", || is_up(&lab, &daemon, "b", &b));
    assert_eq!(number("c"), before[1], "the other one is not touched");
    carries(&lab, "b", 2);
    assert!(is_up(&lab, &daemon, "c", &c));
}
