//! The initiator's state while it makes keys with the sender of one answer to IKE_SA_INIT.

use super::initiating::{Answer, Answered, Initiating};
use crate::ikev2::auth::proof::Proof;
use crate::ikev2::cause::Cause;
use crate::ikev2::context::Context;
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::inbound::Inbound;
use crate::ikev2::job::{Output, Work};
use crate::ikev2::nat::Path;
use crypto::SecretBytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// See the module documentation.
pub(crate) struct Agreeing {
    first: Initiating,
    /// Other answers to the first message.
    others: VecDeque<Answer>,
    /// The number of the job.
    job: u64,
    stage: Stage,
}

/// The output that the state waits for.
enum Stage {
    /// The secret shared with the sender of this answer.
    Secret(Answer),
    /// The local proof.
    Proof(Box<Answered>),
}

/// Everything that IKE_AUTH needs.
pub(crate) struct Agreed {
    pub(super) first: Initiating,
    pub(super) answered: Answered,
    /// The local proof.
    pub(super) proof: Proof,
    /// Other answers to the first message.
    pub(super) others: VecDeque<Answer>,
}

/// What follows an event.
pub(crate) enum Step {
    /// A job is running.
    Wait(Box<Agreeing>),
    /// IKE_AUTH can be sent.
    Agreed(Box<Agreed>),
    /// No answer was usable: the genuine one is awaited.
    Initiating(Box<Initiating>),
    /// The set-up has ended.
    End,
}

impl Agreeing {
    /// Makes keys with the sender of one answer; `others` are the further answers.
    pub(crate) fn begin(
        first: Initiating,
        answer: Answer,
        others: VecDeque<Answer>,
        context: &mut Context<'_>,
    ) -> Step {
        let Some(work) = first.agree(&answer) else { return Step::Initiating(Box::new(first)) };
        let job = context.start(first.id, true, work);
        Step::Wait(Box::new(Self { first, others, job, stage: Stage::Secret(answer) }))
    }

    pub(crate) fn connection(&self) -> ConnectionId {
        self.first.connection()
    }

    /// Releases the SPIs of a set-up that ends.
    pub(crate) fn release(&mut self, context: &mut Context<'_>) {
        self.first.release(context);
    }

    /// Adds one more child.
    pub(crate) fn want(&mut self, child: usize) {
        self.first.want(child);
    }

    /// Keeps a message until the job has finished.
    pub(crate) fn handle(&mut self, inbound: &Inbound<'_>) {
        self.first.waiting.push(inbound);
    }

    /// The messages received while a job was running.
    pub(crate) fn take_waiting(&mut self) -> Vec<(Path, Vec<u8>)> {
        self.first.take_waiting()
    }

    /// Handles the output of a job.
    pub(crate) fn handle_finished(self, number: u64, output: Output, context: &mut Context<'_>) -> Step {
        if number != self.job {
            return Step::Wait(Box::new(self));
        }
        let Self { first, others, stage, .. } = self;
        match (stage, output) {
            (Stage::Secret(answer), Output::Agreed(Ok(secret))) => {
                Self::sign(first, answer, others, &secret, context)
            }
            (Stage::Proof(answered), Output::Signed(proof)) => {
                Self::finish(first, *answered, others, proof, context)
            }
            _ => {
                let cause = Cause::Misbehaved("its public value is not one of the group");
                Self::pass_over(first, others, cause, context)
            }
        }
    }

    /// Derives the keys, and computes the local proof for the sender of the answer.
    fn sign(
        first: Initiating,
        answer: Answer,
        others: VecDeque<Answer>,
        secret: &SecretBytes,
        context: &mut Context<'_>,
    ) -> Step {
        let answered = first.derive(answer, secret);
        let (init, config) = (Arc::clone(&answered.init), Arc::clone(&first.wanted.config));
        let is_long = config.authentication.takes_long();
        let work = Work::Sign { init, config, round: 0, theirs: None, wall: context.wall };
        if is_long {
            let job = context.start(first.id, true, work);
            return Step::Wait(Box::new(Self {
                first,
                others,
                job,
                stage: Stage::Proof(Box::new(answered)),
            }));
        }
        match work.run() {
            Output::Signed(proof) => Self::finish(first, answered, others, proof, context),
            _ => Step::Initiating(Box::new(first)),
        }
    }

    fn finish(
        mut first: Initiating,
        answered: Answered,
        others: VecDeque<Answer>,
        proof: Result<Proof, Cause>,
        context: &mut Context<'_>,
    ) -> Step {
        match proof {
            Ok(proof) => Step::Agreed(Box::new(Agreed { first, answered, proof, others })),
            Err(cause) => {
                context.fail(first.connection(), first.path(), cause);
                first.release(context);
                Step::End
            }
        }
    }

    /// Handles an unusable answer: the next one is tried, or the genuine one is awaited.
    fn pass_over(
        mut first: Initiating,
        mut others: VecDeque<Answer>,
        cause: Cause,
        context: &mut Context<'_>,
    ) -> Step {
        match others.pop_front() {
            Some(answer) => {
                first.note_doubt(cause);
                Self::begin(first, answer, others, context)
            }
            None => Step::Initiating(Box::new(first.doubted(cause))),
        }
    }
}
