//! `postern explain`: why a connection is down, what each side accepts, and the line that fixes it.

use crate::answer::Answer;
use crate::output::{NOT_UP, ago};
use crate::request::Request;
use crate::tabulate::duration;
use crate::{Failure, vpn};
use gateway::ipsec::model::{ConnectionType, Ipsec, IpsecFailure, IpsecPeer, IpsecTunnel};

pub(crate) fn peer(request: &Request) -> Result<Answer, Failure> {
    let found = vpn::wanted(request)?;
    let peers: Vec<IpsecPeer> = found.into_iter().map(|found| found.peer).collect();
    let status = if peers.iter().all(is_up) { 0 } else { NOT_UP };
    let answer =
        Answer::new(Ipsec { peers, is_absent: false }, |answer| answer.peers.iter().map(explain).collect());
    Ok(answer.with_status(status))
}

/// Whether the peer is connected and each tunnel either has keys or waits for its first packet without a failure.
fn is_up(peer: &IpsecPeer) -> bool {
    if peer.has_instances() {
        return true;
    }
    let is_idle = peer.failure.is_none() && peer.connection_type != ConnectionType::Initiate;
    peer.up && (is_idle || peer.tunnels.iter().all(|tunnel| !tunnel.sas.is_empty()))
}

/// The state of a peer, its tunnels, and its last failure.
pub(crate) fn explain(peer: &IpsecPeer) -> String {
    if peer.has_instances() {
        return profile(peer);
    }
    let down: Vec<&IpsecTunnel> = peer.tunnels.iter().filter(|tunnel| tunnel.sas.is_empty()).collect();
    let state = match (peer.up, &down[..]) {
        (true, _) if peer.silent.is_some() => "silent: it was up, and does not answer",
        (true, []) => "up",
        (true, _) => "up, but not all of its tunnels",
        (false, _) => "down",
    };
    let mut lines = vec![format!("vpn ipsec site-to-site peer {}: {state}", peer.name)];
    lines.extend(connected(peer));
    lines.extend(silent(peer));
    lines.extend(peer.tunnels.iter().filter_map(carried));
    lines.extend(down.iter().map(|tunnel| format!("  {} is down", tunnel.name)));
    match &peer.failure {
        Some(failure) => lines.extend(failed(failure)),
        None if !peer.up => {
            lines.extend(waiting(peer));
            lines.extend(peer.unknown_caller.iter().flat_map(failed));
        }
        None if !down.is_empty() => {
            lines.push("  no failure: it starts on the first matching packet".to_owned());
        }
        None => {}
    }
    lines.join("\n") + "\n"
}

/// A profile with instances: how many, and the last failure of a peer that is none.
fn profile(peer: &IpsecPeer) -> String {
    let count = match peer.instances.unwrap_or_default() {
        1 => "1 instance".to_owned(),
        count => format!("{count} instances"),
    };
    let head = format!("vpn ipsec site-to-site peer {}: {count}", peer.name);
    let lines: Vec<String> = [head].into_iter().chain(peer.failure.iter().flat_map(failed)).collect();
    lines.join("\n") + "\n"
}

fn connected(peer: &IpsecPeer) -> Option<String> {
    let (uptime, suite) = (peer.uptime?, peer.suite.as_deref()?);
    let unknown = "an unknown address";
    Some(format!(
        "  connected for {} with {} at {}, {suite}",
        duration(uptime),
        peer.remote_id.as_deref().unwrap_or("anyone"),
        peer.remote_address.as_deref().unwrap_or(unknown)
    ))
}

/// Describes a peer that our packets may no longer reach.
fn silent(peer: &IpsecPeer) -> Vec<String> {
    let from = peer.sends_from.as_ref();
    let Some(seconds) = peer.silent else {
        let elsewhere = |from| format!("  it also sends from {from}: checking whether it has moved");
        return from.map(elsewhere).into_iter().collect();
    };
    let nothing =
        format!("  nothing received for {}: it is being asked for a sign of life", duration(seconds));
    let set = format!("set vpn ipsec site-to-site peer {} remote-address any", peer.name);
    let moved = from.map(|from| {
        [
            format!(
                "  it sends from {from} now: a move is followed only behind a NAT, as MOBIKE is not supported"
            ),
            format!("  fix: reset vpn ipsec site-to-site peer {}; if it moves often: {set}", peer.name),
        ]
    });
    [nothing].into_iter().chain(moved.into_iter().flatten()).collect()
}

fn carried(tunnel: &IpsecTunnel) -> Option<String> {
    let newest = tunnel.sas.last()?;
    Some(format!(
        "  {} is up for {}, {}, {} to {}",
        tunnel.name,
        duration(newest.uptime),
        newest.suite,
        tunnel.local.join(" "),
        tunnel.remote.join(" ")
    ))
}

fn failed(failure: &IpsecFailure) -> Vec<String> {
    let mut lines = vec![format!("  {}, {}", ago(failure.at), failure.what)];
    lines.extend(failure.details.iter().map(|line| format!("    {line}")));
    let fix = failure.fix.iter().enumerate();
    lines.extend(fix.map(|(at, line)| format!("  {} {line}", if at == 0 { "fix:" } else { "    " })));
    lines
}

/// What a peer without a failure waits for.
fn waiting(peer: &IpsecPeer) -> Vec<String> {
    let local = peer.local_address.as_deref().unwrap_or("this gateway");
    let remote = peer.remote_address.as_deref().unwrap_or("the peer");
    let set = format!("set vpn ipsec site-to-site peer {} connection-type initiate", peer.name);
    match peer.connection_type {
        ConnectionType::None => vec![
            match peer.unknown_caller {
                Some(_) => "  it waits for the peer to call".to_owned(),
                None => {
                    "  it waits for the peer to call, and nothing has come that could be this peer".to_owned()
                }
            },
            format!("  fix: have {remote} call {local}, UDP 500 and 4500; or call it: {set}"),
        ],
        ConnectionType::Trap => vec![
            "  starts on the first matching packet; none yet".to_owned(),
            format!("  fix: ping an address behind the peer; or connect at once: {set}"),
        ],
        ConnectionType::Initiate => vec![
            format!("  {remote} is being called, and has not answered yet"),
            "  fix: wait a few seconds and ask again".to_owned(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vpn::samples::{down, up};

    #[test]
    fn a_connected_peer_is_explained_with_its_algorithms() {
        assert_eq!(
            explain(&up()),
            "vpn ipsec site-to-site peer berlin: up\n\
             \x20 connected for 1h2m3s with berlin.example at 192.0.2.2, aes256gcm128-prfsha256-x25519\n\
             \x20 berlin-tunnel-1 is up for 5m, aes256gcm128-esn, 10.1.0.0/16 to 10.2.0.0/16\n"
        );
    }

    #[test]
    fn a_profile_is_up_with_its_first_instance_and_says_why_others_failed() {
        let mut peer = IpsecPeer { instances: Some(0), connection_type: ConnectionType::None, ..down() };
        assert!(!is_up(&peer) && explain(&peer).starts_with("vpn ipsec site-to-site peer rome2: down\n"));
        peer.instances = Some(1);
        assert!(is_up(&peer));
        let text = explain(&peer);
        assert!(text.starts_with("vpn ipsec site-to-site peer rome2: 1 instance\n"), "{text}");
        assert!(text.contains("no common proposal for IKE") && !text.contains("is down"), "{text}");
        (peer.instances, peer.failure) = (Some(2), None);
        assert_eq!(explain(&peer), "vpn ipsec site-to-site peer rome2: 2 instances\n");
    }

    #[test]
    fn a_failure_is_explained_with_both_proposals_and_a_fix() {
        let text = explain(&down());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "vpn ipsec site-to-site peer rome2: down");
        assert_eq!(lines[1], "  rome2-tunnel-1 is down");
        assert!(lines[2].ends_with(" ago, no common proposal for IKE"), "{}", lines[2]);
        assert_eq!(
            lines[3..],
            [
                "    we accept aes256gcm128-prfsha256-x25519",
                "    the peer offers aes128-sha256-prfsha256-modp2048",
                "  fix: set vpn ipsec ike-group ROME proposal 2 encryption aes128",
                "       set vpn ipsec ike-group ROME proposal 2 hash sha256",
            ]
        );
    }

    #[test]
    fn a_peer_of_which_nothing_was_heard_says_what_it_waits_for() {
        let mut peer = IpsecPeer { failure: None, connection_type: ConnectionType::None, ..down() };
        assert!(explain(&peer).contains("waits for the peer to call"));
        let what = "198.51.100.254 called, and no peer is configured for it".to_owned();
        let fix = vec!["if that is this peer: set it".to_owned()];
        peer.unknown_caller = Some(IpsecFailure { what, fix, ..IpsecFailure::default() });
        let text = explain(&peer);
        assert!(!text.contains("nothing has come") && text.contains(" ago, 198.51.100.254 called"), "{text}");
        assert!(text.ends_with("  fix: if that is this peer: set it\n"), "{text}");
        peer.connection_type = ConnectionType::Trap;
        assert!(
            explain(&peer).contains("the first matching packet; none yet")
                && explain(&peer).contains("  fix: ")
        );
    }

    #[test]
    fn a_peer_that_does_not_answer_is_silent() {
        let mut peer = IpsecPeer { silent: Some(14), ..up() };
        let text = explain(&peer);
        assert!(
            text.starts_with("vpn ipsec site-to-site peer berlin: silent: it was up, and does not answer\n"),
            "{text}"
        );
        assert!(text.contains("  nothing received for 14s"), "{text}");
        peer.sends_from = Some("198.51.100.9:4500".to_owned());
        let text = explain(&peer);
        assert!(text.contains("sends from 198.51.100.9:4500") && text.contains("  fix: reset vpn"), "{text}");
    }

    #[test]
    fn a_peer_with_a_missing_tunnel_is_not_up() {
        assert!(is_up(&up()) && !is_up(&down()));
        let mut half = up();
        half.tunnels.push(down().tunnels.remove(0));
        half.connection_type = ConnectionType::Initiate;
        assert!(!is_up(&half), "a tunnel is missing");
        half.connection_type = ConnectionType::Trap;
        assert!(is_up(&half), "it waits for its first packet");
        half.failure = down().failure;
        assert!(!is_up(&half), "something went wrong with it");
    }

    #[test]
    fn a_tunnel_that_is_missing_is_named() {
        let mut peer = up();
        peer.tunnels.push(down().tunnels.remove(0));
        let text = explain(&peer);
        assert!(text.starts_with("vpn ipsec site-to-site peer berlin: up, but not all of its tunnels\n"));
        assert!(text.contains("  rome2-tunnel-1 is down\n"), "{text}");
    }
}
