//! Refuses zones that contradict each other, or that lead nowhere.

use super::super::{LinkKind, Reader, Settings};
use super::{Firewall, SetName, Zone};
use crate::error::Location;
use crate::schema::nearest;
use crate::tree::Tree;
use std::collections::BTreeMap;

impl Reader {
    pub(super) fn check_zones(&mut self, root: &Tree, firewall: &Firewall, settings: &Settings) {
        let at = |name: &str| root.at(&["firewall", "zone", name]).map(Tree::location).unwrap_or_default();
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        let mut local: Option<&str> = None;
        for (name, zone) in &firewall.zones {
            let path = format!("firewall zone {name}");
            if zone.is_local {
                if let Some(other) = local.replace(name) {
                    let reason = format!("{path} local-zone: firewall zone {other} is it already");
                    self.error(at(name), reason, format!("delete {path} local-zone"));
                }
                if !zone.members.is_empty() {
                    let reason = format!("{path}: the zone of this machine has no interfaces");
                    self.error(at(name), reason, format!("delete {path} member"));
                }
            } else if zone.members.is_empty() {
                let reason = format!("{path} has no interface");
                self.error(at(name), reason, format!("set {path} member interface IF, or local-zone"));
            }
            for member in &zone.members {
                if let Some(other) = owners.insert(member, name) {
                    let reason =
                        format!("{path} member interface {member}: firewall zone {other} has it, too");
                    self.error(at(name), reason, format!("delete {path} member interface {member}"));
                }
                self.check_member(&path, member, at(name), settings);
            }
            self.check_from(&path, name, zone, at(name), firewall);
        }
    }

    /// Refuses what is no interface that packets are routed by.
    fn check_member(&mut self, path: &str, member: &str, at: Location, settings: &Settings) {
        let path = format!("{path} member interface {member}");
        if member == "lo" {
            let reason = format!("{path}: the loopback is this machine, whose zone has local-zone");
            self.error(at, reason, format!("delete {path}"));
        }
        let bridge = settings.links.iter().find(|(_, link)| match &link.kind {
            LinkKind::Bridge(members) => members.contains(member),
            _ => false,
        });
        if let Some((bridge, _)) = bridge {
            let reason = format!("{path}: packets of a member of {bridge} arrive by {bridge}");
            self.error(at, reason, format!("delete {path}, and name {bridge}"));
        }
    }

    /// Refuses zones that are not there.
    fn check_from(&mut self, path: &str, name: &str, zone: &Zone, at: Location, firewall: &Firewall) {
        for other in zone.from.keys() {
            if other == name {
                let reason = format!("{path} from {other} is the zone itself");
                let fix = format!("delete {path} from {other}, and see intra-zone-filtering");
                self.error(at, reason, fix);
            } else if !firewall.zones.contains_key(other) {
                let others = firewall.zones.keys().filter(|zone| *zone != name);
                let known: Vec<&str> = others.map(String::as_str).collect();
                let fix = match nearest(other, &known) {
                    Some(near) => format!("did you mean {near}? set {path} from {near}"),
                    None => format!("set firewall zone {other} member interface IF, or name another"),
                };
                self.error(at, format!("{path} from {other}: there is no zone {other}"), fix);
            }
        }
    }
}

/// Rule sets that no zone names.
pub(super) fn unused(firewall: &Firewall) -> impl Iterator<Item = &SetName> {
    let used = firewall.used_sets();
    firewall.sets.keys().filter(move |set| !used.contains(set))
}
