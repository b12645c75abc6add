//! Jobs: key exchanges and signatures, which run outside of the IKE thread. Unauthenticated sources can cause many.
//!
//! ```text
//! state ──compute──> Job ──run, wherever there is time──> Finished ──handle_finished──> next state
//! ```
//! The state moves into its job, and [`Working`] takes its place until the job has finished.

use super::action::Action;
use super::context::Context;
use super::endpoint::Phase;
use super::half_open_table::HalfOpenEntry;
use super::ids::ConnectionId;
use super::ids::SessionId;
use super::limits::{WAITING_BYTES, WAITING_MESSAGES};
use super::nat::Path;
use std::fmt;

/// Computes the next state from the result of a job.
type Then = Box<dyn FnOnce(Meanwhile, &mut Context<'_>) -> Option<Phase> + Send>;

/// Work for any worker thread.
pub struct Job {
    session: SessionId,
    is_urgent: bool,
    work: Box<dyn FnOnce() -> Then + Send>,
}

/// A finished job, to be passed to [`Endpoint::handle_finished`](super::Endpoint::handle_finished).
pub struct Finished {
    pub(super) session: SessionId,
    pub(super) then: Then,
}

impl Job {
    /// Whether it precedes others: it is for a session that we initiate, or for an initiator with a proven address.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Runs the job, which takes from tens of microseconds to tens of milliseconds.
    pub fn run(self) -> Finished {
        Finished { session: self.session, then: (self.work)() }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({:?})", self.session)
    }
}

/// Requests to a state that arrived while its job was running.
#[derive(Default)]
pub(super) struct Meanwhile {
    /// Children that were requested.
    pub(super) children: Vec<usize>,
    /// Whether the state was abandoned.
    pub(super) is_abandoned: bool,
}

/// The kind of state that is away.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    /// A set-up of a connection that we initiate.
    Ours(ConnectionId),
    /// A set-up of an unauthenticated initiator.
    HalfOpenEntry(HalfOpenEntry),
}

/// Takes the place of a state that has moved into its job.
pub(super) struct Working {
    pub(super) whose: Whose,
    pub(super) meanwhile: Meanwhile,
    /// Messages received meanwhile.
    waiting: Vec<(Path, Vec<u8>)>,
}

impl Working {
    /// Keeps a message until the job has finished. After a forged answer the genuine one arrives, and it arrives
    /// once. A half-open initiator retransmits, so its messages are dropped.
    pub(super) fn wait(&mut self, path: Path, message: &[u8]) {
        let is_ours = matches!(self.whose, Whose::Ours(_));
        let is_there = self.waiting.iter().any(|(_, waiting)| waiting == message);
        if is_ours && !is_there && self.waiting.len() < WAITING_MESSAGES && message.len() <= WAITING_BYTES {
            self.waiting.push((path, message.to_vec()));
        }
    }

    /// Adds one more child.
    pub(super) fn want(&mut self, child: usize) {
        self.meanwhile.children.push(child);
    }

    /// The messages received meanwhile.
    pub(super) fn take_waiting(&mut self) -> Vec<(Path, Vec<u8>)> {
        std::mem::take(&mut self.waiting)
    }
}

impl Context<'_> {
    /// As [`compute`](Self::compute), but short work is done at once.
    pub(super) fn compute_if<T: Send + 'static>(
        &mut self,
        is_long: bool,
        session: SessionId,
        whose: Whose,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(T, Meanwhile, &mut Context<'_>) -> Option<Phase> + Send + 'static,
    ) -> Option<Phase> {
        if is_long {
            return Some(self.compute(session, whose, work, then));
        }
        then(work(), Meanwhile::default(), self)
    }

    /// Starts a job; `then` computes the next state from its result.
    pub(super) fn compute<T: Send + 'static>(
        &mut self,
        session: SessionId,
        whose: Whose,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(T, Meanwhile, &mut Context<'_>) -> Option<Phase> + Send + 'static,
    ) -> Phase {
        let work = move || {
            let done = work();
            let then: Then = Box::new(move |meanwhile, context| then(done, meanwhile, context));
            then
        };
        let is_urgent = match &whose {
            Whose::Ours(_) => true,
            Whose::HalfOpenEntry(entry) => entry.is_proven(),
        };
        self.out.push(Action::Work(Job { session, is_urgent, work: Box::new(work) }));
        let (meanwhile, waiting) = (Meanwhile::default(), Vec::new());
        Phase::Working(Box::new(Working { whose, meanwhile, waiting }))
    }
}
