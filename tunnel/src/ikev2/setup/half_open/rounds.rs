//! Several rounds of authentication (RFC 4739): each has an IKE_AUTH of its own, and the first one asks for the Child SA.
//!
//! ```text
//! IDi AUTH SA TS ANOTHER_AUTH_FOLLOWS ──> <── IDr AUTH ANOTHER_AUTH_FOLLOWS
//! IDi AUTH                            ──> <── IDr AUTH SA TS
//! ```
//! Between two rounds the state is half open, and bounded like that of any other initiator.

use super::{Begun, HalfOpen, Refusal, Request, Step};
use crate::ikev2::auth::proof::Proof;
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Incoming;
use crate::ikev2::config::Connection;
use crate::ikev2::context::Context;
use crate::ikev2::identity;
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::keys::Role;
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Notify, Payload, Payloads};
use crate::ikev2::setup::shown::Shown;
use std::sync::Arc;

impl HalfOpen {
    /// The number of the current round, from 0.
    pub(super) fn round(&self) -> usize {
        self.begun.as_ref().map_or(0, |begun| begun.passed.next())
    }

    /// The connection of the rounds before, if the identities in this IKE_AUTH are those of the next round.
    pub(super) fn find_further(
        begun: &Begun,
        incoming: &Incoming,
        context: &Context<'_>,
    ) -> Result<(ConnectionId, Arc<Connection>), Box<Refusal>> {
        let first = &begun.first;
        let refuse = |cause| Box::new(first.refusal(cause));
        let round = first.config.round(begun.passed.next()).filter(|_| first.is_current(context));
        let round = round.ok_or_else(|| refuse(Cause::Reconfigured))?;
        let payloads = Payloads::parse(incoming.first, &incoming.chain).map_err(Refusal::malformed)?;
        if payloads.id_i.is_none() || payloads.auth.is_none() {
            return Err(refuse(Cause::MissingRound));
        }
        let asked = payloads.id_r.as_ref().map(identity::read);
        match asked {
            Some(asked) if asked.as_ref() != Some(round.local) => {
                let asked =
                    asked.map_or_else(|| "an unknown type of identity".to_owned(), |it| it.to_string());
                Err(refuse(Cause::OtherName { asked, ours: round.local.to_string() }))
            }
            _ => Ok((first.connection, Arc::clone(&first.config))),
        }
    }

    /// Whether the peer continues with another round exactly if there is one.
    pub(super) fn check_rounds(&self, request: &Request) -> Result<(), Box<Refusal>> {
        let incoming = &request.incoming;
        let payloads = Payloads::parse(incoming.first, &incoming.chain).map_err(Refusal::malformed)?;
        let is_last = request.config.round(self.round() + 1).is_none();
        match (payloads.notify(notify::ANOTHER_AUTH_FOLLOWS).is_some(), is_last) {
            (true, true) => Err(Box::new(request.refusal(Cause::ExtraRound))),
            (false, false) => Err(Box::new(request.refusal(Cause::MissingRound))),
            _ => Ok(()),
        }
    }

    /// Answers a round that another one follows.
    pub(super) fn answer_round(
        mut self,
        incoming: &Incoming,
        begun: Begun,
        (round, proof): (usize, &Proof),
        context: &mut Context<'_>,
    ) -> Step {
        // The first message is kept until the last round. Without room for it the initiator sends this one again.
        let is_first = round == 0;
        if is_first && incoming.chain.len() > context.room {
            return self.stay();
        }
        let shown = Shown::of(&begun.first.config, round, Role::Responder);
        let mut list = shown.with(proof);
        list.push(Payload::Notify(Notify::new(notify::ANOTHER_AUTH_FOLLOWS, &[])));
        let datagrams = self.channel.respond(incoming, &list, context.random);
        context.send(self.path, datagrams);
        // The revocation status of the next certificate may take as long.
        self.held_until = None;
        drop(list);
        drop(shown);
        self.begun = Some(begun);
        self.stay()
    }

    /// Reports a peer that has not authenticated in all rounds when the state expires.
    pub(super) fn report_missing_round(&self, context: &mut Context<'_>) {
        if let Some(begun) = self.begun.as_ref().filter(|_| !self.is_refused) {
            context.fail_sometimes(begun.first.connection, self.path, Cause::MissingRound);
        }
    }
}
