//! `interfaces secgw` of the daemon: the left encryptor is one, the right one is `postern secgw`.

use crate::lcores::carry_between;
use crate::secgw::{ADDRESSES, answers, connect, file, scene, start, start_with};
use crate::secgw_fragments::of_one_family;
use crate::secgw_jumbo::set_mtu;
use crate::secgw_ports::deferred;
use crate::support::{PATIENCE, postern};
use lab::postern::Postern;
use lab::{Lab, wait_until};
use rustix::process::Signal;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// The left encryptor. KEY and OTHER are the keys of 5 and 6.
const CONFIGURATION: &str = "\
port 0 driver packet
port 0 interface p0
port 0 neighbour 02:00:00:00:00:01
port 0 promiscuous
port 0 side protected
port 1 interface u0
port 1 neighbour 02:00:00:00:00:ff
port 1 promiscuous
port 1 side unprotected
sa there direction out
sa there spi 5
sa there encryption aes128gcm128
sa there key KEY
sa there local-address 172.16.1.5
sa there remote-address 172.16.2.5
sa back direction in
sa back spi 6
sa back encryption aes128
sa back key CBC
sa back hash sha1
sa back hash-key KEY
sa back local-address 172.16.1.5
sa back remote-address 172.16.2.5
policy 10 direction out
policy 10 action protect
policy 10 sa there
policy 10 destination prefix 192.168.2.0/24
policy 20 direction in
policy 20 action protect
policy 20 sa back
route 172.16.0.0/16 port 1
route 192.168.0.0/16 port 0
";

/// The configuration, and more of it.
pub(crate) fn configuration(more: &[&str]) -> String {
    let text = CONFIGURATION.replace("KEY", &"a1".repeat(20)).replace("CBC", &"c5".repeat(16));
    let lines = text.lines().chain(more.iter().copied());
    lines.map(|line| format!("set interfaces secgw sgw0 {line}\n")).collect()
}

/// An operational command, asked of the daemon.
pub(crate) fn ask(left: &Postern, words: &str) -> String {
    let mut command = std::process::Command::new(postern());
    let output = command.args(words.split(' ')).arg("--api").arg(&left.socket).output().expect("it starts");
    [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
}

pub(crate) fn is_up(lab: &Lab, left: &Postern, when: &str) {
    wait_until(2 * PATIENCE, || answers(lab, "192.168.2.2"))
        .unwrap_or_else(|error| panic!("{when}: {error}: {}", left.logged()));
}

#[test]
fn the_daemon_is_an_encryptor_as_its_configuration_says_and_exchanges_it_without_loss() {
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let mut left = Postern::new(&lab, "left", postern()).expect("a folder");
    left.write(&configuration(&[]));
    left.start(&mut lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}: {}", left.logged()));
    let right = start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    is_up(&lab, &left, "at the start");
    assert!(!answers(&lab, "192.168.4.2"), "no policy is for it");
    let shown = ask(&left, "show secgw");
    for part in ["interfaces secgw sgw0", "protect 5", "aes-128-cbc with sha1-hmac", "denied"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(ask(&left, "reload secgw").contains("postern reload"));

    // Other policies and routes for as long as a train of pings lasts.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let words = ["-c", "300", "-i", "0.01", "-W", "20", "-q", "192.168.2.2"];
            let answered = lab.run("host", "ping", &words);
            is_over.store(true, Ordering::Relaxed);
            answered
        });
        let discard = [
            "policy 1 direction out",
            "policy 1 action discard",
            "policy 1 destination prefix 192.168.2.9/32",
        ];
        let mut reloads = 0;
        while !is_over.load(Ordering::Relaxed) || reloads % 2 == 0 {
            left.write(&configuration(if reloads % 2 == 0 { &discard } else { &[] }));
            let said = ask(&left, "reload");
            assert!(!said.contains("error"), "{said}");
            reloads += 1;
        }
        let said = pings.join().expect("no panic").expect("all are answered");
        assert!(said.contains(" 0% packet loss"), "{said}");
    });
    assert!(!answers(&lab, "192.168.2.9") && ask(&left, "show secgw rules").contains("discard"));
    left.write(&configuration(&["policy 10 sa nobody"]));
    let said = ask(&left, "reload");
    assert!(said.contains("there is no sa nobody"), "{said}");
    is_up(&lab, &left, "what is refused changes nothing");

    // An interface that is not there, and the one before again: the numbers of SAs go on, or the other end would drop them.
    left.write(&configuration(&["port 1 interface nowhere"]));
    let said = ask(&left, "reload");
    assert!(said.contains("nowhere") && !answers(&lab, "192.168.2.2"), "{said}");
    left.write(&configuration(&[]));
    ask(&left, "reload");
    is_up(&lab, &left, "with its interface again");

    // Another port: the gateway is made again. Without it, nothing passes.
    left.write(&configuration(&["port 1 driver packet"]));
    ask(&left, "reload");
    is_up(&lab, &left, "with another driver");
    lab.kill(left.process.expect("it runs"), Signal::KILL);
    assert!(!answers(&lab, "192.168.2.2"), "nothing passes in clear without it");
    // Its numbers begin again, which the window of the other end would drop.
    lab.kill(right, Signal::TERM);
    left.start(&mut lab, "info", PATIENCE).expect("it starts again");
    let right = start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    is_up(&lab, &left, "after a restart");
    left.write("set system allow-empty\n");
    ask(&left, "reload");
    assert!(!answers(&lab, "192.168.2.2") && ask(&left, "show secgw").contains("no gateway"));
    lab.kill(right, Signal::TERM);
}

#[test]
fn an_sa_goes_on_with_its_number_after_its_gateway_was_disabled_or_has_another_window_or_name() {
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let mut left = Postern::new(&lab, "left", postern()).expect("a folder");
    left.write(&configuration(&[]));
    left.start(&mut lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}: {}", left.logged()));
    let right = start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    is_up(&lab, &left, "at the start");
    let disabled = format!("{}set system allow-empty\n", configuration(&["disable"]));
    let renamed = configuration(&[]).replace("sgw0", "sgw1");
    let window = configuration(&["replay-window 1024"]);
    for (what, text) in [
        ("another window", window),
        ("disabled", disabled),
        ("enabled", configuration(&[])),
        ("none", "set system allow-empty\n".to_owned()),
        ("another name", renamed),
    ] {
        left.write(&text);
        let said = ask(&left, "reload");
        assert!(!said.contains("error"), "{what}: {said}");
        if text.contains("allow-empty") {
            assert!(!answers(&lab, "192.168.2.2"), "{what}: nothing passes in clear");
        } else {
            is_up(&lab, &left, what);
        }
    }
    lab.kill(right, Signal::TERM);
    let text = std::fs::read_to_string(path.with_extension("right")).expect("statistics at the end");
    assert!(!text.contains("dropped replayed") && !text.contains("dropped bad-tag"), "{text}");
}

#[test]
fn a_daemon_without_gateways_has_its_first_by_a_commit_also_as_another_user() {
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let mut left = Postern::new(&lab, "left", postern()).expect("a folder");
    left.write("set system allow-empty\n");
    let started = left.start_with(&mut lab, &["run", "--user", "nobody"], "info", PATIENCE);
    started.unwrap_or_else(|error| panic!("{error}: {}", left.logged()));
    let right = start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    assert!(!answers(&lab, "192.168.2.2") && ask(&left, "show secgw").contains("no gateway"));
    left.write(&configuration(&[]));
    let said = ask(&left, "reload");
    assert!(said.contains("in force") && !said.contains("error"), "{said}");
    is_up(&lab, &left, "with the first gateway");
    assert!(ask(&left, "show secgw").contains("interfaces secgw sgw0"));
    // The thread that opened them keeps the rights to open them again.
    lab.ip("left", "link delete u0").expect("it is there");
    assert!(!answers(&lab, "192.168.2.2"), "it has no such port");
    connect(&lab, ("left", "u0", "wire", "w0"), 1);
    lab.ip("wire", "link set w0 master br0").expect("it is there");
    is_up(&lab, &left, "after its interface was made again");
    lab.kill(right, Signal::TERM);
}

/// The right encryptor puts fragments together, too.
const RIGHT: [&str; 4] = ["--vdev", "net_tap0,iface=dtap0", "--vdev", "net_af_packet0,iface=u0,qpairs=2"];

/// Pings of this size which the links cut, or with `-M do` must not.
fn pings(lab: &Lab, words: &str) {
    let words: Vec<&str> = "-c 3 -i 0.05 -W 10 -q".split(' ').chain(words.split(' ')).collect();
    let said = lab.run("host", "ping", &words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    assert!(said.contains(" 0% packet loss"), "{said}");
}

#[test]
fn two_threads_of_the_daemon_carry_flows_and_put_fragments_together() {
    let Some(mut lab) = scene(2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, of_one_family()).expect("it can be written");
    let mut left = Postern::new(&lab, "left", postern()).expect("a folder");
    left.write(&configuration(&["threads 2", "reassemble 64"]));
    left.start(&mut lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}: {}", left.logged()));
    let queues = "(0,0,0),(0,1,1),(1,0,1),(1,1,0)";
    let right = start_with(&mut lab, "right", &path, &RIGHT, queues, &["--reassemble", "64"]);
    is_up(&lab, &left, "at the start");
    for size in ["1390", "1480", "5000", "20000"] {
        pings(&lab, &format!("-M dont -s {size} 192.168.2.2"));
    }
    let (numbers, clear) = carry_between(&lab, &ADDRESSES[..1]);
    assert!(clear.is_empty(), "{clear:02x?}");
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len(), "no SA uses a number twice");
    let shown = ask(&left, "show secgw --json");
    let json: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert!(json[0]["reassembled"].as_u64() >= Some(12), "{shown}");
    let lcores = json[0]["lcores"].as_array().expect("a list");
    assert_eq!(lcores.len(), 2, "{shown}");
    for lcore in lcores {
        assert!(lcore["received"].as_u64() > Some(100), "the kernel spreads flows: {shown}");
    }

    // More threads than queues: refused, and all goes on as before.
    left.write(&configuration(&["threads 3", "reassemble 64"]));
    let said = ask(&left, "reload");
    for part in ["sgw0 threads 3", "u0 of port 1 has 2 queues", "ethtool -L u0 rx 3 tx 3", "sgw0 threads 2"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(answers(&lab, "192.168.2.2"), "{}", left.logged());
    // One thread has both queues. Numbers go on: the other end would drop what it has received.
    left.write(&configuration(&["threads 1"]));
    let said = ask(&left, "reload");
    assert!(!said.contains("error"), "{said}");
    is_up(&lab, &left, "with one thread for two queues");
    let (numbers, _) = carry_between(&lab, &ADDRESSES[..1]);
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len(), "no SA uses a number twice");
    lab.kill(right, Signal::TERM);
    let text = std::fs::read_to_string(path.with_extension("right")).expect("statistics at the end");
    assert!(!text.contains("dropped bad-tag") && !text.contains("dropped replayed"), "{text}");
}

#[test]
fn the_daemon_carries_jumbo_frames_and_waits_for_a_link_that_is_long_enough() {
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, of_one_family()).expect("it can be written");
    let mut left = Postern::new(&lab, "left", postern()).expect("a folder");
    set_mtu(&lab, 1600);
    left.write(&configuration(&["mtu 9000", "port 1 driver packet"]));
    let error = left.start(&mut lab, "info", PATIENCE / 6).expect_err("its ports are too short").to_string();
    assert!(error.contains("p0 has an MTU of 1600, and packets are up to 9000 bytes long"), "{error}");
    for (mtu, driver) in [(9000, "packet"), (3826, "af-xdp")] {
        set_mtu(&lab, mtu);
        left.write(&configuration(&[&format!("mtu {mtu}"), &format!("port 1 driver {driver}")]));
        left.start(&mut lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}: {}", left.logged()));
        let right = ["--vdev", "net_tap0,iface=dtap0", "--vdev", "net_af_packet1,iface=u0"];
        let words = ["--mtu", &mtu.to_string()];
        let right = start_with(&mut lab, "right", &path, &right, "(0,0,0),(1,0,0)", &words);
        is_up(&lab, &left, driver);
        pings(&lab, &format!("-M do -s {} 192.168.2.2", mtu - 160));
        lab.kill(right, Signal::TERM);
        lab.kill(left.process.expect("it runs"), Signal::TERM);
        let text = std::fs::read_to_string(path.with_extension("right")).expect("statistics at the end");
        for reason in ["truncated", "too-big", "fragmented"] {
            assert!(!text.contains(&format!("dropped {reason}")), "{text}");
        }
    }
}

#[test]
fn the_daemon_answers_for_addresses_of_ports_defers_napi_and_has_sas_that_end() {
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let more = ["port 0 address 192.168.1.9", "port 0 defer-napi", "sa there life-packets 100"];
    let mut left = Postern::new(&lab, "left", postern()).expect("a folder");
    let before = deferred(&lab, "p0");
    left.write(&configuration(&more));
    left.start(&mut lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}: {}", left.logged()));
    let right = start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    lab.ip("host", "neigh del 192.168.1.9 dev eth0").expect("it is there");
    is_up(&lab, &left, "with an address of the port");
    assert_eq!(deferred(&lab, "p0"), "2 20000");
    // A port without is made anew, and one with again.
    left.write(&configuration(&[more[0], more[2]]));
    ask(&left, "reload");
    is_up(&lab, &left, "without deferral");
    assert_eq!(deferred(&lab, "p0"), before);
    left.write(&configuration(&more));
    ask(&left, "reload");
    is_up(&lab, &left, "with deferral again");
    assert_eq!(deferred(&lab, "p0"), "2 20000");
    // Another limit needs another key.
    left.write(&configuration(&[more[0], more[1], "sa there life-packets 100000"]));
    let said = ask(&left, "reload");
    assert!(said.contains("write a new key at both ends"), "{said}");
    left.write(&configuration(&more));
    let said = ask(&left, "reload");
    assert!(!said.contains("error"), "{said}");
    wait_until(4 * PATIENCE, || !answers(&lab, "192.168.2.2")).expect("it ends after 100 packets");
    assert!(ask(&left, "show secgw sa").contains("ended"), "{}", ask(&left, "show secgw sa"));
    wait_until(PATIENCE, || left.logged().contains("has reached the end of its lifetime"))
        .unwrap_or_else(|error| panic!("{error}: {}", left.logged()));
    lab.kill(left.process.expect("it runs"), Signal::TERM);
    assert_eq!(deferred(&lab, "p0"), before, "the end of the daemon puts it back");
    lab.kill(right, Signal::TERM);
}
