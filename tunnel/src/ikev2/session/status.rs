//! The status of a session, for operators.

use super::Session;
use super::entry::{ChildEntry, ChildStanding, IkeSa, Standing};
use crate::ikev2::endpoint::{ChildState, ChildStatus, Details, IkeStatus};

impl Session {
    pub(in crate::ikev2) fn details(&self) -> Details {
        Details {
            identity: self.identity.clone(),
            path: self.path,
            nat: self.nat,
            initiated: self.initiated,
            since: self.since,
            last_heard: self.last_heard,
            silent_since: self.current().filter(|ike| ike.channel.is_unanswered()).map(|_| self.last_heard),
            stray: self.stray,
            refused_exchanges: self.refused_exchanges,
            ikes: self.ikes.iter().map(ike).collect(),
            children: self.children.iter().map(child).collect(),
        }
    }
}

fn ike(ike: &IkeSa) -> IkeStatus {
    IkeStatus {
        spis: ike.channel.spis(),
        role: ike.channel.role(),
        suite: ike.suite,
        since: ike.since,
        rekey_at: ike.rekey_at,
        expires: ike.expires,
        is_current: ike.standing == Standing::Current,
    }
}

fn child(child: &ChildEntry) -> ChildStatus {
    ChildStatus {
        child: child.child,
        inbound: child.inbound,
        outbound: child.outbound,
        suite: child.suite,
        mode: child.mode,
        local: child.local.clone(),
        remote: child.remote.clone(),
        since: child.since,
        rekey_at: child.rekey_at,
        expires: child.expires,
        state: match child.standing {
            ChildStanding::Live => ChildState::Installed,
            ChildStanding::Replaced(_) => ChildState::Rekeyed,
            ChildStanding::Deleting => ChildState::Deleting,
        },
    }
}
