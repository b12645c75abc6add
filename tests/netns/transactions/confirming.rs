//! Commits that must be confirmed: which one is, and what undoes the others.

use super::faults::{let_time_pass, stop};
use super::{Router, mtu};
use crate::daemon::key_pair;
use crate::support::PATIENCE;
use lab::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};

impl Router {
    /// A commit that must be confirmed within a minute.
    fn tries(&self, edits: &[&str]) -> u64 {
        let mut request = self.request(edits);
        request["confirm_minutes"] = json!(1);
        let (status, answer) = self.post("configuration/commit", &request);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["confirm"]["revision"], answer["revision"], "{answer}");
        answer["revision"].as_u64().expect("a number")
    }

    fn confirms(&self, revision: u64) -> (u16, Value) {
        self.post("configuration/confirm", &json!({ "revision": revision }))
    }

    fn waits(&self) -> Value {
        self.get("configuration")["confirm"].clone()
    }
}

#[test]
fn only_the_commit_that_is_named_is_confirmed() {
    let Some(router) = Router::new() else { return };
    assert_eq!(router.tries(&[&mtu(1300)]), 2);
    assert_eq!(router.post("configuration/confirm", &json!({})).0, 400, "which one?");
    for other in [0, 1, 3] {
        let (status, answer) = router.confirms(other);
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(status == 423 && error.contains("but revision 2 does: it is not confirmed"), "{answer}");
    }
    assert_eq!(router.waits()["revision"], 2, "it still waits");
    assert_eq!(router.confirms(2).1["revision"], 2);
    assert_eq!((router.waits(), router.mtu()), (Value::Null, 1300));
}

#[test]
fn what_cannot_go_back_is_tried_again_and_shown() {
    let Some(mut router) = Router::new() else { return };
    let port = |port| format!("set interfaces wireguard wg0 port {port}");
    let wg1 = format!("set interfaces wireguard wg1 private-key {}", key_pair().0);
    router.tries(&[&port(51999), &mtu(1300), &wg1]);
    stop(&mut router, Signal::KILL);
    let_time_pass(&router, 2);
    // Before it starts: it may go back at once.
    let taken = router.lab.take("a", "0.0.0.0:51820").expect("free");
    router.start();
    let fails = |router: &Router| router.waits()["failed"].as_str().is_some_and(|why| why.contains("51820"));
    wait_until(PATIENCE, || fails(&router)).unwrap_or_else(|error| panic!("{error}: {}", router.waits()));
    let shown = |router: &Router, path: &str| router.get(path).to_string();
    assert!(shown(&router, "configuration/revisions").contains("51820"));
    assert!(
        shown(&router, "status").contains("going back to revision 1 has failed"),
        "{}",
        shown(&router, "status")
    );
    let (status, answer) = router.confirms(2);
    assert!(
        status == 423 && answer["error"].as_str().is_some_and(|it| it.contains("being undone")),
        "{answer}"
    );
    assert_eq!(router.post("configuration/saved", &json!({ "hash": "0", "revision": 2 })).0, 423);
    // The rest is undone, and what is in force is a revision. A restart goes on.
    wait_until(PATIENCE, || !router.text().contains("wg1")).expect("it goes");
    assert_eq!((router.mtu(), router.revision(), router.text().contains("51999")), (1300, 3, true));
    stop(&mut router, Signal::KILL);
    drop(taken);
    router.start();
    assert_eq!((router.mtu(), router.revision(), router.text().contains("51999")), (1420, 4, false));
    assert!(router.waits().is_null());
}

#[test]
fn what_could_not_go_back_does_once_it_can() {
    let Some(mut router) = Router::new() else { return };
    router.tries(&["set interfaces wireguard wg0 port 51999"]);
    stop(&mut router, Signal::KILL);
    let_time_pass(&router, 2);
    // Before it starts: it may go back at once.
    let taken = router.lab.take("a", "0.0.0.0:51820").expect("free");
    router.start();
    wait_until(PATIENCE, || router.waits()["failed"].is_string()).expect("it fails");
    drop(taken);
    wait_until(PATIENCE, || router.waits().is_null()).expect("it is tried again");
    assert!(router.text().contains("wg0 port 51820"), "{}", router.text());
    // A commit is another way out.
    router.tries(&["set interfaces wireguard wg0 port 51999"]);
    stop(&mut router, Signal::KILL);
    let_time_pass_of(&router, 2);
    let _taken = router.lab.take("a", "0.0.0.0:51820").expect("free");
    router.start();
    wait_until(PATIENCE, || router.waits()["failed"].is_string()).expect("it fails");
    router.commits(&["set interfaces wireguard wg0 port 51998"]);
    assert!(router.waits().is_null() && router.text().contains("wg0 port 51998"), "{}", router.text());
}

/// The same of the newest commit of any number.
fn let_time_pass_of(router: &Router, left: u64) {
    super::faults::let_time_pass_at(&router.file(&newest(router)), left);
}

/// The name of the newest file.
fn newest(router: &Router) -> String {
    let files = std::fs::read_dir(router.site.state.join("archive")).expect("it is there");
    let names = files.map(|file| file.expect("it is there").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.split_once('.').is_some_and(|(_, kind)| kind == "conf")).max().expect("one")
}
