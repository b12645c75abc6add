//! The configured connections, indexed as messages look them up.
//!
//! ```text
//! first message   addresses ──> up to 8 places: merged offers, merged authorities, the number of connections
//! IKE_AUTH        identity  ──> the connections that name it; then those without a remote id
//! ```
//! The data that a first message needs is merged when a connection is added: its cost does not grow with the number
//! of connections.

use super::auth::proof::request;
use super::config::Connection;
use super::identity::Identity;
use super::ids::ConnectionId;
use super::message::Proposal;
use super::nat::Path;
use super::proposal::{IkeSuite, MergedOffers, ProposalIndex, Selected};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Connections {
    configs: HashMap<ConnectionId, Arc<Connection>>,
    /// By the properties that a first message shows.
    places: HashMap<Place, Merged>,
    /// By the remote address; `None` for any address.
    by_remote: HashMap<Option<IpAddr>, BTreeSet<ConnectionId>>,
    /// By the remote identity, where one is configured.
    by_identity: HashMap<Identity, BTreeSet<ConnectionId>>,
}

/// Properties shared by connections with the same addresses, and whether they have a remote identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    remote: Option<IpAddr>,
    local: Option<IpAddr>,
    is_named: bool,
}

impl Place {
    fn of(config: &Connection) -> Self {
        Self { remote: config.remote, local: config.local, is_named: config.remote_identity.is_some() }
    }
}

/// The merged connections of one place.
#[derive(Default)]
struct Merged {
    members: BTreeSet<ConnectionId>,
    offers: MergedOffers,
    /// The number of connections that ask for certificates.
    asking: usize,
    authorities: Authorities,
}

/// The hashes of the trusted authorities, each once, in the order in which they were added.
#[derive(Default)]
struct Authorities {
    in_order: BTreeMap<u64, [u8; 20]>,
    /// The position of each, and the number of connections that trust it.
    counted: HashMap<[u8; 20], (u64, usize)>,
    last: u64,
}

impl Authorities {
    fn add(&mut self, hash: [u8; 20]) {
        let Self { in_order, counted, last } = self;
        let (_, count) = counted.entry(hash).or_insert_with(|| {
            *last += 1;
            in_order.insert(*last, hash);
            (*last, 0)
        });
        *count += 1;
    }

    fn remove(&mut self, hash: &[u8; 20]) {
        let Some((place, count)) = self.counted.get_mut(hash) else { return };
        *count -= 1;
        if *count == 0 {
            self.in_order.remove(place);
            self.counted.remove(hash);
        }
    }
}

impl Merged {
    fn add(&mut self, id: ConnectionId, config: &Connection) {
        self.members.insert(id);
        self.offers.add(&config.ike);
        let Some(hashes) = request(config) else { return };
        self.asking += 1;
        for hash in hashes.as_chunks().0 {
            self.authorities.add(*hash);
        }
    }

    fn remove(&mut self, id: ConnectionId, config: &Connection) {
        self.members.remove(&id);
        self.offers.remove(&config.ike);
        let Some(hashes) = request(config) else { return };
        self.asking -= 1;
        for hash in hashes.as_chunks().0 {
            self.authorities.remove(hash);
        }
    }
}

impl Connections {
    /// Adds a connection; an existing one with this ID is replaced.
    pub(super) fn insert(&mut self, id: ConnectionId, config: Arc<Connection>) {
        self.remove(id);
        self.by_remote.entry(config.remote).or_default().insert(id);
        self.places.entry(Place::of(&config)).or_default().add(id, &config);
        if let Some(identity) = &config.remote_identity {
            self.by_identity.entry(identity.clone()).or_default().insert(id);
        }
        self.configs.insert(id, config);
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        let Some(config) = self.configs.remove(&id) else { return };
        leave(&mut self.by_remote, &config.remote, id);
        if let Some(identity) = &config.remote_identity {
            leave(&mut self.by_identity, identity, id);
        }
        let place = Place::of(&config);
        if let Some(merged) = self.places.get_mut(&place) {
            merged.remove(id, &config);
            if merged.members.is_empty() {
                self.places.remove(&place);
            }
        }
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Arc<Connection>> {
        self.configs.get(&id)
    }

    /// Connections with the same peer and the same local identity; if the peer can be any, those with the same
    /// address.
    pub(super) fn alike(&self, config: &Connection) -> impl Iterator<Item = ConnectionId> {
        let ids = match &config.remote_identity {
            Some(identity) => self.by_identity.get(identity),
            None => self.by_remote.get(&config.remote),
        };
        let ids = ids.into_iter().flatten().copied();
        ids.filter(|id| self.get(*id).is_some_and(|it| it.local_identity == config.local_identity))
    }

    /// Connections that name an identity, for any addresses.
    pub(super) fn naming(&self, identity: &Identity) -> impl Iterator<Item = Known<'_>> {
        let ids = self.by_identity.get(identity).into_iter().flatten();
        ids.filter_map(|id| self.get(*id).map(|config| (*id, config)))
    }

    /// Connections for the addresses of a path.
    pub(super) fn on(&self, path: Path) -> Between<'_> {
        let (local, remote) = (path.local.ip(), path.remote.ip());
        let ends = [(Some(remote), Some(local)), (Some(remote), None), (None, Some(local)), (None, None)];
        let places = ends.map(|(remote, local)| {
            let of = |is_named| self.places.get(&Place { remote, local, is_named });
            [of(true), of(false)]
        });
        Between { connections: self, places, local, remote }
    }
}

fn leave<K: Eq + Hash>(by: &mut HashMap<K, BTreeSet<ConnectionId>>, key: &K, id: ConnectionId) {
    if let Some(ids) = by.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            by.remove(key);
        }
    }
}

/// A connection and its ID.
pub(super) type Known<'a> = (ConnectionId, &'a Arc<Connection>);

/// The connections for two addresses: the most specific first; among equals those with a remote identity first, then
/// in the order in which they were added.
pub(super) struct Between<'a> {
    connections: &'a Connections,
    /// By specificity; in each, connections with a remote identity and connections without.
    places: [[Option<&'a Merged>; 2]; 4],
    local: IpAddr,
    remote: IpAddr,
}

impl<'a> Between<'a> {
    fn merged(&self) -> impl Iterator<Item = &'a Merged> {
        self.places.into_iter().flatten().flatten()
    }

    fn known(&self, ids: impl Iterator<Item = ConnectionId>) -> impl Iterator<Item = Known<'a>> {
        let connections = self.connections;
        ids.filter_map(|id| connections.get(id).map(|config| (id, config)))
    }

    /// The number of connections.
    pub(super) fn count(&self) -> usize {
        self.merged().map(|merged| merged.members.len()).sum()
    }

    /// The first connection.
    pub(super) fn first(&self) -> Option<Known<'a>> {
        self.known(self.merged().filter_map(|merged| merged.members.first().copied())).next()
    }

    /// Selects from the proposals of the peer; `compared` counts the suites that were compared.
    pub(super) fn select(&self, proposals: &[Proposal], compared: &mut u64) -> Option<Selected<IkeSuite>> {
        let index = ProposalIndex::new(proposals);
        self.merged().find_map(|merged| merged.offers.select(&index, compared))
    }

    /// The hashes of at most `most` authorities for a certificate request; `None` if no connection wants a
    /// certificate. The connection is not known yet, so the request covers all candidates (section 3.7).
    pub(super) fn authorities(&self, most: usize) -> Option<Vec<u8>> {
        let mut wanted: Vec<[u8; 20]> = Vec::new();
        for hash in self.merged().flat_map(|merged| merged.authorities.in_order.values()) {
            if wanted.len() == most {
                break;
            }
            if !wanted.contains(hash) {
                wanted.push(*hash);
            }
        }
        self.merged().any(|merged| merged.asking > 0).then(|| wanted.concat())
    }

    /// Connections that name an identity, then those that name none.
    pub(super) fn of(&self, identity: &Identity) -> impl Iterator<Item = Known<'a>> {
        let ids = self.connections.by_identity.get(identity).into_iter().flatten().copied();
        let is_here = |(_, config): &Known<'a>| config.is_between(self.local, self.remote);
        let mut named: Vec<Known<'a>> = self.known(ids).filter(is_here).collect();
        named.sort_by_key(|(id, config)| (Reverse(config.precision()), *id));
        let unnamed = self.places.into_iter().filter_map(|[_, unnamed]| unnamed);
        named.into_iter().chain(self.known(unnamed.flat_map(|merged| merged.members.iter().copied())))
    }
}
