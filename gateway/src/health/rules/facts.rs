//! Rules about the daemon: its tunnels, interfaces, threads and engines.

// All rules have one type, also those whose facts are always known.
#![allow(clippy::unnecessary_wraps)]

use super::super::sight::{Sight, drops};
use super::{Found, Trouble, part};
use crate::api::model::{CryptoEngine, EngineState, Offload, OffloadState, Thread};
use crate::facts::model::{Protocol, State, Tunnel};
use crate::failover::model::Group;
use crate::path::model::{Mtu, Path, State as Reach};
use std::collections::BTreeMap;

/// The tunnel as alerts name it.
pub(crate) fn name(tunnel: &Tunnel) -> String {
    let number = tunnel.tunnel.map(|number| format!(" {number}")).unwrap_or_default();
    format!("{} {}{number}", tunnel.interface, tunnel.peer.replace(char::is_control, "?"))
}

fn explain(tunnel: &Tunnel) -> String {
    let peer = tunnel.peer.replace(char::is_control, "?");
    match tunnel.protocol {
        Protocol::WireGuard => {
            format!("postern explain interfaces wireguard {} peer {peer}", tunnel.interface)
        }
        Protocol::Ipsec => format!("postern explain vpn ipsec peer {peer}"),
        Protocol::OpenVpn => format!("postern explain openvpn {}", tunnel.interface),
    }
}

/// One trouble a tunnel; if all of several tunnels of an interface are down, one for the interface.
pub(super) fn tunnel_down(sight: &Sight<'_>, _: u32) -> Found {
    let mut interfaces: BTreeMap<&str, (Vec<&Tunnel>, usize)> = BTreeMap::new();
    for tunnel in &sight.now.tunnels {
        let (down, others) = interfaces.entry(&tunnel.interface).or_default();
        if tunnel.state == State::Down { down.push(tunnel) } else { *others += 1 }
    }
    let mut found = Vec::new();
    for (interface, (down, others)) in interfaces {
        if others == 0 && down.len() > 1 {
            let sentence = format!("All {} tunnels of {interface} are down.", down.len());
            found.push(Trouble::new(interface, sentence, explain(down[0])));
            continue;
        }
        let one =
            |it: &&Tunnel| Trouble::new(name(it), format!("The tunnel {} is down.", name(it)), explain(it));
        found.extend(down.iter().map(one));
    }
    Ok(found)
}

pub(super) fn never_seen(sight: &Sight<'_>, _: u32) -> Found {
    let is_unseen = |tunnel: &&Tunnel| tunnel.last_handshake.is_none() && tunnel.state == State::Waiting;
    let one = |tunnel: &Tunnel| {
        let sentence = format!("{} has never completed a handshake.", name(tunnel));
        Trouble::new(name(tunnel), sentence, explain(tunnel))
    };
    Ok(sight.now.tunnels.iter().filter(is_unseen).map(one).collect())
}

/// Nothing carries the packets of such a group.
pub(super) fn failover_down(sight: &Sight<'_>, _: u32) -> Found {
    let is_down = |group: &&Group| group.members.iter().all(|member| member.state != State::Up);
    let one = |group: &Group| {
        let prefixes = group.prefixes.join(", ");
        let sentence = if group.members.is_empty() {
            format!("All tunnels to {prefixes} are disabled: nothing protects packets to it.")
        } else {
            format!("No tunnel to {prefixes} is up: packets to it are dropped.")
        };
        Trouble::new(group.name.clone(), sentence, "postern show failover")
    };
    Ok(sight.now.failover.iter().filter(is_down).map(one).collect())
}

/// Packets take another tunnel than they should. If that tunnel is down too, `failover-down` reports it.
pub(super) fn failover_standby(sight: &Sight<'_>, _: u32) -> Found {
    let one = |group: &Group| {
        let first = group.members.first()?;
        let used = group.members.iter().find(|member| member.is_used && member.state == State::Up)?;
        let sentence = format!(
            "Packets to {} take {} (peer {}), and not {} (peer {}).",
            group.prefixes.join(", "),
            used.interface,
            used.peer,
            first.interface,
            first.peer
        );
        (used.number != first.number)
            .then(|| Trouble::new(group.name.clone(), sentence, "postern show failover"))
    };
    Ok(sight.now.failover.iter().filter_map(one).collect())
}

pub(super) fn refused(sight: &Sight<'_>, _: u32) -> Found {
    let sentence = match sight.now.daemon.refused_parts {
        0 => return Ok(Vec::new()),
        1 => "One part of the configuration is not in force.".to_owned(),
        count => format!("{count} parts of the configuration are not in force."),
    };
    Ok(vec![Trouble::new("configuration", sentence, "postern status")])
}

pub(super) fn drops_rising(sight: &Sight<'_>, most: u32) -> Found {
    let (before, seconds) = sight.since()?;
    let mut found = Vec::new();
    for (key, now) in drops(sight.now) {
        let rate = now.saturating_sub(before.drops.get(&key).copied().unwrap_or(now)) as f64 / seconds;
        if rate >= f64::from(most) {
            let (interface, reason) = key;
            let sentence = format!("{interface} drops {rate:.0} packets a second as {reason}.");
            found.push(Trouble::new(format!("{interface} {reason}"), sentence, "postern show drops"));
        }
    }
    found.sort_by(|a, b| a.subject.cmp(&b.subject));
    Ok(found)
}

pub(super) fn thread_busy(sight: &Sight<'_>, percent: u32) -> Found {
    let (before, seconds) = sight.since()?;
    let one = |thread: &Thread| {
        let before = before.threads.get(&thread.id)?;
        let ran = thread.nanoseconds.saturating_sub(*before) as f64 / 1e9 / seconds;
        let sentence = format!("The thread {} uses {:.0}% of a processor.", thread.name, 100.0 * ran);
        (ran >= part(percent)).then(|| Trouble::new(thread.name.clone(), sentence, "postern show bottleneck"))
    };
    Ok(sight.now.threads.iter().filter_map(one).collect())
}

/// Tunnels that are up and probed. One that is down is an alert of its own, and one that waits may be a traveller's.
fn probed<'a>(sight: &'a Sight<'_>) -> impl Iterator<Item = (&'a Tunnel, &'a Path)> {
    let up = sight.now.tunnels.iter().filter(|tunnel| tunnel.state == State::Up);
    up.filter_map(|tunnel| Some((tunnel, tunnel.path.as_deref()?)))
}

pub(super) fn path_loss(sight: &Sight<'_>, percent: u32) -> Found {
    let one = |(tunnel, path): (&Tunnel, &Path)| {
        let loss = path.loss_ratio.filter(|loss| *loss >= part(percent))?;
        let name = name(tunnel);
        let sentence = if path.state == Reach::Silent {
            format!("{} does not answer through the tunnel {name}.", path.address)
        } else {
            format!("The tunnel {name} lost {:.0}% of its last probes.", 100.0 * loss)
        };
        Some(Trouble::new(name, sentence, "postern show path"))
    };
    Ok(probed(sight).filter_map(one).collect())
}

pub(super) fn black_hole(sight: &Sight<'_>, _: u32) -> Found {
    let holes = probed(sight).filter(|(_, path)| path.mtu == Mtu::BlackHole);
    let one = |(tunnel, path): (&Tunnel, &Path)| {
        let sentence = match path.path_mtu_bytes {
            Some(size) => {
                format!(
                    "The tunnel {} loses packets of more than {size} bytes without an ICMP error.",
                    name(tunnel)
                )
            }
            None => format!("The tunnel {} loses all large packets without an ICMP error.", name(tunnel)),
        };
        let remedy = path.mtu_remedy.as_deref().unwrap_or("postern show path");
        Trouble::new(name(tunnel), sentence, remedy)
    };
    Ok(holes.map(one).collect())
}

pub(super) fn engine_failed(sight: &Sight<'_>, _: u32) -> Found {
    let failed = sight.now.engines.iter().filter(|engine| engine.state == EngineState::Failed);
    let one = |engine: &CryptoEngine| {
        let why = engine.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let sentence = format!("The engine {} has failed {} times{why}.", engine.name, engine.failures);
        Trouble::new(engine.name.clone(), sentence, "postern show crypto")
    };
    Ok(failed.map(one).collect())
}

pub(super) fn offload_failed(sight: &Sight<'_>, _: u32) -> Found {
    let failed = sight.now.offloads.iter().filter(|offload| offload.state == OffloadState::Failed);
    let one = |it: &Offload| {
        let subject = format!("{} {}", it.interface, it.offload);
        let sentence = format!("The kernel refuses the offload {} of {}.", it.offload, it.interface);
        Trouble::new(subject, sentence, "postern show offloads")
    };
    Ok(failed.map(one).collect())
}

pub(super) fn files_low(sight: &Sight<'_>, percent: u32) -> Found {
    let process = &sight.now.process;
    let open = process.open_files.ok_or("the daemon cannot read its folder in /proc")?;
    // Without a limit there is no trouble.
    let Some(most) = process.most_files else { return Ok(Vec::new()) };
    let sentence = format!("The daemon has {open} of at most {most} files open.");
    let low = open as f64 >= most as f64 * part(percent);
    Ok(low
        .then(|| Trouble::new("files", sentence, "systemctl edit postern: LimitNOFILE="))
        .into_iter()
        .collect())
}
