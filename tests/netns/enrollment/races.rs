//! What happens when a token is used and revoked at once, or used twice at once: one of both, and nothing half.

use super::Offices;
use crate::daemon::Site;
use crate::support::postern;
use serde_json::Value;
use std::process::Output;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Races between a join and a revocation. A source may ask ten times at once.
const RACES: u32 = 6;

impl Offices {
    /// The peers of head office for branches, with their keys.
    fn peers(&self) -> Vec<(String, String)> {
        let output = self.run(&self.head, "a", &["show", "interfaces", "wireguard", "--json"]);
        let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let peers = shown["interfaces"][0]["peers"].as_array().cloned().unwrap_or_default();
        let text = |peer: &Value, key: &str| peer[key].as_str().unwrap_or_default().to_owned();
        peers.iter().map(|peer| (text(peer, "name"), text(peer, "public_key"))).collect()
    }

    /// Either the branch has joined and is a peer at head office, or it was refused and nothing is left of it.
    fn is_whole(&self, joined: &Output, revoked: &Output) -> bool {
        let said = format!(
            "join: {}\nrevoke: {}\n{}",
            String::from_utf8_lossy(&joined.stderr),
            String::from_utf8_lossy(&revoked.stderr),
            self.head.logged()
        );
        let (peers, state) = (self.peers(), self.state("berlin")["state"].clone());
        let (there, here) = (Offices::saved(&self.head), Offices::saved(&self.branch));
        let has_joined = joined.status.success();
        assert_ne!(has_joined, revoked.status.success(), "one of both: {said}");
        assert_eq!(peers.len(), usize::from(has_joined), "{said}");
        assert_eq!(state, if has_joined { "joined" } else { "revoked" }, "{said}");
        assert_eq!(there.contains("peer berlin"), has_joined, "what is saved: {there}");
        assert_eq!(here.contains("head-office"), has_joined, "what is saved: {here}");
        assert_eq!(here.contains("private-key"), has_joined, "what is saved: {here}");
        has_joined
    }
}

#[test]
fn a_join_and_a_revocation_at_once_leave_a_branch_or_none() {
    let Some(offices) = Offices::new() else { return };
    let revoke = || offices.run(&offices.head, "a", &["enroll", "revoke", "berlin"]);
    let join = |token: &str| offices.run(&offices.branch, "b", &["join", token, "--json"]);
    let begin_again = |has_joined: bool| {
        if has_joined {
            offices.enroll(&["retire", "berlin"]);
            offices.forget(&offices.branch, "b");
        }
    };
    // One after the other, so that it is known how long a join takes and that both can come first.
    let token = offices.token(&[]);
    let begun = Instant::now();
    let joined = join(&token);
    let takes = begun.elapsed();
    assert!(offices.is_whole(&joined, &revoke()), "it has joined before");
    let answer: Value = serde_json::from_slice(&joined.stdout).expect("JSON");
    assert!(answer["branch"] == "berlin" && answer["is_up"] == true, "{answer}");
    assert_eq!(answer["endpoint"], "192.168.77.1:51820");
    begin_again(true);
    let token = offices.token(&[]);
    let revoked = revoke();
    assert!(!offices.is_whole(&join(&token), &revoked), "it was revoked before");
    let mut came_first = 0;
    for race in 0..RACES {
        let token = offices.token(&[]);
        let (revoked, joined) = scope(|scope| {
            let joining = scope.spawn(|| join(&token));
            sleep(takes * race / RACES);
            (revoke(), joining.join().expect("it ends"))
        });
        let has_joined = offices.is_whole(&joined, &revoked);
        came_first += u32::from(has_joined);
        begin_again(has_joined);
    }
    super::failures::say(&format!("the join came first in {came_first} of {RACES} races"));
}

#[test]
fn two_routers_that_join_with_one_token_at_once_are_one_branch() {
    let connect = |lab: &lab::Lab| {
        lab.connect(("a", "third", "192.168.79.1/24"), ("c", "third", "192.168.79.2/24"))
            .expect("veth exists");
        lab.ip("c", "route add 192.168.77.0/24 via 192.168.79.1").expect("a route");
    };
    let Some(mut offices) = Offices::beside(&["c"], connect, &["address 192.168.77.1"]) else { return };
    let mut other = Site::new(&offices.lab, "c", "");
    std::fs::write(&other.file, "set system allow-empty\n").expect("its folder is there");
    other.start(&mut offices.lab);
    let routers = [(&offices.branch, "b"), (&other, "c")];
    let mut winners = Vec::new();
    for round in 0..4u32 {
        let token = offices.token(&[]);
        let mut outputs = scope(|scope| {
            let join = |(router, namespace): (&Site, &'static str)| {
                let mut command = offices.lab.command(namespace, postern());
                command.args(["join", &token]).arg("--api").arg(&router.socket);
                scope.spawn(move || command.output().expect("it runs"))
            };
            let first = join(routers[(round % 2) as usize]);
            sleep(Duration::from_millis(u64::from(round) * 7));
            let second = join(routers[(1 - round % 2) as usize]);
            vec![first.join().expect("it ends"), second.join().expect("it ends")]
        });
        if round % 2 == 1 {
            outputs.reverse();
        }
        let said: Vec<_> =
            outputs.iter().map(|it| String::from_utf8_lossy(&it.stderr).into_owned()).collect();
        let winner = outputs.iter().position(|it| it.status.success());
        let winner = winner.unwrap_or_else(|| panic!("one joins: {said:?}"));
        let loser = 1 - winner;
        assert!(!outputs[loser].status.success(), "only one joins: {said:?}");
        assert!(said[loser].contains("used by another router"), "{said:?}");
        assert!(!Offices::saved(routers[loser].0).contains("private-key"), "nothing of it stays");
        let peers = offices.peers();
        let ours =
            offices.run(routers[winner].0, routers[winner].1, &["show", "interfaces", "wireguard", "--json"]);
        let ours: Value = serde_json::from_slice(&ours.stdout).expect("JSON");
        let key = ours["interfaces"][0]["public_key"].as_str().expect("it has a key").to_owned();
        assert_eq!(peers, [("berlin".to_owned(), key)]);
        winners.push(routers[winner].1);
        offices.enroll(&["retire", "berlin"]);
        offices.forget(routers[winner].0, routers[winner].1);
    }
    super::failures::say(&format!("joined first: {}", winners.join(", ")));
}
