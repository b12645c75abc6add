//! A captured packet as a line, for people or as JSON.

use super::blocks::Packet;
use crate::output::{printable, timestamp_micros};
use packet::DropReason;
use packet::header::flow::Flow;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `2026-11-27T11:30:07.123456Z in berlin, bad-tag at decrypt: 192.0.2.1:500 > 192.0.2.2:500 udp, 128 bytes`
pub(super) fn text(packet: &Packet) -> String {
    let about = packet.comment.as_deref().map(|comment| format!(" {}", printable(comment)));
    let what = match flow(packet) {
        Some(flow) => format!("{} > {} {}", flow.source, flow.destination, flow.protocol),
        None => "no IP packet".to_owned(),
    };
    let layer = if packet.is_outer { " outside" } else { "" };
    let (direction, about) = (direction(packet), about.unwrap_or_default());
    format!("{} {direction}{layer}{about}: {what}, {} bytes", timestamp_micros(packet.at), packet.length)
}

/// The same as JSON.
pub(super) fn json(packet: &Packet) -> Value {
    let (peer, drop) = packet.comment.as_deref().map(parts).unwrap_or_default();
    let (reason, stage) = drop.unzip();
    let flow = flow(packet);
    let of = |of: fn(&Line) -> &String| flow.as_ref().map(of);
    json!({
        "time": timestamp_micros(packet.at),
        "direction": direction(packet),
        "layer": if packet.is_outer { "outside" } else { "inside" },
        "peer": peer,
        "dropped": reason,
        "stage": stage,
        "source": of(|flow| &flow.source),
        "destination": of(|flow| &flow.destination),
        "protocol": of(|flow| &flow.protocol),
        "bytes": packet.length,
    })
}

fn direction(packet: &Packet) -> &'static str {
    if packet.is_inbound { "in" } else { "out" }
}

/// The peer, and reason and stage of a drop, as they stand in a comment. A peer's name may have anything in it, a reason is one of a list.
fn parts(comment: &str) -> (Option<&str>, Option<(&str, &str)>) {
    let (peer, last) = comment.rsplit_once(", ").map_or((None, comment), |(peer, last)| (Some(peer), last));
    let drop = last.split_once(" at ");
    match drop.filter(|(reason, _)| DropReason::ALL.iter().any(|known| known.name() == *reason)) {
        Some(drop) => (peer, Some(drop)),
        None => (Some(comment), None),
    }
}

/// The ends of a packet.
struct Line {
    source: String,
    destination: String,
    protocol: String,
}

fn flow(packet: &Packet) -> Option<Line> {
    // What was not kept is not needed, but counts as there.
    let mut bytes = packet.bytes.clone();
    bytes.resize(packet.length.min(usize::from(u16::MAX)).max(bytes.len()), 0);
    let flow = Flow::parse(&bytes).ok()?;
    let has_ports = matches!(flow.protocol, 6 | 17);
    let address = |number: u128| -> IpAddr {
        if flow.is_v4 {
            Ipv4Addr::from_bits(number as u32).into()
        } else {
            Ipv6Addr::from_bits(number).into()
        }
    };
    let end = |number: u128, port: Option<u16>| match port.filter(|_| has_ports) {
        Some(port) => SocketAddr::new(address(number), port).to_string(),
        None => address(number).to_string(),
    };
    let (from, to) = flow.ports.unzip();
    let protocol = match flow.protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        50 => "esp".to_owned(),
        58 => "icmpv6".to_owned(),
        other => format!("protocol {other}"),
    };
    Some(Line { source: end(flow.source, from), destination: end(flow.destination, to), protocol })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn captured(comment: &str) -> Packet {
        let header = [0x45, 0, 3, 232, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let ports = [4000u16.to_be_bytes(), 53u16.to_be_bytes()].concat();
        Packet {
            at: Duration::new(0, 1_234_000),
            is_inbound: true,
            is_outer: false,
            comment: Some(comment.to_owned()),
            length: 1000,
            bytes: [&header[..], &ports, &[0; 40]].concat(),
        }
    }

    #[test]
    fn a_line_has_the_peer_the_drop_and_the_ends_of_a_packet_that_was_cut() {
        assert_eq!(
            text(&captured("berlin, bad-tag at decrypt")),
            "1970-01-01T00:00:00.001234Z in berlin, bad-tag at decrypt: 10.0.0.1:4000 > 10.0.0.2:53 udp, 1000 bytes"
        );
        let garbage = Packet { bytes: vec![1; 9], comment: None, ..captured("") };
        assert!(text(&garbage).ends_with(" in: no IP packet, 1000 bytes"), "{}", text(&garbage));
    }

    #[test]
    fn json_tells_the_peer_from_the_drop() {
        let found = json(&captured("a, b at c, bad-tag at decrypt"));
        assert_eq!(
            (&found["peer"], &found["dropped"], &found["stage"]),
            (&"a, b at c".into(), &"bad-tag".into(), &"decrypt".into())
        );
        let found = json(&captured("no-key at route"));
        assert_eq!((&found["peer"], &found["dropped"]), (&Value::Null, &"no-key".into()));
        let found = json(&captured("berlin, site at home"));
        assert_eq!((&found["peer"], &found["dropped"]), (&"berlin, site at home".into(), &Value::Null));
    }

    #[test]
    fn a_name_writes_nothing_on_the_terminal() {
        assert!(!text(&captured("a\x1b[2J\n")).contains(['\x1b', '\n']));
    }
}
