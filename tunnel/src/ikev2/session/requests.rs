//! Requests of the peer.

use super::Session;
use super::entry::{Procedure, Standing};
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Incoming;
use crate::ikev2::context::Context;
use crate::ikev2::event::CloseReason;
use crate::ikev2::job::Exchanged;
use crate::ikev2::message::numbers::{notify, protocol};
use crate::ikev2::message::{Delete, Exchange, Notify, ParseError, Payload, Payloads};
use crate::ikev2::nat::Path;
use crypto::exchange::ExchangeError;

/// A request that is being handled.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The local SPI of the IKE SA that it arrived in.
    pub(super) spi: u64,
    pub(super) incoming: &'a Incoming,
    /// The path of the answer.
    pub(super) path: Path,
    /// The output of its key exchange, once the job has finished.
    pub(super) exchanged: Option<Result<&'a Exchanged, ExchangeError>>,
}

impl Session {
    pub(super) fn handle_request(&mut self, asked: Asked<'_>, context: &mut Context<'_>) {
        let incoming = asked.incoming;
        let payloads = match Payloads::parse(incoming.first, &incoming.chain) {
            Ok(payloads) => payloads,
            // Section 2.5: the request fails, the SA does not.
            Err(ParseError::UnsupportedCritical(kind)) => {
                return self.refuse(asked, notify::UNSUPPORTED_CRITICAL_PAYLOAD, &[kind], context);
            }
            Err(_) => return self.refuse_for_good(asked, context),
        };
        match incoming.exchange {
            Exchange::CreateChildSa => self.handle_create_child(asked, &payloads, context),
            Exchange::Informational => self.handle_informational(asked, &payloads, context),
            // The exchange type is unknown, or not valid after authentication.
            Exchange::IkeSaInit | Exchange::IkeAuth | Exchange::Other(_) => {
                self.refuse_for_good(asked, context);
            }
        }
    }

    /// Answers with a notification.
    pub(super) fn refuse(&mut self, asked: Asked<'_>, kind: u16, data: &[u8], context: &mut Context<'_>) {
        let payloads = [Payload::Notify(Notify::new(kind, data))];
        self.respond(asked.spi, asked.incoming, asked.path, &payloads, context);
    }

    /// Refuses a malformed request and deletes the IKE SA (section 2.21.3).
    pub(super) fn refuse_for_good(&mut self, asked: Asked<'_>, context: &mut Context<'_>) {
        self.refuse(asked, notify::INVALID_SYNTAX, &[], context);
        self.over = Some(CloseReason::Misbehaved);
    }

    fn handle_create_child(&mut self, asked: Asked<'_>, payloads: &Payloads<'_>, context: &mut Context<'_>) {
        let (Some(proposals), Some(nonce)) = (&payloads.sa, payloads.nonce) else {
            return self.refuse_for_good(asked, context);
        };
        // Section 2.25: no new SAs are created in an IKE SA that is being deleted.
        let is_current = self.ike(asked.spi).is_some_and(|ike| ike.standing == Standing::Current);
        if !is_current || self.closing.is_some() {
            return self.refuse(asked, notify::TEMPORARY_FAILURE, &[], context);
        }
        if proposals.first().is_some_and(|proposal| proposal.protocol == protocol::IKE) {
            return self.answer_rekey(asked, payloads, proposals, nonce, context);
        }
        // Section 2.25.2: while the IKE SA is being rekeyed, the Child SA would belong to neither for sure.
        if matches!(self.procedure(asked.spi), Some(Procedure::RekeyIke(_))) {
            return self.refuse(asked, notify::TEMPORARY_FAILURE, &[], context);
        }
        match payloads.notify(notify::REKEY_SA) {
            Some(Notify { spi: Some((protocol::ESP, spi)), .. }) => {
                self.answer_rekey_child(asked, payloads, *spi, context);
            }
            Some(_) => self.refuse(asked, notify::CHILD_SA_NOT_FOUND, &[], context),
            None => self.answer_child(asked, payloads, context),
        }
    }

    pub(super) fn procedure(&self, spi: u64) -> Option<&Procedure> {
        self.ike(spi).and_then(|ike| ike.procedure.as_ref())
    }

    fn handle_informational(&mut self, asked: Asked<'_>, payloads: &Payloads<'_>, context: &mut Context<'_>) {
        let failure = match payloads.error() {
            // Section 2.21.2: the initiator rejects our authentication in this way.
            Some(notify::AUTHENTICATION_FAILED) => Some(Cause::Refused),
            // Section 2.21.3: the peer could not parse a message, and has deleted its IKE SA.
            Some(kind @ notify::INVALID_SYNTAX) => Some(Cause::Notified(notify::name(kind))),
            _ => None,
        };
        self.note_auth_lifetime(payloads, context);
        let is_given_up = failure.is_some();
        if let Some(cause) = failure {
            self.report_refusal(cause, context);
        }
        if payloads.deletes.contains(&Delete::Ike) {
            self.respond(asked.spi, asked.incoming, asked.path, &[], context);
            return self.handle_ike_deleted(asked.spi, context);
        }
        let deleted: Vec<u32> = payloads
            .deletes
            .iter()
            .flat_map(|delete| match delete {
                Delete::Esp(spis) => &spis[..],
                Delete::Ah(_) | Delete::Ike => &[],
            })
            .copied()
            .collect();
        let ours = self.handle_children_deleted(&deleted, context);
        let answer = [Payload::Delete(Delete::Esp(ours.clone()))];
        let answer = if ours.is_empty() { &[][..] } else { &answer[..] };
        self.respond(asked.spi, asked.incoming, asked.path, answer, context);
        if is_given_up {
            self.over = Some(CloseReason::ByPeer);
        }
    }
}
