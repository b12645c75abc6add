//! Answers to local requests.

use super::Session;
use super::entry::{Procedure, Standing};
use crate::Time;
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Incoming;
use crate::ikev2::context::Context;
use crate::ikev2::event::CloseReason;
use crate::ikev2::limits::{TEMPORARY_FAILURE_APART, TEMPORARY_FAILURE_TIME};
use crate::ikev2::message::Payloads;
use crate::ikev2::message::numbers::notify;
use crypto::SecretBytes;
use crypto::exchange::ExchangeError;

impl Session {
    pub(super) fn handle_response(&mut self, spi: u64, incoming: &Incoming, context: &mut Context<'_>) {
        let Some(procedure) = self.ike_mut(spi).and_then(|ike| ike.procedure.take()) else { return };
        self.conclude(spi, procedure, (incoming, None), context);
    }

    /// Handles the answer to a local request: at first without a secret; once more if a job had to compute one.
    pub(super) fn conclude(
        &mut self,
        spi: u64,
        procedure: Procedure,
        (incoming, secret): (&Incoming, Option<Result<SecretBytes, ExchangeError>>),
        context: &mut Context<'_>,
    ) {
        let Ok(payloads) = Payloads::parse(incoming.first, &incoming.chain) else {
            self.release_procedure(procedure, context);
            self.over = Some(CloseReason::Misbehaved);
            return;
        };
        // Section 2.21.3: the peer could not parse the request, and has deleted its IKE SA.
        if payloads.error() == Some(notify::INVALID_SYNTAX) {
            self.release_procedure(procedure, context);
            self.report_failure(Cause::Notified(notify::name(notify::INVALID_SYNTAX)), context);
            return self.handle_ike_deleted(spi, context);
        }
        if self.is_put_off_for_ever(&procedure, &payloads, context.now) {
            self.release_procedure(procedure, context);
            return self.close(CloseReason::Misbehaved, context);
        }
        match procedure {
            // Section 2.25: the session is being closed, so other answers have no effect. A new IKE SA of the peer is
            // deleted too.
            Procedure::RekeyIke(rekeying) if self.closing.is_none() || payloads.error().is_none() => {
                self.finish_rekey(spi, rekeying, &payloads, (incoming, secret), context);
            }
            other if self.closing.is_some() && !matches!(other, Procedure::DeleteIke) => {
                self.release_procedure(other, context);
            }
            Procedure::CreateChild(request) => {
                self.finish_child(spi, request, &payloads, (incoming, secret), context);
            }
            Procedure::DeleteChild(child) => self.remove_child(child, context),
            Procedure::DeleteIke => self.finish_delete_ike(spi, context),
            // A rekeying that failed while the session is being closed is handled above.
            Procedure::RekeyIke(_) | Procedure::Liveness => {}
        }
    }

    /// Whether the peer has answered with TEMPORARY_FAILURE for too long (section 2.25).
    fn is_put_off_for_ever(&mut self, procedure: &Procedure, payloads: &Payloads<'_>, now: Time) -> bool {
        if !matches!(procedure, Procedure::CreateChild(_) | Procedure::RekeyIke(_)) {
            return false;
        }
        if payloads.error() != Some(notify::TEMPORARY_FAILURE) {
            self.put_off = None;
            return false;
        }
        // What was put off may have been done by the peer, and is not asked for again: then this is another failure.
        let since =
            self.put_off.filter(|(_, last)| now - *last < TEMPORARY_FAILURE_APART).map(|(since, _)| since);
        let since = since.unwrap_or(now);
        self.put_off = Some((since, now));
        now - since >= TEMPORARY_FAILURE_TIME
    }

    /// Handles an IKE SA in which the peer does not answer.
    pub(super) fn handle_dead(&mut self, spi: u64, context: &mut Context<'_>) {
        let Some(ike) = self.ike(spi) else { return };
        if ike.standing == Standing::Current {
            self.over = Some(self.closing.unwrap_or(CloseReason::Dead));
            return;
        }
        self.remove_ike(spi, context);
    }

    /// Releases the SPIs of a procedure that failed.
    pub(super) fn release_procedure(&mut self, procedure: Procedure, context: &mut Context<'_>) {
        match procedure {
            Procedure::CreateChild(request) => context.release_child_spi(request.spi),
            Procedure::RekeyIke(rekeying) => context.release_ike_spi(rekeying.spi),
            Procedure::DeleteChild(child) => self.remove_child(child, context),
            Procedure::DeleteIke | Procedure::Liveness => {}
        }
    }
}
