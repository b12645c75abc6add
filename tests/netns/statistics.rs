//! `show interfaces ... statistics`: what the calls of each worker brought.

use crate::daemon::started;
use crate::support::{PATIENCE, answers, ask, postern, tcp_arrives_whole};
use lab::wait_until;
use serde_json::Value;

#[test]
fn each_worker_says_what_its_calls_brought() {
    let Some((lab, a, _b, _)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let socket = a.socket.to_string_lossy().into_owned();
    let words = ["show", "interfaces", "wireguard", "wg0", "statistics", "--api", &socket];
    let workers = || -> [Value; 2] {
        let said = ask(&words);
        let all = said["workers"].as_array().expect("a list").clone();
        all.try_into().expect("one a direction")
    };
    let number = |worker: &Value, name: &str| worker[name].as_u64().expect("a number");
    let before = workers();
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 20 << 20).expect("whole");
    let after = workers();
    for (place, name) in ["out", "in"].into_iter().enumerate() {
        assert_eq!(after[place]["worker"], name);
        let more = |what: &str| number(&after[place], what) - number(&before[place], what);
        assert!(more("received_packets") > 0 && more("wake_ups") > 0 && more("sends") > 0, "{after:#?}");
        assert!(more("receives") > more("empty_receives"), "{after:#?}");
        let bursts = |worker: &Value| -> u64 {
            worker["bursts"].as_array().expect("a list").iter().map(|class| number(class, "bursts")).sum()
        };
        let (bursts, packets) = (bursts(&after[place]), number(&after[place], "received_packets"));
        assert!(bursts > 0 && bursts <= packets, "{after:#?}");
    }
    let out = |what: &str| number(&after[0], what) - number(&before[0], what);
    // Outside they are longer: a header and a tag each.
    assert!(out("received_bytes") > 20 << 20 && out("sent_bytes") > out("received_bytes"), "{after:#?}");

    let program = postern().display().to_string();
    let refused =
        lab.run("a", &program, &["show", "interfaces", "wireguard", "wg9", "statistics", "--api", &socket]);
    assert!(refused.expect_err("there is none").to_string().contains("no worker serves wg9"));
}
