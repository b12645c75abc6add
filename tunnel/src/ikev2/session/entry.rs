//! The parts of a session: IKE SAs, Child SAs and pending exchanges.

use super::rekeying::Rekeying;
use super::request::Request;
use crate::Time;
use crate::esp::{Mode, TrafficSelector};
use crate::ikev2::channel::{Channel, Incoming};
use crate::ikev2::context::Context;
use crate::ikev2::keys::Root;
use crate::ikev2::nat::Path;
use crate::ikev2::proposal::{EspSuite, IkeSuite};
use std::time::Duration;

/// An IKE SA of a session.
pub(super) struct IkeSa {
    pub(super) channel: Channel,
    /// The path of the last answer: it is sent there again if the request is repeated.
    pub(super) answered_on: Option<Path>,
    pub(super) root: Root,
    pub(super) suite: IkeSuite,
    pub(super) since: Time,
    pub(super) standing: Standing,
    pub(super) procedure: Option<Procedure>,
    /// The job of the procedure: without an answer, its request is not sent yet.
    pub(super) making: Option<Making>,
    /// The request of the peer that is being answered. The window is 1, so that there is one at most.
    pub(super) answering: Option<Answering>,
    pub(super) rekey_at: Option<Time>,
    pub(super) expires: Time,
    /// The time at which it is deleted if the peer has not deleted it.
    pub(super) deadline: Option<Time>,
}

/// The state of an IKE SA in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// In use for new exchanges.
    Current,
    /// Created by the peer's rekeying while a local one is pending: one of the two becomes current.
    Candidate,
    /// The peer will delete it.
    Replaced,
    /// It is being deleted locally.
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
            making: None,
            answering: None,
            rekey_at,
            expires,
            deadline: None,
        }
    }

    /// The local SPI.
    pub(super) fn spi(&self) -> u64 {
        self.channel.local_spi()
    }

    /// Whether a procedure is pending: its request waits for a job or for its answer.
    pub(super) fn is_busy(&self) -> bool {
        self.channel.is_busy() || self.procedure.is_some()
    }

    /// Whether the answer to a local request waits for its job.
    pub(super) fn is_agreeing(&self) -> bool {
        self.making.as_ref().is_some_and(|making| making.answer.is_some())
    }
}

/// A job of a local request.
pub(super) struct Making {
    /// The number of the job.
    pub(super) job: u64,
    /// `None` while the share of the request is generated; the answer while the secret is computed.
    pub(super) answer: Option<Incoming>,
}

/// A request of the peer that cannot be answered yet.
pub(super) struct Answering {
    /// The number of its job; `None` if it waits until the answer to a local request is handled.
    pub(super) job: Option<u64>,
    pub(super) incoming: Incoming,
    /// The path of the answer.
    pub(super) path: Path,
}

/// A local request that waits for its job or its answer.
pub(super) enum Procedure {
    CreateChild(Box<Request>),
    RekeyIke(Box<Rekeying>),
    /// The inbound SPIs.
    DeleteChild(u32),
    DeleteIke,
    Liveness,
}

/// A Child SA of a session.
pub(super) struct ChildEntry {
    /// The index of the child in the connection.
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
    /// The time at which it is deleted if the peer has not deleted it.
    pub(super) deadline: Option<Time>,
}

/// The state of a Child SA in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildStanding {
    /// In use.
    Live,
    /// The peer has replaced it by the SA with this inbound SPI, and will delete it.
    Replaced(u32),
    /// It is being deleted locally.
    Deleting,
}

/// Whether a new session is to replace this one, and why.
#[derive(Default)]
pub(super) struct Succession {
    /// The replacement is due, and the local side initiates it.
    pub(super) is_due: bool,
    /// The peer refuses all rekeying in this session.
    pub(super) is_final: bool,
    /// A child that the peer refuses in this session, although the session has no Child SA.
    pub(super) missing: Option<usize>,
    /// When it is due: the peer asks for reauthentication (RFC 4478), or the last attempt failed.
    pub(super) at: Option<Time>,
}
