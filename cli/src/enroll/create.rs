//! `postern enroll create`: a token for a branch.

use super::{Create, Gateway, qr, warn};
use crate::answer::{self, Answer};
use crate::{Failure, Outcome, output};
use base64ct::{Base64, Encoding};
use config::settings::WireGuard;
use crypto::random::System;
use gateway::api::model::Advice;
use gateway::https::model::Enrollment as Served;
use https::enrollment::{Token, hash};
use ipnet::IpNet;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// Addresses that are tried for a branch.
const TRIED: usize = 1 << 16;

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

pub(super) fn create(head: &mut Gateway, wanted: &Create, json: bool) -> Outcome {
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
    let address = match (wanted.address, known) {
        (Some(address), _) => address,
        (None, Some(branch)) => branch.address,
        (None, None) => free_address(head)?,
    };
    let secret = Token::secret(&mut System::default());
    let hash = Base64::encode_string(&hash(secret.expose()));
    let token = Token {
        branch: name.clone(),
        addresses: enrollment.addresses.clone(),
        port: enrollment.port,
        pin: pin(head)?,
        secret,
    };
    let text = token.encode().ok_or("a name has at most 64 characters\n  fix: take a shorter one")?;
    let expires = output::now() + wanted.expires.as_secs();
    let path = format!("service enrollment branch {name}");
    let mut edits: Vec<String> = known.map(|_| format!("delete {path}")).into_iter().collect();
    edits.push(format!("set {path} address {address}"));
    edits.extend(networks.iter().map(|network| format!("set {path} network {network}")));
    edits.push(format!("set {path} token hash {hash}"));
    edits.push(format!("set {path} token expires {expires}"));
    let edits: Vec<_> = edits.into_iter().map(Zeroizing::new).collect();
    head.commit(&edits, &format!("token for branch {name}"))?;
    let warnings = head.warnings()?;
    let created = Created {
        branch: name.clone(),
        address,
        networks: networks.iter().map(ToString::to_string).collect(),
        command: format!("postern join {}", *text),
        token: text.to_string(),
        expires: output::timestamp(expires),
        warnings: warnings.clone(),
    };
    print(created, wanted.no_qr, json)?;
    if !json {
        warn(&warnings);
    }
    Ok(())
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

pub(super) fn check_networks(head: &Gateway, name: &str, networks: &[IpNet]) -> Outcome {
    if let Some(everything) = networks.iter().find(|network| network.prefix_len() == 0) {
        return Err(format!("{everything} is everything\n  fix: name the networks behind the branch").into());
    }
    match head.overlap(name, networks)? {
        Some(overlap) => Err(format!("{overlap}\n  fix: give each site networks of its own").into()),
        None => Ok(()),
    }
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
fn free_address(head: &Gateway) -> Result<IpAddr, Failure> {
    let enrollment = head.enrollment()?;
    let interface = &head.settings.wireguard[&enrollment.interface];
    let branches = enrollment.branches.values().map(|branch| branch.address);
    free(interface, branches).ok_or_else(|| {
        let name = &enrollment.interface;
        format!(
            "the networks of {name} have no free address\n  \
             fix: set interfaces wireguard {name} address 10.255.0.1/24, or give one with --address"
        )
        .into()
    })
}

fn free(interface: &WireGuard, branches: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    let own = interface.addresses.iter().map(IpNet::addr);
    let of_peers = interface.peers.values().flat_map(|peer| &peer.allowed_ips);
    let of_peers = of_peers.filter(|net| net.prefix_len() == net.max_prefix_len()).map(IpNet::addr);
    let taken: BTreeSet<IpAddr> = own.chain(of_peers).chain(branches).collect();
    let wide = interface.addresses.iter().filter(|net| net.prefix_len() + 1 < net.max_prefix_len());
    let mut all = wide.flat_map(|net| net.hosts().take(TRIED)).filter(|address| {
        // The address of an IPv6 network itself is that of its routers (RFC 4291, section 2.6.1).
        !interface.addresses.iter().any(|net| net.network() == *address)
    });
    all.find(|address| !taken.contains(address))
}

#[cfg(test)]
mod tests {
    use config::Settings;

    #[test]
    fn an_address_is_free_that_no_peer_and_no_branch_has() {
        let free = |more: &str| {
            let text = format!(
                "set interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=\n\
                 set interfaces wireguard wg0 peer a public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
                 set interfaces wireguard wg0 peer a allowed-ips 10.255.0.2/32\n{more}"
            );
            let (settings, _) = Settings::new(&config::parse(&text).expect("right")).expect("right");
            let branches = ["10.255.0.3", "fd00::2"].map(|text| text.parse().expect("an address"));
            super::free(&settings.wireguard["wg0"], branches.into_iter()).map(|address| address.to_string())
        };
        let address = "set interfaces wireguard wg0 address";
        assert_eq!(free(&format!("{address} 10.255.0.1/24")).as_deref(), Some("10.255.0.4"));
        assert_eq!(free(&format!("{address} 10.255.0.1/30")), None, "it is full");
        assert_eq!(free(&format!("{address} fd00::1/64")).as_deref(), Some("fd00::3"));
        assert_eq!(free(&format!("{address} 10.255.0.1/32")), None);
    }
}
