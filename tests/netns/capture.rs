//! `postern monitor traffic` of real tunnels, read by tshark.

use crate::daemon::{Site, key_pair, lines, started};
use crate::ipsec;
use crate::operational::{Going, busy, command, says};
use crate::support::{PATIENCE, answers, ask, postern, skip, tcp_arrives_whole};
use lab::{Lab, has_program, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const TRAFFIC: &[&str] = &["monitor", "traffic", "interface", "wg0"];

/// What tshark says of a capture: these fields of each packet.
fn read(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-r"]).arg(file).env("HOME", "/nonexistent");
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// A capture into a file, whose end says how many packets there were.
struct ToFile {
    folder: tempfile::TempDir,
    child: Child,
}

impl ToFile {
    fn start(site: &Site, words: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = command(site, words);
        command.arg("--write").arg(folder.path().join("it")).stderr(Stdio::piped());
        let capture = Self { child: command.spawn().expect("it starts"), folder };
        // With the head of the file the daemon has begun.
        let has_begun = || std::fs::metadata(capture.path()).is_ok_and(|it| it.len() > 100);
        wait_until(PATIENCE, has_begun).expect("it begins");
        capture
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("it")
    }

    fn comments(&self) -> Vec<String> {
        read(&self.path(), &["frame.comment"]).into_iter().flatten().collect()
    }

    /// How many packets were dropped, by reason.
    fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        for comment in self.comments() {
            let last = comment.rsplit(", ").next().unwrap_or_default();
            if let Some((reason, _)) = last.split_once(" at ") {
                *drops.entry(reason.to_owned()).or_default() += 1;
            }
        }
        drops
    }

    /// Waits until there is a packet with this comment.
    fn until(&self, comment: &str) {
        let found = || self.comments().iter().any(|it| it == comment);
        wait_until(PATIENCE, found).unwrap_or_else(|_| panic!("no {comment}: {:?}", self.comments()));
    }

    /// Ends it as Ctrl-C does; what it says.
    fn end(&mut self) -> String {
        interrupt(&self.child);
        assert!(self.child.wait().expect("it ends").success());
        let mut said = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        said
    }
}

impl Drop for ToFile {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a daemon has a thread that makes a capture.
fn captures(site: &Site) -> bool {
    let process = site.process.expect("it was started").id();
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    // A thread may end meanwhile.
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).any(|name| name.trim() == "capture")
}

/// The drop counters of the data path of wg0, by reason.
fn dropped(site: &Site) -> BTreeMap<String, u64> {
    let said = ask(&["show", "drops", "--all", "--api", &site.socket.to_string_lossy()]);
    let all = said["drops"].as_array().expect("a list");
    let of = |drop: &serde_json::Value| {
        let sum = ["outbound", "inbound"].iter().filter_map(|way| drop[*way].as_u64()).sum();
        (drop["reason"].as_str().expect("a word").to_owned(), sum)
    };
    all.iter().filter(|drop| drop["interface"] == "wg0").map(of).collect()
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("it runs");
}

fn has_tshark() -> bool {
    let has = has_program("tshark");
    if !has {
        skip("needs tshark");
    }
    has
}

#[test]
fn both_ways_of_a_tunnel_are_captured_in_clear_with_the_peer() {
    if !has_tshark() {
        return;
    }
    let Some((_lab, a, _b, _)) = busy() else { return };
    let socket = a.socket.display();
    let line = format!(
        "{} {} --api {socket} --write - --count 8 | tshark -n -r - -T fields -e frame.comment -e frame.interface_name \
         -e frame.packet_flags_direction -e ip.src -e ip.dst -e icmp.type -e frame.len",
        postern().display(),
        TRAFFIC.join(" ")
    );
    let output =
        Command::new("sh").args(["-c", &line]).env("HOME", "/nonexistent").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Vec<&str> = text.lines().collect();
    assert_eq!(found.len(), 8, "{text}{}", String::from_utf8_lossy(&output.stderr));
    // Direction, ends, and echo request or reply. A ping with 1,200 bytes has 1,228.
    let out = "other\twg0\t0x00000002\t10.66.0.1\t10.66.0.2\t8\t1228";
    let back = "other\twg0\t0x00000001\t10.66.0.2\t10.66.0.1\t0\t1228";
    assert!(found.contains(&out) && found.contains(&back), "{text}");
    assert!(found.iter().all(|line| [out, back].contains(line)), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("8 packets captured, none lost"), "{text}");
    // Without a file: a line a packet.
    let line = Going::start(command(&a, TRAFFIC)).until(|line| line.contains(" in other"));
    assert!(line.ends_with(" in other: 10.66.0.2 > 10.66.0.1 icmp, 1228 bytes"), "{line}");
    let json = says(&a, &[TRAFFIC, &["--count", "1", "--json"]].concat());
    let packet: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&packet["peer"], &packet["protocol"], &packet["dropped"]),
        (&"other".into(), &"icmp".into(), &serde_json::Value::Null)
    );
}

#[test]
fn what_is_dropped_is_captured_with_reason_stage_and_peer() {
    if !has_tshark() {
        return;
    }
    if !has_program("python3") {
        return skip("needs python3");
    }
    let Some((lab, mut a, _b, publics)) = started() else { return };
    let (_, third) = key_pair();
    let lines = [
        lines(0, &publics[1], &[]),
        vec![format!("peer third public-key {third}"), "peer third allowed-ips 10.77.0.0/16".to_owned()],
    ];
    a.write(&lines.concat());
    a.reload();
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let mut all = ToFile::start(&a, &[TRAFFIC, &["dropped"]].concat());
    let before = dropped(&a);
    let only = ToFile::start(&a, &[TRAFFIC, &["peer", "third", "dropped", "--only"]].concat());
    // A source that the peer may not have.
    lab.ip("b", "address add 10.99.0.1/32 dev lo").expect("an address");
    let _ = lab.run("b", "ping", &["-c", "2", "-W", "1", "-I", "10.99.0.1", "10.66.0.1"]);
    all.until("other, foreign-source at admit");
    // Forgeries with an index that is known, from where there is traffic.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/netns/capture/forge.py");
    let mut forge = lab.command("b", "python3").arg(script).arg("192.168.77.1").spawn().expect("it starts");
    let _ = lab.run("b", "ping", &["-c", "20", "-i", "0.1", "-q", "10.66.0.1"]);
    assert!(forge.wait().expect("it ends").success());
    all.until("other, bad-tag at decrypt");
    // A prefix of a peer without an address, and one of no peer.
    let _ = lab.run("a", "ping", &["-c", "2", "-W", "1", "10.77.0.1"]);
    lab.ip("a", "route add 10.123.0.0/16 dev wg0").expect("a route");
    let _ = lab.run("a", "ping", &["-c", "2", "-W", "1", "10.123.0.1"]);
    all.until("third, no-endpoint at route");
    all.until("no-route at route");
    assert!(all.comments().iter().any(|comment| comment == "other"), "what is carried is there too");
    only.until("third, no-endpoint at route");
    assert!(
        only.comments().iter().all(|comment| comment == "third, no-endpoint at route"),
        "{:?}",
        only.comments()
    );
    let fields = [
        "frame.comment",
        "frame.interface_name",
        "frame.interface_id",
        "_ws.col.Protocol",
        "ip.src",
        "udp.dstport",
        "wg.type",
    ];
    let packets = read(&all.path(), &fields);
    let of = |comment: &str| packets.iter().find(|it| it[0] == comment).expect("it was there")[1..].to_vec();
    assert_eq!(
        of("other, bad-tag at decrypt"),
        ["wg0 outside", "1", "WireGuard", "192.168.77.2", "51820", "4"],
        "as it was received"
    );
    assert_eq!(
        of("other, foreign-source at admit")[..4],
        ["wg0", "0", "ICMP", "10.99.0.1"],
        "as it was opened"
    );
    let counted_since = || -> BTreeMap<String, u64> {
        let then = |reason: &str| before.get(reason).copied().unwrap_or_default();
        let since = dropped(&a).into_iter().map(|(reason, now)| (reason.clone(), now - then(&reason)));
        since.filter(|(_, count)| *count > 0).collect()
    };
    let is_whole = || all.drops() == counted_since();
    wait_until(PATIENCE, is_whole)
        .unwrap_or_else(|_| panic!("captured {:?}, counted {:?}", all.drops(), counted_since()));
    assert!(counted_since().len() >= 4, "{:?}", counted_since());
    assert!(all.end().contains(" packets captured, none lost"));
    let mode = std::fs::metadata(all.path()).expect("it is there").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    let refused = command(&a, &[TRAFFIC, &["peer", "nobody"]].concat()).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("wg0 has no peer nobody") && said.contains("fix: "),
        "{said}"
    );
    a.signal(Signal::TERM);
    let process = a.process.take().expect("it was started");
    let mut lab: Lab = lab;
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("a capture keeps no daemon");
}

#[test]
fn a_reader_that_stops_loses_records_and_nothing_else() {
    let Some((lab, a, _b, _)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    // Nothing reads the pipe.
    let mut stopped = command(&a, &[TRAFFIC, &["--write", "-"]].concat());
    let mut stopped = stopped.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_until(PATIENCE, || captures(&a)).expect("it begins");
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 32 << 20).expect("the tunnel carries");
    tcp_arrives_whole(&lab, "b", "a", "10.66.0.1", 8 << 20).expect("both ways");
    let mut out = stopped.stdout.take().expect("a pipe");
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).map(|_| bytes.len())
    });
    // Statistics are sent once a second.
    std::thread::sleep(Duration::from_millis(2_500));
    interrupt(&stopped);
    assert!(stopped.wait().expect("it ends").success());
    assert!(reading.join().expect("no panic").expect("it can be read") > 1 << 20);
    let mut said = String::new();
    stopped.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let lost = said.split(", ").nth(1).and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    assert!(lost.is_some_and(|lost| lost > 1_000), "{said}");
}

#[test]
fn captures_are_bounded_and_one_that_ends_makes_room() {
    let Some((lab, a, _b, _)) = started() else { return };
    let mut four: Vec<ToFile> = (0..4).map(|_| ToFile::start(&a, TRAFFIC)).collect();
    let refused = command(&a, TRAFFIC).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("4 captures run already"), "{said}");
    // As a reader goes that has no time to say so.
    drop(four.pop());
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let next = || {
        let mut ping = lab.command("a", "ping");
        let mut ping = ping
            .args(["-c", "30", "-i", "0.1", "-q", "10.66.0.2"])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let status = command(&a, &[TRAFFIC, &["--count", "1"]].concat()).output().expect("it runs").status;
        let _ = ping.kill();
        let _ = ping.wait();
        status.success()
    };
    wait_until(PATIENCE, next).expect("its place is free");
    let wide = command(&a, &[TRAFFIC, &["--snaplen", "70000"]].concat()).output().expect("it runs");
    let said = String::from_utf8_lossy(&wide.stderr).into_owned();
    assert!(
        said.contains("70000 bytes of each packet cannot be kept") && said.contains("ask for 64 to 65535"),
        "{said}"
    );
}

#[test]
fn an_ipsec_tunnel_is_captured_and_ends_its_captures_when_it_is_removed() {
    if !has_tshark() {
        return;
    }
    let Some((lab, [a, _b])) = ipsec::started(|_, text| text) else { return };
    a.comes_up("other");
    let words = ["monitor", "traffic", "interface", "ipsec0", "peer", "other", "dropped"];
    let mut capture = ToFile::start(&a.0, &words);
    let _ = lab.run("a", "ping", &["-c", "2", "-I", "10.10.0.1", "10.20.0.1"]);
    capture.until("other");
    let packets = read(&capture.path(), &["ip.src", "ip.dst", "icmp.type"]);
    assert_eq!(packets[0], ["10.10.0.1", "10.20.0.1", "8"]);
    a.write("set system allow-empty\n");
    a.0.signal(Signal::HUP);
    wait_until(PATIENCE, || capture.child.try_wait().is_ok_and(|it| it.is_some()))
        .expect("it ends with the interface");
}
