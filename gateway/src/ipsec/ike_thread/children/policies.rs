//! In which order policies are asked: the first that matches decides.
//!
//! The configuration says so ([`precedence`](tunnel::ikev2::precedence)), whatever part of it peers have agreed on.

use super::{Children, Traffic};
use std::sync::Arc;
use tunnel::esp::{Action, Policies, Policy, TrafficSelector};
use tunnel::ikev2::precedence::{Precedence, Shape, precedence};

/// A tunnel whose sides have more pairs of networks than this is asked as one, or a peer that cuts its networks into pieces
/// would fill the table.
const PAIRS: usize = 64;

/// The place of a policy: the lowest is asked first. Names only make it the same each time.
type Place<'a> = (Precedence, (&'a str, u32));

impl Children {
    /// Lets the workers see the policies as they are. Not done for SAs that are for what those before them were for.
    pub(in crate::ipsec::ike_thread) fn publish(&self) {
        let mut placed = Vec::new();
        for connected in self.connections.values() {
            for tunnel in &connected.tunnels {
                let name = (connected.settings.name.as_str(), tunnel.plan.tunnel);
                for traffic in pairs(tunnel.traffic()) {
                    let action = Action::Protect(Arc::clone(&tunnel.peer));
                    let policy = Policy { selectors: traffic.selectors(), action };
                    placed.push((place(name, tunnel.plan.priority, &tunnel.configured, &traffic), policy));
                }
            }
        }
        placed.sort_by_key(|(place, _)| *place);
        let policies = placed.into_iter().map(|(_, policy)| policy).collect();
        self.shared.tables.policies.store(Arc::new(Policies::new(policies)));
    }
}

/// Each network of our side with each of the other side; nothing while a side is not known.
fn pairs(traffic: &Traffic) -> Vec<Traffic> {
    let Traffic { local, remote } = traffic;
    if local.is_empty() || remote.is_empty() {
        return Vec::new();
    }
    if local.len() * remote.len() > PAIRS {
        return vec![traffic.clone()];
    }
    let pair = |local: &TrafficSelector, remote: &TrafficSelector| Traffic {
        local: vec![local.clone()],
        remote: vec![remote.clone()],
    };
    local.iter().flat_map(|local| remote.iter().map(move |remote| pair(local, remote))).collect()
}

fn place<'a>(
    name: (&'a str, u32),
    priority: Option<u8>,
    configured: &Traffic,
    traffic: &Traffic,
) -> Place<'a> {
    let shape = |configured: &[TrafficSelector], agreed: &[TrafficSelector]| {
        // A tunnel of very many networks is asked in the place of the largest.
        agreed.iter().map(|agreed| Shape::of(configured, agreed)).max()
    };
    let local = shape(&configured.local, &traffic.local).unwrap_or_default();
    let remote = shape(&configured.remote, &traffic.remote).unwrap_or_default();
    (precedence(priority, configured.remote.is_empty(), [local, remote]), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(first: &str, last: &str) -> TrafficSelector {
        let addresses = first.parse().expect("literal")..=last.parse().expect("literal");
        TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses }
    }

    fn traffic(remote: TrafficSelector) -> Traffic {
        Traffic { local: vec![side("10.1.0.0", "10.1.0.255")], remote: vec![remote] }
    }

    #[test]
    fn what_is_preferred_and_then_what_is_closer_comes_first() {
        let (all, net) = (side("0.0.0.0", "255.255.255.255"), side("10.9.0.0", "10.9.0.255"));
        let mut web = all.clone();
        (web.protocol, web.ports) = (6, 80..=80);
        let (all, net, web) = (traffic(all), traffic(net), traffic(web));
        let mut places = [
            place(("all", 1), None, &all, &all),
            place(("all", 2), Some(50), &all, &all),
            place(("net", 1), None, &net, &net),
            place(("web", 1), None, &web, &web),
            place(("last", 1), Some(1), &all, &all),
        ];
        places.sort_unstable();
        let names = places.map(|(_, name)| name);
        assert_eq!(names, [("last", 1), ("all", 2), ("web", 1), ("net", 1), ("all", 1)]);
    }

    #[test]
    fn a_peer_that_asks_for_less_than_it_could_have_does_not_come_before_others() {
        let (wide, net) = (side("10.0.0.0", "10.255.255.255"), side("10.9.0.0", "10.9.0.255"));
        let part = TrafficSelector { protocol: 47, ..side("10.9.0.7", "10.9.0.7") };
        let (wide, net, part) = (traffic(wide), traffic(net), traffic(part));
        let owner = place(("net", 1), None, &net, &net);
        assert!(owner < place(("a", 1), None, &wide, &part));
        // The peer is at an address that is not configured.
        let anywhere = Traffic { remote: Vec::new(), ..net.clone() };
        assert!(owner < place(("a", 1), None, &anywhere, &part));
    }

    #[test]
    fn every_network_has_its_own_place_unless_there_are_too_many() {
        let net = |number: u8| side(&format!("10.{number}.0.0"), &format!("10.{number}.0.255"));
        let many = Traffic { local: (0..9).map(net).collect(), remote: (20..28).map(net).collect() };
        assert_eq!(pairs(&many).len(), 1);
        let fewer = Traffic { local: (0..8).map(net).collect(), ..many };
        assert_eq!(pairs(&fewer).len(), 64);
        assert_eq!(pairs(&Traffic::default()).len(), 0);
    }
}
