//! A session in the place of this one: to show anew who both sides are, or because in this one nothing is replaced
//! (RFC 7296 sections 1.3, 2.8.3 and 4).

use super::Session;
use super::entry::Standing;
use crate::Time;
use crate::ikev2::action::Cause;
use crate::ikev2::config::Start;
use crate::ikev2::context::Context;
use crate::ikev2::limits::REKEY_RETRY;
use crate::ikev2::message::numbers::notify;

/// Whether another session is to take the place of this one, and why.
#[derive(Default)]
pub(super) struct Succession {
    /// It is time for it, and ours to begin.
    is_due: bool,
    /// The other side replaces nothing in this one.
    pub(super) is_final: bool,
    /// A child that it does not make in this one either, although there is no other.
    pub(super) missing: Option<usize>,
}

impl Session {
    /// Whether it is time for a new session in place of this one; true only once.
    pub(in crate::ikev2) fn wants_reauthentication(&mut self) -> bool {
        std::mem::take(&mut self.succession.is_due)
    }

    /// Which children of the connection it begins with.
    pub(in crate::ikev2) fn wanted_children(&self) -> Vec<usize> {
        let live = self.live_children();
        let missing = self.succession.missing.filter(|child| !live.contains(child));
        live.into_iter().chain(missing).collect()
    }

    /// A new session is to take the place of this one, if it is ours to begin. Who did not begin this one leaves that to
    /// the other side, as only that one is sure to be able to; but not to one that replaces nothing.
    pub(super) fn begin_anew(&mut self) {
        let may_begin = self.config.remote.is_some() && self.config.start != Start::Respond;
        self.succession.is_due |= self.initiated || (self.succession.is_final && may_begin);
    }

    /// The other side has said that it replaces nothing in this session: it may be one that knows no more than the first
    /// exchanges.
    pub(super) fn note_final(&mut self, context: &mut Context<'_>) {
        self.succession.is_final = true;
        self.begin_anew();
        if !self.succession.is_due {
            self.report_failure(Cause::Notified(notify::name(notify::NO_ADDITIONAL_SAS)), context);
        }
    }

    /// The session that was to take the place of this one came to nothing: another is begun later, if there is time.
    pub(in crate::ikev2) fn postpone_reauthentication(&mut self, now: Time) {
        for ike in self.ikes.iter_mut().filter(|ike| ike.standing == Standing::Current) {
            ike.rekey_at = Some(now + REKEY_RETRY);
        }
    }
}
