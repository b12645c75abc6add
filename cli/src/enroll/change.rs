//! What becomes of branches: revoked, renamed, moved, retired. Each is one commit.

use super::Gateway;
use super::create::check_networks;
use crate::Outcome;
use crate::answer::{self, Answer};
use ipnet::IpNet;
use serde_json::json;
use zeroize::Zeroizing;

pub(super) fn revoke(head: &mut Gateway, name: &str, json: bool) -> Outcome {
    let branch = head.branch(name)?;
    if branch.joined.is_some() {
        return Err(format!("branch {name} has joined\n  fix: postern enroll retire {name}").into());
    }
    if branch.token.is_none() {
        return Err(format!("branch {name} has no token\n  fix: postern enroll list").into());
    }
    let edits = [format!("set service enrollment branch {name} token revoked")];
    change(head, edits, &format!("token of branch {name} revoked"))?;
    said(name, "revoked", &format!("The token of branch {name} is not accepted any more."), json)
}

pub(super) fn rename(head: &mut Gateway, name: &str, to: &str, json: bool) -> Outcome {
    let branch = head.branch(name)?;
    let (has_joined, has_token) = (branch.joined.is_some(), branch.token.is_some());
    if head.enrollment()?.branches.contains_key(to) || head.has_peer(to)? {
        return Err(format!("there is a {to} already\n  fix: take another name").into());
    }
    let mut edits = renamed(head, "service enrollment branch", name, to);
    if has_token && !has_joined {
        // The name is in the token.
        edits.push(format!("delete service enrollment branch {to} token").into());
    }
    if head.has_peer(name)? {
        let peers = format!("interfaces wireguard {} peer", head.enrollment()?.interface);
        edits.extend(renamed(head, &peers, name, to));
    }
    head.commit(&edits, &format!("branch {name} renamed to {to}"))?;
    let more = if has_joined {
        String::new()
    } else {
        format!("\nA token has the name in it. Make another: postern enroll create {to}")
    };
    said(to, "renamed", &format!("Branch {name} is {to} now.{more}"), json)
}

/// Lines that give a branch of the configuration another name.
fn renamed(head: &Gateway, path: &str, name: &str, to: &str) -> Vec<Zeroizing<String>> {
    let lines = head.below(&format!("{path} {name}"));
    let set = lines.iter().map(|line| Zeroizing::new(format!("set {path} {to} {}", **line)));
    std::iter::once(Zeroizing::new(format!("delete {path} {name}"))).chain(set).collect()
}

pub(super) fn relocate(head: &mut Gateway, name: &str, networks: &[IpNet], json: bool) -> Outcome {
    let mut branch = head.branch(name)?.clone();
    let networks: Vec<IpNet> = networks.iter().map(IpNet::trunc).collect();
    check_networks(head, name, &networks)?;
    let path = format!("service enrollment branch {name}");
    let mut edits = Vec::new();
    if !branch.networks.is_empty() {
        edits.push(format!("delete {path} network"));
    }
    edits.extend(networks.iter().map(|network| format!("set {path} network {network}")));
    branch.networks = networks;
    if head.has_peer(name)? {
        let peer = format!("interfaces wireguard {} peer {name} allowed-ips", head.enrollment()?.interface);
        edits.push(format!("delete {peer}"));
        edits.extend(branch.allowed_ips().map(|prefix| format!("set {peer} {prefix}")));
    }
    change(head, edits, &format!("branch {name} moved"))?;
    let shown: Vec<String> = branch.networks.iter().map(ToString::to_string).collect();
    said(name, "moved", &format!("Behind branch {name} is {} now.", shown.join(", ")), json)
}

pub(super) fn retire(head: &mut Gateway, name: &str, json: bool) -> Outcome {
    head.branch(name)?;
    let mut edits = vec![format!("delete service enrollment branch {name}")];
    if head.has_peer(name)? {
        edits.push(format!("delete interfaces wireguard {} peer {name}", head.enrollment()?.interface));
    }
    change(head, edits, &format!("branch {name} retired"))?;
    said(name, "retired", &format!("Branch {name} has no tunnel any more."), json)
}

fn change(head: &mut Gateway, edits: impl IntoIterator<Item = String>, comment: &str) -> Outcome {
    let edits: Vec<_> = edits.into_iter().map(Zeroizing::new).collect();
    head.commit(&edits, comment).map(drop)
}

fn said(name: &str, state: &str, text: &str, json: bool) -> Outcome {
    let text = format!("{text}\n");
    answer::print(&Answer::new(json!({ "branch": name, "state": state }), move |_| text.clone()), json)
}
