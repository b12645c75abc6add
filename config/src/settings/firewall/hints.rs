//! Warnings about zones that cut off an operator, or the tunnels of this machine.

use super::super::ipsec::INTERFACE;
use super::super::packets::Ports;
use super::super::{Reader, Settings};
use super::check::unused;
use super::{Action, Firewall, FirewallRule, RuleSet, State};
use crate::schema::protocol_name;

/// Protocols, as an IP header has them.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;
const ICMP_V6: u8 = 58;
/// The port of SSH.
pub const SSH_PORT: u16 = 22;
const IKE_PORTS: [u16; 2] = [500, 4500];
const DHCP_PORT: u16 = 67;
const DNS_PORT: u16 = 53;

/// Packets that begin something which this machine serves.
struct Served {
    what: String,
    protocol: u8,
    port: Option<u16>,
    is_tunnel: bool,
}

impl Firewall {
    /// Whether the zone of this machine lets in SSH from another zone, from some of its addresses at least.
    pub fn lets_in_ssh(&self, from: &str, v6: bool) -> bool {
        let Some((_, local)) = self.local() else { return false };
        let set = local.set_from(from, v6).and_then(|name| self.sets.get(&name));
        set.is_some_and(|set| lets_pass(set, &ssh()))
    }
}

impl Reader {
    pub(super) fn firewall_hints(&mut self, firewall: &Firewall, settings: &Settings) {
        for set in unused(firewall) {
            self.warn(format!("{} has no effect: no zone names it", set.path()));
        }
        if firewall.zones.is_empty() {
            return;
        }
        self.zoneless_tunnels(firewall, settings);
        if !lets_related_pass(firewall) {
            self.warn(
                "firewall: no rule accepts packets of state related, such as ICMP errors: connections whose packets \
                 are too large for a path hang; to let them pass: set firewall global-options state-policy related action accept",
            );
        }
        self.locked_out(firewall, settings);
    }

    /// Warns of tunnels whose packets are dropped, and of ports that no rule sees.
    fn zoneless_tunnels(&mut self, firewall: &Firewall, settings: &Settings) {
        let is_in_zone = |name: &str| firewall.zones.values().any(|zone| zone.members.contains(name));
        let ipsec = Some(INTERFACE).filter(|_| !settings.ipsec.peers.is_empty());
        let tunnels =
            settings.wireguard.keys().chain(settings.openvpn.keys()).map(String::as_str).chain(ipsec);
        let outside: Vec<&str> = tunnels.filter(|name| !is_in_zone(name)).collect();
        if !outside.is_empty() {
            self.warn(format!(
                "firewall: {} in no zone, so packets between the tunnel and the zones are dropped; to give it one: set \
                 firewall zone NAME member interface {}",
                are(&outside.join(", "), outside.len()),
                outside[0]
            ));
        }
        for (name, gateway) in &settings.secgw {
            for port in gateway.ports.values().filter(|port| is_in_zone(&port.interface)) {
                self.warn(format!(
                    "firewall: packets that interfaces secgw {name} carries between its ports, {} among them, do not pass the \
                     kernel: no zone filters them",
                    port.interface
                ));
            }
        }
    }

    /// Warns of what this machine lets in, and whose answers it drops.
    fn mute(&mut self, firewall: &Firewall, all: &[Served]) {
        let Some((name, local)) = firewall.local() else { return };
        let is_mute = |from: &str, served: &Served| {
            [false, true].into_iter().any(|v6| {
                let set = local.set_from(from, v6).and_then(|set| firewall.sets.get(&set));
                set.is_some_and(|set| lets_pass(set, served)) && drops_answers(firewall, from, v6, served)
            })
        };
        for from in local.from.keys() {
            let mute = all.iter().filter(|served| is_mute(from, served));
            let mute: Vec<&str> = mute.map(|served| served.what.as_str()).collect();
            if !mute.is_empty() {
                self.warn(format!(
                    "firewall zone {name} from {from}: the answers of {} to {from} are dropped; to let them out: set firewall \
                     global-options state-policy established action accept",
                    mute.join(", ")
                ));
            }
        }
    }

    /// Warns of what this machine serves and its zone does not let in, or out.
    fn locked_out(&mut self, firewall: &Firewall, settings: &Settings) {
        let Some((name, zone)) = firewall.local() else { return };
        let comes_in = |served: &Served| {
            zone.from.iter().any(|(from, _)| {
                let sets = [false, true].into_iter().filter_map(|v6| zone.set_from(from, v6));
                let mut sets = sets.filter_map(|set| firewall.sets.get(&set));
                sets.any(|set| lets_pass(set, served))
            })
        };
        let all = served(settings);
        let kept_out: Vec<&Served> = all.iter().filter(|served| !comes_in(served)).collect();
        if let Some(first) = kept_out.first() {
            let names: Vec<&str> = kept_out.iter().map(|served| served.what.as_str()).collect();
            self.warn(format!(
                "firewall zone {name}: no rule lets in new connections to {}; to let the first one in: set firewall ipv4 name \
                 SET rule NUMBER action accept, the same rule protocol {}{}, and: set firewall zone {name} from ZONE firewall \
                 name SET",
                names.join(", "),
                protocol_name(first.protocol).unwrap_or("all"),
                first.port.map_or_else(String::new, |port| format!(" and destination port {port}")),
            ));
        }
        self.mute(firewall, &all);
        let Some(tunnel) = all.iter().find(|served| served.is_tunnel) else { return };
        let goes_out = firewall.zones.values().any(|zone| {
            let sets = [false, true].into_iter().filter_map(|v6| zone.set_from(name, v6));
            let leaving = Served { what: String::new(), port: None, ..*tunnel };
            sets.filter_map(|set| firewall.sets.get(&set)).any(|set| lets_pass(set, &leaving))
        });
        if !goes_out {
            self.warn(format!(
                "firewall zone {name}: no zone takes new connections from it, so that no tunnel of this machine can begin; to \
                 let it send: set firewall zone ZONE from {name} firewall name SET"
            ));
        }
    }
}

/// Whether answers of this machine to a zone are dropped.
fn drops_answers(firewall: &Firewall, to: &str, v6: bool, served: &Served) -> bool {
    let Some((name, _)) = firewall.local() else { return false };
    if let Some(action) = firewall.states.get(&State::Established) {
        return *action != Action::Accept;
    }
    let set = firewall.zones.get(to).and_then(|zone| zone.set_from(name, v6));
    let Some(set) = set.and_then(|set| firewall.sets.get(&set)) else { return true };
    let lets_out = |rule: &FirewallRule| {
        let protocols = &rule.packets.protocols;
        rule.action == Action::Accept
            && (rule.states.is_empty() || rule.states.contains(&State::Established))
            && (protocols.is_empty() || protocols.contains(&served.protocol))
    };
    set.default_action != Action::Accept && !set.rules.values().any(lets_out)
}

fn are(names: &str, count: usize) -> String {
    format!("{names} {}", if count == 1 { "is" } else { "are" })
}

fn ssh() -> Served {
    Served {
        what: format!("SSH (TCP port {SSH_PORT})"),
        protocol: TCP,
        port: Some(SSH_PORT),
        is_tunnel: false,
    }
}

/// What others reach this machine by.
fn served(settings: &Settings) -> Vec<Served> {
    let of = |what: String, protocol, port, is_tunnel| Served { what, protocol, port, is_tunnel };
    let mut all = vec![ssh()];
    for (name, wireguard) in settings.wireguard.iter().filter(|(_, it)| !it.disable) {
        all.extend(wireguard.port.map(|port| of(format!("{name} (UDP port {port})"), UDP, Some(port), true)));
    }
    for (name, openvpn) in &settings.openvpn {
        let (protocol, word) = if openvpn.is_udp { (UDP, "UDP") } else { (TCP, "TCP") };
        all.extend(
            openvpn.port.map(|port| of(format!("{name} ({word} port {port})"), protocol, Some(port), true)),
        );
    }
    if !settings.ipsec.peers.is_empty() {
        all.extend(IKE_PORTS.map(|port| of(format!("IKE (UDP port {port})"), UDP, Some(port), true)));
        all.push(of("ESP (protocol 50)".to_owned(), ESP, None, true));
    }
    if settings.machine.dhcp.is_some() {
        all.push(of(format!("the DHCP server (UDP port {DHCP_PORT})"), UDP, Some(DHCP_PORT), false));
    }
    if settings.machine.dns.is_some() {
        all.push(of(format!("the DNS forwarder (UDP port {DNS_PORT})"), UDP, Some(DNS_PORT), false));
    }
    all
}

/// Whether a rule set lets in what begins a connection, from some addresses at least.
fn lets_pass(set: &RuleSet, served: &Served) -> bool {
    for rule in set.rules.values().filter(|rule| may_match(rule, served)) {
        match rule.action {
            Action::Accept => return true,
            _ if is_for_all(rule, served) => return false,
            _ => {}
        }
    }
    set.default_action == Action::Accept
}

fn may_match(rule: &FirewallRule, served: &Served) -> bool {
    let protocols = &rule.packets.protocols;
    let is_port = |ports: &Ports| match served.port {
        None => served.protocol != ESP,
        Some(port) => {
            let is_in = ports.ranges.iter().any(|(first, last)| (*first..=*last).contains(&port));
            is_in != ports.is_negated
        }
    };
    (protocols.is_empty() || protocols.contains(&served.protocol))
        && (rule.states.is_empty() || rule.states.contains(&State::New))
        && rule.packets.destination.ports.as_ref().is_none_or(is_port)
        && rule.icmp.is_none()
}

/// Whether a rule that may match does so wherever the packets come from.
fn is_for_all(rule: &FirewallRule, served: &Served) -> bool {
    let packets = &rule.packets;
    let (source, destination) = (&packets.source, &packets.destination);
    let links = packets.inbound.is_none() && packets.outbound.is_none();
    let is_any = source.addresses.is_none() && source.ports.is_none() && destination.addresses.is_none();
    links && is_any && (served.port.is_some() || destination.ports.is_none())
}

fn lets_related_pass(firewall: &Firewall) -> bool {
    let rules = firewall.sets.values().flat_map(|set| set.rules.values());
    let mut accepted = rules.filter(|rule| rule.action == Action::Accept);
    let is_icmp = |rule: &FirewallRule| {
        let protocols = &rule.packets.protocols;
        protocols.is_empty() || protocols.iter().any(|it| [ICMP, ICMP_V6].contains(it))
    };
    match firewall.states.get(&State::Related) {
        Some(action) => *action == Action::Accept,
        None => {
            accepted.any(|rule| {
                is_icmp(rule) && (rule.states.is_empty() || rule.states.contains(&State::Related))
            }) || firewall.sets.values().any(|set| set.default_action == Action::Accept)
        }
    }
}
