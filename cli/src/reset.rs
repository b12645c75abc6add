//! `postern reset`: re-establishes connections; `postern restart` is that for all of them, since nothing else need be restarted.

use crate::answer::Answer;
use crate::request::Request;
use crate::vpn::Found;
use crate::{Failure, client, vpn};
use gateway::ipsec::model::Reset;
use std::collections::BTreeSet;
use std::path::Path;

pub(crate) fn peer(request: &Request) -> Result<Answer, Failure> {
    // The table has it read as a number.
    let tunnel = request.value("TUNNEL").map(str::parse).transpose()?;
    each(&vpn::wanted(request)?, tunnel)
}

pub(crate) fn all(request: &Request) -> Result<Answer, Failure> {
    each(&vpn::peers(request)?, None)
}

/// The spelling of VyOS 1.3, in which `all` stands in the place of a name.
pub(crate) fn peer_or_all(request: &Request) -> Result<Answer, Failure> {
    if request.value("PEER") == Some("all") { all(request) } else { peer(request) }
}

fn each(found: &[Found], tunnel: Option<u32>) -> Result<Answer, Failure> {
    // A profile is reset with all its instances.
    let named: BTreeSet<(&Path, &str)> = found.iter().map(|it| (&*it.socket, &*it.peer.name)).collect();
    let is_with_profile = |it: &&Found| match &it.peer.instance_of {
        Some(profile) => named.contains(&(&*it.socket, &**profile)),
        None => false,
    };
    let found = found.iter().filter(|found| !is_with_profile(found));
    let begun = found.map(|found| reset(found, tunnel)).collect::<Result<Vec<Reset>, Failure>>()?;
    Ok(Answer::new(begun, |begun| begun.iter().map(text).collect()))
}

fn text(begun: &Reset) -> String {
    match begun.tunnel {
        Some(number) => format!("{}: re-establishing tunnel {number}\n", begun.peer),
        None => format!("{}: re-establishing all tunnels\n", begun.peer),
    }
}

fn reset(found: &Found, tunnel: Option<u32>) -> Result<Reset, Failure> {
    let peer = &found.peer;
    if let Some(number) = tunnel
        && !peer.tunnels.iter().any(|tunnel| tunnel.number == number)
    {
        let known: Vec<String> = peer.tunnels.iter().map(|tunnel| tunnel.number.to_string()).collect();
        return Err(format!(
            "peer {} has no tunnel {number}\n  fix: its tunnels are {}",
            peer.name,
            known.join(", ")
        )
        .into());
    }
    let order = Reset { peer: peer.name.clone(), tunnel };
    let known: bool = client::tell(&found.socket, "/v1/vpn/ipsec/reset", &order)?;
    if !known {
        return Err(format!("peer {} has just gone\n  fix: postern show vpn ipsec sa", peer.name).into());
    }
    Ok(order)
}
