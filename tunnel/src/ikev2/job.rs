//! Jobs: key exchanges and signatures, which take long and run outside of the IKE thread. Unauthenticated sources can
//! cause many.
//!
//! ```text
//! state ──Work──> Job ──run, on any thread──> Finished ──handle_finished──> the same state
//! ```
//! A job is data: it has copies of its inputs, and the state waits for the output where it is. Each job has a number,
//! so that the output of one that nothing waits for any more is dropped.

use super::auth::init::Init;
use super::auth::proof::{Proof, Verified};
use super::auth::rival::Rival;
use super::cause::Cause;
use super::channel::Incoming;
use super::config::Connection;
use super::identity::Identity;
use super::ids::SessionId;
use crypto::exchange::{ExchangeError, Group, PrivateShare};
use crypto::signature::Scheme;
use crypto::{Random, SecretBytes};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Work for any worker thread.
pub struct Job {
    pub(super) session: SessionId,
    pub(super) number: u64,
    pub(super) is_urgent: bool,
    pub(super) work: Work,
}

/// A finished job, to be passed to [`Endpoint::handle_finished`](super::Endpoint::handle_finished).
pub struct Finished {
    pub(super) session: SessionId,
    pub(super) number: u64,
    pub(super) output: Output,
}

impl Job {
    /// Whether it precedes others: it is for an authenticated peer, for a session that we initiate, or for an
    /// initiator with a proven address.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Runs the job, which takes from tens of microseconds to tens of milliseconds.
    pub fn run(self) -> Finished {
        Finished { session: self.session, number: self.number, output: self.work.run() }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({:?})", self.session)
    }
}

/// What is to be computed.
pub(super) enum Work {
    /// Generate the private share of a request.
    Generate { group: Group, random: Box<dyn Random> },
    /// Agree on a secret with the sender of an answer.
    Agree { share: Arc<PrivateShare>, public: Vec<u8> },
    /// Generate a share and agree on a secret with the sender of a request.
    Exchange { group: Group, random: Box<dyn Random>, public: Vec<u8> },
    /// Compute the local proof of a round.
    Sign { init: Arc<Init>, config: Arc<Connection>, round: usize, theirs: Option<Scheme>, wall: Duration },
    /// Verify the proof of the peer in a round.
    Verify { init: Arc<Init>, config: Arc<Connection>, round: usize, incoming: Arc<Incoming>, wall: Duration },
    /// Find another connection that the credentials of an authenticated peer match.
    Compare {
        rivals: Arc<[Rival]>,
        config: Arc<Connection>,
        claimed: Identity,
        incoming: Arc<Incoming>,
        wall: Duration,
    },
}

/// The result of [`Work`] of the same name.
pub(super) enum Output {
    Generated(PrivateShare),
    Agreed(Result<SecretBytes, ExchangeError>),
    Exchanged(Result<Exchanged, ExchangeError>),
    Signed(Result<Proof, Cause>),
    Verified(Result<Verified, Cause>),
    /// The index of the rival.
    Compared(Option<usize>),
}

/// The result of a key exchange, as the responder has it.
pub(super) struct Exchanged {
    pub(super) group: Group,
    pub(super) public: Vec<u8>,
    pub(super) secret: SecretBytes,
}

impl Work {
    pub(super) fn run(self) -> Output {
        match self {
            Self::Generate { group, mut random } => Output::Generated(group.generate(&mut *random)),
            Self::Agree { share, public } => Output::Agreed(share.agree(&public)),
            Self::Exchange { group, mut random, public } => {
                let share = group.generate(&mut *random);
                let exchanged = |secret| Exchanged { group, public: share.public().to_vec(), secret };
                Output::Exchanged(share.agree(&public).map(exchanged))
            }
            Self::Sign { init, config, round, theirs, wall } => Output::Signed(match config.round(round) {
                Some(round) => init.prove(round, theirs, wall),
                None => Err(Cause::ExtraRound),
            }),
            Self::Verify { init, config, round, incoming, wall } => {
                Output::Verified(init.verify((&config, round), &incoming, wall))
            }
            Self::Compare { rivals, config, claimed, incoming, wall } => {
                Output::Compared(Rival::find(&rivals, &config, &claimed, &incoming, wall))
            }
        }
    }
}
