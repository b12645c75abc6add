//! The state of an IKE SA, and which state follows which.

use crate::Time;
use crate::ikev2::context::Context;
use crate::ikev2::event::CloseReason;
use crate::ikev2::half_open_table::HalfOpenEntry;
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::inbound::Inbound;
use crate::ikev2::job::Output;
use crate::ikev2::nat::Path;
use crate::ikev2::session::Session;
use crate::ikev2::setup::agreeing::{self, Agreeing};
use crate::ikev2::setup::authenticating::{self, Authenticating};
use crate::ikev2::setup::half_open::{self, HalfOpen};
use crate::ikev2::setup::initiating::{self, Initiating};
use crate::ikev2::setup::responder::Answering;
use std::collections::VecDeque;

/// See the module documentation.
pub(super) enum Phase {
    Initiating(Box<Initiating>),
    Agreeing(Box<Agreeing>),
    Authenticating(Box<Authenticating>),
    Answering(Box<Answering>),
    HalfOpen(Box<HalfOpen>),
    Established(Box<Session>),
}

impl Phase {
    pub(super) fn handle(self, spi: u64, inbound: &Inbound<'_>, context: &mut Context<'_>) -> Option<Self> {
        match self {
            Self::Initiating(state) => Self::initiating(state.handle(inbound, context), context),
            Self::Agreeing(mut state) => {
                state.handle(inbound);
                Some(Self::Agreeing(state))
            }
            Self::Authenticating(state) => Self::authenticating(state.handle(inbound, context), context),
            other @ Self::Answering(_) => Some(other),
            Self::HalfOpen(state) => Self::half_open(state.handle(inbound, context)),
            Self::Established(mut session) => {
                session.handle(spi, inbound, context);
                Some(Self::Established(session))
            }
        }
    }

    /// Handles the output of the job with this number.
    pub(super) fn handle_finished(
        self,
        number: u64,
        output: Output,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        match self {
            Self::Initiating(state) => {
                Self::initiating(state.handle_finished(number, output, context), context)
            }
            Self::Agreeing(state) => Self::agreeing(state.handle_finished(number, output, context), context),
            Self::Authenticating(state) => {
                Self::authenticating(state.handle_finished(number, output, context), context)
            }
            Self::Answering(state) => state.handle_finished(output, context).map(Self::HalfOpen),
            Self::HalfOpen(state) => Self::half_open(state.handle_finished(number, output, context)),
            Self::Established(mut session) => {
                session.handle_finished(number, output, context);
                Some(Self::Established(session))
            }
        }
    }

    pub(super) fn handle_timeout(self, context: &mut Context<'_>) -> Option<Self> {
        match self {
            Self::Initiating(state) => Self::initiating(state.handle_timeout(context), context),
            Self::Authenticating(state) => Self::authenticating(state.handle_timeout(context), context),
            other @ (Self::Agreeing(_) | Self::Answering(_)) => Some(other),
            Self::HalfOpen(state) => Self::half_open(state.handle_timeout(context)),
            Self::Established(mut session) => {
                session.handle_timeout(context);
                Some(Self::Established(session))
            }
        }
    }

    /// Ends the set-up or the session.
    pub(super) fn close(self, reason: CloseReason, context: &mut Context<'_>) -> Option<Self> {
        match self {
            Self::Established(mut session) => {
                session.close(reason, context);
                Some(Self::Established(session))
            }
            Self::Initiating(mut state) => {
                state.release(context);
                None
            }
            Self::Agreeing(mut state) => {
                state.release(context);
                None
            }
            // The peer may have created a session already: it is told when its answer arrives.
            Self::Authenticating(mut state) => {
                state.abandon();
                Some(Self::Authenticating(state))
            }
            other @ (Self::Answering(_) | Self::HalfOpen(_)) => Some(other),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Initiating(state) => state.next_timeout(),
            Self::Authenticating(state) => state.next_timeout(),
            Self::Agreeing(_) | Self::Answering(_) => None,
            Self::HalfOpen(state) => state.next_timeout(),
            Self::Established(session) => session.next_timeout(),
        }
    }

    /// The connection, if it is known.
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::Initiating(state) => Some(state.connection()),
            Self::Agreeing(state) => Some(state.connection()),
            Self::Authenticating(state) => Some(state.connection()),
            Self::Answering(_) | Self::HalfOpen(_) => None,
            Self::Established(session) => Some(session.connection()),
        }
    }

    /// Whether the phase counts as an attempt or session of its connection; one that is being closed does not.
    pub(super) fn counts(&self) -> bool {
        match self {
            Self::Established(session) => !session.is_closing(),
            Self::Answering(_) | Self::HalfOpen(_) => false,
            Self::Initiating(_) | Self::Agreeing(_) => true,
            Self::Authenticating(state) => !state.is_abandoned(),
        }
    }

    /// Whether it was closed, and the peer can be told only after an answer to an earlier request.
    pub(super) fn owes_delete(&self) -> bool {
        match self {
            Self::Established(session) => session.owes_delete(),
            other => other.is_abandoned(),
        }
    }

    /// Whether the set-up was abandoned.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self, Self::Authenticating(state) if state.is_abandoned())
    }

    /// The half-open entry, if the peer is an unauthenticated initiator.
    pub(super) fn entry(&self) -> Option<HalfOpenEntry> {
        match self {
            Self::HalfOpen(state) => Some(state.entry()),
            Self::Answering(state) => Some(state.entry()),
            _ => None,
        }
    }

    /// The messages that arrived while a job was running.
    pub(super) fn take_waiting(&mut self) -> Vec<(Path, Vec<u8>)> {
        match self {
            Self::Initiating(state) => state.take_waiting(),
            Self::Agreeing(state) => state.take_waiting(),
            Self::Authenticating(state) => state.take_waiting(),
            Self::Answering(_) | Self::HalfOpen(_) | Self::Established(_) => Vec::new(),
        }
    }

    fn initiating(step: initiating::Step, context: &mut Context<'_>) -> Option<Self> {
        match step {
            initiating::Step::Wait(state) => Some(Self::Initiating(state)),
            initiating::Step::Answered(first, answer) => {
                Self::agreeing(Agreeing::begin(*first, answer, VecDeque::new(), context), context)
            }
            initiating::Step::End => None,
        }
    }

    fn agreeing(step: agreeing::Step, context: &mut Context<'_>) -> Option<Self> {
        match step {
            agreeing::Step::Wait(state) => Some(Self::Agreeing(state)),
            agreeing::Step::Agreed(agreed) => {
                Some(Self::Authenticating(Authenticating::begin(*agreed, context)))
            }
            agreeing::Step::Initiating(first) => Some(Self::Initiating(first)),
            agreeing::Step::End => None,
        }
    }

    fn authenticating(step: authenticating::Step, context: &mut Context<'_>) -> Option<Self> {
        match step {
            authenticating::Step::Wait(state) => Some(Self::Authenticating(state)),
            authenticating::Step::Next(first, answer, others) => {
                Self::agreeing(Agreeing::begin(*first, answer, others, context), context)
            }
            authenticating::Step::Over(step) => Self::initiating(step, context),
            authenticating::Step::Established(session) => Some(Self::Established(session)),
        }
    }

    fn half_open(step: half_open::Step) -> Option<Self> {
        match step {
            half_open::Step::Wait(state) => Some(Self::HalfOpen(state)),
            half_open::Step::Established(session) => Some(Self::Established(session)),
            half_open::Step::End => None,
        }
    }
}
