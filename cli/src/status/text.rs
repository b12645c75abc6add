//! The status of a daemon as text.

use super::{Connection, Daemon, Line, OpenVpn, State, WireGuard};
use crate::output::ago;
use gateway::openvpn::model::Mode;

/// The number of peers listed for an interface, or for IPsec; peers that are not up come first.
const LISTED: usize = 15;

pub(super) fn daemon(daemon: &Daemon) -> String {
    let mut lines = head(daemon);
    for interface in &daemon.wireguard {
        lines.extend(wireguard(interface));
    }
    if !daemon.ipsec.is_empty() {
        lines.extend(ipsec(&daemon.ipsec));
    }
    for interface in &daemon.openvpn {
        lines.extend(openvpn(interface));
    }
    let closed = daemon.closed.iter().take(LISTED);
    lines.extend(closed.map(|closed| {
        format!("Closed: nothing is sent to {} while {} is down", closed.prefixes.join(" "), closed.tunnel)
    }));
    lines.extend(more(daemon.closed.len()));
    let drops: Vec<String> = daemon
        .drops
        .iter()
        .map(|drop| format!("{} {} on {}", drop.packets, drop.reason, drop.interface))
        .collect();
    if !drops.is_empty() {
        lines.push(format!("Dropped: {} (postern show drops)", drops.join(", ")));
    }
    let engines: Vec<String> =
        daemon.engines.iter().map(|(cipher, engine)| format!("{cipher} by {engine}")).collect();
    if !engines.is_empty() {
        lines.push(format!("Engines: {}", engines.join(", ")));
    }
    for refused in &daemon.status.refused {
        let again = if refused.is_temporary { ", and tried again" } else { "" };
        lines.push(format!("Not in force: {}{again}: {}", refused.place, refused.why));
    }
    for warning in &daemon.status.warnings {
        lines.push(format!("Warning: {}\n  fix: {}", warning.what, warning.fix));
    }
    lines.join("\n") + "\n"
}

fn head(daemon: &Daemon) -> Vec<String> {
    let status = &daemon.status;
    let since = ago(status.started);
    let mut lines =
        vec![format!("postern {}, process ID {}, started {since}", status.version, status.process)];
    let Some(configuration) = &status.configuration else { return lines };
    lines.push(format!("{}, put in force {}", configuration.file, ago(configuration.in_force_since)));
    if let Some(last) = &configuration.last_reload
        && let Some(error) = last.errors.first()
    {
        let error = error.replace('\n', "\n  ");
        lines.push(format!("  the last reload, {}, was {}: {error}", ago(last.at), last.outcome));
    }
    lines
}

fn wireguard(interface: &WireGuard) -> Vec<String> {
    let peers: Vec<&Line> = interface.peers.iter().collect();
    let state = if interface.up { "up" } else { "down" };
    let head = format!(
        "WireGuard {}: {state}, port {}, {}",
        interface.name,
        interface.listen_port,
        counted(peers.iter().map(|line| line.state))
    );
    let mut lines = vec![head];
    lines.extend(table(&peers, "  "));
    if peers.iter().any(|line| line.state == State::Down) {
        lines.push(format!("  fix: postern explain interfaces wireguard {}", interface.name));
    }
    lines
}

fn openvpn(interface: &OpenVpn) -> Vec<String> {
    let peers: Vec<&Line> = interface.peers.iter().collect();
    let state = if interface.up { "up" } else { "down" };
    let connected = peers.iter().filter(|line| line.state == State::Up).count();
    let what = match (interface.mode, connected) {
        (Mode::Server, 1) => format!("server, {state}, port {}, 1 client connected", interface.port),
        (Mode::Server, count) => {
            format!("server, {state}, port {}, {count} clients connected", interface.port)
        }
        (Mode::Client, _) => format!("client, {state}"),
        (Mode::SiteToSite, _) => format!("site-to-site, {state}"),
    };
    let mut lines = vec![format!("OpenVPN {}: {what}", interface.name)];
    lines.extend(table(&peers, "  "));
    if peers.iter().any(|line| line.state == State::Down) {
        lines.push(format!("  fix: postern explain interfaces openvpn {}", interface.name));
    }
    lines
}

fn ipsec(connections: &[Connection]) -> Vec<String> {
    let states = connections.iter().map(|connection| connection.line.state);
    let mut lines = vec![format!("IPsec: {}{}", counted(states), tunnels_down(connections))];
    let mut sorted: Vec<&Connection> = connections.iter().collect();
    sorted.sort_by_key(|connection| {
        let is_up = |line: &Line| line.state == State::Up;
        is_up(&connection.line) && connection.tunnels.iter().all(is_up)
    });
    let listed = &sorted[..sorted.len().min(LISTED)];
    let rows = listed.iter().flat_map(|connection| {
        let tunnels = connection.tunnels.iter().map(|tunnel| (tunnel, "  "));
        [(&connection.line, "")].into_iter().chain(tunnels)
    });
    let rows: Vec<(&Line, &str)> = rows.collect();
    let width = rows.iter().map(|(line, indent)| indent.len() + line.name.chars().count()).max();
    let width = width.unwrap_or_default();
    let is_down = |line: &Line| line.state == State::Down;
    let down = listed.iter().filter(|it| is_down(&it.line) || it.tunnels.iter().any(is_down));
    let down: Vec<&str> = down.map(|it| &*it.line.name).collect();
    for (line, indent) in rows {
        let name = format!("{indent}{}", line.name);
        lines.push(format!("  {name:<width$}  {:<7}  {}", line.state.name(), line.why));
        if indent.is_empty() && down.contains(&&*line.name) {
            lines.push(format!("  fix: postern explain vpn ipsec peer {}", line.name));
        }
    }
    lines.extend(more(sorted.len()));
    lines
}

/// The number of tunnels that are down though their peers are up.
fn tunnels_down(connections: &[Connection]) -> String {
    let up = connections.iter().filter(|connection| connection.line.state == State::Up);
    match up.flat_map(|it| &it.tunnels).filter(|tunnel| tunnel.state == State::Down).count() {
        0 => String::new(),
        1 => ", but 1 of their tunnels is down".to_owned(),
        count => format!(", but {count} of their tunnels are down"),
    }
}

/// The number of peers in each state.
fn counted(states: impl Iterator<Item = State>) -> String {
    let states: Vec<State> = states.collect();
    let count = |state| states.iter().filter(|&&found| found == state).count();
    let mut text = format!("{} of {} peers up", count(State::Up), states.len());
    for state in [State::Waiting, State::Down] {
        if count(state) != 0 {
            text += &[", ", &count(state).to_string(), " ", state.name()].concat();
        }
    }
    text
}

/// The first peers, sorted so that those that are not up come first.
fn table(peers: &[&Line], indent: &str) -> Vec<String> {
    let mut sorted = peers.to_vec();
    sorted.sort_by_key(|line| match line.state {
        State::Down => 0,
        State::Waiting => 1,
        State::Up => 2,
    });
    let listed = &sorted[..sorted.len().min(LISTED)];
    let width = listed.iter().map(|line| line.name.chars().count()).max().unwrap_or_default();
    let line =
        |line: &&Line| format!("{indent}{:<width$}  {:<7}  {}", line.name, line.state.name(), line.why);
    listed.iter().map(line).chain(more(sorted.len())).collect()
}

fn more(count: usize) -> Option<String> {
    (count > LISTED).then(|| format!("  and {} more: postern status --json", count - LISTED))
}
