//! Branches that want what others have, and changes at head office at the same time.

use crate::daemon::{Site, key_pair};
use crate::support::{PATIENCE, postern, sites};
use lab::{Lab, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::process::{Command, Output, Stdio};

/// Head office in namespace a.
struct Head {
    lab: Lab,
    site: Site,
}

impl Head {
    fn new() -> Option<Self> {
        let mut lab = sites()?;
        let mut site = Site::new(&lab, "a", &key_pair().0);
        site.write(&["address 10.255.0.1/24".to_owned(), "port 51820".to_owned()]);
        let text = std::fs::read_to_string(&site.file).expect("written");
        let service = "set service enrollment address 192.168.77.1\nset service enrollment interface wg0\n\
                       set service enrollment network 10.1.0.0/24\n";
        std::fs::write(&site.file, text + service).expect("its folder is there");
        site.start(&mut lab);
        Some(Self { lab, site })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.lab.command("a", postern());
        command.args(words).arg("--api").arg(&self.site.socket);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn enroll(&self, words: &[&str]) -> Output {
        self.command(&[&["enroll", "--json"], words].concat()).output().expect("it runs")
    }

    /// What a command prints as JSON.
    fn done(&self, words: &[&str]) -> Value {
        let output = self.enroll(words);
        assert!(output.status.success(), "{words:?}: {}\n{}", said(&output), self.site.logged());
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.enroll(words);
        assert!(!output.status.success(), "{words:?} was done");
        said(&output)
    }

    /// Commits lines of set and delete.
    fn configure(&self, lines: &[&str]) {
        self.commit(lines, "commit");
    }

    fn commit(&self, lines: &[&str], commit: &str) {
        let lines = lines.iter().flat_map(|line| ["-c", line]);
        let words: Vec<&str> = std::iter::once("configure").chain(lines).chain(["-c", commit]).collect();
        let output = self.command(&words).output().expect("it runs");
        assert!(output.status.success(), "{}", said(&output));
    }

    /// Runs two commands at once.
    fn both(&self, words: [&[&str]; 2]) -> [Output; 2] {
        let started = words
            .map(|words| self.command(&[&["enroll", "--json"], words].concat()).spawn().expect("it starts"));
        started.map(|process| process.wait_with_output().expect("it ends"))
    }

    /// Keeps others from writing the file.
    fn keep_file(&self) -> File {
        let name = self.site.file.file_name().expect("a name").to_string_lossy().into_owned();
        let beside = self.site.file.with_file_name(format!(".{name}.postern-new"));
        let file = File::create(&beside).expect("its folder is there");
        file.lock().expect("nobody has it");
        file
    }

    fn saved(&self) -> String {
        std::fs::read_to_string(&self.site.file).expect("it is there")
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_branch_gets_nothing_that_head_office_or_another_branch_has() {
    let Some(head) = Head::new() else { return };
    head.lab.ip("a", "address add 10.9.0.1/24 dev lo").expect("an address");
    head.done(&["create", "berlin", "--networks", "10.2.0.0/24"]);
    for (address, why) in [
        ("10.255.0.1", "of head office itself"),
        ("10.255.0.2", "branch berlin"),
        ("10.2.0.7", "branch berlin"),
        ("10.1.0.1", "head office"),
        ("10.9.0.1", "interface lo of this machine"),
        ("192.168.77.1", "interface outside of this machine"),
        ("127.0.0.1", "loopback"),
        ("0.0.0.0", "no network of a site"),
    ] {
        let text = head.refused(&["create", "lyon", "--address", address]);
        assert!(text.contains(why) && text.contains("fix: "), "{address}: {text}");
    }
    for network in ["10.9.0.0/25", "192.168.77.0/24", "127.0.0.0/8", "224.0.0.0/4", "0.0.0.0/1"] {
        let text = head.refused(&["create", "lyon", "--networks", network]);
        assert!(text.contains("fix: "), "{network}: {text}");
        let moved = head.refused(&["move", "berlin", "--networks", network]);
        assert!(moved.contains("fix: "), "{network}: {moved}");
    }
    // By hand, too.
    let line = "set service enrollment branch lyon address 10.255.0.2";
    let output = head.command(&["configure", "-c", line, "-c", "commit"]).output().expect("it runs");
    assert!(!output.status.success() && !head.saved().contains("lyon"));
    assert!(head.refused(&["create", ""]).contains("has no name"));
}

#[test]
fn commands_at_the_same_time_get_addresses_and_networks_of_their_own() {
    let Some(head) = Head::new() else { return };
    let mut addresses = BTreeSet::new();
    for round in 0..6 {
        let names = [format!("a{round}"), format!("b{round}")];
        let made = head.both([&["create", &names[0]], &["create", &names[1]]]);
        for output in &made {
            assert!(output.status.success(), "{}", said(output));
            let made: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let address = made["address"].as_str().expect("text").to_owned();
            assert!(addresses.insert(address), "{made}");
        }
        let network = format!("10.{}.0.0/24", 70 + round);
        let names = [format!("c{round}"), format!("d{round}")];
        let wants = |name| ["create", name, "--networks", &network];
        let made = head.both([&wants(&names[0]), &wants(&names[1])]);
        let count = made.iter().filter(|output| output.status.success()).count();
        assert_eq!(count, 1, "{} {}", said(&made[0]), said(&made[1]));
    }
    let listed = head.done(&["list"]);
    assert_eq!(listed.as_array().expect("a list").len(), 18);
    // All are in the saved file, although several programs wrote it at once.
    assert_eq!(head.saved().matches("token hash").count(), 18);
}

#[test]
fn a_branch_keeps_what_it_has_while_its_peer_is_disabled() {
    let Some(head) = Head::new() else { return };
    head.done(&["create", "berlin", "--networks", "10.2.0.0/24"]);
    let peer = "set interfaces wireguard wg0 peer berlin";
    head.configure(&[
        &format!("{peer} public-key {}", key_pair().1),
        &format!("{peer} allowed-ips 10.255.0.2/32"),
        &format!("{peer} allowed-ips 10.2.0.0/24"),
        &format!("{peer} disable"),
        "set service enrollment branch berlin joined 1700000000",
    ]);
    assert_eq!(head.done(&["list"])[0]["state"], "disabled");
    assert!(head.refused(&["create", "lyon", "--networks", "10.2.0.0/25"]).contains("branch berlin"));
    assert_eq!(head.done(&["create", "lyon"])["address"], "10.255.0.3");
    head.done(&["move", "berlin", "--networks", "10.3.0.0/24"]);
    let saved = head.saved();
    assert!(saved.contains("peer berlin allowed-ips 10.3.0.0/24"), "{saved}");
    assert!(!saved.contains("10.2.0.0/24"), "{saved}");
    head.done(&["rename", "berlin", "potsdam"]);
    assert!(head.saved().contains("peer potsdam disable"));
    head.done(&["retire", "potsdam"]);
    assert!(!head.saved().contains("potsdam"), "{}", head.saved());
    // One that is no branch keeps its networks too.
    let peer = "set interfaces wireguard wg0 peer hand";
    let key = key_pair().1;
    head.configure(&[
        &format!("{peer} public-key {key}"),
        &format!("{peer} allowed-ips 10.255.0.4/32"),
        &format!("{peer} disable"),
    ]);
    assert_eq!(head.done(&["create", "rome"])["address"], "10.255.0.2");
    assert_eq!(head.done(&["create", "oslo"])["address"], "10.255.0.5");
    assert!(head.refused(&["create", "hand"]).contains("has a peer hand"));
}

#[test]
fn a_branch_joins_only_when_head_office_has_saved_it() {
    let Some(mut head) = Head::new() else { return };
    let mut branch = Site::new(&head.lab, "b", "");
    std::fs::write(&branch.file, "set system allow-empty\n").expect("its folder is there");
    branch.start(&mut head.lab);
    let other = head.keep_file();
    // The token counts, although it is not saved.
    let output = head.enroll(&["create", "berlin", "--networks", "10.2.0.0/24"]);
    assert!(said(&output).contains("not saved\n  fix: postern configure -c save"), "{}", said(&output));
    let created: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(!output.status.success() && !head.saved().contains("berlin"));
    let join = || {
        let mut command = head.lab.command("b", postern());
        let words = ["join", created["token"].as_str().expect("text"), "--api"];
        command.args(words).arg(&branch.socket).output().expect("it runs")
    };
    let output = join();
    let text = said(&output);
    assert!(!output.status.success() && text.contains("cannot save"), "{text}");
    assert!(text.contains("fix: type the same command again"), "{text}");
    assert_eq!(head.done(&["list"])[0]["state"], "joined", "it may ask again");
    drop(other);
    let output = join();
    assert!(output.status.success(), "{}\n{}", said(&output), head.site.logged());
    assert!(head.saved().contains("peer berlin public-key"), "{}", head.saved());
}

#[test]
fn a_commit_that_may_be_undone_is_not_saved_with_a_token() {
    let Some(head) = Head::new() else { return };
    let other = head.keep_file();
    let create = head.command(&["enroll", "--json", "create", "berlin"]).spawn().expect("it starts");
    wait_until(PATIENCE, || head.done(&["list"])[0]["branch"] == "berlin").expect("it is in force");
    head.commit(&["set interfaces wireguard wg0 mtu 1300"], "commit-confirm 5");
    let output = create.wait_with_output().expect("it ends");
    assert!(said(&output).contains("the last commit is not confirmed"), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("PE1"), "the token counts");
    drop(other);
    let text = head.refused(&["create", "lyon"]);
    assert!(text.contains("not confirmed"), "{text}");
    assert!(!head.saved().contains("mtu 1300"), "{}", head.saved());
}
