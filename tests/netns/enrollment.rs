//! A branch joins head office with a token, from nothing to a ping between devices behind both in two commands.

mod failures;
mod named;
mod races;
mod uplinks;

use crate::daemon::{Site, key_pair};
use crate::support::{PATIENCE, answers, postern, sites_and};
use lab::files::Files;
use lab::{Lab, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Output;

/// A network behind each site, with a device in it.
const DEVICE_A: &str = "10.1.0.9";
const DEVICE_B: &str = "10.2.0.9";

/// Head office in namespace a, a branch in b, and a device behind each.
struct Offices {
    lab: Lab,
    head: Site,
    branch: Site,
}

impl Offices {
    fn new() -> Option<Self> {
        Self::beside(&[], |_| {}, &["address 192.168.77.1"])
    }

    /// The same with other namespaces, in a lab that is prepared before the daemons start, and with where head office is reached.
    fn beside(others: &[&str], prepare: impl FnOnce(&Lab), reached: &[&str]) -> Option<Self> {
        let mut lab = sites_and(&[&["la", "lb"], others].concat())?;
        prepare(&lab);
        for (site, device, net) in [("a", "la", 1), ("b", "lb", 2)] {
            let [gateway, address] = [1, 9].map(|end| format!("10.{net}.0.{end}/24"));
            lab.connect((site, "lan", &gateway), (device, "lan", &address)).expect("veth exists");
            lab.ip(device, &format!("route add default via 10.{net}.0.1")).expect("a route");
            lab.enter(site, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
                .expect("entered")
                .expect("it forwards");
        }
        let mut head = Site::new(&lab, "a", &key_pair().0);
        head.write(&["address 10.255.0.1/24".to_owned(), "port 51820".to_owned()]);
        let text = std::fs::read_to_string(&head.file).expect("written");
        let service = "set service enrollment interface wg0\nset service enrollment network 10.1.0.0/24\n";
        let reached = reached.iter().map(|words| format!("set service enrollment {words}\n"));
        std::fs::write(&head.file, text + service + &reached.collect::<String>())
            .expect("its folder is there");
        let mut branch = Site::new(&lab, "b", "");
        std::fs::write(&branch.file, "set system allow-empty\n").expect("its folder is there");
        head.start(&mut lab);
        branch.start(&mut lab);
        Some(Self { lab, head, branch })
    }

    fn run(&self, site: &Site, namespace: &str, words: &[&str]) -> Output {
        let mut command = self.lab.command(namespace, postern());
        command.args(words).arg("--api").arg(&site.socket).output().expect("it runs")
    }

    /// What a command at head office prints as JSON.
    fn enroll(&self, words: &[&str]) -> Value {
        let output = self.run(&self.head, "a", &[&["enroll", "--json"], words].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}\n{}", self.head.logged());
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn token(&self, more: &[&str]) -> String {
        let created = self.enroll(&[&["create", "berlin", "--networks", "10.2.0.0/24"], more].concat());
        created["token"].as_str().expect("text").to_owned()
    }

    fn state(&self, name: &str) -> Value {
        let all = self.enroll(&["list"]);
        let found = all.as_array().expect("a list").iter().find(|branch| branch["branch"] == name);
        found.cloned().unwrap_or_default()
    }

    /// What the branch says when it cannot join.
    fn refused(&self, token: &str) -> String {
        let output = self.run(&self.branch, "b", &["join", token]);
        assert!(!output.status.success(), "it has joined");
        String::from_utf8(output.stderr).expect("text")
    }

    fn joins(&self, token: &str) {
        let output = self.run(&self.branch, "b", &["join", token]);
        let error = String::from_utf8_lossy(&output.stderr);
        let logged = (self.head.logged(), self.branch.logged());
        assert!(output.status.success(), "{error}\n{}\n{}", logged.0, logged.1);
    }

    fn devices_meet(&self) -> bool {
        answers(&self.lab, "lb", DEVICE_A) && answers(&self.lab, "la", DEVICE_B)
    }

    /// Removes what a branch has of head office.
    fn forget(&self, branch: &Site, namespace: &str) {
        let delete = ["configure", "-c", "delete interfaces wireguard wg0", "-c", "commit", "-c", "save"];
        let output = self.run(branch, namespace, &delete);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The file of a site, which has what was committed.
    fn saved(site: &Site) -> String {
        std::fs::read_to_string(&site.file).expect("it is there")
    }
}

#[test]
fn a_branch_joins_in_two_commands_and_its_devices_reach_head_office() {
    let Some(mut offices) = Offices::new() else { return };
    let token = offices.token(&[]);
    assert_eq!(offices.state("berlin")["state"], "waiting");
    offices.joins(&token);
    assert!(offices.devices_meet(), "{}\n{}", offices.head.logged(), offices.branch.logged());
    let listed = offices.state("berlin");
    assert!(listed["state"] == "joined" && listed["joined"].is_u64(), "{listed}");
    assert!(!offices.head.logged().contains(&token), "it is not logged");
    // Both have saved it: it is there after a restart.
    assert!(Offices::saved(&offices.head).contains("peer berlin public-key"));
    assert!(Offices::saved(&offices.branch).contains("peer head-office public-key"));
    for site in [&mut offices.head, &mut offices.branch] {
        site.signal(Signal::TERM);
        let process = site.process.expect("it was started");
        wait_until(PATIENCE, || offices.lab.ended(process).is_some()).expect("it ends");
        site.start(&mut offices.lab);
    }
    wait_until(PATIENCE, || offices.devices_meet()).expect("the tunnel is there again");
    // Another name and other networks: the tunnel stays.
    offices.enroll(&["rename", "berlin", "potsdam"]);
    wait_until(PATIENCE, || offices.devices_meet()).expect("the tunnel stays");
    offices.enroll(&["move", "potsdam", "--networks", "10.3.0.0/24"]);
    assert_eq!(offices.state("potsdam")["networks"][0], "10.3.0.0/24");
    wait_until(PATIENCE, || !answers(&offices.lab, "la", DEVICE_B)).expect("it has another network");
    offices.enroll(&["move", "potsdam", "--networks", "10.2.0.0/24"]);
    wait_until(PATIENCE, || offices.devices_meet()).expect("it is back");
    offices.enroll(&["retire", "potsdam"]);
    assert!(!Offices::saved(&offices.head).contains("potsdam"), "neither peer nor branch is left");
    wait_until(PATIENCE, || !answers(&offices.lab, "lb", DEVICE_A)).expect("the tunnel has ended");
}

#[test]
fn a_branch_forwards_for_its_devices_once_it_has_joined() {
    let Some(mut offices) = Offices::new() else { return };
    offices.branch.signal(Signal::TERM);
    let process = offices.branch.process.expect("it was started");
    wait_until(PATIENCE, || offices.lab.ended(process).is_some()).expect("it ends");
    let off = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "0");
    offices.lab.enter("b", off).expect("entered").expect("it does not forward");
    // A machine has one daemon that changes it: others run beside this test.
    let root = Files::default();
    std::os::unix::fs::symlink("/proc", root.path().join("proc")).expect("a folder");
    let folder = root.path().display().to_string();
    let verb = ["run", "--machine-root", &folder];
    offices.branch.start_with(&mut offices.lab, &verb, "info", PATIENCE).expect("it starts");
    let token = offices.token(&[]);
    offices.joins(&token);
    wait_until(PATIENCE, || offices.devices_meet()).expect("devices reach each other");
    assert!(Offices::saved(&offices.branch).contains("set system ip forwarding\n"));
}

#[test]
fn head_office_hears_before_the_first_branch_that_its_kernel_does_not_forward() {
    let Some(offices) = Offices::new() else { return };
    let warnings = |created: &Value| created["warnings"].as_array().expect("a list").clone();
    assert!(warnings(&offices.enroll(&["create", "berlin", "--networks", "10.2.0.0/24"])).is_empty());
    let off = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "0");
    offices.lab.enter("a", off).expect("entered").expect("it does not forward");
    let created = offices.enroll(&["create", "berlin"]);
    let [warning] = &warnings(&created)[..] else { panic!("{created}") };
    let what = warning["what"].as_str().expect("text");
    assert!(what.starts_with("net.ipv4.ip_forward is 0") && what.contains("10.1.0.0/24"), "{what}");
    let fix = "set system ip forwarding";
    assert!(warning["fix"].as_str().is_some_and(|it| it.starts_with(fix)), "{warning}");
    let output = offices.run(&offices.head, "a", &["enroll", "create", "berlin", "--no-qr"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(fix), "people read it, too");
}

#[test]
fn a_token_joins_one_router_once_and_not_when_it_is_revoked_expired_or_of_another_head_office() {
    let Some(mut offices) = Offices::new() else { return };
    let first = offices.token(&[]);
    let second = offices.token(&[]);
    let said = offices.refused(&first);
    assert!(said.contains("not known here") && said.contains("fix: at head office"), "{said}");
    let text = || Offices::saved(&offices.branch);
    assert!(!text().contains("private-key"), "nothing of it stays: {}", text());
    offices.enroll(&["revoke", "berlin"]);
    assert_eq!(offices.state("berlin")["state"], "revoked");
    assert!(offices.refused(&second).contains("was revoked"));
    // A server with another key is not head office.
    let third = offices.token(&[]);
    std::fs::remove_dir_all(offices.head.state.join("https/enrollment")).expect("it is there");
    offices.head.signal(Signal::TERM);
    let process = offices.head.process.expect("it was started");
    wait_until(PATIENCE, || offices.lab.ended(process).is_some()).expect("it ends");
    offices.head.start(&mut offices.lab);
    let said = offices.refused(&third);
    assert!(said.contains("its key is another one") && said.contains("fix: "), "{said}");
    assert_eq!(offices.state("berlin")["state"], "waiting", "it was not used");
    // An expired one: time is in the configuration.
    let expired = offices.token(&[]);
    let expires = offices.state("berlin")["expires"].as_u64().expect("a time");
    let change = format!("set service enrollment branch berlin token expires {}", expires - 90_000);
    let output = offices.run(&offices.head, "a", &["configure", "-c", &change, "-c", "commit"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(offices.state("berlin")["state"], "expired");
    assert!(offices.refused(&expired).contains("has expired"));
    // The right one, twice: another router with it is refused.
    let right = offices.token(&[]);
    offices.joins(&right);
    offices.forget(&offices.branch, "b");
    let said = offices.refused(&right);
    assert!(said.contains("used by another router") && said.contains("enroll retire berlin"), "{said}");
}
