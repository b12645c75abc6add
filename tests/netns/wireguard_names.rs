//! WireGuard peers that are found by name.

use crate::daemon::{Site, key_pair, lines};
use crate::names::{Etc, hosts_file, silent_resolver};
use crate::support::{PATIENCE, answers, sites};
use lab::{Lab, wait_until};
use rustix::process::Signal;
use std::time::Duration;

/// WireGuard gives up a session that has not answered after 15 s, and the handshake after it after 5 s.
const NOTICED: Duration = Duration::from_secs(60);

/// The lines of the first site, whose peer is found by name.
fn named(other: &str) -> Vec<String> {
    let lines = lines(0, other, &["peer other host-name head.invalid", "peer other persistent-keepalive 5"]);
    lines.into_iter().filter(|line| !line.starts_with("peer other address")).collect()
}

/// The lines of the second site, which waits to be called.
fn waits(other: &str) -> Vec<String> {
    let is_kept = |line: &String| !line.starts_with("peer other address") && *line != "peer other port 51820";
    lines(1, other, &[]).into_iter().filter(is_kept).collect()
}

/// Two sites, of which the first has started; its names are in a file, which has none yet.
fn started() -> Option<(Lab, Etc, Site, Site)> {
    let mut lab = sites()?;
    let etc = hosts_file(&lab);
    let (a_keys, b_keys) = (key_pair(), key_pair());
    let (mut a, b) = (Site::new(&lab, "a", &a_keys.0), Site::new(&lab, "b", &b_keys.0));
    a.write(&named(&b_keys.1));
    b.write(&waits(&a_keys.1));
    a.start(&mut lab);
    Some((lab, etc, a, b))
}

fn is_at(etc: &Etc, address: &str) {
    etc.write("hosts", &format!("127.0.0.1 localhost\n{address} head.invalid\n"));
}

#[test]
fn a_wireguard_peer_whose_name_gets_an_address_later_is_called() {
    let Some((mut lab, etc, a, mut b)) = started() else { return };
    b.start(&mut lab);
    wait_until(PATIENCE, || a.logged().contains("head.invalid has no address now"))
        .expect("the log names the host without an address");
    let peer = a.peer("other");
    let failure = peer["failure"].as_str().unwrap_or_default();
    assert!(failure.contains("head.invalid has no address now") && peer["endpoint"].is_null(), "{peer}");
    is_at(&etc, "192.168.77.2");
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    assert_eq!(a.peer("other")["endpoint"], "192.168.77.2:51820");
    assert!(a.logged().contains("wg0 peer other: head.invalid is 192.168.77.2"), "{}", a.logged());
    assert_eq!(a.peer("other")["host_name"], "head.invalid");
}

#[test]
fn a_wireguard_peer_whose_name_moves_is_called_there_without_hands() {
    let Some((mut lab, etc, a, mut b)) = started() else { return };
    is_at(&etc, "192.168.77.2");
    b.start(&mut lab);
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    // What the name says means nothing while the peer answers.
    is_at(&etc, "192.168.77.3");
    let handshake = a.peer("other")["latest_handshake"].clone();
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(a.peer("other")["endpoint"], "192.168.77.2:51820");
    assert_eq!(a.peer("other")["latest_handshake"], handshake, "the session goes on");
    lab.ip("b", "address delete 192.168.77.2/24 dev outside").expect("it has it");
    lab.ip("b", "address add 192.168.77.3/24 dev outside").expect("a free address");
    wait_until(NOTICED, || answers(&lab, "a", "10.66.0.2")).expect("it is found again");
    assert_eq!(a.peer("other")["endpoint"], "192.168.77.3:51820");
    assert!(a.logged().contains("wg0 peer other: head.invalid is 192.168.77.3"), "{}", a.logged());
}

#[test]
fn a_wireguard_peer_that_has_called_stays_where_it_is_whatever_its_name_says_later() {
    let Some(mut lab) = sites() else { return };
    let etc = hosts_file(&lab);
    let (a_keys, b_keys) = (key_pair(), key_pair());
    let (mut a, mut b) = (Site::new(&lab, "a", &a_keys.0), Site::new(&lab, "b", &b_keys.0));
    a.write(&named(&b_keys.1));
    b.write(&lines(1, &a_keys.1, &["peer other persistent-keepalive 5"]));
    a.start(&mut lab);
    wait_until(PATIENCE, || a.logged().contains("head.invalid has no address now"))
        .expect("the log names the host without an address");
    b.start(&mut lab);
    wait_until(PATIENCE, || answers(&lab, "b", "10.66.0.1")).expect("a tunnel");
    is_at(&etc, "192.168.77.9");
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(a.peer("other")["endpoint"], "192.168.77.2:51820");
    assert!(answers(&lab, "a", "10.66.0.2"));
}

#[test]
fn a_reload_with_another_name_moves_the_peer_at_once() {
    let Some((mut lab, etc, a, mut b)) = started() else { return };
    etc.write("hosts", "192.168.77.2 head.invalid\n192.168.77.3 new.invalid\n");
    lab.ip("b", "address add 192.168.77.3/24 dev outside").expect("a free address");
    b.start(&mut lab);
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let before = std::fs::read_to_string(&a.file).expect("it was written");
    std::fs::write(&a.file, before.replace("head.invalid", "new.invalid")).expect("a file");
    assert!(a.reload().contains("is in force"));
    let is_there = || a.peer("other")["endpoint"] == "192.168.77.3:51820";
    wait_until(PATIENCE, is_there).expect("it is called there");
    assert!(answers(&lab, "a", "10.66.0.2"));
}

#[test]
fn a_name_that_is_found_after_a_further_change_still_moves_the_peer() {
    let Some((mut lab, etc, a, mut b)) = started() else { return };
    is_at(&etc, "192.168.77.2");
    lab.ip("b", "address add 192.168.77.3/24 dev outside").expect("a free address");
    b.start(&mut lab);
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let changed = |from: &str, to: &str| {
        let before = std::fs::read_to_string(&a.file).expect("it was written");
        assert!(before.contains(from), "{before}");
        std::fs::write(&a.file, before.replace(from, to)).expect("a file");
        assert!(a.reload().contains("is in force"));
    };
    changed("head.invalid", "new.invalid");
    wait_until(PATIENCE, || a.logged().contains("new.invalid has no address now")).expect("it is looked up");
    changed("persistent-keepalive 5", "persistent-keepalive 6");
    assert_eq!(a.peer("other")["endpoint"], "192.168.77.2:51820", "it answers there");
    etc.write("hosts", "192.168.77.3 new.invalid\n");
    let is_there = || a.peer("other")["endpoint"] == "192.168.77.3:51820";
    wait_until(PATIENCE, is_there).unwrap_or_else(|error| panic!("{error}: {}", a.logged()));
    assert!(answers(&lab, "a", "10.66.0.2"));
}

#[test]
fn a_resolver_that_does_not_answer_holds_up_neither_other_peers_nor_the_end() {
    let Some(mut lab) = sites() else { return };
    let (_etc, resolver) = silent_resolver(&lab);
    let (a_keys, b_keys, (_, third)) = (key_pair(), key_pair(), key_pair());
    let (mut a, mut b) = (Site::new(&lab, "a", &a_keys.0), Site::new(&lab, "b", &b_keys.0));
    let more =
        ["host-name head.invalid", "port 5", "allowed-ips 10.9.0.0/16"].map(|it| format!("peer third {it}"));
    let key = format!("peer third public-key {third}");
    let more: Vec<&str> = std::iter::once(&key).chain(&more).map(String::as_str).collect();
    a.write(&lines(0, &b_keys.1, &more));
    b.write(&waits(&a_keys.1));
    a.start(&mut lab);
    b.start(&mut lab);
    resolver.recv(&mut [0; 512]).expect("the resolver is asked, and says nothing");
    // It may have been called before it was there.
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("the peer with an address");
    let said = a.reload();
    assert!(said.contains("is in force") || said.contains("is unchanged"), "{said}");
    a.signal(Signal::TERM);
    let process = a.process.expect("it was started");
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
}
