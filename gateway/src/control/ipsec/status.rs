//! What there is to say of peers, and of what went wrong with them.

use crate::api::model::IpsecFailure;
use std::time::Duration;
use tunnel::esp::TrafficSelector;
use tunnel::ikev2::{Cause, Path};

/// Says what went wrong with `peer`, what each side wants, and what to do.
pub fn explain(peer: &str, path: Path, cause: &Cause, at: Duration) -> IpsecFailure {
    let remote = path.remote.ip();
    let set = format!("set vpn ipsec site-to-site peer {peer}");
    let (what, details, fix) = match cause {
        Cause::NoConnection => {
            (format!("no peer is configured for {remote}"), vec![], format!("{set} remote-address {remote}"))
        }
        Cause::NoSuchPeer { identity } => (
            format!("{remote} says that it is {identity}, and no peer is configured for that"),
            vec![],
            format!("{set} authentication remote-id {identity}"),
        ),
        Cause::NoProposal { of, ours, theirs } => no_proposal(peer, of, ours, theirs),
        Cause::NoSelectors { ours, theirs } => (
            "no packets that both sides want in the tunnel".to_owned(),
            vec![
                format!("here: local {}, remote {}", list(&ours[0]), list(&ours[1])),
                match theirs {
                    [local, remote] if local.is_empty() && remote.is_empty() => {
                        "the peer does not say".to_owned()
                    }
                    [local, remote] => format!("the peer: local {}, remote {}", list(local), list(remote)),
                },
            ],
            format!("{set} tunnel N local prefix and remote prefix: what is local here is remote there"),
        ),
        Cause::Mode => (
            "one side wants tunnel mode, the other transport mode".to_owned(),
            vec![],
            "set vpn ipsec esp-group NAME mode tunnel|transport, the same on both sides".to_owned(),
        ),
        Cause::NotAuthentic { identity, why } => (
            format!("{identity} has not shown who it is: {why}"),
            vec![],
            "set vpn ipsec authentication psk NAME secret SECRET, the same on both sides".to_owned(),
        ),
        Cause::CannotSign(why) => (
            format!("we cannot sign as the peer wants it: {why}"),
            vec![],
            format!("{set} authentication x509 certificate NAME, with a key of a kind that the peer takes"),
        ),
        Cause::Refused => (
            "the peer does not believe that we are who we say we are".to_owned(),
            vec![],
            format!("compare the secret and the identities: {set} authentication local-id NAME"),
        ),
        Cause::Notified(notification) => (
            format!("the peer refused with {notification}"),
            vec![],
            "look into the log of the peer".to_owned(),
        ),
        Cause::Misbehaved(why) => (
            format!("the peer does not follow the protocol: {why}"),
            vec![],
            "look into the log of the peer".to_owned(),
        ),
        Cause::NoAnswer => (
            format!("{remote} does not answer on UDP port {}", path.remote.port()),
            vec![],
            format!("ping {remote}; let UDP 500 and 4500 through on the way; is IKE served there?"),
        ),
    };
    IpsecFailure { at: at.as_secs(), what, details, fix }
}

fn no_proposal(peer: &str, of: &str, ours: &[String], theirs: &[String]) -> (String, Vec<String>, String) {
    let all = |proposals: &[String]| proposals.join(", ");
    let group = if of == "IKE" { "ike-group" } else { "esp-group" };
    let theirs = if theirs.is_empty() {
        "does not say what it accepts".to_owned()
    } else {
        format!("accepts {}", all(theirs))
    };
    (
        format!("no common proposal for {of}"),
        vec![format!("we accept {}", all(ours)), format!("the peer {theirs}")],
        format!(
            "set vpn ipsec {group} NAME proposal N ..., with what the peer accepts (the {group} of peer {peer})"
        ),
    )
}

/// Selectors as people write them.
pub fn list(selectors: &[TrafficSelector]) -> String {
    if selectors.is_empty() {
        return "the gateway's own address".to_owned();
    }
    selectors.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// One selector: a prefix or a range, with protocol and port where there are any.
pub fn text(selector: &TrafficSelector) -> String {
    let (first, last) = (*selector.addresses.start(), *selector.addresses.end());
    let prefix = (0..=if first.is_ipv4() { 32 } else { 128 })
        .filter_map(|length| ipnet::IpNet::new(first, length).ok())
        .find(|net| net.network() == first && net.broadcast() == last);
    let mut text = prefix.map_or_else(|| format!("{first}-{last}"), |prefix| prefix.to_string());
    let (low, high) = (*selector.ports.start(), *selector.ports.end());
    let port = match (low, high) {
        (0, u16::MAX) => String::new(),
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low}-{high}"),
    };
    if selector.protocol != 0 || !port.is_empty() {
        text += &format!("[{}/{port}]", selector.protocol);
    }
    text
}
