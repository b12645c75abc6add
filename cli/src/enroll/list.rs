//! `postern enroll list`: the branches, and whether they have joined.

use super::Gateway;
use crate::answer::{self, Answer};
use crate::tabulate::tabulate;
use crate::{Outcome, output};
use config::settings::enrollment::Branch;
use gateway::facts::model::{Facts, Protocol};
use serde::Serialize;

/// A branch.
#[derive(Serialize)]
struct Listed {
    branch: String,
    address: String,
    networks: Vec<String>,
    state: &'static str,
    expires: Option<u64>,
    joined: Option<u64>,
    last_handshake: Option<u64>,
}

pub(super) fn list(head: &Gateway, json: bool) -> Outcome {
    let enrollment = head.enrollment()?;
    let facts: Facts = head.ask("/v1/facts")?;
    let handshake = |name: &str| {
        let mut tunnels = facts.tunnels.iter();
        let is_its = |it: &&gateway::facts::model::Tunnel| {
            it.protocol == Protocol::WireGuard && it.interface == enrollment.interface && it.peer == name
        };
        tunnels.find(is_its).and_then(|tunnel| tunnel.last_handshake)
    };
    let branches = enrollment.branches.iter().map(|(name, branch)| Listed {
        branch: name.clone(),
        address: branch.address.to_string(),
        networks: branch.networks.iter().map(ToString::to_string).collect(),
        state: state(branch, enrollment.peers.get(name).is_some_and(|peer| peer.is_disabled), output::now()),
        expires: branch.token.as_ref().filter(|_| branch.joined.is_none()).map(|token| token.expires),
        joined: branch.joined,
        last_handshake: handshake(name),
    });
    answer::print(&Answer::new(branches.collect::<Vec<_>>(), |all| text(all)), json)
}

/// A word for what a branch is, whose peer may be disabled, at a time in seconds since 1970.
fn state(branch: &Branch, is_disabled: bool, now: u64) -> &'static str {
    match (&branch.joined, &branch.token) {
        (Some(_), _) if is_disabled => "disabled",
        (Some(_), _) => "joined",
        (None, None) => "no token",
        (None, Some(token)) if token.is_revoked => "revoked",
        (None, Some(token)) if token.expires <= now => "expired",
        (None, Some(_)) => "waiting",
    }
}

fn text(branches: &[Listed]) -> String {
    if branches.is_empty() {
        return "There is no branch: postern enroll create NAME --networks PREFIX\n".to_owned();
    }
    let head = ["branch", "address", "networks", "state", "since or until", "last handshake"];
    let rows: Vec<Vec<String>> = branches
        .iter()
        .map(|it| {
            let at = it.joined.or(it.expires).map(output::timestamp).unwrap_or_default();
            let handshake = it.last_handshake.map_or_else(|| "-".to_owned(), output::ago);
            let networks = if it.networks.is_empty() { "-".to_owned() } else { it.networks.join(", ") };
            vec![it.branch.clone(), it.address.clone(), networks, it.state.to_owned(), at, handshake]
        })
        .collect();
    tabulate(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::settings::enrollment::Token;

    #[test]
    fn a_branch_waits_until_it_joins_or_its_token_ends() {
        let branch =
            |joined, token| Branch { address: [10, 255, 0, 2].into(), networks: Vec::new(), token, joined };
        let token = |is_revoked| Some(Token { hash: [0; 32], created: None, expires: 100, is_revoked });
        assert_eq!(state(&branch(None, token(false)), false, 99), "waiting");
        assert_eq!(state(&branch(None, token(false)), false, 100), "expired");
        assert_eq!(state(&branch(None, token(true)), false, 99), "revoked");
        assert_eq!(state(&branch(Some(1), token(false)), false, 100), "joined");
        assert_eq!(state(&branch(None, None), false, 1), "no token");
        assert_eq!(state(&branch(Some(1), None), true, 1), "disabled");
    }
}
