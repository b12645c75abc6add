//! The policy while the kernel refuses the configured one.

use config::settings::Firewall;
use config::settings::firewall::{Action, FirewallRule, RuleSet, SSH_PORT, SetName, State, Zone};
use config::settings::packets::{Packets, Ports};
use packet::header::ip::TCP;
use std::collections::{BTreeMap, BTreeSet};

/// Rule sets: answers, and answers with new connections to SSH.
const ANSWERS: &str = "closed";
const SSH: &str = "closed-ssh";

/// The same zones, and nothing passes between them. SSH reaches the local zone from those zones that may use it, so that the
/// operator can mend the rules. Without a local zone, no packets to the machine are filtered, as configured.
pub(super) fn closed(firewall: &Firewall) -> Firewall {
    let mut closed = Firewall::default();
    let local = firewall.local().map(|(name, _)| name);
    for (name, zone) in &firewall.zones {
        let others = firewall.zones.keys().filter(|other| *other != name);
        let from = others.filter(|other| zone.is_local || Some(*other) == local).map(|other| {
            let set = |v6| if zone.is_local && firewall.lets_in_ssh(other, v6) { SSH } else { ANSWERS };
            (other.clone(), [false, true].map(|v6| Some(set(v6).to_owned())))
        });
        let zone =
            Zone { default_action: Action::Drop, default_log: false, from: from.collect(), ..zone.clone() };
        closed.zones.insert(name.clone(), zone);
    }
    for v6 in [false, true] {
        let answers = BTreeMap::from([(1, accept([State::Established, State::Related], Packets::default()))]);
        let mut ssh = answers.clone();
        ssh.insert(2, accept([State::New], to_ssh()));
        for (name, rules) in [(ANSWERS, answers), (SSH, ssh)] {
            let set = RuleSet { rules, default_action: Action::Drop, default_log: false };
            closed.sets.insert(SetName { v6, name: name.to_owned() }, set);
        }
    }
    closed
}

fn accept(states: impl Into<BTreeSet<State>>, packets: Packets) -> FirewallRule {
    FirewallRule { packets, icmp: None, states: states.into(), action: Action::Accept, log: false }
}

fn to_ssh() -> Packets {
    let mut packets = Packets { protocols: vec![TCP], ..Packets::default() };
    packets.destination.ports = Some(Ports { is_negated: false, ranges: vec![(SSH_PORT, SSH_PORT)] });
    packets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use lab::Lab;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn the_machine_is_reached_by_ssh_while_it_is_closed_and_by_nothing_else() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("NO_SKIP").is_none(), "needs root to make network namespaces");
            return eprintln!("SKIPPED: needs root to make network namespaces");
        }
        let lab = Lab::new(&["closed", "far"]).expect("root can make namespaces");
        let (near, far) = (("closed", "lan", "192.0.2.1/24"), ("far", "lan", "192.0.2.9/24"));
        lab.connect(near, far).expect("veth exists");
        let text: String = [
            "zone LAN member interface lan",
            "zone ME local-zone",
            "zone ME from LAN firewall name ALL",
            "ipv4 name ALL default-action accept",
        ]
        .map(|line| format!("set firewall {line}\n"))
        .concat();
        let read = config::parse(&text).and_then(|tree| config::Settings::new(&tree)).expect("right");
        let _host = lab.enter("closed", || {
            let host = Host::start(BTreeMap::new()).expect("rtnetlink is there");
            host.filter(&[closed(&read.0.firewall)]).expect("nf_tables is there");
            host
        });
        let connects = |port: u16| {
            let to = SocketAddr::from(([192, 0, 2, 1], port));
            let listener = lab.enter("closed", || TcpListener::bind(to)).expect("a namespace").expect("free");
            let tried = lab.enter("far", || TcpStream::connect_timeout(&to, Duration::from_secs(1)));
            drop(listener);
            tried.expect("a namespace").is_ok()
        };
        assert!(connects(SSH_PORT));
        assert!(!connects(8080));
    }

    #[test]
    fn only_ssh_reaches_the_machine_from_zones_that_may_use_it_and_nothing_is_forwarded() {
        let text: String = [
            "global-options state-policy established action accept",
            "zone LAN member interface lan",
            "zone WAN member interface wan",
            "zone WAN from LAN firewall name ALL",
            "zone ME local-zone",
            "zone ME default-log",
            "zone ME from LAN firewall name ALL",
            "zone ME from WAN firewall name TUNNEL",
            "ipv4 name ALL default-action accept",
            "ipv4 name TUNNEL rule 10 action accept",
            "ipv4 name TUNNEL rule 10 protocol udp",
            "ipv4 name TUNNEL rule 20 action drop",
            "ipv4 name TUNNEL rule 20 log",
        ]
        .map(|line| format!("set firewall {line}\n"))
        .concat();
        let read = config::parse(&text).and_then(|tree| config::Settings::new(&tree)).expect("right");
        let closed = closed(&read.0.firewall);
        let sets = |zone: &str, from: &str| {
            let name = |v6| closed.zones[zone].set_from(from, v6).map(|set| set.name);
            [false, true].map(name)
        };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(sets("ME", "LAN"), [named(SSH), named(ANSWERS)], "IPv6 has no rule set there");
        assert_eq!(sets("ME", "WAN"), [named(ANSWERS), named(ANSWERS)]);
        assert_eq!(sets("WAN", "ME"), [named(ANSWERS), named(ANSWERS)]);
        assert_eq!(sets("WAN", "LAN"), [None, None], "nothing is forwarded");
        assert!(closed.states.is_empty(), "a state policy would let connections pass between zones");
        assert!(closed.zones.values().all(|zone| !zone.default_log && zone.default_action == Action::Drop));
        assert!(closed.sets.values().flat_map(|set| set.rules.values()).all(|rule| !rule.log));
    }
}
