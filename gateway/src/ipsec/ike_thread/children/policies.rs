//! The policies of the tunnels, and their order: the first that matches decides.
//!
//! The order follows from the configuration ([`precedence`](tunnel::ikev2::precedence)), whatever part of it peers have
//! agreed on.

use super::{Carried, Children, Traffic};
use crate::datapath::tables::Peer;
use std::collections::HashMap;
use std::sync::Arc;
use tunnel::PeerId;
use tunnel::esp::{Policy, PolicyWriter, Processing, TrafficSelector};
use tunnel::ikev2::ConnectionId;
use tunnel::ikev2::precedence::{Precedence, Shape, precedence};

/// A tunnel with more pairs of networks than this has one policy for all of them, or a peer that cuts its networks into
/// pieces would fill the table.
const PAIRS: usize = 64;

/// The place of a policy: the lowest is matched first. Instances of a profile precede it: it has the same networks, and the
/// packets that no instance has. The name and number of the tunnel and the number of its policy make the place unique.
type Place = (Precedence, Rank, (Arc<str>, u32, usize));

/// The order among policies of the same precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Instance,
    Configured,
}

/// The policies of the workers.
#[derive(Default)]
pub(super) struct Published {
    writer: PolicyWriter<Place, Arc<Peer>>,
    /// The places of the policies of each tunnel.
    places: HashMap<PeerId, Vec<Place>>,
}

impl Published {
    /// Replaces the policies of a tunnel.
    fn set(&mut self, connection: &str, tunnel: &Carried) {
        self.set_for(connection, tunnel, tunnel.traffic());
    }

    /// Replaces them by those for these packets.
    fn set_for(&mut self, connection: &str, tunnel: &Carried, traffic: &Traffic) {
        let Carried { plan, peer, configured, is_of_instance, .. } = tunnel;
        let rank = if *is_of_instance { Rank::Instance } else { Rank::Configured };
        let places = self.places.entry(peer.id).or_default();
        for place in places.drain(..) {
            self.writer.remove(place);
        }
        let name: Arc<str> = connection.into();
        for (number, traffic) in pairs(traffic).into_iter().enumerate() {
            let processing = Processing::Protect(Arc::clone(peer));
            let name = (Arc::clone(&name), plan.tunnel, number);
            let place = (precedence_of(plan.priority, configured, &traffic), rank, name);
            places.push(place.clone());
            self.writer.insert(place, Policy { selectors: traffic.selectors(), processing });
        }
    }

    /// Removes the policies of a tunnel, and forgets it.
    pub(super) fn remove(&mut self, peer: PeerId) {
        for place in self.places.remove(&peer).into_iter().flatten() {
            self.writer.remove(place);
        }
    }
}

impl Children {
    /// Replaces the policies of all tunnels of a connection. The caller then stores them.
    pub(super) fn set_policies(&mut self, id: ConnectionId) {
        let Some(connected) = self.connections.get(&id) else { return };
        for tunnel in &connected.tunnels {
            self.published.set(&connected.name, tunnel);
        }
    }

    /// Lets the workers see the policies of one tunnel. Not done for SAs that are for the same packets as those before them.
    pub(super) fn publish(&mut self, (id, child): (ConnectionId, usize)) {
        let Some(connected) = self.connections.get(&id) else { return };
        let Some(tunnel) = connected.tunnels.get(child) else { return };
        self.published.set(&connected.name, tunnel);
        self.store_policies();
    }

    /// Lets the workers see all policies, after changes of the configuration: once, even where thousands of connections change.
    pub(in crate::ipsec::ike_thread) fn store_policies(&mut self) {
        self.shared.tables.policies.store(Arc::new(self.published.writer.publish()));
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

fn precedence_of(priority: Option<u8>, configured: &Traffic, traffic: &Traffic) -> Precedence {
    let shape = |configured: &[TrafficSelector], agreed: &[TrafficSelector]| {
        // A tunnel with one policy for very many networks has the place of the largest.
        agreed.iter().map(|agreed| Shape::of(configured, agreed)).max()
    };
    let local = shape(&configured.local, &traffic.local).unwrap_or_default();
    let remote = shape(&configured.remote, &traffic.remote).unwrap_or_default();
    precedence(priority, configured.remote.is_empty(), [local, remote])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::protocol::{PeerState, Tunnel};
    use crate::datapath::staging::Budget;
    use crate::ipsec::connections::Child;
    use packet::header::flow::Flow;
    use tunnel::esp::Options;

    fn side(first: &str, last: &str) -> TrafficSelector {
        let addresses = first.parse().expect("literal")..=last.parse().expect("literal");
        TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses }
    }

    fn traffic(remote: TrafficSelector) -> Traffic {
        Traffic { local: vec![side("10.1.0.0", "10.1.0.255")], remote: vec![remote] }
    }

    fn place<Name>(
        name: Name,
        priority: Option<u8>,
        configured: &Traffic,
        traffic: &Traffic,
    ) -> (Precedence, Name) {
        (precedence_of(priority, configured, traffic), name)
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

    /// A tunnel without SAs.
    fn tunnel(number: u32, configured: Traffic) -> Carried {
        let state = PeerState::Ipsec(Tunnel::default());
        let peer = Arc::new(Peer::new(PeerId::new(number.into()), state, Budget::default()));
        let plan =
            Child { tunnel: number, mtu: None, priority: None, options: Options::default(), ike_peer: 0 };
        let (sas, late) = (Vec::new(), Vec::new());
        let is_of_instance = false;
        Carried { plan, peer, configured, sas, late, counted: [0; 2], measured: None, is_of_instance }
    }

    fn all(tunnels: &[Carried]) -> Published {
        let mut published = Published::default();
        for tunnel in tunnels {
            published.set("a", tunnel);
        }
        published
    }

    /// After every sequence of three changes, packets go where they would go after a rebuild.
    #[test]
    fn a_changed_tunnel_leaves_what_a_rebuild_would() {
        let net = |length: &str| {
            let net: ipnet::IpNet = format!("10.9.0.0/{length}").parse().expect("literal");
            side(&net.network().to_string(), &net.broadcast().to_string())
        };
        let [wide, close, host] = ["16", "24", "32"].map(net);
        let two = Traffic { remote: vec![wide.clone(), host.clone()], ..traffic(close.clone()) };
        let choices = [Traffic::default(), traffic(wide), traffic(close), traffic(host), two];
        let flow = |remote: [u8; 4]| {
            let [source, destination] = [[10, 1, 0, 1], remote].map(|it| u32::from_be_bytes(it).into());
            Flow { is_v4: true, protocol: 17, ports: None, source, destination }
        };
        let flows = [[10, 9, 0, 0], [10, 9, 0, 1], [10, 9, 1, 0], [10, 8, 0, 0]].map(flow);
        let changes: Vec<(usize, &Traffic)> =
            (0..3).flat_map(|tunnel| choices.iter().map(move |choice| (tunnel, choice))).collect();
        let count = changes.len();
        for sequence in 0..count.pow(3) {
            let mut tunnels = [1, 2, 3].map(|number| tunnel(number, traffic(side("10.9.0.0", "10.9.0.9"))));
            let mut published = all(&tunnels);
            published.writer.publish();
            for number in [sequence % count, sequence / count % count, sequence / count / count] {
                let (at, choice) = changes[number];
                tunnels[at].configured = choice.clone();
                published.set("a", &tunnels[at]);
                let policies = published.writer.publish();
                let expected = all(&tunnels).writer.publish();
                for flow in &flows {
                    let [found, expected] =
                        [&policies, &expected].map(|policies| match policies.outbound(flow) {
                            Some(Processing::Protect(peer)) => Some(peer.id),
                            _ => None,
                        });
                    assert_eq!(found, expected, "sequence {sequence}, {flow:?}");
                }
            }
        }
    }

    #[test]
    fn an_instance_precedes_its_profile_and_leaves_the_rest_to_it() {
        let profile = tunnel(1, traffic(side("10.0.0.0", "10.255.255.255")));
        let instance = Carried { is_of_instance: true, ..tunnel(2, profile.configured.clone()) };
        let mut published = Published::default();
        published.set("branches", &profile);
        let agreed = traffic(side("10.2.0.0", "10.2.255.255"));
        let mut decides = |traffic: &Traffic, remote: [u8; 4]| {
            published.set_for("branches/b.example", &instance, traffic);
            let flow = Flow {
                is_v4: true,
                protocol: 17,
                ports: None,
                source: u32::from_be_bytes([10, 1, 0, 1]).into(),
                destination: u32::from_be_bytes(remote).into(),
            };
            match published.writer.publish().outbound(&flow) {
                Some(Processing::Protect(peer)) => Some(peer.id),
                _ => None,
            }
        };
        assert_eq!(decides(instance.traffic(), [10, 2, 0, 1]), Some(profile.peer.id), "it has no SA yet");
        assert_eq!(decides(&agreed, [10, 2, 0, 1]), Some(instance.peer.id));
        assert_eq!(decides(&agreed, [10, 3, 0, 1]), Some(profile.peer.id));
        assert_eq!(decides(instance.traffic(), [10, 2, 0, 1]), Some(profile.peer.id), "it is closed again");
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
