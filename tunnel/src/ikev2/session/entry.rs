//! What a session consists of: IKE SAs, Child SAs, and what is under way.

use super::Request;
use super::rekey::Rekeying;
use crate::Time;
use crate::esp::{Mode, TrafficSelector};
use crate::ikev2::channel::Channel;
use crate::ikev2::context::Context;
use crate::ikev2::keys::Root;
use crate::ikev2::nat::Path;
use crate::ikev2::proposal::{EspSuite, IkeSuite};
use std::time::Duration;

/// An IKE SA of a session.
pub(super) struct IkeSa {
    pub(super) channel: Channel,
    /// Where the last answer went: it goes there again if the request is repeated.
    pub(super) answered_on: Option<Path>,
    pub(super) root: Root,
    pub(super) suite: IkeSuite,
    pub(super) since: Time,
    pub(super) standing: Standing,
    pub(super) procedure: Option<Procedure>,
    pub(super) rekey_at: Option<Time>,
    pub(super) expires: Time,
    /// If it is still there then, we delete it.
    pub(super) deadline: Option<Time>,
}

/// What an IKE SA is to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The one in which we ask.
    Current,
    /// Made by the other side's rekeying while ours was under way: one of the two will be current.
    Candidate,
    /// The other side will delete it.
    Replaced,
    /// We are deleting it.
    Closing,
}

impl IkeSa {
    pub(super) fn new(
        channel: Channel,
        (root, suite): (Root, IkeSuite),
        standing: Standing,
        lifetime: Duration,
        context: &mut Context<'_>,
    ) -> Self {
        let rekey_at = Some(context.rekey_time(lifetime));
        let expires = context.now + lifetime;
        let since = context.now;
        Self {
            channel,
            answered_on: None,
            root,
            suite,
            since,
            standing,
            procedure: None,
            rekey_at,
            expires,
            deadline: None,
        }
    }

    /// The SPI that we have chosen.
    pub(super) fn spi(&self) -> u64 {
        self.channel.local_spi()
    }
}

/// What we have asked for and wait to be answered.
pub(super) enum Procedure {
    CreateChild(Box<Request>),
    RekeyIke(Box<Rekeying>),
    /// The SPIs that we receive with.
    DeleteChild(u32),
    DeleteIke,
    Liveness,
}

/// A Child SA of a session.
pub(super) struct ChildEntry {
    /// Which of the connection's children.
    pub(super) child: usize,
    pub(super) inbound: u32,
    pub(super) outbound: u32,
    pub(super) suite: EspSuite,
    pub(super) mode: Mode,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) since: Time,
    pub(super) standing: ChildStanding,
    pub(super) rekey_at: Option<Time>,
    pub(super) expires: Time,
    /// If it is still there then, we delete it.
    pub(super) deadline: Option<Time>,
}

/// What a Child SA is to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildStanding {
    /// In use.
    Live,
    /// The other side has made the one with this SPI of ours to replace it, and will delete it.
    Replaced(u32),
    /// We are deleting it.
    Deleting,
}

/// The other side's rekeying of what we are rekeying: of the four nonces the lowest one loses (section 2.8.1).
#[derive(Clone, Debug)]
pub(super) struct Rival<S> {
    /// The SPI of what the other side made.
    pub(super) spi: S,
    /// The lower nonce of its exchange.
    pub(super) lowest: Vec<u8>,
}

/// The lower of the nonces of an exchange.
pub(super) fn lowest(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.min(other).to_vec()
}
