//! `service snmp`, typed.

use super::super::{Reader, parsed, set, set_or_default};
use super::{Protocol, SnmpV3};
use crate::tree::Tree;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The agent of SNMP.
#[derive(Clone, PartialEq, Eq)]
pub struct Snmp {
    /// Who may ask, by the communities.
    pub communities: BTreeMap<String, Community>,
    /// Who is responsible.
    pub contact: Option<String>,
    /// Where the machine is.
    pub location: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Where it is listened; nothing for everywhere.
    pub listen: BTreeMap<IpAddr, u16>,
    /// The transport.
    pub protocol: Protocol,
    /// Who is told of events.
    pub traps: BTreeMap<IpAddr, TrapTarget>,
    /// The address that they are told from.
    pub trap_source: Option<IpAddr>,
    /// Version 3.
    pub v3: SnmpV3,
}

/// What a community may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Community {
    /// Whether it may write.
    pub writes: bool,
    /// From where it may ask; nothing for everywhere.
    pub from: Vec<IpNet>,
}

/// Who is told of events.
#[derive(Clone, PartialEq, Eq)]
pub struct TrapTarget {
    /// The community of the message.
    pub community: String,
    /// The port.
    pub port: u16,
}

impl Reader {
    pub(super) fn snmp(&mut self, tree: &Tree) -> Snmp {
        let children = |word| tree.at(&[word]).into_iter().flat_map(Tree::children);
        let mut communities = BTreeMap::new();
        for (name, community) in children("community") {
            let mut from: Vec<IpNet> = parsed(community.values("network"));
            from.extend(parsed::<IpAddr>(community.values("client")).into_iter().map(IpNet::from));
            let writes = community.value("authorization") == Some("rw");
            if from.is_empty() {
                let may = if writes { "change things" } else { "ask" };
                // A log does not have the name.
                let path = "service snmp community";
                let warning =
                    format!("a {path} may {may} from everywhere: set {path} NAME network PREFIX limits it");
                if !self.warnings.contains(&warning) {
                    self.warn(warning);
                }
            }
            communities.insert(name.to_owned(), Community { writes, from });
        }
        let text = |word| tree.value(word).map(str::to_owned);
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let listen = children("listen-address").filter_map(|(name, listen)| {
            Some((address(name)?, set_or_default(listen, "service snmp listen-address <address>", "port")))
        });
        let traps = children("trap-target").filter_map(|(name, target)| {
            let port = set_or_default(target, "service snmp trap-target <address>", "port");
            let community = target.value("community").unwrap_or("public").to_owned();
            Some((address(name)?, TrapTarget { community, port }))
        });
        Snmp {
            communities,
            contact: text("contact"),
            location: text("location"),
            description: text("description"),
            listen: listen.collect(),
            protocol: Protocol::new(tree.value("protocol").unwrap_or("udp")),
            traps: traps.collect(),
            trap_source: set(tree, "trap-source"),
            v3: tree.at(&["v3"]).map(|v3| self.snmp_v3(v3)).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    #[test]
    fn a_community_may_ask_from_networks_and_clients() {
        let text = "set service snmp community public network 10.0.0.0/8\n\
                    set service snmp community public client 192.0.2.1\n\
                    set service snmp listen-address ::1\n\
                    set service snmp trap-target 192.0.2.9 port 1162\n\
                    set service snmp contact 'a \"b\" c'";
        let snmp = read(text).expect("right").snmp.expect("set");
        let public = &snmp.communities["public"];
        let from: Vec<String> = public.from.iter().map(IpNet::to_string).collect();
        assert_eq!((public.writes, from), (false, vec!["10.0.0.0/8".to_owned(), "192.0.2.1/32".to_owned()]));
        assert_eq!(snmp.listen.into_iter().collect::<Vec<_>>(), [("::1".parse().expect("literal"), 161)]);
        let trap = snmp.traps.values().next().expect("one");
        assert_eq!((trap.community.as_str(), trap.port), ("public", 1162));
        assert_eq!(snmp.contact.as_deref(), Some("a \"b\" c"));
    }
}
