//! `postern enroll create`: a token for a branch.

use super::running::refused;
use super::{Create, Gateway, qr, warn};
use crate::answer::{self, Answer};
use crate::shell::api::Refusal;
use crate::{Failure, Outcome, output};
use base64ct::{Base64, Encoding};
use config::settings::WireGuard;
use config::settings::enrollment::{overlap, own_or_of_network, reserved};
use crypto::random::System;
use gateway::api::model::Advice;
use gateway::https::model::Enrollment as Served;
use gateway::resolver::addresses_within;
use https::enrollment::{Token, hash};
use ipnet::IpNet;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a name is looked up.
const LOOK_UP: Duration = Duration::from_secs(5);
/// Addresses that are tried for a branch.
const TRIED: usize = 1 << 16;
/// Commits that are tried when others get the same address meanwhile.
const TRIES: usize = 16;

/// The token, with what it is for.
#[derive(Serialize)]
struct Created {
    branch: String,
    address: IpAddr,
    networks: Vec<String>,
    token: String,
    expires: String,
    command: String,
    /// What head office lacks to carry packets of branches.
    warnings: Vec<Advice>,
}

/// What a branch is to have.
struct Place {
    /// It is there already, and gets another token.
    is_known: bool,
    address: IpAddr,
    networks: Vec<IpNet>,
}

pub(super) fn create(head: &mut Gateway, wanted: &Create, json: bool) -> Outcome {
    let name = &wanted.branch;
    if name.is_empty() {
        return Err(
            "the branch has no name\n  fix: postern enroll create berlin --networks 10.2.0.0/24".into()
        );
    }
    let mut place = place(head, wanted)?;
    let secret = Token::secret(&mut System::default());
    let hash = Base64::encode_string(&hash(secret.expose()));
    let enrollment = head.enrollment()?;
    let token = Token {
        branch: name.clone(),
        host_name: enrollment.host_name.clone(),
        addresses: enrollment.addresses.clone(),
        port: enrollment.port,
        pin: pin(head)?,
        secret,
    };
    let unknown = token.host_name.as_deref().and_then(unknown_name);
    let text = token.encode().ok_or("a name has at most 64 characters\n  fix: take a shorter one")?;
    let created = output::now();
    let expires = created + wanted.expires.as_secs();
    let times = created..expires;
    let mut tries = 0..TRIES;
    let warned = loop {
        match head.put_in_force(&edits(name, &place, &hash, &times), &format!("token for branch {name}")) {
            Ok(warned) => break warned,
            // Another branch may have got the address or a network meanwhile, and is named then.
            Err(Refusal::Wrong(errors)) => {
                head.reread()?;
                let before = std::mem::replace(&mut place, self::place(head, wanted)?);
                if before.address == place.address || tries.next().is_none() {
                    return Err(refused(Refusal::Wrong(errors)));
                }
            }
            Err(refusal) => return Err(refused(refusal)),
        }
    };
    let created = Created {
        branch: name.clone(),
        address: place.address,
        networks: place.networks.iter().map(ToString::to_string).collect(),
        command: format!("postern join {}", *text),
        token: text.to_string(),
        expires: output::timestamp(expires),
        warnings: head.warnings(warned)?.into_iter().chain(unknown).collect(),
    };
    let warnings = if json { Vec::new() } else { created.warnings.clone() };
    // It counts now, even if it cannot be saved.
    print(created, wanted.no_qr, json)?;
    warn(&warnings);
    head.save()
}

/// A warning if the name of head office cannot be looked up here: it may be mistyped, and nobody at the branch can see that.
fn unknown_name(name: &str) -> Option<Advice> {
    let why = addresses_within(name, LOOK_UP).err()?;
    Some(Advice {
        what: format!("host-name {name} cannot be looked up here: {why}"),
        fix: "see that the name is right, and has the address of head office; a mistyped one: set service enrollment host-name NAME, and \
              the same command again"
            .to_owned(),
    })
}

/// What the branch is to have, of what is free now.
fn place(head: &Gateway, wanted: &Create) -> Result<Place, Failure> {
    let name = &wanted.branch;
    let enrollment = head.enrollment()?;
    let known = enrollment.branches.get(name);
    if known.is_some_and(|branch| branch.joined.is_some()) {
        return Err(format!(
            "branch {name} has joined\n  fix: for another router, first: postern enroll retire {name}"
        )
        .into());
    }
    if known.is_none() && head.has_peer(name)? {
        return Err(format!("{} has a peer {name}\n  fix: take another name", enrollment.interface).into());
    }
    let networks: Vec<IpNet> = match known {
        Some(branch) if wanted.networks.is_empty() => branch.networks.clone(),
        _ => wanted.networks.iter().map(IpNet::trunc).collect(),
    };
    check_networks(head, name, &networks)?;
    let address = match wanted.address.or(known.map(|branch| branch.address)) {
        Some(address) => address,
        None => free_address(head, name)?,
    };
    check_address(head, name, address)?;
    Ok(Place { is_known: known.is_some(), address, networks })
}

fn edits(name: &str, place: &Place, hash: &str, times: &Range<u64>) -> Vec<Zeroizing<String>> {
    let path = format!("service enrollment branch {name}");
    let mut edits: Vec<String> = place.is_known.then(|| format!("delete {path}")).into_iter().collect();
    edits.push(format!("set {path} address {}", place.address));
    edits.extend(place.networks.iter().map(|network| format!("set {path} network {network}")));
    edits.push(format!("set {path} token hash {hash}"));
    edits.push(format!("set {path} token created {}", times.start));
    edits.push(format!("set {path} token expires {}", times.end));
    edits.into_iter().map(Zeroizing::new).collect()
}

fn print(created: Created, no_qr: bool, json: bool) -> Outcome {
    let shown = Answer::going(move |out, form| {
        if form.json {
            serde_json::to_writer_pretty(&mut *out, &created)?;
            return Ok(writeln!(out)?);
        }
        let Created { branch, address, networks, command, token, expires, .. } = &created;
        let behind =
            if networks.is_empty() { "no networks behind it".to_owned() } else { networks.join(", ") };
        writeln!(out, "Branch {branch}: {address} in the tunnel, {behind}.")?;
        writeln!(out, "At the branch, as root, once, before {expires}:\n\n  {command}\n")?;
        if form.terminal && !no_qr {
            writeln!(out, "{}", qr::code(token)?)?;
        }
        Ok(())
    });
    answer::print(&shown, json)
}

/// Networks behind a branch, which nobody else may have.
pub(super) fn check_networks(head: &Gateway, name: &str, networks: &[IpNet]) -> Outcome {
    let enrollment = head.enrollment()?;
    let tunnel = head.settings.wireguard.get(&enrollment.interface).into_iter().flat_map(|it| &it.addresses);
    let tunnel = tunnel.map(|net| (net.trunc(), format!("the tunnel interface {}", enrollment.interface)));
    let taken: Vec<_> = tunnel.chain(head.taken(name)?).collect();
    match networks.iter().find_map(|network| in_the_way(network, &taken)) {
        Some(why) => Err(format!("{why}\n  fix: give each site networks of its own").into()),
        None => Ok(()),
    }
}

/// The address of a branch inside the tunnel, which nobody else may have.
fn check_address(head: &Gateway, name: &str, address: IpAddr) -> Outcome {
    let interface = head.settings.wireguard.get(&head.enrollment()?.interface);
    let of_tunnel = interface.and_then(|it| own_or_of_network(it, address));
    match of_tunnel.or(in_the_way(&IpNet::from(address), &head.taken(name)?)) {
        Some(why) => {
            let fix = format!("without --address, {name} gets the first free one");
            Err(format!("{why}\n  fix: {fix}").into())
        }
        None => Ok(()),
    }
}

/// Why a branch cannot have a prefix, if it cannot.
fn in_the_way(wanted: &IpNet, taken: &[(IpNet, String)]) -> Option<String> {
    let other = || taken.iter().find(|(net, _)| overlap(net, wanted));
    reserved(wanted).or_else(|| other().map(|(net, owner)| format!("{wanted} overlaps {net} of {owner}")))
}

/// The pin of the server that branches will ask.
fn pin(head: &Gateway) -> Result<[u8; 32], Failure> {
    let served: Served = head.ask("/v1/service/enrollment")?;
    let pin = served.pin.as_deref().and_then(|pin| base16ct::lower::decode_vec(pin).ok());
    pin.and_then(|pin| pin.try_into().ok()).ok_or_else(|| {
        let why = served.problem.unwrap_or_else(|| "it has not started yet\n  fix: try again".to_owned());
        format!("branches cannot join: {why}").into()
    })
}

/// The first address of the interface's own networks that nobody has.
fn free_address(head: &Gateway, name: &str) -> Result<IpAddr, Failure> {
    let interface = &head.enrollment()?.interface;
    let taken: Vec<IpNet> = head.taken(name)?.into_iter().map(|(net, _)| net).collect();
    free(&head.settings.wireguard[interface], &taken).ok_or_else(|| {
        format!(
            "the networks of {interface} have no free address\n  \
             fix: set interfaces wireguard {interface} address 10.255.0.1/24, or give one with --address"
        )
        .into()
    })
}

fn free(interface: &WireGuard, taken: &[IpNet]) -> Option<IpAddr> {
    let is_one = |net: &&IpNet| net.prefix_len() == net.max_prefix_len();
    let (ones, wider): (Vec<_>, Vec<_>) = taken.iter().partition(is_one);
    let ones: BTreeSet<IpAddr> = ones.into_iter().map(IpNet::addr).collect();
    let wide = interface.addresses.iter().filter(|net| net.prefix_len() + 1 < net.max_prefix_len());
    wide.flat_map(|net| net.hosts().take(TRIED)).find(|address| {
        !ones.contains(address)
            && !wider.iter().any(|net| net.contains(address))
            && own_or_of_network(interface, *address).is_none()
    })
}

#[cfg(test)]
mod tests {
    use config::Settings;

    #[test]
    fn an_address_is_free_that_nobody_has() {
        let free = |more: &str| {
            let text = format!(
                "set interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=\n\
                 {more}"
            );
            let (settings, _) = Settings::new(&config::parse(&text).expect("right")).expect("right");
            let taken = ["10.255.0.2/32", "10.255.0.3/32", "fd00::2/128", "10.255.0.4/30"];
            let taken = taken.map(|text| text.parse().expect("a prefix"));
            super::free(&settings.wireguard["wg0"], &taken).map(|address| address.to_string())
        };
        let address = "set interfaces wireguard wg0 address";
        assert_eq!(free(&format!("{address} 10.255.0.1/24")).as_deref(), Some("10.255.0.8"));
        assert_eq!(free(&format!("{address} 10.255.0.1/30")), None, "it is full");
        assert_eq!(free(&format!("{address} fd00::1/64")).as_deref(), Some("fd00::3"));
        assert_eq!(free(&format!("{address} 10.255.0.1/32")), None);
    }
}
