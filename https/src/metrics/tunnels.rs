//! Families of tunnels: of each, and of all together.

use super::Options;
use super::writer::{Family, Writer, family};
use gateway::facts::model::{Protocol, State, Tunnel};
use gateway::https::wire::Peers;
use gateway::path::model::Mtu;
use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use std::collections::BTreeMap;
use std::fmt;

const COUNT: Family = family("postern_tunnels", "Tunnels by their state");

const UP: Family = family("postern_tunnel_up", "Whether a tunnel is up");
const FAILED: Family =
    family("postern_tunnel_failed", "Whether a tunnel is down that should be up: idle ones have not failed");
const INFO: Family =
    family("postern_tunnel", "The public key of a WireGuard peer, and the algorithms in use");
const RECEIVED: Family =
    family("postern_tunnel_received", "Outside bytes received, of all keys so far").bytes();
const SENT: Family = family("postern_tunnel_sent", "Outside bytes sent, of all keys so far").bytes();
const RECEIVED_PACKETS: Family = family("postern_tunnel_received_packets", "Packets received");
const SENT_PACKETS: Family = family("postern_tunnel_sent_packets", "Packets sent");
const UNSENT_PACKETS: Family =
    family("postern_tunnel_unsent_packets", "Packets dropped as peer-congested or send-failed");
const HANDSHAKES: Family = family("postern_tunnel_handshakes", "Completed handshakes");
const LAST_HANDSHAKE: Family =
    family("postern_tunnel_last_handshake_timestamp", "Time of the last completed handshake").seconds();

const RTT: Family = family(
    "postern_tunnel_rtt",
    "Round-trip time inside a tunnel that is probed, smoothed; absent while nothing is answered",
)
.seconds();
const LOSS: Family =
    family("postern_tunnel_loss_ratio", "Part of the last 60 probes of a tunnel that was lost");
const PATH_MTU: Family =
    family("postern_tunnel_path_mtu", "Largest packet that comes through a tunnel and back").bytes();
const BLACK_HOLE: Family = family(
    "postern_tunnel_black_hole",
    "Whether packets of the tunnel's MTU are lost without an ICMP error, and smaller ones are not",
);

const WIREGUARD_SENT: Family = family("wireguard_sent", "Outside bytes sent to a WireGuard peer").bytes();
const WIREGUARD_RECEIVED: Family =
    family("wireguard_received", "Outside bytes received from a WireGuard peer").bytes();
const WIREGUARD_HANDSHAKE: Family = family(
    "wireguard_latest_handshake",
    "Time of the last handshake with a WireGuard peer; 0 if there was none",
)
.seconds();

/// The labels of a tunnel: names of the configuration.
struct Named<'a>(&'a Tunnel);

impl EncodeLabelSet for Named<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let Tunnel { protocol, interface, peer, tunnel, .. } = self.0;
        ("protocol", protocol.name()).encode(encoder.encode_label())?;
        ("interface", interface.as_str()).encode(encoder.encode_label())?;
        ("peer", peer.as_str()).encode(encoder.encode_label())?;
        tunnel.iter().try_for_each(|number| ("tunnel", *number).encode(encoder.encode_label()))
    }
}

/// The same with what is known of the tunnel beside its name.
struct Described<'a>(&'a Tunnel);

impl EncodeLabelSet for Described<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        Named(self.0).encode(encoder)?;
        let more = [("public_key", &self.0.public_key), ("suite", &self.0.suite)];
        let known = more.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        known.into_iter().try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

/// The labels of other WireGuard exporters.
struct Exported<'a>(&'a Tunnel);

impl EncodeLabelSet for Exported<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let Tunnel { interface, public_key, peer, allowed_ips, .. } = self.0;
        let public_key = public_key.as_deref().unwrap_or_default();
        ("interface", interface.as_str()).encode(encoder.encode_label())?;
        ("public_key", public_key).encode(encoder.encode_label())?;
        ("allowed_ips", allowed_ips.join(",")).encode(encoder.encode_label())?;
        if peer != public_key {
            ("friendly_name", peer.as_str()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

pub(super) fn write(writer: &mut Writer<'_>, tunnels: &[Tunnel], options: Options) -> fmt::Result {
    let mut counts: BTreeMap<(&str, &str, State), u64> = BTreeMap::new();
    for Tunnel { protocol, interface, state, .. } in tunnels {
        for each in [State::Up, State::Waiting, State::Down] {
            *counts.entry((protocol.name(), interface, each)).or_default() += u64::from(*state == each);
        }
    }
    let labels = |(protocol, interface, state): (_, _, State)| {
        [("protocol", protocol), ("interface", interface), ("state", state.name())]
    };
    writer.gauges(COUNT, counts.into_iter().map(|(key, count)| (labels(key), count)))?;
    let shown: Vec<&Tunnel> = match options.peers {
        Peers::All => tunnels.iter().collect(),
        Peers::DownOnly => tunnels.iter().filter(|tunnel| tunnel.state == State::Down).collect(),
        Peers::Off => return Ok(()),
    };
    each(writer, &shown)?;
    if options.wireguard_names { exported(writer, &shown) } else { Ok(()) }
}

fn each(writer: &mut Writer<'_>, tunnels: &[&Tunnel]) -> fmt::Result {
    let all = || tunnels.iter().copied();
    writer.gauges(UP, all().map(|it| (Named(it), u32::from(it.state == State::Up))))?;
    writer.gauges(FAILED, all().map(|it| (Named(it), u32::from(it.state == State::Down))))?;
    writer.infos(INFO, all().filter(|it| it.suite.is_some() || it.public_key.is_some()).map(Described))?;
    writer.counters(RECEIVED, all().map(|it| (Named(it), it.received_bytes)))?;
    writer.counters(SENT, all().map(|it| (Named(it), it.sent_bytes)))?;
    writer.counters(RECEIVED_PACKETS, all().map(|it| (Named(it), it.received_packets)))?;
    writer.counters(SENT_PACKETS, all().map(|it| (Named(it), it.sent_packets)))?;
    writer.counters(UNSENT_PACKETS, all().filter_map(|it| Some((Named(it), it.unsent_packets?))))?;
    writer.counters(HANDSHAKES, all().filter_map(|it| Some((Named(it), it.handshakes?))))?;
    writer.gauges(LAST_HANDSHAKE, all().filter_map(|it| Some((Named(it), it.last_handshake?))))?;
    paths(writer, tunnels)
}

/// What probes measure, of tunnels that are probed.
fn paths(writer: &mut Writer<'_>, tunnels: &[&Tunnel]) -> fmt::Result {
    let all = || tunnels.iter().filter_map(|it| Some((Named(it), it.path.as_deref()?)));
    writer.gauges(RTT, all().filter_map(|(labels, it)| Some((labels, it.rtt_seconds?))))?;
    writer.gauges(LOSS, all().filter_map(|(labels, it)| Some((labels, it.loss_ratio?))))?;
    writer.gauges(PATH_MTU, all().filter_map(|(labels, it)| Some((labels, it.path_mtu_bytes?))))?;
    let known = all().filter(|(_, it)| matches!(it.mtu, Mtu::Fits | Mtu::Told | Mtu::BlackHole));
    writer.gauges(BLACK_HOLE, known.map(|(labels, it)| (labels, u32::from(it.mtu == Mtu::BlackHole))))
}

fn exported(writer: &mut Writer<'_>, tunnels: &[&Tunnel]) -> fmt::Result {
    let all = || tunnels.iter().copied().filter(|it| it.protocol == Protocol::WireGuard);
    writer.counters(WIREGUARD_SENT, all().map(|it| (Exported(it), it.sent_bytes)))?;
    writer.counters(WIREGUARD_RECEIVED, all().map(|it| (Exported(it), it.received_bytes)))?;
    writer.gauges(WIREGUARD_HANDSHAKE, all().map(|it| (Exported(it), it.last_handshake.unwrap_or_default())))
}
