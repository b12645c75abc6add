//! Work that no message waits for: key exchanges and signatures, of which unauthenticated sources can ask for many.
//!
//! ```text
//! state ──compute──> Job ──run, wherever there is time──> Finished ──handle_finished──> next state
//! ```
//! The state moves into its job, and [`Working`] stands in its place until the job is done.

use super::action::{Action, SessionId};
use super::config::ConnectionId;
use super::context::Context;
use super::endpoint::{HalfOpenEntry, Phase};
use super::limits::{WAITING_BYTES, WAITING_MESSAGES};
use super::nat::Path;
use std::fmt;

/// The next state, made of what was computed.
type Then = Box<dyn FnOnce(Meanwhile, &mut Context<'_>) -> Option<Phase> + Send>;

/// Work to be done on whatever thread has the time.
pub struct Job {
    session: SessionId,
    is_urgent: bool,
    work: Box<dyn FnOnce() -> Then + Send>,
}

/// A job that is done; it goes back with [`Endpoint::handle_finished`](super::Endpoint::handle_finished).
pub struct Finished {
    pub(super) session: SessionId,
    pub(super) then: Then,
}

impl Job {
    /// Whether it goes before others: it is for a session that we began, or for somebody who is where it says that it is.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Does it, which takes from tens of microseconds to tens of milliseconds.
    pub fn run(self) -> Finished {
        Finished { session: self.session, then: (self.work)() }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({:?})", self.session)
    }
}

/// What was asked of a state while it was away.
#[derive(Default)]
pub(super) struct Meanwhile {
    /// Children that are wanted as well.
    pub(super) children: Vec<usize>,
    /// Whether nobody wants it any more.
    pub(super) is_abandoned: bool,
}

/// Whose state is away.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    /// One of a connection that we have begun.
    Ours(ConnectionId),
    /// One of somebody who has yet to show who it is.
    HalfOpenEntry(HalfOpenEntry),
}

/// Stands for a state that has moved into its job.
pub(super) struct Working {
    pub(super) whose: Whose,
    pub(super) meanwhile: Meanwhile,
    /// Messages that came meanwhile.
    waiting: Vec<(Path, Vec<u8>)>,
}

impl Working {
    /// Keeps a message until the state is back: after a forged answer the true one comes, and it comes once. An entry asks
    /// again.
    pub(super) fn wait(&mut self, path: Path, message: &[u8]) {
        let is_ours = matches!(self.whose, Whose::Ours(_));
        let is_there = self.waiting.iter().any(|(_, waiting)| waiting == message);
        if is_ours && !is_there && self.waiting.len() < WAITING_MESSAGES && message.len() <= WAITING_BYTES {
            self.waiting.push((path, message.to_vec()));
        }
    }

    /// Wants one more child.
    pub(super) fn want(&mut self, child: usize) {
        self.meanwhile.children.push(child);
    }

    /// The messages that came meanwhile.
    pub(super) fn take_waiting(&mut self) -> Vec<(Path, Vec<u8>)> {
        std::mem::take(&mut self.waiting)
    }
}

impl Context<'_> {
    /// As [`compute`](Self::compute), but work that is not long is done at once.
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

    /// Leaves work to others; `then` makes the next state of what comes of it.
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
