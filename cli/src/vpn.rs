//! The IPsec peers of all daemons, and the peers that a request names.

#[cfg(test)]
pub(crate) mod samples;

use crate::Failure;
use crate::request::Request;
use config::schema::nearest;
use config::tree::natural_order;
use gateway::api;
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
        Some(name) => named(found, name),
        None => Ok(found),
    }
}

fn not_running(why: &str) -> Failure {
    format!("IPsec process not running: {why}\n  fix: postern run --config FILE, then ask as root").into()
}

/// The peers with this name; several daemons can have one each.
fn named(found: Vec<Found>, name: &str) -> Result<Vec<Found>, Failure> {
    let (named, others): (Vec<Found>, Vec<Found>) =
        found.into_iter().partition(|found| found.peer.name == name);
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
