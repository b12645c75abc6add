//! `postern show interfaces`, `drops`, `offloads` and `datapath`.

use crate::Failure;
use crate::answer::Answer;
use crate::host::interfaces::{self, Row};
use crate::output::{ago, bytes};
use crate::request::Request;
use ::bench::report::table;
use gateway::api::model::{Drops, Offloads, Worker, Workers};
use gateway::wireguard::model::{Interface, Interfaces, Peer};

/// The WireGuard interface that the request names, or all.
fn found(request: &Request) -> Result<Interfaces, Failure> {
    let answers: Vec<Interfaces> = request.ask()?;
    let mut interfaces: Vec<Interface> = answers.into_iter().flat_map(|answer| answer.interfaces).collect();
    if let Some(name) = request.value("INTERFACE") {
        interfaces.retain(|interface| interface.name == *name);
        if interfaces.is_empty() {
            let fix = "postern show interfaces wireguard";
            return Err(format!("there is no WireGuard interface {name}\n  fix: {fix}").into());
        }
    }
    Ok(Interfaces { interfaces })
}

pub(crate) fn interfaces(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(found(request)?, |found| list(&found.interfaces)))
}

pub(crate) fn interface(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(found(request)?, |found| found.interfaces.iter().map(details).collect()))
}

pub(crate) fn interface_summary(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(found(request)?, |found| found.interfaces.iter().map(summary).collect()))
}

pub(crate) fn drops(request: &Request) -> Result<Answer, Failure> {
    let answers: Vec<Drops> = request.ask()?;
    let mut drops: Vec<_> = answers.into_iter().flat_map(|answer| answer.drops).collect();
    drops.retain(|drop| request.has("all") || drop.outbound + drop.inbound + drop.handshake > 0);
    Ok(Answer::new(Drops { drops }, drop_table))
}

pub(crate) fn offloads(request: &Request) -> Result<Answer, Failure> {
    let answers: Vec<Offloads> = request.ask()?;
    let offloads = answers.into_iter().flat_map(|answer| answer.offloads).collect();
    Ok(Answer::new(Offloads { offloads }, offload_table))
}

pub(crate) fn statistics(request: &Request) -> Result<Answer, Failure> {
    let answers: Vec<Workers> = request.ask()?;
    let mut workers: Vec<Worker> = answers.into_iter().flat_map(|answer| answer.workers).collect();
    if let Some(name) = request.value("INTERFACE") {
        workers.retain(|worker| worker.interface == *name);
        if workers.is_empty() {
            return Err(format!("no worker serves {name}\n  fix: postern show interfaces statistics").into());
        }
    }
    Ok(Answer::new(Workers { workers }, |found| {
        let rows: Vec<Vec<String>> = found.workers.iter().flat_map(statistics_rows).collect();
        table(&["Interface", "Worker", "What", "Number"], &rows)
    }))
}

pub(crate) fn datapath() -> Answer {
    Answer::new(stages(), |_| gateway::datapath::diagram())
}

/// The stages as JSON.
fn stages() -> serde_json::Value {
    let stages = |stages: &[&gateway::datapath::Stage]| -> Vec<serde_json::Value> {
        let stage = |stage: &&gateway::datapath::Stage| {
            let drops: Vec<&str> = stage.drops.iter().map(|reason| reason.name()).collect();
            serde_json::json!({ "stage": stage.name, "does": stage.does, "drops": drops })
        };
        stages.iter().map(stage).collect()
    };
    serde_json::json!({
        "outbound": stages(gateway::datapath::OUTBOUND),
        "inbound": stages(gateway::datapath::INBOUND),
    })
}

/// State and link, as VyOS shows them.
fn state(interface: &Interface) -> &'static str {
    if interface.up { "u/u" } else { "A/D" }
}

fn list(found: &[Interface]) -> String {
    let row = |interface: &Interface| Row {
        name: interface.name.clone(),
        addresses: interface.addresses.clone(),
        state: state(interface),
        description: interface.description.clone().unwrap_or_default(),
    };
    interfaces::table(&found.iter().map(row).collect::<Vec<_>>())
}

fn details(interface: &Interface) -> String {
    let (received, sent) = interface
        .peers
        .iter()
        .fold((0, 0), |(received, sent), peer| (received + peer.received_bytes, sent + peer.sent_bytes));
    let active = interface.peers.iter().filter(|peer| peer.active).count();
    let none = || "(none)".to_owned();
    let mut lines = vec![
        format!("interface: {}", interface.name),
        format!("  description: {}", interface.description.clone().unwrap_or_else(none)),
        format!(
            "  address: {}",
            if interface.addresses.is_empty() { none() } else { interface.addresses.join(", ") }
        ),
        format!("  state: {}", if interface.up { "up" } else { "down" }),
        format!("  mtu: {}", interface.mtu),
        format!("  public key: {}", interface.public_key.clone().unwrap_or_else(none)),
        format!("  listening port: {}", interface.listen_port),
    ];
    if interface.fwmark != 0 {
        lines.push(format!("  fwmark: {:#x}", interface.fwmark));
    }
    lines.push(format!("  peers: {} ({active} active)", interface.peers.len()));
    lines.push(format!("  transfer: {} received, {} sent", bytes(received), bytes(sent)));
    lines.join("\n") + "\n"
}

fn summary(interface: &Interface) -> String {
    let mut text = details(interface);
    text.extend(interface.peers.iter().map(peer));
    text
}

fn peer(peer: &Peer) -> String {
    let mut lines = vec![
        format!("\n  peer: {}", peer.name.as_deref().unwrap_or(&peer.public_key)),
        format!("    public key: {}", peer.public_key),
    ];
    lines.extend(peer.description.as_ref().map(|words| format!("    description: {words}")));
    if peer.has_preshared_key {
        lines.push("    preshared key: (hidden)".to_owned());
    }
    lines.extend(peer.host_name.as_ref().map(|name| format!("    host name: {name}")));
    lines.extend(peer.endpoint.as_ref().map(|endpoint| format!("    endpoint: {endpoint}")));
    lines.extend(peer.endpoint_reason.as_ref().map(|why| format!("    endpoint is: {why}")));
    lines.push(format!("    allowed ips: {}", peer.allowed_ips.join(", ")));
    lines.push(format!("    status: {}", if peer.active { "active" } else { "inactive" }));
    lines.extend(peer.latest_handshake.map(|at| format!("    latest handshake: {}", ago(at))));
    lines.push(format!(
        "    transfer: {} received, {} sent",
        bytes(peer.received_bytes),
        bytes(peer.sent_bytes)
    ));
    if peer.unsent_packets != 0 {
        lines.push(format!("    not sent: {} packets, see: postern show drops", peer.unsent_packets));
    }
    if peer.persistent_keepalive != 0 {
        lines.push(format!("    persistent keepalive: every {} seconds", peer.persistent_keepalive));
    }
    lines.join("\n") + "\n"
}

fn drop_table(drops: &Drops) -> String {
    if drops.drops.is_empty() {
        return "nothing was dropped\n".to_owned();
    }
    let row = |drop: &gateway::api::model::Drop| {
        let numbers = [drop.outbound, drop.inbound, drop.handshake].map(|number| number.to_string());
        [vec![drop.interface.clone(), drop.reason.clone()], numbers.to_vec(), vec![drop.meaning.clone()]]
            .concat()
    };
    let rows: Vec<Vec<String>> = drops.drops.iter().map(row).collect();
    table(&["Interface", "Reason", "Outbound", "Inbound", "Handshake", "Meaning"], &rows)
}

/// What a worker has counted, a row for each number.
fn statistics_rows(worker: &Worker) -> Vec<Vec<String>> {
    let mut before = 0;
    let mut numbers: Vec<(String, String)> = vec![
        ("packets".to_owned(), worker.received_packets.to_string()),
        ("system calls a packet".to_owned(), of(worker.calls(), worker.received_packets, 2)),
        ("bytes a receive".to_owned(), of(worker.received_bytes, worker.receives - worker.empty_receives, 0)),
        ("bytes a send".to_owned(), of(worker.sent_bytes, worker.sends, 0)),
        ("wake-ups".to_owned(), worker.wake_ups.to_string()),
        ("receives that found nothing (EAGAIN)".to_owned(), worker.empty_receives.to_string()),
    ];
    for class in &worker.bursts {
        let sizes = match class.packets {
            Some(most) if most <= before + 1 => format!("{most}"),
            Some(most) => format!("{} to {most}", before + 1),
            None => format!("more than {before}"),
        };
        before = class.packets.unwrap_or(before);
        numbers.push((format!("bursts of {sizes}"), class.bursts.to_string()));
    }
    let row = |(what, number)| vec![worker.interface.clone(), worker.worker.clone(), what, number];
    numbers.into_iter().map(row).collect()
}

/// A ratio with so many digits behind the point; a dash if there is none.
fn of(number: u64, by: u64, digits: usize) -> String {
    if by == 0 { "-".to_owned() } else { format!("{:.digits$}", number as f64 / by as f64) }
}

fn offload_table(offloads: &Offloads) -> String {
    let row = |offload: &gateway::api::model::Offload| {
        let numbers = [offload.calls, offload.packets, offload.fallbacks].map(|number| number.to_string());
        let words = vec![offload.interface.clone(), offload.offload.clone(), offload.state.to_string()];
        [words, numbers.to_vec(), vec![offload.does.clone()]].concat()
    };
    let rows: Vec<Vec<String>> = offloads.offloads.iter().map(row).collect();
    table(&["Interface", "Offload", "State", "Calls", "Packets", "Fallbacks", "What it does"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> Interface {
        let peer = Peer {
            name: Some("berlin".to_owned()),
            description: Some("the office".to_owned()),
            public_key: "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=".to_owned(),
            has_preshared_key: true,
            endpoint: Some("192.0.2.1:51820".to_owned()),
            addresses: vec!["192.0.2.1:51820".to_owned(), "192.0.2.2:51820".to_owned()],
            host_name: Some("b.example".to_owned()),
            endpoint_reason: Some("the first of its addresses".to_owned()),
            allowed_ips: vec!["10.2.0.0/24".to_owned()],
            latest_handshake: Some(0),
            active: false,
            received_bytes: 1_048_576,
            sent_bytes: 512,
            unsent_packets: 0,
            persistent_keepalive: 25,
            failure: None,
        };
        Interface {
            name: "wg0".to_owned(),
            description: Some("to Berlin".to_owned()),
            addresses: vec!["10.1.0.1/30".to_owned(), "2001:db8::1/64".to_owned()],
            up: true,
            mtu: 1420,
            public_key: None,
            listen_port: 51_820,
            fwmark: 0,
            peers: vec![peer],
        }
    }

    #[test]
    fn the_list_has_the_columns_of_vyos() {
        assert_eq!(
            list(&[interface()]),
            "Codes: S - State, L - Link, u - Up, D - Down, A - Admin Down\n\
             Interface        IP Address                        S/L  Description\n\
             ---------        ----------                        ---  -----------\n\
             wg0              10.1.0.1/30                       u/u  to Berlin\n\
             \x20                2001:db8::1/64\n"
        );
    }

    #[test]
    fn a_long_address_moves_no_column() {
        let mut interface = interface();
        interface.addresses[1] = "2001:db8:1111:2222:3333:4444:5555:6666/128".to_owned();
        let text = list(&[interface]);
        let at = |line: usize, word: &str| text.lines().nth(line).and_then(|line| line.find(word));
        assert_eq!((at(1, "S/L"), at(1, "S/L").is_some()), (at(3, "u/u"), true), "{text}");
    }

    #[test]
    fn the_summary_names_peers_and_hides_keys() {
        let text = summary(&interface());
        assert!(text.contains("    description: the office\n"));
        assert!(text.contains("endpoint: 192.0.2.1:51820\n    endpoint is: the first of its addresses\n"));
        assert!(text.contains("peer: berlin\n") && text.contains("preshared key: (hidden)"));
        assert!(text.contains("1.00 MiB received, 512 B sent") && text.contains("status: inactive"));
    }
}
