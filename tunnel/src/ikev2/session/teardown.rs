//! Deletion of Child SAs and of the IKE SA, on both sides (RFC 7296 sections 1.4.1 and 2.8).

use super::entry::{ChildStanding, IkeSa, Procedure, Standing};
use super::{Session, Task};
use crate::Time;
use crate::ikev2::action::Action;
use crate::ikev2::config::WhenLost;
use crate::ikev2::context::Context;
use crate::ikev2::event::CloseReason;
use crate::ikev2::limits::{CONTESTED_TIME, RECONNECT_DELAY, TEARDOWN_TRANSMISSIONS};
use crate::ikev2::message::{Delete, Exchange, Payload};

impl Session {
    /// Requests the deletion of a Child SA. Packets in flight are accepted until the answer arrives.
    pub(super) fn request_delete(&mut self, spi: u32, context: &mut Context<'_>) {
        let Some(entry) = self.child_mut(spi) else { return };
        entry.standing = ChildStanding::Deleting;
        (entry.rekey_at, entry.deadline) = (None, None);
        self.request_disown(spi, context);
    }

    /// Requests the deletion of a Child SA that is not installed here.
    pub(super) fn request_disown(&mut self, spi: u32, context: &mut Context<'_>) {
        let payloads = [Payload::Delete(Delete::Esp(vec![spi]))];
        self.send_request(Exchange::Informational, &payloads, Procedure::DeleteChild(spi), context);
    }

    pub(super) fn request_liveness(&mut self, context: &mut Context<'_>) {
        self.send_request(Exchange::Informational, &[], Procedure::Liveness, context);
        let dead = self.config.dead_peer_detection.map(|it| self.last_heard + it.timeout);
        let current = self.ikes.iter_mut().find(|ike| ike.standing == Standing::Current);
        if let Some((current, dead)) = current.zip(dead) {
            current.channel.give_up_at(dead);
        }
    }

    /// Checks whether the peer is alive, as another peer asks for its packets: a peer that does not answer soon, even
    /// to a pending request, or to one whose keys are being computed, is dead.
    pub(in crate::ikev2) fn prove_alive(&mut self, context: &mut Context<'_>) {
        if self.closing.is_some() || self.over.is_some() {
            return;
        }
        let is_busy = self.current().is_some_and(|ike| ike.channel.is_busy());
        if !is_busy {
            self.ask(Task::Liveness, context);
        }
        let until = context.now + CONTESTED_TIME;
        let current = self.ikes.iter_mut().find(|ike| ike.standing == Standing::Current);
        if let Some(current) = current {
            if is_busy {
                current.channel.hasten(context.now);
            }
            current.channel.give_up_at(until);
        }
    }

    /// Handles the deletion of the Child SAs with these outbound SPIs. Returns their inbound SPIs, for the answer.
    pub(super) fn handle_children_deleted(
        &mut self,
        outbound: &[u32],
        context: &mut Context<'_>,
    ) -> Vec<u32> {
        let mut ours = Vec::new();
        for spi in outbound {
            let Some(entry) = self.children.iter().find(|child| child.outbound == *spi) else {
                self.note_gone(*spi);
                continue;
            };
            let (inbound, child, standing) = (entry.inbound, entry.child, entry.standing);
            let since = entry.since;
            match standing {
                // Section 1.4.1: when two deletions cross, the answers do not contain the SPIs.
                ChildStanding::Deleting => {}
                ChildStanding::Replaced(by) => {
                    context.out.push(Action::Use { spi: by });
                    ours.push(inbound);
                }
                ChildStanding::Live => {
                    ours.push(inbound);
                    self.restart_child(child, since, context);
                }
            }
            self.remove_child(inbound, context);
        }
        ours
    }

    fn note_gone(&mut self, spi: u32) {
        for ike in &mut self.ikes {
            if let Some(Procedure::CreateChild(request)) = &mut ike.procedure {
                request.note_gone(spi);
            }
        }
    }

    /// Requests a child again whose SA was deleted without a replacement; `since` is when the SA was installed.
    pub(super) fn restart_child(&mut self, child: usize, since: Time, context: &mut Context<'_>) {
        // A Child SA that is deleted as soon as it is installed would be deleted again.
        let is_refused = context.now - since < RECONNECT_DELAY;
        if is_refused {
            self.refused.insert(child, context.now);
        }
        match self.config.when_lost {
            WhenLost::Clear => {}
            WhenLost::Restart if is_refused => {
                let at = context.after_about(RECONNECT_DELAY);
                self.delay(at, Task::Child(child));
            }
            WhenLost::Restart => self.enqueue(Task::Child(child)),
        }
    }

    /// Handles the deletion of the IKE SA that the request arrived in.
    pub(super) fn handle_ike_deleted(&mut self, spi: u64, context: &mut Context<'_>) {
        let was_current = self.ike(spi).is_some_and(|ike| ike.standing == Standing::Current);
        self.remove_ike(spi, context);
        if !was_current {
            return;
        }
        // Both sides were rekeying it, and the peer did not know of the local request.
        let candidate = self.ikes.iter_mut().find(|ike| ike.standing == Standing::Candidate);
        match candidate {
            Some(candidate) => candidate.standing = Standing::Current,
            None => self.over = Some(self.closing.unwrap_or(CloseReason::ByPeer)),
        }
    }

    /// Removes an IKE SA and its pending procedure.
    pub(super) fn remove_ike(&mut self, spi: u64, context: &mut Context<'_>) {
        let Some(place) = self.ikes.iter().position(|ike| ike.spi() == spi) else { return };
        let ike = self.ikes.remove(place);
        context.release_ike_spi(spi);
        if let Some(procedure) = ike.procedure {
            self.release_procedure(procedure, context);
        }
    }

    /// Closes the session: removes its Child SAs and tells the peer.
    pub(in crate::ikev2) fn close(&mut self, reason: CloseReason, context: &mut Context<'_>) {
        if self.is_closing() {
            return;
        }
        self.closing = Some(reason);
        self.clear_queue(context);
        self.delayed.clear();
        let mut unsent = Vec::new();
        for ike in &mut self.ikes {
            ike.channel.hurry(TEARDOWN_TRANSMISSIONS);
            // The peer has its new IKE SA already, which is deleted once its keys are known.
            let is_made = ike.is_agreeing() && matches!(ike.procedure, Some(Procedure::RekeyIke(_)));
            if !is_made && ike.making.take().is_some() {
                unsent.extend(ike.procedure.take());
            }
        }
        for procedure in unsent {
            self.release_procedure(procedure, context);
        }
        let children: Vec<u32> = self.children.iter().map(|child| child.inbound).collect();
        for spi in children {
            self.remove_child(spi, context);
        }
        self.pump(context);
    }

    /// Deletes an IKE SA.
    pub(super) fn request_delete_ike(&mut self, spi: u64, context: &mut Context<'_>) {
        let payloads = [Payload::Delete(Delete::Ike)];
        self.send_request_in(spi, Exchange::Informational, &payloads, Procedure::DeleteIke, context);
        if let Some(ike) = self.ike_mut(spi) {
            ike.channel.hurry(TEARDOWN_TRANSMISSIONS);
        }
    }

    /// Handles the answer to the Delete of an IKE SA.
    pub(super) fn finish_delete_ike(&mut self, spi: u64, context: &mut Context<'_>) {
        let was_current = self.ike(spi).is_some_and(|ike| ike.standing == Standing::Current);
        self.remove_ike(spi, context);
        if was_current {
            self.over = Some(self.closing.unwrap_or(CloseReason::Asked));
        }
    }

    /// Releases everything that the session holds.
    pub(in crate::ikev2) fn dismantle(mut self, context: &mut Context<'_>) {
        let ikes: Vec<u64> = self.ikes.iter().map(IkeSa::spi).collect();
        for spi in ikes {
            self.remove_ike(spi, context);
        }
        let children: Vec<u32> = self.children.iter().map(|child| child.inbound).collect();
        for spi in children {
            self.remove_child(spi, context);
        }
        self.clear_queue(context);
    }

    /// Clears the queue. SAs that were to be disowned are deleted with the IKE SA; only their SPIs are released.
    fn clear_queue(&mut self, context: &mut Context<'_>) {
        for task in std::mem::take(&mut self.queue) {
            if let Task::Disown(spi) = task {
                context.release_child_spi(spi);
            }
        }
    }
}
