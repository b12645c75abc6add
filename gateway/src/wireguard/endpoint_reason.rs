//! Why a WireGuard peer with several addresses is called at its endpoint.

use super::update::PeerSnapshot;
use std::net::SocketAddr;
use tunnel::wireguard::Reason;
use tunnel::wireguard::failover::PROBE_INTERVAL;

/// Why a peer with several addresses is called at its endpoint.
pub(super) fn endpoint_reason(peer: &PeerSnapshot) -> Option<String> {
    let [first, _, ..] = &peer.addresses[..] else { return None };
    let at = peer.endpoint.and_then(|it| peer.addresses.iter().position(|address| *address == it.remote));
    let probed = format!("{first} is tried every {} s", PROBE_INTERVAL.as_secs());
    Some(match (peer.reason?, at) {
        (Reason::First, _) => "the first of its addresses".to_owned(),
        (Reason::Fallback, at) => {
            let before: Vec<String> =
                peer.addresses[..at.unwrap_or(1)].iter().map(SocketAddr::to_string).collect();
            let have = if before.len() == 1 { "has" } else { "have" };
            format!("a backup address, as {} {have} not answered; {probed}", before.join(", "))
        }
        (Reason::Followed, Some(_)) => format!("a backup address, from which it has sent itself; {probed}"),
        (Reason::Followed, None) => format!("none of its addresses: it has sent from there itself; {probed}"),
    })
}
