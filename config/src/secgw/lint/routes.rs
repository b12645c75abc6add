//! Traps of routes, neighbours and flow rules.

use crate::secgw::finding::Finding;
use crate::secgw::settings::{Action, Direction, Family, Flow, Mode, Route, Settings};
use crate::secgw::start::CommandLine;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub(super) fn lint(settings: &Settings, command_line: Option<&CommandLine>, findings: &mut Vec<Finding>) {
    if settings.routes.is_empty() {
        let text = "the file has no route: every packet is dropped";
        findings.push(Finding::warning(None, "no-route", text, "write rt ipv4 dst PREFIX port N"));
    } else {
        tunnels(settings, findings);
    }
    duplicates(settings, findings);
    if let Some(command_line) = command_line {
        ports(settings, command_line, findings);
        clear(settings, command_line, findings);
    }
    settings.flows.iter().for_each(|flow| flows(flow, findings));
}

/// Encrypted packets of software SAs are routed by their outer address.
fn tunnels(settings: &Settings, findings: &mut Vec<Finding>) {
    for sa in settings.sas.iter().filter(|sa| sa.direction == Direction::Outbound) {
        let Mode::Tunnel { destination, .. } = sa.mode else { continue };
        let reaches = |route: &Route| route.network().is_some_and(|network| network.contains(&destination));
        if !destination.is_unspecified() && !settings.routes.iter().any(reaches) {
            let text = format!(
                "no route leads to {destination}, the other end of the tunnel: its packets are dropped"
            );
            let word = Family::of(destination).word();
            let fix = format!("write rt {word} dst {destination}/{} port N", Family::of(destination).bits());
            findings.push(Finding::warning(sa.line, "tunnel-without-route", text, fix));
        }
    }
}

fn duplicates(settings: &Settings, findings: &mut Vec<Finding>) {
    let mut first: BTreeMap<IpNet, &Route> = BTreeMap::new();
    for route in &settings.routes {
        let Some(network) = route.network() else { continue };
        if let Some(other) = first.insert(network, route) {
            let text = format!("the route to {network} replaces that of line {}", other.line);
            findings.push(Finding::warning(route.line, "duplicate-route", text, "delete one of them"));
        }
        if route.address != network.network() {
            let text = format!("{} has bits behind its prefix, which are ignored", route.address);
            findings.push(Finding::note(route.line, "host-bits", text, format!("write dst {network}")));
        }
    }
}

fn ports(settings: &Settings, command_line: &CommandLine, findings: &mut Vec<Finding>) {
    for route in settings.routes.iter().filter(|route| !command_line.has_port(u16::from(route.port))) {
        let text = format!("port {} is not one of -p: packets of the route are dropped", route.port);
        findings.push(Finding::warning(route.line, "route-port", text, "name a port of -p"));
    }
    for port in 0..u32::BITS as u16 {
        if command_line.has_port(port) && !settings.neighbours.contains_key(&port) {
            let text = format!(
                "port {port} has no neigh line: packets go to an Ethernet address that ipsec-secgw has built in"
            );
            let fix = format!("write neigh port {port} and the Ethernet address of the next hop");
            findings.push(Finding::warning(None, "default-neighbour", text, fix));
        }
    }
    for (&port, neighbour) in settings.neighbours.iter().filter(|(port, _)| !command_line.has_port(**port)) {
        let text = format!("port {port} is not one of -p: the line has no effect");
        findings.push(Finding::note(neighbour.line, "neighbour-port", text, "name a port of -p"));
    }
}

/// Routes by which packets leave an unprotected port in clear after decryption.
fn clear(settings: &Settings, command_line: &CommandLine, findings: &mut Vec<Finding>) {
    let unprotected = command_line.application.unprotected;
    let is_unprotected =
        |route: &Route| u32::from(route.port) < u32::BITS && unprotected >> route.port & 1 == 1;
    let mut told = BTreeSet::new();
    for policy in &settings.policies {
        let is_inner = policy.direction == Direction::Inbound && matches!(policy.action, Action::Protect(_));
        // A policy for any destination says nothing about where the site is.
        if !is_inner || policy.destination.prefix_len() == 0 {
            continue;
        }
        let around = settings.routes.iter().filter_map(|route| Some((route.network()?, route)));
        let best = around
            .filter(|(network, _)| network.contains(&policy.destination))
            .max_by_key(|(network, _)| network.prefix_len());
        if let Some((_, route)) = best
            && is_unprotected(route)
            && told.insert(route.line)
        {
            let text = format!(
                "decrypted packets to {} leave in clear by port {}, which is unprotected",
                policy.destination.trunc(),
                route.port
            );
            findings.push(Finding::warning(
                route.line,
                "clear-route",
                text,
                "name a port of -p that is not in -u",
            ));
        }
    }
}

fn flows(flow: &Flow, findings: &mut Vec<Finding>) {
    let text =
        "flow rules are for the flow director of a NIC, which Postern does not use: the line has no effect";
    findings.push(Finding::note(
        flow.line,
        "flow-hardware",
        text,
        "delete it, or let the NIC's driver steer: ethtool -N",
    ));
    if flow.v4.is_some() && flow.v6.is_some() {
        let text = "ipv6 is ignored beside ipv4";
        findings.push(Finding::warning(flow.line, "flow-family", text, "write one rule for each family"));
    }
    let ends = |given: Option<_>| {
        given.map_or([None; 2], |flow: crate::secgw::settings::FlowAddress| [flow.source, flow.destination])
    };
    for (address, length) in ends(flow.v4).into_iter().flatten().chain(ends(flow.v6).into_iter().flatten()) {
        let (text, fix) = match address {
            IpAddr::V4(_) if length == 0 => (
                format!(
                    "{address} without prefix length is undefined: on x86, ipsec-secgw matches this address alone"
                ),
                format!("write {address}/32"),
            ),
            IpAddr::V6(_) if length > 0 => (
                format!(
                    "ipsec-secgw turns the mask of {address}/{length} around: it compares the bits behind the prefix"
                ),
                "write the address without a length, for this address alone".to_owned(),
            ),
            _ => continue,
        };
        findings.push(Finding::warning(flow.line, "flow-mask", text, fix));
    }
}
