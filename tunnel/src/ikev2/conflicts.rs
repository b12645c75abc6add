//! Traffic selector conflicts: two peers must not both have a Child SA for the same packets.
//!
//! The configuration parser compares configured selectors. It cannot compare addresses of peers that are configured
//! without one, nor the subnets that several peers of one connection ask for. Here, the later peer is refused the
//! packets that another peer holds.

use super::config::Connection;
use super::identity::Identity;
use super::ids::ConnectionId;
use super::ids::SessionId;
use super::precedence::{Precedence, Shape, ends, precedence, size};
use super::selectors::{host, is_within, meets};
use crate::esp::TrafficSelector;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The packets of a Child SA, and the peer that holds them.
pub(super) struct Claim {
    /// The SPI that we receive with.
    spi: u32,
    pub(super) session: SessionId,
    /// The connection and the index of the child.
    tunnel: (ConnectionId, usize),
    /// The profile, if the connection is an instance.
    profile: Option<ConnectionId>,
    pub(super) identity: Identity,
    /// Whether the configuration requires this identity of the peer.
    is_named: bool,
    /// Whether its packets are those of a peer address that is not configured.
    is_anywhere: bool,
    priority: Option<u8>,
    local: Side,
    remote: Side,
}

/// The selectors of one side, each with the shape of the configured selector.
struct Side {
    selectors: Vec<TrafficSelector>,
    shapes: Vec<Shape>,
}

impl Side {
    fn new(configured: &[TrafficSelector], agreed: &[TrafficSelector]) -> Self {
        let shapes = agreed.iter().map(|agreed| Shape::of(configured, agreed)).collect();
        Self { selectors: agreed.to_vec(), shapes }
    }

    fn each(&self) -> impl Iterator<Item = (&TrafficSelector, &Shape)> {
        self.selectors.iter().zip(&self.shapes)
    }

    fn meets(&self, other: &Self) -> bool {
        self.selectors.iter().any(|one| other.selectors.iter().any(|other| meets(one, other)))
    }

    /// The shapes of overlapping selectors. There are few distinct shapes, even of many selectors.
    fn common(&self, other: &Self) -> BTreeSet<(Shape, Shape)> {
        let met = self.each().flat_map(|(selector, shape)| {
            let met = other.each().filter(move |(other, _)| meets(selector, other));
            met.map(move |(_, other)| (*shape, *other))
        });
        met.collect()
    }
}

/// The peer that holds a claim.
pub(super) struct Claimant<'a> {
    pub(super) session: SessionId,
    pub(super) connection: ConnectionId,
    pub(super) profile: Option<ConnectionId>,
    pub(super) config: &'a Connection,
    pub(super) identity: &'a Identity,
}

impl Claim {
    /// The claim of the Child SA that is received under `spi`.
    pub(super) fn new(
        claimant: &Claimant<'_>,
        (spi, child): (u32, usize),
        [local, remote]: [&[TrafficSelector]; 2],
    ) -> Self {
        let Claimant { session, connection, profile, config, identity } = *claimant;
        let configured = config.children.get(child);
        let of_remote = configured.map_or(&[][..], |child| &child.remote);
        let known: Vec<TrafficSelector> = config.remote.map(host).into_iter().collect();
        let side = if of_remote.is_empty() { &known[..] } else { of_remote };
        Self {
            spi,
            session,
            tunnel: (connection, child),
            profile,
            identity: identity.clone(),
            is_named: config.remote_identity.is_some(),
            is_anywhere: side.is_empty(),
            priority: configured.and_then(|child| child.priority),
            local: Side::new(configured.map_or(&[][..], |child| &child.local), local),
            remote: Side::new(side, remote),
        }
    }

    /// Whether both claims are of one peer. Several connections may name the same identity; an identity that the
    /// connection does not require proves nothing outside of that connection.
    fn is_of_same_peer(&self, other: &Self) -> bool {
        let is_proven = self.tunnel.0 == other.tunnel.0 || (self.is_named && other.is_named);
        is_proven && self.identity == other.identity
    }

    fn precedence(&self, shapes: [Shape; 2]) -> Precedence {
        precedence(self.priority, self.is_anywhere, shapes)
    }

    /// Whether this new claim conflicts with `owner`: both have the same precedence for some packets, or `owner` takes
    /// precedence for all packets of this claim.
    fn conflicts_with(&self, owner: &Self) -> bool {
        if self.is_of_same_peer(owner) {
            return false;
        }
        // A tunnel has one peer.
        if self.tunnel == owner.tunnel {
            return true;
        }
        let (local, remote) = (self.local.common(&owner.local), self.remote.common(&owner.remote));
        if local.is_empty() || remote.is_empty() {
            return false;
        }
        // Neither address is configured, so the configuration gives no order between the two; nor does it between
        // instances of one profile.
        let is_beside = self.profile.is_some() && self.profile == owner.profile;
        if is_beside || (self.is_anywhere && owner.is_anywhere) {
            return true;
        }
        let pairs = || local.iter().flat_map(|local| remote.iter().map(move |remote| (local, remote)));
        let compared = || {
            pairs().map(|(local, remote)| {
                self.precedence([local.0, remote.0]).cmp(&owner.precedence([local.1, remote.1]))
            })
        };
        let is_within = is_within(&self.remote.selectors, &owner.remote.selectors)
            && is_within(&self.local.selectors, &owner.local.selectors);
        compared().any(Ordering::is_eq) || (is_within && compared().all(Ordering::is_gt))
    }
}

/// Address ranges of one size, by first address, each with its claim.
type Ranges = BTreeMap<(u128, u32, usize), Arc<Claim>>;

/// All claims.
#[derive(Default)]
pub(super) struct Conflicts {
    by_spi: HashMap<u32, Arc<Claim>>,
    /// By the remote addresses: whether they are IPv4, and the number of free bits. Few of ten thousand claims share
    /// the addresses of a new one.
    ranges: BTreeMap<(bool, u32), Ranges>,
    /// Claims of connections that any authenticated peer may use, one at a time.
    by_tunnel: HashMap<(ConnectionId, usize), BTreeMap<u32, Arc<Claim>>>,
}

impl Conflicts {
    /// The claim of another peer that conflicts with this one.
    pub(super) fn owner(&self, claim: &Claim) -> Option<&Claim> {
        let of_tunnel = self.by_tunnel.get(&claim.tunnel).into_iter().flat_map(BTreeMap::values);
        let mut seen = HashSet::new();
        let around = claim.remote.selectors.iter().flat_map(|selector| self.around(selector));
        // Many tunnels can lead to one remote network, each from another local one. A claim is found once for each
        // of its ranges, but its selectors are compared only once.
        let others = around.filter(|other| seen.insert(other.spi) && !claim.is_of_same_peer(other));
        let met = others.filter(|other| claim.local.meets(&other.local));
        of_tunnel.chain(met).find(|owner| claim.conflicts_with(owner)).map(|owner| &**owner)
    }

    /// The claims whose addresses may overlap with a selector.
    fn around(&self, selector: &TrafficSelector) -> impl Iterator<Item = &Arc<Claim>> {
        let is_v4 = selector.addresses.start().is_ipv4();
        let [first, last] = ends(selector);
        let of_family = self.ranges.range((is_v4, 0)..=(is_v4, u128::BITS));
        of_family.flat_map(move |((_, size), ranges)| {
            let longest = 1u128.checked_shl(*size).map_or(u128::MAX, |length| length - 1);
            let from = first.saturating_sub(longest);
            ranges.range((from, 0, 0)..=(last, u32::MAX, usize::MAX)).map(|(_, claim)| claim)
        })
    }

    pub(super) fn enter(&mut self, claim: Claim) {
        self.leave(claim.spi);
        let claim = Arc::new(claim);
        for (class, place) in places(&claim) {
            self.ranges.entry(class).or_default().insert(place, Arc::clone(&claim));
        }
        if !claim.is_named && claim.profile.is_none() {
            self.by_tunnel.entry(claim.tunnel).or_default().insert(claim.spi, Arc::clone(&claim));
        }
        self.by_spi.insert(claim.spi, claim);
    }

    pub(super) fn leave(&mut self, spi: u32) {
        let Some(claim) = self.by_spi.remove(&spi) else { return };
        for (class, place) in places(&claim) {
            if let Some(ranges) = self.ranges.get_mut(&class) {
                ranges.remove(&place);
                if ranges.is_empty() {
                    self.ranges.remove(&class);
                }
            }
        }
        if let Some(claims) = self.by_tunnel.get_mut(&claim.tunnel) {
            claims.remove(&spi);
            if claims.is_empty() {
                self.by_tunnel.remove(&claim.tunnel);
            }
        }
    }

    /// The number of claims.
    pub(super) fn len(&self) -> usize {
        self.by_spi.len()
    }
}

/// The keys under which the ranges of a claim are found.
fn places(claim: &Claim) -> impl Iterator<Item = ((bool, u32), (u128, u32, usize))> {
    claim.remote.selectors.iter().enumerate().map(|(index, selector)| {
        let class = (selector.addresses.start().is_ipv4(), size(selector));
        (class, (ends(selector)[0], claim.spi, index))
    })
}
