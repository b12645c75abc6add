//! The agreement between a request for a Child SA and the local configuration.

use super::translate::{Renamed, translate};
use crate::esp::{Mode, TrafficSelector};
use crate::ikev2::cause::Cause;
use crate::ikev2::config::{Child, Connection};
use crate::ikev2::message::Proposal;
use crate::ikev2::message::numbers::notify;
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::proposal::{EspOffer, EspSuite, Selected, describe_all};
use crate::ikev2::selectors::{MOST, host, narrow};

/// A request of the peer for a Child SA.
pub(super) struct Wish<'a> {
    pub(super) proposals: &'a [Proposal],
    /// The remote traffic selectors.
    pub(super) remote: &'a [TrafficSelector],
    /// The local traffic selectors.
    pub(super) local: &'a [TrafficSelector],
    pub(super) transport: bool,
    /// Whether it is part of IKE_AUTH.
    pub(super) is_first: bool,
}

/// The result of the negotiation.
#[derive(Debug)]
pub(super) struct Agreement {
    /// The index of the child in the connection.
    pub(super) child: usize,
    pub(super) selected: Selected<EspSuite>,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) mode: Mode,
    pub(super) renamed: Renamed,
}

/// A refusal: the notification for the peer, and the cause to report.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) notify: u16,
    pub(super) cause: Cause,
}

/// The traffic selectors of a child: local and remote.
pub(super) fn selectors_of(child: &Child, path: Path) -> [Vec<TrafficSelector>; 2] {
    let or_host = |selectors: &Vec<TrafficSelector>, address| match &selectors[..] {
        [] => vec![host(address)],
        selectors => selectors.iter().take(MOST).cloned().collect(),
    };
    [or_host(&child.local, path.local.ip()), or_host(&child.remote, path.remote.ip())]
}

/// Finds the first child of the connection that matches the request; with `only`, checks that child alone.
pub(super) fn agree(
    config: &Connection,
    (path, nat): (Path, Nat),
    wish: &Wish<'_>,
    only: Option<usize>,
) -> Result<Agreement, Refusal> {
    let mut refusal = None;
    for (index, child) in config.children.iter().enumerate() {
        if only.is_some_and(|only| only != index) {
            continue;
        }
        match agree_on(index, child, (path, nat), wish) {
            Ok(agreement) => return Ok(agreement),
            // The child that came closest to a match has the most useful cause.
            Err(other) if refusal.as_ref().is_none_or(|refusal| nearer(&other, refusal)) => {
                refusal = Some(other);
            }
            Err(_) => {}
        }
    }
    Err(refusal.unwrap_or(Refusal {
        notify: notify::TS_UNACCEPTABLE,
        cause: Cause::NoSelectors {
            ours: [Vec::new(), Vec::new()],
            theirs: [wish.local.to_vec(), wish.remote.to_vec()],
        },
    }))
}

fn nearer(one: &Refusal, other: &Refusal) -> bool {
    other.notify == notify::TS_UNACCEPTABLE && one.notify != notify::TS_UNACCEPTABLE
}

fn agree_on(
    index: usize,
    child: &Child,
    (path, nat): (Path, Nat),
    wish: &Wish<'_>,
) -> Result<Agreement, Refusal> {
    let [ours, theirs] = selectors_of(child, path);
    // Section 2.23.1: in tunnel mode the selectors are of inner addresses, which no NAT changes.
    let is_transport = child.mode == Mode::Transport && wish.transport;
    let nat = if is_transport { nat } else { Nat::default() };
    let wanted = translate(nat, path, wish.local, wish.remote);
    let (local, remote) = (narrow(&ours, &wanted.local), narrow(&theirs, &wanted.remote));
    if local.is_empty() || remote.is_empty() {
        let cause = Cause::NoSelectors { ours: [ours, theirs], theirs: [wanted.local, wanted.remote] };
        return Err(Refusal { notify: notify::TS_UNACCEPTABLE, cause });
    }
    let selected = if wish.is_first {
        EspOffer::select_first(&child.esp, wish.proposals)
    } else {
        EspOffer::select(&child.esp, wish.proposals)
    };
    let Ok(selected) = selected else {
        let ours = describe_all(&EspOffer::propose(&child.esp, 0));
        let theirs = describe_all(wish.proposals);
        let cause = Cause::NoProposal { of: child.name.clone(), ours, theirs };
        return Err(Refusal { notify: notify::NO_PROPOSAL_CHOSEN, cause });
    };
    // Section 1.3.1: a responder may answer a request for transport mode with tunnel mode, but not the reverse.
    if child.mode == Mode::Transport && !wish.transport {
        return Err(Refusal { notify: notify::NO_PROPOSAL_CHOSEN, cause: Cause::Mode });
    }
    Ok(Agreement { child: index, selected, local, remote, mode: child.mode, renamed: wanted.renamed })
}
