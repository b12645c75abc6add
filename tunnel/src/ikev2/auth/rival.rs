//! Rivals: other connections that name a peer which has authenticated under a connection for any identity.
//!
//! The peer chooses its claimed identity, its proposals and, if the connection is for any address, its own address.
//! So a connection for any identity does not serve a peer that another connection names, by the claimed identity or
//! by another one that the same credentials prove.

use super::proof;
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Incoming;
use crate::ikev2::config::Connection;
use crate::ikev2::connections::Connections;
use crate::ikev2::identity::Identity;
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::message::Payloads;
use crate::ikev2::nat::Path;
use std::sync::Arc;
use std::time::Duration;

/// A connection that names one of the identities of a peer.
pub(in crate::ikev2) struct Rival {
    name: Identity,
    connection: ConnectionId,
    config: Arc<Connection>,
}

impl PartialEq for Rival {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.connection) == (&other.name, other.connection)
            && Arc::ptr_eq(&self.config, &other.config)
    }
}

impl Rival {
    /// The rivals of the connection `served`, for a peer with these identities on this path.
    pub(in crate::ikev2) fn of(
        served: &Connection,
        path: Path,
        names: &[Identity],
        connections: &Connections,
    ) -> Vec<Self> {
        if served.remote_identity.is_some() {
            return Vec::new();
        }
        let is_elsewhere = |other: &Connection| {
            served.remote.is_some() && !other.is_between(path.local.ip(), path.remote.ip())
        };
        let naming = names.iter().flat_map(|name| {
            let others = connections.naming(name).filter(|(_, other)| !is_elsewhere(other));
            others.map(|(connection, config)| Self {
                name: name.clone(),
                connection,
                config: Arc::clone(config),
            })
        });
        naming.collect()
    }

    /// Whether the check takes signatures.
    pub(in crate::ikev2) fn takes_long(&self) -> bool {
        self.config.authentication.takes_long()
    }

    /// The index of the first rival whose credentials match the peer that has sent `incoming`, authenticated under
    /// `served` as `claimed`.
    pub(in crate::ikev2) fn find(
        rivals: &[Self],
        served: &Connection,
        claimed: &Identity,
        incoming: &Incoming,
        wall: Duration,
    ) -> Option<usize> {
        let payloads = Payloads::parse(incoming.first, &incoming.chain).ok()?;
        let certificates = &payloads.certificates;
        let proves =
            |rival: &Self| proof::proves((&rival.name, &rival.config), served, claimed, certificates, wall);
        rivals.iter().position(proves)
    }

    /// The connection of the rival, and why a peer that it matches is refused.
    pub(in crate::ikev2) fn refusal(&self, claimed: &Identity) -> (ConnectionId, Cause) {
        let (identity, named) = (claimed.to_string(), self.name.to_string());
        (self.connection, Cause::Named { identity, named })
    }
}
