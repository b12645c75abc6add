//! Replacement of the whole session: for reauthentication, or because the peer supports no rekeying (RFC 7296
//! sections 1.3, 2.8.3 and 4).
//!
//! ```text
//! 80 to 90 % of the lifetime   the initiator of the session begins
//! 3 to 8 % before the end      the responder begins, if it can, or some minutes before
//! 100 %                        whichever side reauthenticates closes the session
//! ```
//! The responder tells the initiator its lifetime (RFC 4478). Rekeying of the IKE SA makes no difference to these times: they count
//! from the authentication.

use super::Session;
use crate::Time;
use crate::ikev2::cause::Cause;
use crate::ikev2::config::Start;
use crate::ikev2::context::Context;
use crate::ikev2::limits::{REKEY_RETRY, SHORTEST_LIFETIME};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Notify, Payloads};
use std::time::Duration;

impl Session {
    /// Whether the replacement is due; returns true only once.
    pub(in crate::ikev2) fn wants_reauthentication(&mut self) -> bool {
        std::mem::take(&mut self.succession.is_due)
    }

    /// The children of the connection that the new session starts with.
    pub(in crate::ikev2) fn wanted_children(&self) -> Vec<usize> {
        let live = self.live_children();
        let missing = self.succession.missing.filter(|child| !live.contains(child));
        live.into_iter().chain(missing).collect()
    }

    /// Starts the replacement of the session, if the local side may initiate it. Of the initiator of this session, initiation is
    /// sure to be possible.
    pub(super) fn reauthenticate(&mut self) {
        let may_begin = self.config.remote.is_some() && self.config.start != Start::Respond;
        self.succession.is_due |= self.initiated || may_begin;
    }

    /// When the responder of this session begins its replacement: later than the initiator, so that there is one.
    pub(super) fn begin_later(&mut self, context: &mut Context<'_>) {
        if self.config.reauthenticate && !self.initiated {
            let at = context.late_rekey_time(self.config.lifetime);
            self.ikes.iter_mut().for_each(|ike| ike.rekey_at = Some(at));
        }
    }

    /// The configuration has changed: the times of a new lifetime count from the authentication too. If they have passed, the next one is
    /// due soon.
    pub(super) fn count_again(&mut self, context: &mut Context<'_>) {
        if !self.config.reauthenticate {
            return;
        }
        let lifetime = self.config.lifetime;
        let begins =
            if self.initiated { context.rekey_time(lifetime) } else { context.late_rekey_time(lifetime) };
        let (now, age) = (context.now, context.now - self.since);
        let left = |whole: Duration, least: Duration| now + whole.saturating_sub(age).max(least);
        let (begins, ends) =
            (left(begins - now, REKEY_RETRY), left(lifetime, REKEY_RETRY + SHORTEST_LIFETIME));
        for ike in &mut self.ikes {
            ike.rekey_at = ike.rekey_at.map(|rekey_at| rekey_at.min(begins));
            ike.expires = ike.expires.min(ends);
        }
    }

    /// What the initiator is told: the seconds until it must have authenticated again, in network byte order (RFC 4478 section 3).
    pub(in crate::ikev2) fn auth_lifetime(&self) -> Option<[u8; 4]> {
        let is_told = self.config.reauthenticate && !self.initiated;
        // One that lasts longer is unlimited.
        let seconds = i32::try_from(self.config.lifetime.as_secs()).ok().filter(|_| is_told);
        seconds.map(i32::to_be_bytes)
    }

    /// Notes until when the responder wants the local side to authenticate again, which must be the initiator. The time is at least
    /// [`SHORTEST_LIFETIME`]: each authentication has its price here, too.
    pub(super) fn note_auth_lifetime(&mut self, payloads: &Payloads<'_>, context: &mut Context<'_>) {
        let told =
            payloads.notify(notify::AUTH_LIFETIME).and_then(|Notify { data, .. }| (*data).try_into().ok());
        if let Some(seconds) = told.map(u32::from_be_bytes).filter(|_| self.initiated) {
            let lifetime = Duration::from_secs(seconds.into()).max(SHORTEST_LIFETIME);
            self.succession.at = Some(context.rekey_time(lifetime));
        }
    }

    /// Notes that the peer refuses all rekeying in this session: it may implement only the initial exchanges.
    pub(super) fn note_final(&mut self, context: &mut Context<'_>) {
        self.succession.is_final = true;
        self.reauthenticate();
        if !self.succession.is_due {
            self.report_failure(Cause::Notified(notify::name(notify::NO_ADDITIONAL_SAS)), context);
        }
    }

    /// The replacement failed: it is tried again later, if there is time.
    pub(in crate::ikev2) fn postpone_reauthentication(&mut self, now: Time) {
        self.succession.at = Some(now + REKEY_RETRY);
    }
}
