//! Instances of profiles. A profile is a connection for peers of any address and any identity: it serves many of them at
//! once, each as an instance with a connection ID of its own.
//!
//! ```text
//! IKE_AUTH ──> profile and identity ──> the instance of this peer, or a new one
//! ```
//! An instance has its own sessions and Child SAs under the settings of its profile, and ends with its last session.

use super::identity::Identity;
use super::ids::{ConnectionId, SessionId};
use super::limits::INSTANCES;
use std::collections::{BTreeSet, HashMap};

/// See the module documentation.
#[derive(Default)]
pub(super) struct Instances {
    by_peer: HashMap<(ConnectionId, Identity), ConnectionId>,
    known: HashMap<ConnectionId, (ConnectionId, Identity)>,
    by_profile: HashMap<ConnectionId, BTreeSet<ConnectionId>>,
}

/// The instance of a peer.
pub(super) enum Found {
    /// It exists: the peer has another session.
    Known(ConnectionId),
    /// It was added for this session.
    Added(ConnectionId),
    /// The profile has as many instances as it may have.
    Full,
}

impl Instances {
    /// The instance of the peer with this identity; a new one takes its ID from the session that it is added for.
    pub(super) fn enter(&mut self, profile: ConnectionId, identity: &Identity, session: SessionId) -> Found {
        let peer = (profile, identity.clone());
        if let Some(known) = self.by_peer.get(&peer) {
            return Found::Known(*known);
        }
        let of_profile = self.by_profile.entry(profile).or_default();
        if of_profile.len() >= INSTANCES {
            return Found::Full;
        }
        // Connections and sessions are numbered together.
        let instance = ConnectionId(session.0);
        of_profile.insert(instance);
        self.by_peer.insert(peer.clone(), instance);
        self.known.insert(instance, peer);
        Found::Added(instance)
    }

    /// Removes an instance; returns whether there was one.
    pub(super) fn leave(&mut self, instance: ConnectionId) -> bool {
        let Some(peer) = self.known.remove(&instance) else { return false };
        if let Some(of_profile) = self.by_profile.get_mut(&peer.0) {
            of_profile.remove(&instance);
            if of_profile.is_empty() {
                self.by_profile.remove(&peer.0);
            }
        }
        self.by_peer.remove(&peer);
        true
    }

    /// The profile of an instance.
    pub(super) fn profile(&self, instance: ConnectionId) -> Option<ConnectionId> {
        self.known.get(&instance).map(|(profile, _)| *profile)
    }

    /// The configured connection behind an ID: the profile of an instance, or the connection itself.
    pub(super) fn configured(&self, connection: ConnectionId) -> ConnectionId {
        self.profile(connection).unwrap_or(connection)
    }

    /// A connection and its instances.
    pub(super) fn with_all_of(&self, connection: ConnectionId) -> impl Iterator<Item = ConnectionId> {
        let instances = self.by_profile.get(&connection).into_iter().flatten().copied();
        std::iter::once(connection).chain(instances)
    }

    /// The number of instances.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}
