//! Packets that the kernel dropped: in the queues before the gateway receives them, and after the gateway has sent them.

use super::model::Drop;
use crate::host::Held;
use crate::host::netlink::Netlink;
use crate::ipsec::NAME;
use crate::tunnel_interface::SocketKind;
use packet::DropReason;
use port::udp::SocketSlot;

const QUEUE_FULL: &str = "the queue of packets into the tunnel was full: the processor is busy, or packets come in bursts; a longer queue (ip link set IF txqueuelen N) helps against bursts only";
const IGNORED: &str = "the kernel dropped packets that came out of the tunnel: the interface is down, or their protocol is unknown to it";
const SOCKET_FULL: &str =
    "the receive buffer of the socket was full: the processor is busy, or this is a flood";

const OUTSIDE_TUNNEL: &str = "an IPsec policy protects the packet, and it was about to leave by another interface: a route or rule leads around the tunnel, or there is none; nft list table inet postern-guard";
const IN_CLEAR: &str = "the packet came unprotected from a network behind an IPsec peer: the peer does not encrypt it, or it is forged; nft list table inet postern";

/// The packets dropped at an interface since its creation, and at each of its sockets since it was opened.
///
/// For an interface in another network namespace only the sockets are known.
pub(super) fn drops(interface: &str, sockets: &[(SocketKind, SocketSlot)]) -> Vec<Drop> {
    let row = |reason: &str, meaning: &str| row(interface, reason, meaning);
    let mut rows = Vec::new();
    if let Ok((into, out_of)) =
        Netlink::open().and_then(|mut netlink| netlink.link_drops(interface).map_err(std::io::Error::other))
    {
        rows.push(Drop { outbound: into, ..row("inside-queue-full", QUEUE_FULL) });
        rows.push(Drop { inbound: out_of, ..row("inside-ignored", IGNORED) });
    }
    for (kind, slot) in sockets {
        let lost = slot.load().as_deref().map(port::udp::UdpSockets::receive_drops).unwrap_or_default();
        for (number, version) in lost.into_iter().zip(["ipv4", "ipv6"]) {
            let Some(number) = number else { continue };
            let row = row(&format!("{}-{version}-full", name(*kind)), SOCKET_FULL);
            rows.push(match kind {
                SocketKind::Ike => Drop { handshake: number, ..row },
                SocketKind::Tunnel | SocketKind::Esp => Drop { inbound: number, ..row },
            });
        }
    }
    rows
}

/// The packets that our nftables rules have dropped, also before the start of the daemon.
pub(super) fn held(held: Held) -> Vec<Drop> {
    let leaving =
        held.leaving.map(|outbound| Drop { outbound, ..row(NAME, "outside-tunnel", OUTSIDE_TUNNEL) });
    let arriving = held.arriving.map(|inbound| Drop { inbound, ..row(NAME, "arrived-in-clear", IN_CLEAR) });
    leaving.into_iter().chain(arriving).collect()
}

/// What a reason of the kernel or of the data path means.
pub fn meaning_of_drop(reason: &str) -> Option<&'static str> {
    let named = match reason {
        "inside-queue-full" => Some(QUEUE_FULL),
        "inside-ignored" => Some(IGNORED),
        "outside-tunnel" => Some(OUTSIDE_TUNNEL),
        "arrived-in-clear" => Some(IN_CLEAR),
        _ if reason.ends_with("-ipv4-full") || reason.ends_with("-ipv6-full") => Some(SOCKET_FULL),
        _ => None,
    };
    named.or_else(|| DropReason::ALL.iter().find(|it| it.name() == reason).map(|it| it.sentence()))
}

fn row(interface: &str, reason: &str, meaning: &str) -> Drop {
    Drop {
        interface: interface.to_owned(),
        reason: reason.to_owned(),
        meaning: meaning.to_owned(),
        outbound: 0,
        inbound: 0,
        handshake: 0,
    }
}

fn name(kind: SocketKind) -> &'static str {
    match kind {
        SocketKind::Tunnel => "socket",
        SocketKind::Esp => "esp-socket",
        SocketKind::Ike => "ike-socket",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_meaning() {
        assert!(DropReason::ALL.iter().all(|it| meaning_of_drop(it.name()) == Some(it.sentence())));
        for kind in [SocketKind::Tunnel, SocketKind::Esp, SocketKind::Ike] {
            assert_eq!(meaning_of_drop(&format!("{}-ipv6-full", name(kind))), Some(SOCKET_FULL));
        }
        assert!(meaning_of_drop("inside-queue-full").is_some() && meaning_of_drop("another").is_none());
    }
}
