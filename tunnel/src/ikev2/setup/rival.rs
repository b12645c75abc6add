//! Other connections for a peer that has authenticated under one that takes anyone.
//!
//! The peer chooses what it calls itself, what it offers and, where that connection is for any address, where it calls from. So
//! it does not serve a peer that another one names, by this identity or by another that the same credentials prove.

use super::proof;
use crate::ikev2::action::Cause;
use crate::ikev2::config::{Connection, ConnectionId};
use crate::ikev2::context::Context;
use crate::ikev2::identity::Identity;
use crate::ikev2::message::Certificate;
use crate::ikev2::nat::Path;
use std::sync::Arc;
use std::time::Duration;

/// A connection that names one of the identities which a peer may have.
pub(super) struct Rival {
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
    /// Those of a connection that is to serve a peer on a path, with these identities.
    pub(super) fn of(
        served: &Connection,
        path: Path,
        names: &[Identity],
        context: &Context<'_>,
    ) -> Vec<Self> {
        if served.remote_identity.is_some() {
            return Vec::new();
        }
        let is_elsewhere = |other: &Connection| {
            served.remote.is_some() && !other.is_between(path.local.ip(), path.remote.ip())
        };
        let naming = names.iter().flat_map(|name| {
            let others = context.connections.naming(name).filter(|(_, other)| !is_elsewhere(other));
            others.map(|(connection, config)| Self {
                name: name.clone(),
                connection,
                config: Arc::clone(config),
            })
        });
        naming.collect()
    }

    /// Whether telling takes signatures.
    pub(super) fn takes_long(&self) -> bool {
        self.config.authentication.takes_long()
    }

    /// The first of these that is for the peer, and why the peer is not served.
    pub(super) fn find(
        rivals: &[Self],
        served: &Connection,
        claimed: &Identity,
        certificates: &[Certificate<'_>],
        wall: Duration,
    ) -> Option<(ConnectionId, Cause)> {
        let proves =
            |rival: &&Self| proof::proves((&rival.name, &rival.config), served, claimed, certificates, wall);
        let Self { name, connection, .. } = rivals.iter().find(proves)?;
        Some((*connection, Cause::Named { identity: claimed.to_string(), named: name.to_string() }))
    }
}
