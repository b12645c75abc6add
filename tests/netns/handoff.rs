//! `threads`: crypto threads come and go with the configuration, and carry packets.

use crate::daemon::{lines, started};
use crate::support::{PATIENCE, answers, ask, postern, sites, tcp_arrives_whole};
use lab::wireguard::{Daemon, Gateway, Plan, Tunnel};
use lab::{Lab, Process, wait_until};

/// Seconds that the crypto threads of a process have run, each.
fn crypto_threads(process: Process) -> Vec<f64> {
    let (names, seconds) = (process.threads().expect("it runs"), process.cpu_of_threads().expect("it runs"));
    let is_crypto = |name: &str| name.ends_with(" crypto");
    let crypto = names.iter().filter(|(_, (name, _))| is_crypto(name));
    crypto.filter_map(|(id, _)| seconds.get(id).copied()).collect()
}

#[test]
fn threads_come_and_go_at_a_commit_and_the_tunnel_stays() {
    let Some((lab, a, _b, publics)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    // The data path carries packets before the handshake thread has heard that the peer has the key.
    wait_until(PATIENCE, || a.peer("other")["latest_handshake"].is_u64()).expect("a handshake");
    let socket = a.socket.to_string_lossy().into_owned();
    let count = || {
        let said = ask(&["show", "datapath", "threads", "--api", &socket]);
        let threads = said["threads"].as_array().expect("a list");
        let crypto = threads.iter().filter(|thread| thread["name"] == "wg0 crypto").count();
        (crypto, said["handoffs"][0]["crypto_threads"].as_u64())
    };
    for (threads, expected) in
        [("5", (3, Some(3))), ("3", (1, Some(1))), ("2", (0, None)), ("4", (2, Some(2)))]
    {
        let before = a.peer("other")["latest_handshake"].clone();
        a.write(&lines(0, &publics[1], &[&format!("threads {threads}")]));
        let said = a.reload();
        assert!(said.contains("is in force"), "{said}");
        assert!(answers(&lab, "a", "10.66.0.2"));
        assert_eq!(a.peer("other")["latest_handshake"], before, "the session was kept");
        // Threads that are given up end when the workers have noticed.
        wait_until(PATIENCE, || count() == expected).unwrap_or_else(|_| panic!("{threads}: {:?}", count()));
    }
    a.write(&lines(0, &publics[1], &["threads 65"]));
    let said = a.reload();
    assert!(said.contains("\"65\" is not a number from 1 to 64, or auto"), "{said}");
    assert_eq!(count(), (2, Some(2)));
}

#[test]
fn packets_that_are_always_handed_off_arrive_whole_both_ways() {
    let Some(mut lab) = sites() else { return };
    let daemon = Daemon::Postern(postern());
    let extra = ["--threads", "4", "--hand-off-always"];
    let tunnel = Tunnel::start_between(&mut lab, [&daemon, &daemon], &Plan::SITES, &extra).expect("a tunnel");
    for (from, to, end) in [("a", "b", 1), ("b", "a", 0)] {
        tcp_arrives_whole(&lab, from, to, &tunnel.inside[end], 200 << 20).expect("whole");
        tcp_arrives_whole(&lab, from, to, &tunnel.inside_v6[end], 50 << 20).expect("whole");
    }
    // On a busy machine the workers take many bursts back: it may need more of them.
    let has_run = |gateway: &Gateway| crypto_threads(gateway.process).iter().sum::<f64>() > 0.001;
    let carried = |lab: &Lab| {
        for (from, to, end) in [("a", "b", 1), ("b", "a", 0)] {
            tcp_arrives_whole(lab, from, to, &tunnel.inside[end], 50 << 20).expect("whole");
        }
        tunnel.gateways.iter().all(has_run)
    };
    wait_until(4 * PATIENCE, || carried(&lab)).expect("crypto threads work");
    for gateway in &tunnel.gateways {
        assert_eq!(crypto_threads(gateway.process).len(), 2);
    }
}
