//! The IPsec peers of all daemons, and the peers that a request names.

#[cfg(test)]
pub(crate) mod samples;

use crate::request::Request;
use crate::{Failure, client};
use config::schema::nearest;
use config::tree::natural_order;
use gateway::api;
use gateway::api::model::{Refused, Status};
use gateway::ipsec::model::{Ipsec, IpsecPeer};
use std::path::PathBuf;

/// A peer, and the socket of its daemon.
pub(crate) struct Found {
    pub(crate) socket: PathBuf,
    pub(crate) peer: IpsecPeer,
}

/// All peers, in natural order.
pub(crate) fn peers(request: &Request) -> Result<Vec<Found>, Failure> {
    let answers: Vec<(PathBuf, Ipsec)> =
        request.ask_each().map_err(|error| not_running(&error.to_string()))?;
    if answers.is_empty() {
        return Err(not_running(&format!("no daemon answers in {}", api::DIRECTORY)));
    }
    if answers.iter().all(|(_, answer)| answer.is_absent) {
        return Err(not_running("the daemon that answers is for one WireGuard interface alone"));
    }
    let of = |(socket, answer): (PathBuf, Ipsec)| {
        answer.peers.into_iter().map(move |peer| Found { socket: socket.clone(), peer })
    };
    let mut found: Vec<Found> = answers.into_iter().flat_map(of).collect();
    for found in &mut found {
        found.peer.tunnels.sort_by_key(|tunnel| tunnel.number);
    }
    found.sort_by(|a, b| natural_order(&a.peer.name, &b.peer.name));
    Ok(found)
}

/// The peer that the request names, or all.
pub(crate) fn wanted(request: &Request) -> Result<Vec<Found>, Failure> {
    let found = peers(request)?;
    match request.value("PEER") {
        Some(name) => named(found, name).map_err(|error| not_in_force(request, name).unwrap_or(error)),
        None => Ok(found),
    }
}

/// The error for a peer that is configured, and that a daemon cannot serve now.
fn not_in_force(request: &Request, name: &str) -> Option<Failure> {
    let statuses: Vec<(PathBuf, Status)> = client::ask_each(request.api(), "/v1/status").ok()?;
    let refused: Vec<Refused> = statuses.into_iter().flat_map(|(_, status)| status.refused).collect();
    why_not_in_force(&refused, name).map(Failure::from)
}

fn why_not_in_force(refused: &[Refused], name: &str) -> Option<String> {
    let place = format!("vpn ipsec site-to-site peer {name}");
    let refused = refused.iter().find(|refused| refused.place == place)?;
    let why = refused.why.strip_prefix(&format!("{place}: ")).unwrap_or(&refused.why);
    let again = if refused.is_temporary { "; it is tried again by itself" } else { "" };
    Some(format!("IPsec peer {name} is configured, and not in force{again}: {why}"))
}

fn not_running(why: &str) -> Failure {
    format!("IPsec process not running: {why}\n  fix: postern run --config FILE, then ask as root").into()
}

/// The peers with this name, and the instances of it; several daemons can have one each.
fn named(found: Vec<Found>, name: &str) -> Result<Vec<Found>, Failure> {
    let is_named = |peer: &IpsecPeer| peer.name == name || peer.instance_of.as_deref() == Some(name);
    let (named, others): (Vec<Found>, Vec<Found>) =
        found.into_iter().partition(|found| is_named(&found.peer));
    if !named.is_empty() {
        return Ok(named);
    }
    let known: Vec<&str> = others.iter().map(|found| &*found.peer.name).collect();
    let fix = match (nearest(name, &known), &known[..]) {
        (Some(near), _) => format!("did you mean {near}?"),
        (None, []) => format!("set vpn ipsec site-to-site peer {name} remote-address ADDRESS, and reload"),
        (None, known) => format!("one of {}", known.join(", ")),
    };
    Err(format!("there is no IPsec peer {name}\n  fix: {fix}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Found {
        let peer = IpsecPeer { name: name.to_owned(), ..IpsecPeer::default() };
        Found { socket: PathBuf::new(), peer }
    }

    #[test]
    fn a_peer_that_is_not_in_force_is_told_from_one_that_is_not_configured() {
        let refused = Refused {
            place: "vpn ipsec site-to-site peer berlin".to_owned(),
            why: "vpn ipsec site-to-site peer berlin: vpn.example has no address now: lost\n  fix: mend it"
                .to_owned(),
            is_temporary: true,
        };
        assert_eq!(
            why_not_in_force(std::slice::from_ref(&refused), "berlin").as_deref(),
            Some(
                "IPsec peer berlin is configured, and not in force; it is tried again by itself: vpn.example has no address \
                 now: lost\n  fix: mend it"
            )
        );
        let lasting = Refused { is_temporary: false, ..refused };
        assert!(
            !why_not_in_force(std::slice::from_ref(&lasting), "berlin").expect("it is").contains("again")
        );
        assert_eq!(why_not_in_force(&[lasting], "rome"), None);
    }

    #[test]
    fn the_name_of_a_profile_is_that_of_its_instances_too() {
        let instance = |identity: &str| {
            let mut found = found(&format!("branches/{identity}"));
            found.peer.instance_of = Some("branches".to_owned());
            found
        };
        let named = |name: &str| {
            let all = vec![found("branches"), instance("b.example"), instance("c.example"), found("rome")];
            let named = named(all, name).unwrap_or_default();
            named.into_iter().map(|found| found.peer.name).collect::<Vec<_>>()
        };
        assert_eq!(named("branches"), ["branches", "branches/b.example", "branches/c.example"]);
        assert_eq!(named("branches/c.example"), ["branches/c.example"]);
    }

    #[test]
    fn a_peer_that_is_not_there_is_nearly_another() {
        let wrong = |name: &str, all: &[&str]| {
            let all = all.iter().map(|name| found(name)).collect();
            named(all, name).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(wrong("berlin", &["berlin", "hamburg"]), "");
        assert!(wrong("berlni", &["berlin", "hamburg"]).ends_with("did you mean berlin?"));
        assert!(wrong("rome", &["berlin", "hamburg"]).ends_with("one of berlin, hamburg"));
        assert!(wrong("rome", &[]).contains("fix: set vpn ipsec site-to-site peer rome"));
    }
}
