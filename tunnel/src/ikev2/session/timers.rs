//! Timers of a session.

use super::entry::{ChildStanding, IkeSa, Standing};
use super::{Session, Task};
use crate::Time;
use crate::ikev2::action::Action;
use crate::ikev2::context::Context;
use crate::ikev2::event::CloseReason;
use crate::ikev2::limits::{NAT_KEEPALIVE, SILENCE_TIME};
use crate::ikev2::retransmission::Overdue;

impl Session {
    /// When [`Session::handle_timeout`] has something to do.
    pub(in crate::ikev2) fn next_timeout(&self) -> Option<Time> {
        let ikes = self.ikes.iter().flat_map(|ike| {
            let is_current = ike.standing == Standing::Current;
            let expires = is_current.then_some(ike.expires).filter(|_| self.closing.is_none());
            [ike.channel.next_timeout(), ike.deadline, expires, ike.rekey_at.filter(|_| is_current)]
        });
        let children = self.children.iter().flat_map(|child| {
            let expires = (child.standing != ChildStanding::Deleting).then_some(child.expires);
            [child.rekey_at, child.deadline, expires]
        });
        let delayed = self.delayed.iter().map(|(at, _)| Some(*at));
        let keepalive = self.nat.local.then_some(self.next_keepalive);
        let times =
            ikes.chain(children).chain(delayed).chain([keepalive, self.liveness_due(), self.succession.at]);
        times.flatten().min()
    }

    /// When a liveness check is due, unless another request is pending.
    fn liveness_due(&self) -> Option<Time> {
        let is_idle = self.closing.is_none() && self.current().is_some_and(|ike| !ike.is_busy());
        let by_detection = self.config.dead_peer_detection.map(|it| self.last_heard + it.interval);
        // Section 2.4 requires this check even if dead peer detection is not configured.
        let unanswered = self.unanswered.map(|since| since + SILENCE_TIME);
        by_detection.into_iter().chain(unanswered).min().filter(|_| is_idle)
    }

    pub(in crate::ikev2) fn handle_timeout(&mut self, context: &mut Context<'_>) {
        self.send_again(context);
        self.look_at_ikes(context);
        self.look_at_children(context);
        let now = context.now;
        let mut due = Vec::new();
        self.delayed.retain(|(at, task)| {
            let is_due = *at <= now;
            if is_due {
                due.push(*task);
            }
            !is_due
        });
        for task in due {
            self.enqueue(task);
        }
        if self.liveness_due().is_some_and(|at| at <= now) && self.queue.is_empty() {
            self.enqueue(Task::Liveness);
        }
        if self.nat.local && self.next_keepalive <= now {
            self.next_keepalive = now + NAT_KEEPALIVE;
            context.out.push(Action::KeepNat { path: self.path });
        }
        self.pump(context);
    }

    fn send_again(&mut self, context: &mut Context<'_>) {
        let spis: Vec<u64> = self.ikes.iter().map(IkeSa::spi).collect();
        for spi in spis {
            let path = self.path;
            match self.ike_mut(spi).and_then(|ike| ike.channel.handle_timeout(context.now)) {
                Some(Overdue::Again(datagrams)) => context.send(path, datagrams),
                Some(Overdue::Dead) => self.handle_dead(spi, context),
                None => {}
            }
        }
    }

    fn look_at_ikes(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let mut overdue = Vec::new();
        let (mut is_old, mut is_expired) = (false, false);
        for ike in &mut self.ikes {
            if ike.deadline.is_some_and(|at| at <= now) {
                ike.deadline = None;
                ike.standing = Standing::Closing;
                overdue.push((ike.spi(), ike.is_busy()));
            }
            if ike.standing == Standing::Current {
                is_old |= ike.rekey_at.take_if(|at| *at <= now).is_some();
                is_expired |= ike.expires <= now;
            }
        }
        for (spi, is_busy) in overdue {
            if is_busy {
                self.remove_ike(spi, context);
            } else {
                self.request_delete_ike(spi, context);
            }
        }
        if is_expired {
            self.close(CloseReason::Expired, context);
        } else if is_old && self.config.reauthenticate {
            self.reauthenticate();
        } else if is_old {
            self.enqueue(Task::RekeyIke);
        }
        if self.succession.at.take_if(|at| *at <= now).is_some() && self.closing.is_none() {
            self.reauthenticate();
        }
    }

    fn look_at_children(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let mut tasks = Vec::new();
        if self.succession.is_final && self.children.iter().any(|child| child.expires <= now) {
            // No other IKE SA can replace this one.
            return self.close(CloseReason::Expired, context);
        }
        for child in &mut self.children {
            let is_deleting = child.standing == ChildStanding::Deleting;
            if child.rekey_at.take_if(|at| *at <= now).is_some() {
                tasks.push(Task::RekeyChild(child.inbound));
            }
            let is_overdue = child.deadline.take_if(|at| *at <= now).is_some();
            if !is_deleting && (is_overdue || child.expires <= now) {
                // It is marked now, so that the deletion is not queued a second time.
                child.standing = ChildStanding::Deleting;
                tasks.push(Task::DeleteChild(child.inbound));
                if !is_overdue {
                    tasks.push(Task::Child(child.child));
                }
            }
        }
        for task in tasks {
            self.enqueue(task);
        }
    }
}
