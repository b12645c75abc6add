//! `postern run`, when its configuration changes: whole, or not at all.

use crate::daemon::{Site, key_pair, lines, started};
use crate::ipsec::{Gateway, configuration};
use crate::support::{PATIENCE, answers, ask, occurrences, sites};
use lab::{Lab, wait_until};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

fn rules(lab: &Lab) -> String {
    lab.ip("a", "rule show").expect("it is there")
}

fn valid_mark(lab: &Lab) -> String {
    lab.run("a", "sysctl", &["-n", "net.ipv4.conf.all.src_valid_mark"]).expect("sysctl").trim().to_owned()
}

/// One more tunnel for everything, `wg1`, behind the others of the file.
fn add_second(site: &Site, peer: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(&site.file).expect("it is there");
    let words = [
        format!("private-key {}", key_pair().0),
        "fwmark 77".to_owned(),
        format!("peer all public-key {peer}"),
        "peer all allowed-ips 0.0.0.0/0".to_owned(),
    ];
    for words in words {
        writeln!(file, "set interfaces wireguard wg1 {words}").expect("it is written");
    }
}

#[test]
fn a_refused_change_leaves_everything_as_it_was_and_is_tried_again() {
    let Some((lab, a, _b, publics)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let before = a.peer("other");
    // Only for IPv6: it is noticed late.
    let taken = lab.take("a", "[::]:51999").expect("free");
    let more = ["port 51999", "mtu 1300", "address 10.67.0.1/24", "disable-offload udp-gso"];
    let more =
        [&more[..], &["peer other allowed-ips 10.69.0.0/16", "peer other allowed-ips 0.0.0.0/0"]].concat();
    a.write(&lines(0, &publics[1], &more));
    let said = a.reload();
    assert!(
        said.contains("UDP port 51999 is in use")
            && said.contains("not in force for interfaces wireguard wg0,"),
        "{said}"
    );
    assert!(!said.contains("is in force"), "{said}");
    let addresses = lab.ip("a", "address show wg0").expect("it is there");
    assert!(addresses.contains("mtu 1420") && !addresses.contains("10.67.0.1"), "{addresses}");
    let routes = lab.ip("a", "route show table all dev wg0").expect("it is there");
    assert!(routes.contains("10.50.0.0/16") && !routes.contains("10.69.0.0/16"), "{routes}");
    assert!(!routes.contains("default") && !rules(&lab).contains("32501"), "{routes}");
    let socket = a.socket.to_string_lossy().into_owned();
    let offloads = ask(&["show", "offloads", "--api", &socket]).to_string();
    assert!(!offloads.contains("switched off"), "{offloads}");
    assert!(answers(&lab, "a", "10.66.0.2"));
    let after = a.peer("other");
    assert_eq!(
        (&after["latest_handshake"], &after["allowed_ips"]),
        (&before["latest_handshake"], &before["allowed_ips"]),
        "the session was kept"
    );
    drop(taken);
    let said = a.reload();
    let change = "interfaces wireguard wg0: in force now, refused before";
    assert!(said.contains(change) && said.contains(" is in force"), "{said}");
    let addresses = lab.ip("a", "address show wg0").expect("it is there");
    assert!(addresses.contains("mtu 1300") && addresses.contains("10.67.0.1"), "{addresses}");
}

#[test]
fn peers_are_shown_by_name_with_what_they_are_for() {
    let Some((_lab, a, _b, publics)) = started() else { return };
    let unauthenticated = ["peer10", "peer9", "a", "peer11"].map(|name| (name, key_pair().1));
    let mut more = vec!["peer a description 'who it is'".to_owned()];
    for (number, (name, key)) in unauthenticated.iter().enumerate() {
        more.push(format!("peer {name} public-key {key}"));
        more.push(format!("peer {name} allowed-ips 10.{}.0.0/16", 100 + number));
    }
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    a.write(&lines(0, &publics[1], &more));
    a.reload();
    let socket = a.socket.to_string_lossy().into_owned();
    let said = ask(&["show", "interfaces", "wireguard", "--api", &socket]);
    let peers = said["interfaces"][0]["peers"].as_array().expect("a list");
    let names: Vec<&str> = peers.iter().filter_map(|peer| peer["name"].as_str()).collect();
    assert_eq!(names, ["a", "other", "peer9", "peer10", "peer11"]);
    assert_eq!(a.peer("a")["description"], "who it is");
    // A peer whose address is removed from the configuration has no endpoint any more.
    assert!(a.peer("other")["endpoint"].is_string());
    let mut silent = lines(0, &publics[1], &[]);
    silent.retain(|line| !line.starts_with("peer other address") && !line.starts_with("peer other port"));
    a.write(&silent);
    a.reload();
    assert!(a.peer("other")["endpoint"].is_null());
}

#[test]
fn no_text_of_a_key_stays_in_memory() {
    let Some((_lab, mut a, _b, publics)) = started() else { return };
    let process = a.process.expect("it was started");
    let (old, shared) = (a.private.clone(), key_pair().0);
    a.write(&lines(0, &publics[1], &[&format!("peer other preshared-key {shared}")]));
    a.reload();
    assert_eq!(occurrences(process, &old), 2, "in the tree, to tell what has changed, and in its lines");
    a.private = key_pair().0;
    // Also when it stands where it is refused.
    let wrong = format!("preshared-key '{old}'");
    a.write(&lines(0, &publics[1], &[&wrong]));
    a.reload();
    a.write(&lines(0, &publics[1], &[]));
    a.reload();
    assert_eq!((occurrences(process, &old), occurrences(process, &shared)), (0, 0));
    let said = std::fs::read_to_string(&a.log).expect("it logs");
    assert!(!said.contains(&old) && !said.contains(&shared), "{said}");
}

#[test]
fn what_the_kernel_takes_with_an_address_or_a_link_is_given_back() {
    let Some((lab, a, _b, publics)) = started() else { return };
    let routed = || lab.ip("a", "route show dev wg0").is_ok_and(|text| text.contains("10.50.0.0/16"));
    let with = |address: &str, more: &[&str]| {
        let mut lines = lines(0, &publics[1], more);
        lines[0] = format!("address {address}");
        lines
    };
    a.write(&with("10.66.0.9/24", &["address fd66::9/64"]));
    a.reload();
    assert!(routed(), "it went with the only address");
    a.write(&with("10.66.0.9/24", &["address fd66::9/64", "disable"]));
    a.reload();
    assert!(!routed());
    a.write(&with("10.66.0.9/24", &["address fd66::9/64"]));
    a.reload();
    let addresses = lab.ip("a", "address show wg0").expect("it is there");
    assert!(routed() && addresses.contains("fd66::9"), "{addresses}");
}

/// The lines of the first site's `wg0`, and of `wg1` with this port, whose peer is nowhere.
fn write_both(site: &Site, lines: &[String], key: &str, port: u16) {
    site.write(lines);
    let mut file = std::fs::OpenOptions::new().append(true).open(&site.file).expect("it is there");
    for words in [format!("private-key {key}"), format!("port {port}")] {
        writeln!(file, "set interfaces wireguard wg1 {words}").expect("it is written");
    }
}

#[test]
fn a_port_goes_from_an_interface_that_is_disabled_to_another() {
    let Some((lab, a, _b, publics)) = started() else { return };
    let key = key_pair().0;
    let ports = || lab.run("a", "ss", &["-ulnH"]).expect("ss is there");
    let enabled = lines(0, &publics[1], &[]);
    let disabled = lines(0, &publics[1], &["disable"]);
    write_both(&a, &enabled, &key, 51_999);
    assert!(a.reload().contains("is in force"));
    assert!(ports().contains(":51820 ") && ports().contains(":51999 "), "{}", ports());
    write_both(&a, &disabled, &key, 51_820);
    let said = a.reload();
    assert!(said.contains("is in force") && !said.contains("in use"), "{said}");
    assert!(ports().contains(":51820 ") && !ports().contains(":51999 "), "{}", ports());
    // And back: what is enabled again has the port that the other leaves.
    write_both(&a, &enabled, &key, 51_999);
    let said = a.reload();
    assert!(said.contains("is in force") && !said.contains("in use"), "{said}");
    // It has the port as soon as its link is up.
    wait_until(PATIENCE, || ports().contains(":51820 ") && ports().contains(":51999 "))
        .expect("both have theirs");
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
}

#[test]
fn an_interface_that_is_disabled_needs_no_port() {
    let Some((lab, a, _b, publics)) = started() else { return };
    let key = key_pair().0;
    write_both(&a, &lines(0, &publics[1], &[]), &key, 51_999);
    assert!(a.reload().contains("is in force"));
    let mut disabled = lines(0, &publics[1], &["disable"]);
    for line in disabled.iter_mut().filter(|line| *line == "port 51820") {
        *line = "port 51999".to_owned();
    }
    write_both(&a, &disabled, &key, 51_999);
    let said = a.reload();
    assert!(said.contains("is in force") && !said.contains("in use"), "{said}");
    assert!(!lab.ip("a", "link show wg0").expect("it is there").contains(",UP"));
}

#[test]
fn questions_to_the_api_refuse_no_change() {
    let Some((_lab, a, _b, publics)) = started() else { return };
    let (key, is_asked) = (key_pair().0, AtomicBool::new(true));
    let ask = || {
        let mut asked = 0;
        while is_asked.load(Ordering::Relaxed) {
            let mut stream = UnixStream::connect(&a.socket).expect("the API is served");
            let question = "GET /v1/interfaces/wireguard HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(question.as_bytes()).expect("it reads");
            stream.read_to_string(&mut String::new()).expect("it answers");
            asked += 1;
        }
        asked
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        let mut refused = Vec::new();
        for round in 0..40 {
            a.write(&lines(0, &publics[1], &[]));
            let mut file = std::fs::OpenOptions::new().append(true).open(&a.file).expect("it is there");
            for words in [format!("private-key {key}"), "port 51990".to_owned()] {
                let name = ["wg5", "wg6"][round % 2];
                writeln!(file, "set interfaces wireguard {name} {words}").expect("it is written");
            }
            let said = a.reload();
            refused.extend(said.contains("is not in force").then_some(said));
        }
        is_asked.store(false, Ordering::Relaxed);
        let asked: Vec<i32> = asking.into_iter().map(|it| it.join().expect("it ends")).collect();
        assert!(asked.iter().all(|asked| *asked > 0));
        assert!(refused.is_empty(), "{} of 40, asked {asked:?}: {}", refused.len(), refused[0]);
    });
}

#[test]
fn a_reload_gives_unchanged_interfaces_what_another_program_has_changed() {
    let Some(mut lab) = sites() else { return };
    let mut a = Gateway::new(&lab, "a");
    let set = "set interfaces wireguard wg0";
    let wg0 = format!("{set} private-key {}\n{set} mtu 1380\n", key_pair().0);
    a.write(&(configuration(0) + &wg0));
    a.0.start(&mut lab);
    let links =
        || ["ipsec0", "wg0"].map(|name| lab.ip("a", &format!("link show {name}")).expect("it is there"));
    let before = links();
    assert!(before.iter().all(|link| link.contains(",UP")) && before[1].contains("mtu 1380"), "{before:?}");
    for name in ["ipsec0", "wg0"] {
        lab.ip("a", &format!("link set {name} down mtu 1300")).expect("it is there");
    }
    let said = a.0.reload();
    assert!(said.contains("is in force"), "{said}");
    assert_eq!(links(), before);
}

#[test]
fn what_has_a_route_of_its_own_stays_outside_when_the_mark_changes() {
    let Some((lab, a, _b, publics)) = started() else { return };
    for mark in ["fwmark 0", "fwmark 76", "fwmark 75"] {
        a.write(&lines(0, &publics[1], &["peer other allowed-ips 0.0.0.0/0", mark]));
        a.reload();
        let connected = lab.ip("a", "route get 192.168.77.2").expect("it is routed");
        assert!(connected.contains("dev outside"), "{mark}: {connected}\n{}", rules(&lab));
        let other = lab.ip("a", "route get 203.0.113.1").expect("it is routed");
        assert!(other.contains("dev wg0"), "{mark}: {other}");
        assert_eq!(rules(&lab).matches("32501:").count(), 1, "{}", rules(&lab));
    }
    assert!(answers(&lab, "a", "10.66.0.2"));
}

#[test]
fn a_rule_stays_as_long_as_one_interface_needs_it() {
    let Some((lab, a, _b, publics)) = started() else { return };
    let own = lines(0, &publics[1], &["peer other allowed-ips 0.0.0.0/0"]);
    a.write(&own);
    add_second(&a, &publics[1]);
    a.reload();
    let said = rules(&lab);
    assert!(said.contains("0xca6c") && said.contains("0x4d"), "{said}");
    assert_eq!(said.matches("suppress_prefixlength 0").count(), 1, "{said}");
    a.write(&own);
    a.reload();
    let said = rules(&lab);
    assert!(!said.contains("0x4d") && said.contains("suppress_prefixlength 0"), "{said}");
    let connected = lab.ip("a", "route get 192.168.77.2").expect("it is routed");
    assert!(connected.contains("dev outside"), "{connected}");
}

#[test]
fn rules_of_a_killed_gateway_go_with_the_next_start() {
    let Some(mut lab) = sites() else { return };
    let (_, peer) = key_pair();
    let mut a = Site::new(&lab, "a", &key_pair().0);
    a.write(&lines(0, &peer, &["peer other allowed-ips 0.0.0.0/0", "peer other allowed-ips ::/0"]));
    let mut file = std::fs::OpenOptions::new().append(true).open(&a.file).expect("it is there");
    writeln!(file, "set system open-at-exit").expect("it is written");
    // An object of another program looks like ours, and is not.
    lab.ip("a", "rule add priority 32501 not fwmark 5 lookup 5").expect("a rule");
    let before = (rules(&lab), valid_mark(&lab));
    a.start(&mut lab);
    assert!(rules(&lab).contains("0xca6c") && valid_mark(&lab) == "1");
    a.signal(Signal::TERM);
    let process = a.process.expect("it was started");
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    assert_eq!((rules(&lab), valid_mark(&lab)), before, "nothing is left behind");
    a.start(&mut lab);
    lab.kill(a.process.expect("it was started"), Signal::KILL);
    assert!(rules(&lab).contains("0xca6c"), "left behind");
    a.write(&lines(0, &peer, &[]));
    a.start(&mut lab);
    // The socket of the killed one is there already, so being there says nothing.
    wait_until(PATIENCE, || rules(&lab) == before.0).expect("the rules are gone");
    assert!(!lab.ip("a", "-6 rule show").expect("it is there").contains("0xca6c"));
}

#[test]
fn a_file_that_is_cut_off_ends_no_session() {
    let Some((lab, a, _b, _)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let handshake = a.peer("other")["latest_handshake"].clone();
    let whole = std::fs::read_to_string(&a.file).expect("it is there");
    let cut = whole.find("peer other allowed-ips").expect("a peer") + 8;
    for (text, said) in [
        ("", "has no interface and no peer"),
        ("# only a comment\n", "has no interface and no peer"),
        (&whole[..cut], "the last line has no newline"),
        (whole.trim_end(), "the last line has no newline"),
    ] {
        std::fs::write(&a.file, text).expect("it is written");
        let log = a.reload();
        assert!(log.contains(said) && log.contains("\n  fix: ") && log.contains("is unchanged"), "{log}");
        assert_eq!(a.peer("other")["latest_handshake"], handshake, "the session was kept");
    }
    assert!(answers(&lab, "a", "10.66.0.2"));
    std::fs::write(&a.file, "set system allow-empty\n").expect("it is written");
    assert!(a.reload().contains("is in force"));
    assert!(lab.ip("a", "link show wg0").is_err(), "it was asked for");
}

#[test]
fn a_file_that_never_ended_its_last_line_is_read_again() {
    let Some((mut lab, mut a, _b, publics)) = started() else { return };
    lab.kill(a.process.take().expect("it was started"), Signal::TERM);
    let write = |more: &[&str]| {
        a.write(&lines(0, &publics[1], more));
        let text = std::fs::read_to_string(&a.file).expect("it is there");
        std::fs::write(&a.file, text.trim_end()).expect("it is written");
    };
    write(&[]);
    a.start(&mut lab);
    let log = std::fs::read_to_string(&a.log).expect("it logs");
    assert!(log.contains("the last line has no newline") && log.contains("echo >> "), "{log}");
    a.write(&lines(0, &publics[1], &["mtu 1300"]));
    let text = std::fs::read_to_string(&a.file).expect("it is there");
    std::fs::write(&a.file, text.trim_end()).expect("it is written");
    assert!(a.reload().contains("is in force"));
}

#[test]
fn a_file_that_is_a_pipe_without_a_writer_blocks_no_reload() {
    let Some((mut lab, mut a, _b, _)) = started() else { return };
    let process = a.process.take().expect("it was started");
    std::fs::remove_file(&a.file).expect("it is there");
    lab.run("a", "mkfifo", &[&a.file.to_string_lossy()]).expect("a pipe");
    process.signal(Signal::HUP);
    let reads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("it lives");
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
        tasks.flatten().filter_map(name).any(|name| name.trim() == "configuration")
    };
    wait_until(PATIENCE, reads).expect("a thread reads it");
    assert!(answers(&lab, "a", "10.66.0.2") && !a.peer("other").is_null(), "the API answers");
    assert!(reads(), "and it is still read");
    process.signal(Signal::TERM);
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    assert!(lab.ip("a", "link show wg0").is_err(), "its interface is gone");
}

#[test]
fn a_prefix_of_two_interfaces_leads_to_the_first_of_them() {
    let Some((lab, a, _b, publics)) = started() else { return };
    let write = |first: &str, second: &str| {
        let mut own = lines(0, &publics[1], &[]);
        own.retain(|line| !line.contains("10.50.0.0/16"));
        own.push(format!("peer other allowed-ips {first}"));
        a.write(&own);
        let words = [
            format!("private-key {}", key_pair().0),
            format!("peer x public-key {}", key_pair().1),
            format!("peer x allowed-ips {second}"),
        ];
        let mut file = std::fs::OpenOptions::new().append(true).open(&a.file).expect("it is there");
        for words in words {
            writeln!(file, "set interfaces wireguard wg1 {words}").expect("it is written");
        }
        let said = a.reload();
        assert!(said.contains("is in force"), "{said}");
        said
    };
    let leads_to = |name: &str| {
        let route = lab.ip("a", "route get 10.50.0.1").expect("it is routed");
        assert!(route.contains(&format!("dev {name}")), "{route}");
    };
    write("10.51.0.0/16", "10.50.0.0/16");
    leads_to("wg1");
    let said = write("10.50.0.0/16", "10.50.0.0/16");
    assert!(said.contains("interfaces wireguard wg0 has it too, and gets the packets"), "{said}");
    leads_to("wg0");
    // What was reported until now is not watched: each change of the kernel after this one is one too many.
    let watched = ["1", "ip", "-4", "monitor", "route"];
    let changes = lab.run("a", "timeout", &watched).unwrap_or_else(|error| error.to_string());
    assert!(!changes.contains("10.50.0.0/16"), "it is changed again and again: {changes}");
    leads_to("wg0");
    write("10.51.0.0/16", "10.50.0.0/16");
    leads_to("wg1");
}
