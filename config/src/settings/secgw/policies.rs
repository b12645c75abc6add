//! `policy` of `interfaces secgw`.

use super::super::{Reader, set};
use super::{below, direction_of};
use crate::error::Location;
use crate::schema::{ALL_PROTOCOLS, protocol};
use crate::secgw::settings::{Action, Direction, Family, Policy, Ports, Protocol, Sa};
use crate::tree::Tree;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The highest priority of a policy.
const HIGHEST: i32 = (1 << 29) - 1;
/// The lowest.
pub(super) const LOWEST: i32 = 1;

impl Reader {
    pub(super) fn policies(
        &mut self,
        path: &str,
        tree: &Tree,
        sas: &BTreeMap<String, Arc<Sa>>,
        ike_peers: &mut Vec<String>,
    ) -> Vec<Policy> {
        let mut policies = Vec::new();
        for (number, tree) in below(tree, "policy") {
            let path = format!("{path} policy {number}");
            let Ok(line) = number.parse() else { continue };
            policies.extend(self.policy(&path, tree, line, sas, ike_peers).into_iter().flatten());
        }
        // In ipsec-secgw a family without a policy passes in clear. Here it does not.
        for direction in Direction::ALL {
            for family in Family::ALL {
                let any = any(family);
                policies.push(Policy {
                    line: 0,
                    family,
                    direction,
                    action: Action::Discard,
                    priority: LOWEST,
                    source: any,
                    destination: any,
                    protocol: Protocol::default(),
                    source_ports: Ports::ALL,
                    destination_ports: Ports::ALL,
                });
            }
        }
        policies
    }

    fn policy(
        &mut self,
        path: &str,
        tree: &Tree,
        line: u32,
        sas: &BTreeMap<String, Arc<Sa>>,
        ike_peers: &mut Vec<String>,
    ) -> Option<Vec<Policy>> {
        let [direction, action] = ["direction", "action"].map(|word| self.required(path, tree, word));
        let (direction, action) = (direction_of(direction?), action?);
        let action = match action {
            "protect" if tree.has("ike") => Action::Ike(self.ike(path, tree, ike_peers)?),
            _ if tree.has("ike") => {
                let reason = format!("{path}: ike is for action protect");
                self.error(tree.location_of("ike"), reason, format!("set {path} action protect"));
                return None;
            }
            "protect" => Action::Protect(self.spi(path, tree, direction, sas)?),
            "bypass" => Action::Bypass,
            _ => Action::Discard,
        };
        let prefix = |word| -> Option<IpNet> { set(tree.at(&[word])?, "prefix") };
        let (source, destination) = (prefix("source"), prefix("destination"));
        if let (Some(source), Some(destination)) = (source, destination)
            && Family::of(source.addr()) != Family::of(destination.addr())
        {
            let reason = format!("{path}: of source and destination, one is IPv4, one is IPv6");
            self.error(tree.location(), reason, "write a policy for each family");
            return None;
        }
        let family = source.or(destination).map(|prefix| Family::of(prefix.addr()));
        let [source_ports, destination_ports] =
            ["source", "destination"].map(|word| self.port_range(path, tree, word));
        let (source_ports, destination_ports) = (source_ports?, destination_ports?);
        let protocol = tree.value("protocol").filter(|name| *name != ALL_PROTOCOLS).and_then(protocol);
        let protocol = protocol.map_or_else(Protocol::default, |value| Protocol { value, mask: u8::MAX });
        let families = Family::ALL.into_iter().filter(|it| family.is_none_or(|family| family == *it));
        let policy = |family| Policy {
            line,
            family,
            direction,
            action,
            priority: HIGHEST - line as i32,
            source: source.unwrap_or_else(|| any(family)),
            destination: destination.unwrap_or_else(|| any(family)),
            protocol,
            source_ports,
            destination_ports,
        };
        Some(families.map(policy).collect())
    }

    /// The number of the peer that a policy names.
    fn ike(&mut self, path: &str, tree: &Tree, ike_peers: &mut Vec<String>) -> Option<u16> {
        let name = tree.value("ike")?;
        if tree.has("sa") {
            let reason = format!("{path}: sa and ike are both set");
            self.error(tree.location_of("ike"), reason, format!("delete {path} sa, or delete {path} ike"));
            return None;
        }
        let number = ike_peers.iter().position(|other| other == name);
        let number = number.unwrap_or_else(|| {
            ike_peers.push(name.to_owned());
            ike_peers.len() - 1
        });
        // There are at most 100,000 policies, and far fewer peers.
        u16::try_from(number).ok()
    }

    /// The SPI of the SA that a policy names.
    fn spi(
        &mut self,
        path: &str,
        tree: &Tree,
        direction: Direction,
        sas: &BTreeMap<String, Arc<Sa>>,
    ) -> Option<u32> {
        let name = self.required(path, tree, "sa")?;
        let at = tree.location_of("sa");
        let Some(sa) = sas.get(name) else {
            let known: Vec<&str> = sas.keys().map(String::as_str).collect();
            let reason = format!("{path}: there is no sa {name}, or it has an error of its own");
            self.error(at, reason, format!("one of: {}", known.join(", ")));
            return None;
        };
        if sa.direction != direction {
            let reason = format!("{path}: sa {name} is for the other direction");
            self.error(at, reason, format!("name an SA with direction {}", direction.word()));
            return None;
        }
        Some(sa.spi)
    }

    fn port_range(&mut self, path: &str, tree: &Tree, side: &str) -> Option<Ports> {
        let Some(text) = tree.at(&[side]).and_then(|tree| tree.value("port")) else {
            return Some(Ports::ALL);
        };
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let ports = low.parse().ok().zip(high.parse().ok()).map(|(low, high)| Ports { low, high });
        let ports = ports.filter(|ports| ports.low <= ports.high);
        if ports.is_none() {
            let reason = format!("{path}: {side} port {text} is no port and no range of ports");
            let at = tree.at(&[side]).map_or(Location::default(), |tree| tree.location_of("port"));
            self.error(at, reason, format!("set {path} {side} port 1024-2047"));
        }
        ports
    }
}

/// All addresses of a family.
pub(super) fn any(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::default().into(),
        Family::V6 => Ipv6Net::default().into(),
    }
}
