//! Revisions that are damaged while a commit must be confirmed.

use super::faults::{let_time_pass, stop};
use super::{Router, mtu};
use crate::support::PATIENCE;
use lab::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};

impl Router {
    /// Damages the file of a revision.
    fn damages(&self, revision: u64) {
        let file = self.file(&format!("{revision:08}.conf"));
        let text = std::fs::read_to_string(&file).expect("it is there");
        std::fs::write(&file, text.replace("\"user\"", "\"used\"")).expect("it is ours");
    }
}

fn tries(router: &Router, value: u64) {
    let mut request = router.request(&[&mtu(value)]);
    request["confirm_minutes"] = json!(1);
    assert_eq!(router.post("configuration/commit", &request).0, 200);
}

#[test]
fn a_commit_whose_revision_is_damaged_is_undone_all_the_same() {
    let Some(mut router) = Router::new() else { return };
    tries(&router, 1300);
    stop(&mut router, Signal::KILL);
    let_time_pass(&router, 8);
    router.start();
    assert_eq!(router.mtu(), 1300);
    router.damages(2);
    router.damages(1);
    for revision in [1, 2] {
        let path = format!("configuration/revisions/{revision}");
        assert_ne!(router.asked("GET", &path, None).expect("an answer").0, 200, "the damage is noticed");
    }
    assert_eq!(router.get("configuration")["confirm"]["revision"], 2);
    wait_until(PATIENCE, || router.mtu() == 1420).expect("it comes back");
    wait_until(PATIENCE, || router.get("configuration")["confirm"].is_null()).expect("it is undone");
}

#[test]
fn a_commit_whose_revision_is_damaged_can_be_confirmed() {
    let Some(mut router) = Router::new() else { return };
    tries(&router, 1300);
    router.damages(2);
    let (status, answer) = router.post("configuration/confirm", &json!({ "revision": 2 }));
    assert_eq!((status, &answer["revision"]), (200, &json!(3)), "written again: {answer}");
    router.crash();
    assert_eq!((router.mtu(), router.revision()), (1300, 3));
}

#[test]
fn after_a_restart_the_revision_before_a_damaged_one_is_in_force() {
    let Some(mut router) = Router::new() else { return };
    assert_eq!(router.commits(&[&mtu(1300)]), 2);
    tries(&router, 1250);
    stop(&mut router, Signal::KILL);
    router.damages(3);
    router.start();
    let shown = router.get("configuration");
    assert_eq!((router.mtu(), &shown["revision"], &shown["confirm"]), (1300, &json!(4), &Value::Null));
    assert_eq!(router.get("configuration/revisions")[0]["via"], "recovery");
    assert!(router.site.logged().contains("revision 2 before it is loaded"), "{}", router.site.logged());
    router.crash();
    assert_eq!((router.mtu(), router.revision()), (1300, 4), "it is in force again");
}
