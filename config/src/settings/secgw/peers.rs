//! The peers of `vpn ipsec` that policies of `interfaces secgw` name. The gateway serves them, and `ipsec0` does not.

use super::super::{Reader, Settings};
use super::below;
use crate::error::Location;
use crate::secgw::settings::{Action, Direction};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// A policy that names a peer.
struct Named<'a> {
    gateway: &'a str,
    path: String,
    peer: &'a str,
    at: Location,
}

impl<'a> Named<'a> {
    /// All policies of all gateways that are disabled, or that are not.
    fn all(tree: &'a Tree, is_disabled: bool) -> Vec<Self> {
        let gateways = tree.at(&["interfaces", "secgw"]).into_iter().flat_map(Tree::children);
        let policies = gateways
            .filter(|(_, tree)| tree.has("disable") == is_disabled)
            .flat_map(|(gateway, tree)| below(tree, "policy").map(move |policy| (gateway, policy)));
        let named = policies.filter_map(|(gateway, (number, policy))| {
            let path = format!("interfaces secgw {gateway} policy {number}");
            Some(Self { gateway, path, peer: policy.value("ike")?, at: policy.location_of("ike") })
        });
        named.collect()
    }
}

impl Reader {
    /// Gives the gateways their peers.
    pub(in super::super) fn peers_of_secgws(&mut self, tree: &Tree, settings: &mut Settings) {
        let named = Named::all(tree, false);
        let mut gateways: BTreeSet<&str> = BTreeSet::new();
        for Named { gateway, path, peer, at } in &named {
            let found = self.follow(tree, &format!("{path} ike"), peer, *at);
            if found.is_some_and(|peer| peer.has("disable")) {
                let fix = format!("delete vpn ipsec site-to-site peer {peer} disable");
                self.error(*at, format!("{path}: vpn ipsec site-to-site peer {peer} is disabled"), fix);
            }
            if let Some(other) = gateways.first().filter(|other| *other != gateway) {
                let reason = format!(
                    "{path}: {other} has peers of IKE, and UDP ports 500 and 4500 are for one gateway"
                );
                self.error(*at, reason, format!("move all policies with ike to {other}"));
            } else {
                gateways.insert(gateway);
            }
        }
        for Named { gateway, peer, .. } in &named {
            // A peer with an error of its own is missing.
            let moved = settings.ipsec.peers.remove(*peer);
            if let Some(served) = settings.secgw.get_mut(*gateway) {
                served.retransmission = settings.ipsec.retransmission;
                served.ike.extend(moved.map(|moved| ((*peer).to_owned(), moved)));
            }
        }
        for Named { path, peer, .. } in Named::all(tree, true) {
            if settings.ipsec.peers.remove(peer).is_some() {
                self.warn(format!("vpn ipsec site-to-site peer {peer} is not served: {path} names it, of a gateway that is disabled"));
            }
        }
        if let Some(gateway) = gateways.first() {
            self.refuse_others(tree, settings, gateway);
            self.warn_of_one_direction(settings, gateway);
        }
    }

    /// `ipsec0` would have the same UDP ports.
    fn refuse_others(&mut self, tree: &Tree, settings: &Settings, gateway: &str) {
        for peer in settings.ipsec.peers.keys() {
            let at = tree.at(&["vpn", "ipsec", "site-to-site", "peer", peer]);
            let reason = format!(
                "vpn ipsec site-to-site peer {peer}: interfaces secgw {gateway} has UDP ports 500 and 4500 for its peers, and no policy of it names this one"
            );
            let fix = format!(
                "set interfaces secgw {gateway} policy NUMBER ike {peer}, or set vpn ipsec site-to-site peer {peer} disable"
            );
            self.error(at.map(Tree::location).unwrap_or_default(), reason, fix);
        }
    }

    fn warn_of_one_direction(&mut self, settings: &Settings, gateway: &str) {
        let Some(served) = settings.secgw.get(gateway) else { return };
        for (number, peer) in (0..).zip(&served.ike_peers) {
            for direction in Direction::ALL {
                let names = |action, of| action == Action::Ike(number) && of == direction;
                if !served.policies.iter().any(|policy| names(policy.action, policy.direction)) {
                    self.warn(format!(
                        "interfaces secgw {gateway}: no policy with direction {} names ike {peer}: its packets are dropped there",
                        direction.word()
                    ));
                }
            }
        }
    }
}
