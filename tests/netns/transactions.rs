//! Commits to a running daemon by its API: whole or not at all, kept over restarts, and undone unless they are confirmed.

mod confirming;
mod damage;
mod faults;
mod sessions;
mod typed;

use crate::daemon::{Site, key_pair, lines};
use crate::support::{PATIENCE, answers, sites};
use lab::{Lab, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A daemon with a WireGuard interface whose peer is nowhere, unless another daemon is started for it.
pub struct Router {
    pub lab: Lab,
    pub site: Site,
    pub keys: [(String, String); 2],
}

impl Router {
    pub fn new() -> Option<Self> {
        let mut router = Self::stopped()?;
        router.start();
        Some(router)
    }

    pub fn stopped() -> Option<Self> {
        let lab = sites()?;
        let keys = [key_pair(), key_pair()];
        let site = Site::new(&lab, "a", &keys[0].0);
        site.write(&lines(0, &keys[1].1, &[]));
        Some(Self { lab, site, keys })
    }

    pub fn start(&mut self) {
        self.site.start(&mut self.lab);
    }

    /// Ends the daemon as a crash would, and starts it again.
    pub fn crash(&mut self) {
        self.site.signal(Signal::KILL);
        self.ended();
        self.start();
    }

    pub fn ended(&mut self) {
        let process = self.site.process.expect("it was started");
        wait_until(PATIENCE, || self.lab.ended(process).is_some()).expect("it ends");
    }

    /// The status of an answer, and what it says; none if the daemon ended meanwhile.
    pub fn asked(&self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = UnixStream::connect(&self.site.socket).expect("it listens");
        let head = format!(
            "{method} /v1/{path} HTTP/1.1\r\nhost: postern\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Some((status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))))
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, answer) = self.asked("GET", path, None).expect("an answer");
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.asked("POST", path, Some(body)).expect("an answer")
    }

    pub fn revision(&self) -> u64 {
        self.get("configuration")["revision"].as_u64().expect("a number")
    }

    pub fn text(&self) -> String {
        self.get("configuration")["text"].as_str().expect("text").to_owned()
    }

    /// A commit of these edits on what is in force.
    pub fn request(&self, edits: &[&str]) -> Value {
        json!({ "base": self.revision(), "edits": edits, "user": "test", "via": "cli" })
    }

    pub fn commit(&self, edits: &[&str]) -> (u16, Value) {
        self.post("configuration/commit", &self.request(edits))
    }

    pub fn commits(&self, edits: &[&str]) -> u64 {
        let (status, answer) = self.commit(edits);
        assert_eq!(status, 200, "{edits:?}: {answer}");
        answer["revision"].as_u64().expect("a number")
    }

    /// The MTU of the interface, as the kernel has it.
    pub fn mtu(&self) -> u64 {
        let text = self.lab.run("a", "cat", &["/sys/class/net/wg0/mtu"]).expect("it is there");
        text.trim().parse().expect("a number")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.site.state.join("archive").join(name)
    }
}

const MTU: &str = "set interfaces wireguard wg0 mtu";

fn mtu(value: u64) -> String {
    format!("{MTU} {value}")
}

#[test]
fn a_commit_is_in_force_and_a_revision() {
    let Some(router) = Router::new() else { return };
    let before = router.get("configuration");
    assert_eq!(
        (&before["revision"], &before["saved"], &before["confirm"]),
        (&json!(1), &json!(true), &Value::Null)
    );
    assert!(before["text"].as_str().is_some_and(|text| text.contains(&router.keys[0].0)), "with secrets");
    let mut request = router.request(&[&mtu(1300)]);
    request["comment"] = json!("two\nlines");
    let (status, committed) = router.post("configuration/commit", &request);
    assert_eq!((status, &committed["revision"]), (200, &json!(2)), "{committed}");
    assert_eq!(committed["changes"], json!(["+ interfaces wireguard wg0 mtu 1300"]));
    assert_eq!((router.mtu(), &router.get("configuration")["saved"]), (1300, &json!(false)));
    let revisions = router.get("configuration/revisions");
    let shown = |index: usize, key: &str| revisions[index][key].clone();
    assert_eq!(
        (shown(0, "revision"), shown(0, "user"), shown(0, "via")),
        (json!(2), json!("test"), json!("cli"))
    );
    assert_eq!((shown(0, "comment"), shown(1, "via")), (json!("two\nlines"), json!("start")));
    assert!(shown(0, "time").as_str().is_some_and(|time| time.len() == 20 && time.ends_with('Z')));
    let old = router.get("configuration/revisions/1");
    assert!(old["text"].as_str().is_some_and(|text| !text.contains("mtu")), "{old}");
    let mode = std::fs::metadata(router.file("00000002.conf")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!router.site.logged().contains(&router.keys[0].0), "no secret is logged");
    // What is in force is saved where the file says the same.
    assert_eq!(router.commits(&[&format!("delete {}", &MTU[4..])]), 3);
    assert_eq!(router.get("configuration")["saved"], json!(true));
    assert_eq!(router.commit(&[]).1["revision"], json!(3), "nothing has changed");
}

#[test]
fn all_that_is_wrong_is_told_and_nothing_is_changed() {
    let Some(router) = Router::new() else { return };
    let before = router.get("configuration");
    let (status, answer) = router.commit(&["set interfaces wireguard wg0 mtu 12", &mtu(1300), "delete vpn"]);
    let paths = [&answer["errors"][0]["path"], &answer["errors"][1]["path"]];
    assert_eq!((status, paths), (422, [&json!("interfaces wireguard wg0 mtu"), &json!("vpn")]), "{answer}");
    let edits =
        [&mtu(1300), "set interfaces wireguard wg1 mtu 1400", "set interfaces wireguard wg2 mtu 1400"];
    let (status, answer) = router.commit(&edits);
    let errors = answer["errors"].as_array().expect("a list").clone();
    let path =
        |name: &str| errors.iter().any(|it| it["path"].as_str().is_some_and(|path| path.contains(name)));
    assert!(status == 422 && path("wg1") && path("wg2"), "{answer}");
    // The kernel refuses the last step.
    let _taken = router.lab.take("a", "0.0.0.0:51999").expect("free");
    let (status, answer) = router.commit(&[&mtu(1300), "set interfaces wireguard wg0 port 51999"]);
    let error = &answer["errors"][0];
    assert!(error["why"].as_str().is_some_and(|why| why.starts_with("UDP port 51999 is in use")), "{answer}");
    assert_eq!((status, &error["path"]), (422, &json!("interfaces wireguard wg0")));
    let mut check = router.request(&[&mtu(1300)]);
    check["check_only"] = json!(true);
    let (status, answer) = router.post("configuration/commit", &check);
    assert_eq!((status, answer["changes"].as_array().map(Vec::len)), (200, Some(1)));
    check["edits"] = json!(["set interfaces wireguard wg0 port 51999"]);
    assert_eq!(router.post("configuration/commit", &check).0, 422);
    assert_eq!((router.get("configuration"), router.mtu()), (before, 1420));
    for (key, value) in [("via", json!("start")), ("confirm_minutes", json!(0)), ("base", json!(77))] {
        let mut request = router.request(&[&mtu(1300)]);
        request[key] = value;
        let (status, answer) = router.post("configuration/commit", &request);
        assert!([400, 410].contains(&status) && answer["fix"].is_string(), "{key}: {status}: {answer}");
    }
}

#[test]
fn two_sessions_commit_without_losing_either_and_a_conflict_is_named() {
    let Some(router) = Router::new() else { return };
    let (one, other) = (
        router.request(&[&mtu(1300)]),
        router.request(&["set interfaces wireguard wg0 address 10.67.0.1/24"]),
    );
    let conflicting = router.request(&[&mtu(1350)]);
    assert_eq!(router.post("configuration/commit", &one).0, 200);
    assert_eq!(router.post("configuration/commit", &other).0, 200);
    let addresses = router.lab.ip("a", "address show wg0").expect("it is there");
    assert!(addresses.contains("mtu 1300") && addresses.contains("10.67.0.1"), "{addresses}");
    let (status, answer) = router.post("configuration/commit", &conflicting);
    let expected = json!({"path": "interfaces wireguard wg0 mtu", "ours": "1350", "theirs": "1300"});
    assert_eq!((status, &answer["conflicts"]), (409, &json!([expected])));
    // Both at once.
    let commits = ["set system config-management commit-revisions 2000", "set system open-at-exit"];
    std::thread::scope(|scope| {
        let requests = commits.map(|edit| router.request(&[edit]));
        let threads = requests.map(|request| {
            let router = &router;
            scope.spawn(move || router.post("configuration/commit", &request).0)
        });
        assert_eq!(threads.map(|thread| thread.join().expect("it ends")), [200, 200]);
    });
    assert!(commits.iter().all(|edit| router.text().contains(edit)), "{}", router.text());
}

#[test]
fn a_commit_outlives_a_crash_and_a_new_file_does_not() {
    let Some(mut router) = Router::new() else { return };
    assert_eq!(router.commits(&[&mtu(1300)]), 2);
    router.crash();
    assert_eq!((router.mtu(), router.revision()), (1300, 2), "nobody saved it");
    // The client has written it to the file.
    std::fs::write(&router.site.file, router.text()).expect("its folder is there");
    let hash = base16ct::lower::encode_string(&crypto::hash::sha256(&[router.text().as_bytes()]));
    let saved = json!({ "hash": hash, "revision": 2 });
    assert_eq!(router.post("configuration/saved", &saved).0, 200);
    assert_eq!(router.get("configuration")["saved"], json!(true));
    assert_eq!(router.commits(&[&mtu(1250)]), 3);
    router.crash();
    assert_eq!((router.mtu(), router.revision()), (1250, 3), "it was committed after that was saved");
    router.site.write(&lines(0, &router.keys[1].1, &["mtu 1200"]));
    router.crash();
    assert_eq!((router.mtu(), router.revision()), (1200, 4), "the file was changed");
    router.site.write(&lines(0, &router.keys[1].1, &["mtu 1190"]));
    router.site.reload();
    assert_eq!((router.mtu(), router.revision()), (1190, 5));
    assert_eq!(router.get("configuration/revisions")[0]["via"], "reload");
}

#[test]
fn a_commit_that_is_not_confirmed_is_undone_also_after_a_crash() {
    let Some(mut router) = Router::new() else { return };
    let confirmed_within = |router: &Router, value| {
        let mut request = router.request(&[&mtu(value)]);
        request["confirm_minutes"] = json!(1);
        router.post("configuration/commit", &request)
    };
    assert_eq!(confirmed_within(&router, 1300).0, 200);
    let confirm = router.get("configuration")["confirm"].clone();
    assert!(confirm["seconds_left"].as_u64().is_some_and(|left| left <= 60), "{confirm}");
    assert_eq!(confirm["back_to"], 1);
    let (status, locked) = router.commit(&[&mtu(1250)]);
    let fix = locked["fix"].as_str().expect("a fix");
    assert!(status == 423 && fix.starts_with("type confirm, or wait until "), "{locked}");
    assert_eq!(router.post("configuration/saved", &json!({ "hash": "0", "revision": 2 })).0, 423);
    assert_eq!(router.post("configuration/confirm", &json!({ "revision": 2 })).0, 200);
    assert_eq!(router.get("configuration")["confirm"], Value::Null);
    assert_eq!(router.post("configuration/confirm", &json!({ "revision": 2 })).0, 423);
    // Confirmed is confirmed, and what is not comes back.
    assert_eq!(confirmed_within(&router, 1250).0, 200);
    router.crash();
    assert_eq!((router.mtu(), router.revision()), (1250, 3));
    let left = || router.get("configuration")["confirm"]["seconds_left"].as_u64();
    assert!(left().is_some_and(|left| left > 0), "the timer goes on after a crash");
    wait_until(3 * PATIENCE, || router.mtu() == 1300).expect("it comes back");
    wait_until(PATIENCE, || router.revision() == 4).expect("it is a revision");
    assert_eq!(router.get("configuration/revisions")[0]["via"], "confirm");
    assert!(router.commit(&[&mtu(1200)]).0 == 200, "commits are taken again");
}

/// A daemon whose revisions are on a small disk.
fn on_small_disk() -> Option<(Router, Mounted)> {
    let mut router = Router::stopped()?;
    std::fs::create_dir(&router.site.state).expect("a folder");
    let mounted = Mounted::new(&router.site.state.to_string_lossy());
    router.start();
    Some((router, mounted))
}

#[test]
fn a_commit_that_a_reload_has_undone_does_not_come_back_although_the_disk_is_full() {
    let Some((mut router, mounted)) = on_small_disk() else { return };
    assert_eq!(router.commits(&[&mtu(1300)]), 2);
    let filler = fill(&router);
    router.site.reload();
    assert_eq!((router.mtu(), router.revision()), (1420, 1), "the first one has the same lines");
    for _ in 0..2 {
        router.crash();
        assert_eq!(router.mtu(), 1420, "the file was in force last");
    }
    std::fs::remove_file(filler).expect("it is there");
    assert_eq!(router.commits(&[&mtu(1250)]), 3);
    router.crash();
    assert_eq!((router.mtu(), router.revision()), (1250, 3), "commits count again");
    router.site.signal(Signal::TERM);
    router.ended();
    drop(mounted);
}

#[test]
fn a_full_disk_refuses_a_commit_before_anything_is_changed() {
    let Some((mut router, mounted)) = on_small_disk() else { return };
    assert_eq!(router.revision(), 1);
    let before = (router.get("configuration"), router.mtu());
    let filler = fill(&router);
    let (status, answer) = router.commit(&[&mtu(1300)]);
    assert!(
        status == 507 && answer["error"].as_str().is_some_and(|it| it.contains("the disk is full")),
        "{answer}"
    );
    assert_eq!((router.get("configuration"), router.mtu()), before);
    std::fs::remove_file(filler).expect("it is there");
    assert_eq!(router.commits(&[&mtu(1300)]), 2);
    router.site.signal(Signal::TERM);
    router.ended();
    drop(mounted);
}

/// Fills the disk of the revisions with a file.
fn fill(router: &Router) -> PathBuf {
    let filler = router.site.state.join("filler");
    let mut file = std::fs::File::create(&filler).expect("there is room");
    while file.write_all(&[0; 4096]).is_ok() {}
    while file.write_all(&[0]).is_ok() {}
    filler
}

/// A small disk, as long as it lives.
struct Mounted(String);

impl Mounted {
    fn new(folder: &str) -> Self {
        let arguments = ["-t", "tmpfs", "-o", "size=128k", "tmpfs", folder];
        let mounted = std::process::Command::new("mount").args(arguments).status().expect("it runs");
        assert!(mounted.success());
        Self(folder.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Also where the test has failed, and the daemon still uses it.
        let _ = std::process::Command::new("umount").args(["--lazy", &self.0]).status();
    }
}

#[test]
fn a_daemon_whose_state_cannot_be_kept_serves_its_file() {
    let Some(mut router) = Router::stopped() else { return };
    std::fs::write(&router.site.state, "no folder").expect("a file");
    router.start();
    let shown = router.get("configuration");
    assert_eq!((&shown["revision"], router.mtu()), (&json!(0), 1420));
    assert!(shown["read_only"]["error"].is_string(), "{shown}");
    let (status, answer) = router.commit(&[&mtu(1300)]);
    assert!(status == 503 && answer["error"].is_string(), "{answer}");
    router.site.write(&lines(0, &router.keys[1].1, &["mtu 1200"]));
    router.site.reload();
    assert_eq!(router.mtu(), 1200);
}

#[test]
fn a_corrupt_revision_is_named_and_set_aside() {
    let Some(mut router) = Router::new() else { return };
    assert_eq!(router.commits(&[&mtu(1300)]), 2);
    assert_eq!(router.commits(&[&mtu(1250)]), 3);
    for (name, from, to) in
        [("00000003.conf", "\"revision\":3", "\"revision\":9"), ("00000002.conf", "1300", "1301")]
    {
        let text = std::fs::read_to_string(router.file(name)).expect("it is there");
        assert!(text.contains(from), "{name}");
        std::fs::write(router.file(name), text.replace(from, to)).expect("it is ours");
    }
    router.crash();
    assert_eq!((router.mtu(), router.revision()), (1420, 4), "the newest cannot be read: the file is loaded");
    let (status, answer) = router.asked("GET", "configuration/revisions/2", None).expect("an answer");
    assert!(status == 500 && answer["error"].as_str().is_some_and(|it| it.contains(".corrupt")), "{answer}");
    let revisions = router.get("configuration/revisions");
    let corrupt: Vec<bool> = (0..4).map(|index| revisions[index]["corrupt"].is_string()).collect();
    assert_eq!(corrupt, [false, true, true, false], "{revisions}");
    assert!(router.file("00000003.conf.corrupt").exists() && router.file("00000002.conf.corrupt").exists());
}

#[test]
fn commits_cost_the_tunnel_no_packet_and_end_with_the_daemon() {
    let Some(mut router) = Router::new() else { return };
    let mut other = Site::new(&router.lab, "b", &router.keys[1].0);
    other.write(&lines(1, &router.keys[0].1, &[]));
    other.start(&mut router.lab);
    wait_until(PATIENCE, || answers(&router.lab, "a", "10.66.0.2")).expect("a tunnel");
    std::thread::scope(|scope| {
        let lab = &router.lab;
        let pinging =
            scope.spawn(|| lab.run("a", "ping", &["-c", "100", "-i", "0.02", "-W", "10", "-q", "10.66.0.2"]));
        for number in 1..=10 {
            let peer = format!("set interfaces wireguard wg0 peer p{number}");
            let key = format!("{peer} public-key {}", key_pair().1);
            router.commits(&[&key, &format!("{peer} allowed-ips 10.{}.0.0/16", 100 + number)]);
        }
        let said = pinging.join().expect("it ends").expect("it runs");
        assert!(said.contains(" 0% packet loss"), "{said}");
    });
    assert_eq!(router.revision(), 11);
    router.site.signal(Signal::TERM);
    router.ended();
    router.start();
    assert_eq!(router.revision(), 11);
}
