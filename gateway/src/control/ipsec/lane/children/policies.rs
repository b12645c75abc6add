//! In which order policies are asked: the first that matches decides.
//!
//! What the administrator prefers comes first, then the closer match: one protocol or port before all of them, a smaller
//! network before a larger one that contains it.

use super::{Children, Traffic};
use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use tunnel::esp::{Action, Policies, Policy, TrafficSelector};

/// A tunnel whose sides have more pairs of networks than this is asked as one, or a peer that cuts its networks into pieces
/// would fill the table.
const PAIRS: usize = 64;

/// The place of a policy: the lowest is asked first. Names only make it the same each time.
type Place<'a> = (u8, Reverse<u8>, u32, (&'a str, u32));

impl Children {
    /// Lets the workers see the policies as they are. Not done for SAs that are for what those before them were for.
    pub(in super::super) fn publish(&self) {
        let mut placed = Vec::new();
        for connected in self.connections.values() {
            for tunnel in &connected.tunnels {
                let name = (connected.settings.name.as_str(), tunnel.plan.tunnel);
                for traffic in pairs(tunnel.traffic()) {
                    let action = Action::Protect(Arc::clone(&tunnel.peer));
                    let policy = Policy { selectors: traffic.selectors(), action };
                    placed.push((place(name, tunnel.plan.priority, &traffic), policy));
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

fn place<'a>(name: (&'a str, u32), priority: Option<u8>, traffic: &Traffic) -> Place<'a> {
    let sides = || traffic.local.iter().chain(&traffic.remote);
    let named =
        sides().map(|side| u8::from(side.protocol != 0) + u8::from(side.ports != (0..=u16::MAX))).sum();
    let size = sides().map(size).sum();
    (priority.unwrap_or(u8::MAX), Reverse(named), size, name)
}

/// How many bits of an address are free.
fn size(side: &TrafficSelector) -> u32 {
    let number = |address: &IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(*address)),
        IpAddr::V6(address) => u128::from(*address),
    };
    let free = number(side.addresses.end()).saturating_sub(number(side.addresses.start()));
    u128::BITS - free.leading_zeros()
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
            place(("all", 1), None, &all),
            place(("all", 2), Some(50), &all),
            place(("net", 1), None, &net),
            place(("web", 1), None, &web),
            place(("last", 1), Some(1), &all),
        ];
        places.sort_unstable();
        let names = places.map(|(.., name)| name);
        assert_eq!(names, [("last", 1), ("all", 2), ("web", 1), ("net", 1), ("all", 1)]);
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
