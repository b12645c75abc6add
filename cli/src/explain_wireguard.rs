//! `postern explain interfaces wireguard`: why peers are up or down, and how to fix it.

use crate::Failure;
use crate::answer::Answer;
use crate::output::{NOT_UP, ago};
use crate::request::Request;
use config::schema::nearest;
use gateway::wireguard::model::{Explained, Explanation, Explanations, PeerState};

pub(crate) fn explain(request: &Request) -> Result<Answer, Failure> {
    let answers: Vec<Explanations> = request.ask()?;
    let mut found: Vec<Explanation> = answers.into_iter().flat_map(|answer| answer.interfaces).collect();
    if found.is_empty() {
        let interface = request.value("INTERFACE").unwrap_or_default();
        return Err(format!(
            "there is no WireGuard interface {interface}\n  fix: postern show interfaces wireguard"
        )
        .into());
    }
    if let Some(name) = request.value("PEER") {
        retain(&mut found, name)?;
    }
    let is_down = found.iter().flat_map(|it| &it.peers).any(|peer| peer.state == PeerState::Down);
    let text = |answer: &Explanations| answer.interfaces.iter().map(explanation).collect();
    let answer = Answer::new(Explanations { interfaces: found }, text);
    Ok(answer.with_status(if is_down { NOT_UP } else { 0 }))
}

/// Keeps only the peer with this name or key.
fn retain(found: &mut Vec<Explanation>, name: &str) -> Result<(), Failure> {
    let is_meant = |peer: &Explained| peer.name.as_deref() == Some(name) || peer.public_key == name;
    if !found.iter().flat_map(|it| &it.peers).any(is_meant) {
        let interface = found.first().map(|it| &*it.interface).unwrap_or_default();
        let known: Vec<&str> = found.iter().flat_map(|it| &it.peers).map(called).collect();
        let fix = match (nearest(name, &known), &known[..]) {
            (Some(near), _) => format!("did you mean {near}?"),
            (None, []) => {
                format!("set interfaces wireguard {interface} peer {name} public-key KEY, and reload")
            }
            (None, known) => format!("one of {}", known.join(", ")),
        };
        return Err(format!("interface {interface} has no peer {name}\n  fix: {fix}").into());
    }
    for it in &mut *found {
        it.peers.retain(is_meant);
        // Calls that concern the peer are already among its findings.
        it.callers.clear();
    }
    found.retain(|it| !it.peers.is_empty());
    Ok(())
}

fn called(peer: &Explained) -> &str {
    peer.name.as_deref().unwrap_or(&peer.public_key)
}

fn explanation(it: &Explanation) -> String {
    let mut lines = Vec::new();
    if it.peers.is_empty() {
        lines.push(format!("interface {} has no peers", it.interface));
    }
    for peer in &it.peers {
        lines.push(format!("interfaces wireguard {} peer {}: {}", it.interface, called(peer), peer.state));
        let endpoint = peer.endpoint.as_deref().unwrap_or("no endpoint");
        let preshared = if peer.has_preshared_key { ", with a preshared key" } else { "" };
        lines.push(format!("  public key {}{preshared}, {endpoint}, {}", peer.public_key, prefixes(peer)));
        for finding in &peer.findings {
            lines.push(format!("  {}", finding.what));
            let fix = finding.fix.iter().enumerate();
            lines.extend(fix.map(|(at, line)| format!("  {} {line}", if at == 0 { "fix:" } else { "    " })));
        }
    }
    for caller in &it.callers {
        let who = caller.public_key.as_deref().map_or_else(
            || "an unknown caller that uses another public key for us".to_owned(),
            |key| format!("a caller with the public key {key}, which no peer has"),
        );
        let times = if caller.count == 1 { "once".to_owned() } else { format!("{} times", caller.count) };
        lines.push(format!("{who}: {times} from {}, last {}", caller.address, ago(caller.latest)));
    }
    lines.join("\n") + "\n"
}

fn prefixes(peer: &Explained) -> String {
    if peer.allowed_ips.is_empty() { "no prefixes".to_owned() } else { peer.allowed_ips.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::wireguard::model::{Caller, Finding};

    fn peer(name: &str, state: PeerState) -> Explained {
        let (what, fix) = ("it has no endpoint".to_owned(), vec!["one".to_owned(), "two".to_owned()]);
        Explained {
            name: Some(name.to_owned()),
            public_key: "KEY=".to_owned(),
            endpoint: None,
            allowed_ips: vec!["10.2.0.0/24".to_owned()],
            has_preshared_key: true,
            state,
            findings: vec![Finding { what, fix }],
        }
    }

    fn interface() -> Explanation {
        let caller = Caller { public_key: None, address: "192.0.2.9:5".to_owned(), count: 2, latest: 0 };
        Explanation {
            interface: "wg0".to_owned(),
            public_key: None,
            peers: vec![peer("berlin", PeerState::Waiting), peer("rome", PeerState::Up)],
            callers: vec![caller],
        }
    }

    #[test]
    fn a_peer_is_found_by_its_name_or_key() {
        let wrong = |name| retain(&mut vec![interface()], name).expect_err("there is none").to_string();
        assert_eq!(wrong("berlni"), "interface wg0 has no peer berlni\n  fix: did you mean berlin?");
        assert!(wrong("x").ends_with("one of berlin, rome"));
        let mut found = vec![interface()];
        retain(&mut found, "rome").expect("it is there");
        assert_eq!((found[0].peers.len(), found[0].callers.len()), (1, 0));
        retain(&mut found, "KEY=").expect("it is there");
    }

    #[test]
    fn findings_come_with_their_fixes() {
        let text = explanation(&interface());
        assert!(text.starts_with(
            "interfaces wireguard wg0 peer berlin: waiting\n  public key KEY=, with a preshared key, no endpoint, 10.2.0.0/24\n  \
             it has no endpoint\n  fix: one\n       two\n"
        ));
        assert!(
            text.contains(
                "an unknown caller that uses another public key for us: 2 times from 192.0.2.9:5, last "
            ),
            "{text}"
        );
    }
}
