//! `postern show secgw`: the counters of a running `postern secgw`; and `postern reload secgw`.

use crate::answer::Answer;
use crate::request::Request;
use crate::{Failure, client, show_vpn};
use ::bench::report::table;
use gateway::api::model::{ReloadOutcome, Reloaded};
use gateway::ipsec::model::{IpsecPeer, Reset};
use gateway::secgw::model::{Drop, Lcore, Neighbour, Port, Rule, Sa, SaLifetime, Secgw};
use std::path::PathBuf;

/// The exit status if the file is not in force.
const NOT_IN_FORCE: u8 = 1;

/// The gateways that run, with their sockets.
fn found(request: &Request) -> Result<Vec<(PathBuf, Secgw)>, Failure> {
    let answers: Vec<(PathBuf, Vec<Secgw>)> = request.ask_each()?;
    let found: Vec<_> = answers
        .into_iter()
        .flat_map(|(socket, gateways)| gateways.into_iter().map(move |gateway| (socket.clone(), gateway)))
        .collect();
    if found.is_empty() {
        return Err("no gateway of postern secgw runs\n  fix: start it, then ask as root".into());
    }
    Ok(found)
}

/// A part of what gateways show, under the file of each if there are several.
fn part(request: &Request, text: fn(&Secgw) -> String) -> Result<Answer, Failure> {
    let gateways: Vec<Secgw> = found(request)?.into_iter().map(|(_, gateway)| gateway).collect();
    Ok(Answer::new(gateways, move |gateways| {
        let one = |gateway: &Secgw| match gateways.len() {
            1 => text(gateway),
            _ => format!("{}\n{}", gateway.file, text(gateway)),
        };
        gateways.iter().map(one).collect::<Vec<_>>().join("\n")
    }))
}

pub(crate) fn all(request: &Request) -> Result<Answer, Failure> {
    part(request, |gateway| {
        let times = match gateway.reloads {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let head = format!("file {}, read again {times}\n", gateway.file);
        let mut parts = vec![head, ports(gateway)];
        if gateway.reassembled > 0 {
            parts.push(gateway.reassembled_text() + "\n");
        }
        parts.extend([sas(gateway), rules(gateway)]);
        if !gateway.ike.is_empty() {
            parts.push(ike(gateway));
        }
        parts.push(drops(gateway));
        parts.join("\n")
    })
}

pub(crate) fn only_sas(request: &Request) -> Result<Answer, Failure> {
    part(request, sas)
}

pub(crate) fn only_rules(request: &Request) -> Result<Answer, Failure> {
    part(request, rules)
}

pub(crate) fn only_ports(request: &Request) -> Result<Answer, Failure> {
    part(request, ports)
}

pub(crate) fn only_drops(request: &Request) -> Result<Answer, Failure> {
    part(request, drops)
}

pub(crate) fn only_neighbours(request: &Request) -> Result<Answer, Failure> {
    part(request, |gateway| {
        let row = |it: &Neighbour| vec![it.port.to_string(), it.interface.clone(), it.address.clone()];
        table(&["port", "interface", "station"], &gateway.neighbours.iter().map(row).collect::<Vec<_>>())
    })
}

/// The peers of IKE, with their tunnels.
pub(crate) fn only_ike(request: &Request) -> Result<Answer, Failure> {
    part(request, ike)
}

/// All details of their IKE SAs and tunnels.
pub(crate) fn ike_details(request: &Request) -> Result<Answer, Failure> {
    part(request, |gateway| of_peers(gateway, show_vpn::detail_text))
}

fn ike(gateway: &Secgw) -> String {
    of_peers(gateway, |peers| [show_vpn::ike_text(peers), show_vpn::sa_table(peers)].concat())
}

fn of_peers(gateway: &Secgw, text: impl Fn(&[IpsecPeer]) -> String) -> String {
    if gateway.ike.is_empty() { "no policy names a peer of IKE\n".to_owned() } else { text(&gateway.ike) }
}

/// Has IKE set up the connection to a peer again.
pub(crate) fn reset(request: &Request) -> Result<Answer, Failure> {
    let name = request.value("PEER").unwrap_or_default();
    let found = found(request)?;
    let known = || found.iter().flat_map(|(_, gateway)| &gateway.ike).map(|peer| &*peer.name);
    let Some((socket, _)) =
        found.iter().find(|(_, gateway)| gateway.ike.iter().any(|peer| peer.name == name))
    else {
        let known: Vec<&str> = known().collect();
        let fix = match known[..] {
            [] => "a policy with ike in the file, and its peer in that of --ike".to_owned(),
            _ => format!("one of {}", known.join(", ")),
        };
        return Err(format!("no policy names a peer {name} of IKE\n  fix: {fix}").into());
    };
    let order = Reset { peer: name.to_owned(), tunnel: None };
    let is_known: bool = client::tell(socket, "/v1/secgw/reset", &order)?;
    if !is_known {
        return Err(format!("peer {name} has just gone\n  fix: postern show secgw ike").into());
    }
    Ok(Answer::new(order, |order| format!("{}: re-establishing all tunnels\n", order.peer)))
}

fn ports(gateway: &Secgw) -> String {
    let row = |it: &Port| {
        vec![
            it.number.to_string(),
            it.interface.clone(),
            if it.is_protected { "protected" } else { "unprotected" }.to_owned(),
            it.received.to_string(),
            it.received_bytes.to_string(),
            it.sent.to_string(),
            it.sent_bytes.to_string(),
        ]
    };
    let head = ["port", "interface", "side", "frames in", "bytes in", "frames out", "bytes out"];
    let mut ports = table(&head, &gateway.ports.iter().map(row).collect::<Vec<_>>());
    let counted = gateway.ports.iter().flat_map(|port| port.counted().map(move |it| (port, it)));
    let row = |(port, (name, count, meaning)): (&Port, (&str, u64, &str))| {
        vec![port.number.to_string(), name.to_owned(), count.to_string(), meaning.to_owned()]
    };
    let counted: Vec<_> = counted.map(row).collect();
    if !counted.is_empty() {
        ports.push('\n');
        ports += &table(&["port", "driver counts", "frames", "meaning"], &counted);
    }
    if gateway.lcores.len() < 2 {
        return ports;
    }
    let row = |it: &Lcore| vec![it.number.to_string(), it.received.to_string(), it.sent.to_string()];
    let lcores: Vec<_> = gateway.lcores.iter().map(row).collect();
    format!("{ports}\n{}", table(&["lcore", "frames in", "frames out"], &lcores))
}

fn sas(gateway: &Secgw) -> String {
    let row = |it: &Sa| {
        let dropped: Vec<String> =
            it.drops.iter().map(|drop| format!("{} {}", drop.packets, drop.reason)).collect();
        vec![
            it.direction.clone(),
            it.spi.to_string(),
            it.packets.to_string(),
            it.bytes.to_string(),
            it.line.to_string(),
            it.algorithms.clone(),
            if dropped.is_empty() { "-".to_owned() } else { dropped.join(", ") },
        ]
    };
    let mut head = vec!["sa", "SPI", "packets", "bytes", "line", "algorithms", "dropped"];
    let mut rows: Vec<Vec<String>> = gateway.sas.iter().map(row).collect();
    if gateway.sas.iter().any(|sa| sa.lifetime.is_some()) {
        head.push("left");
        for (row, sa) in rows.iter_mut().zip(&gateway.sas) {
            row.push(sa.lifetime.as_ref().map_or_else(|| "-".to_owned(), SaLifetime::text));
        }
    }
    table(&head, &rows)
}

fn rules(gateway: &Secgw) -> String {
    let row = |it: &Rule| {
        vec![
            it.direction.clone(),
            it.line.map_or_else(|| "-".to_owned(), |line| line.to_string()),
            it.action.clone(),
            it.packets.to_string(),
            it.bytes.to_string(),
        ]
    };
    let head = ["sp", "line", "action", "packets", "bytes"];
    table(&head, &gateway.rules.iter().map(row).collect::<Vec<_>>())
}

fn drops(gateway: &Secgw) -> String {
    if gateway.drops.is_empty() {
        return "nothing was dropped\n".to_owned();
    }
    let row = |it: &Drop| vec![it.reason.clone(), it.packets.to_string(), it.meaning.clone()];
    table(&["dropped as", "packets", "meaning"], &gateway.drops.iter().map(row).collect::<Vec<_>>())
}

pub(crate) fn reload(request: &Request) -> Result<Answer, Failure> {
    let found = found(request)?;
    let [(socket, _)] = &found[..] else {
        let sockets: Vec<String> = found.iter().map(|(socket, _)| socket.display().to_string()).collect();
        return Err(format!(
            "{} gateways run: {}\n  fix: name one: postern reload secgw --api {}",
            found.len(),
            sockets.join(", "),
            sockets[0]
        )
        .into());
    };
    let socket = socket.clone();
    let reloaded: Reloaded = client::tell(&socket, "/v1/secgw/reload", &())?;
    let status = if reloaded.outcome == ReloadOutcome::InForce { 0 } else { NOT_IN_FORCE };
    Ok(Answer::new(reloaded, |reloaded| {
        let mut lines: Vec<&str> =
            reloaded.changes.iter().chain(&reloaded.errors).map(String::as_str).collect();
        lines.push(match reloaded.outcome {
            ReloadOutcome::InForce if reloaded.changes.is_empty() => "nothing has changed",
            ReloadOutcome::InForce => "the file is in force",
            _ => "all goes on as before\n  fix: see above, then: postern reload secgw",
        });
        lines.join("\n") + "\n"
    })
    .with_status(status))
}
