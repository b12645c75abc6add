//! The order of packets in 20 GB with a stock peer, whose kernel and program count what is out of order: minutes, so they run when asked.
//!
//! `cargo test --release -p postern --test interop -- --ignored --nocapture order::`

use crate::openvpn_ends::{Ends, Program, SERVER};
use crate::support::{PLAN, postern, sites};
use crate::wireguard_go::wireguard_go;
use lab::wireguard::{Daemon, Tunnel};
use lab::{Lab, traffic};

/// Bytes of each transfer.
const BYTES: f64 = 20e9;
/// Bytes of a segment, about.
const SEGMENT: f64 = 1400.0;
/// Seconds of a part of it.
const SECONDS: u32 = 10;

/// What the kernel of a site counts of TCP: segments that came out of order, and how often its own were found to have been.
fn counted(lab: &Lab, site: &str) -> [u64; 2] {
    let text = lab.run(site, "cat", &["/proc/net/netstat"]).expect("every kernel has it");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let [names, values] = [lines.next(), lines.next()].map(|line| line.expect("names, and values"));
    let of = |wanted: &[&str]| {
        let pairs = names.split(' ').zip(values.split(' ')).filter(|(name, _)| wanted.contains(name));
        pairs.map(|(_, value)| value.parse::<u64>().expect("a number")).sum::<u64>()
    };
    [of(&["TCPOFOQueue"]), of(&["TCPSACKReorder", "TCPRenoReorder", "TCPTSReorder"])]
}

/// Sends 20 GB by one stream, and says what both kernels have counted.
fn send(lab: &Lab, name: &str, sites: [&str; 2], address: &str) {
    let before = sites.map(|site| counted(lab, site));
    let (mut bytes, mut seconds, mut retransmits) = (0.0, 0.0, 0.0);
    while bytes < BYTES {
        let part = traffic::tcp(lab, sites[0], address, 1, false, SECONDS).expect("it is measured");
        (bytes, seconds, retransmits) =
            (bytes + part.bytes, seconds + part.seconds, retransmits + part.retransmits);
    }
    let after = sites.map(|site| counted(lab, site));
    let out_of_order = after[1][0] - before[1][0];
    let reordered = after[0][1] - before[0][1];
    println!(
        "{name}: {:.1} GB at {:.2} Gbit/s; {out_of_order} segments out of order at the receiver, {reordered} times found reordered by the \
         sender, {retransmits} segments sent again",
        bytes / 1e9,
        bytes * 8.0 / 1e9 / seconds
    );
    // What is lost leaves a gap too, which is no other order; where much is lost, TCP finds an order where there is none.
    assert!(retransmits > 0.0 || out_of_order == 0, "{name}");
    assert!(retransmits * SEGMENT > bytes / 100.0 || reordered == 0, "{name}");
}

#[test]
#[ignore = "20 GB in each direction"]
fn wireguard_go_finds_no_packet_out_of_order() {
    let Some(peer) = wireguard_go() else { return };
    let ours = Daemon::PosternWithThreads(postern(), 4);
    let Some(mut lab) = sites() else { return };
    let tunnel = Tunnel::start_between(&mut lab, [&ours, &peer], &PLAN, &[]).expect("a tunnel");
    for site in ["a", "b"] {
        traffic::serve(&mut lab, site).expect("iperf3 is there");
    }
    send(&lab, "ours with four threads to wireguard-go", ["a", "b"], &tunnel.inside[1]);
    send(&lab, "wireguard-go to ours with four threads", ["b", "a"], &tunnel.inside[0]);
}

#[test]
#[ignore = "20 GB"]
fn openvpn_finds_no_packet_replayed_or_out_of_order() {
    let Some(mut ends) = Ends::start([Program::Ours, Program::Stock], None) else { return };
    traffic::serve(&mut ends.lab, "b").expect("iperf3 is there");
    send(&ends.lab, "ours to OpenVPN", ["a", "b"], SERVER);
    let said = ends.logs();
    // It says both of each packet.
    for word in ["replay", "backtrack", "bad packet ID"] {
        assert!(!said.contains(word), "{said}");
    }
}
