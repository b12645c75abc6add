//! Replacement of the whole session: for reauthentication, or because the peer supports no rekeying (RFC 7296
//! sections 1.3, 2.8.3 and 4).

use super::Session;
use super::entry::Standing;
use crate::Time;
use crate::ikev2::cause::Cause;
use crate::ikev2::config::Start;
use crate::ikev2::context::Context;
use crate::ikev2::limits::REKEY_RETRY;
use crate::ikev2::message::numbers::notify;

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

    /// Starts the replacement of the session, if the local side initiates it. That is the initiator of this session,
    /// as only its initiation is sure to be possible. If the peer supports no rekeying, the responder may initiate
    /// too.
    pub(super) fn reauthenticate(&mut self) {
        let may_begin = self.config.remote.is_some() && self.config.start != Start::Respond;
        self.succession.is_due |= self.initiated || (self.succession.is_final && may_begin);
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
        for ike in self.ikes.iter_mut().filter(|ike| ike.standing == Standing::Current) {
            ike.rekey_at = Some(now + REKEY_RETRY);
        }
    }
}
