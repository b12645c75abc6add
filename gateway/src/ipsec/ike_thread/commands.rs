//! Commands of the control thread.

use super::{Command, IkeThread};
use crate::ipsec::connections::Plan;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tunnel::ikev2::{ConnectionId, Outbox, Start};

impl IkeThread {
    pub(super) fn command(&mut self, command: Command) {
        // The receiver of a reply may have gone.
        match command {
            Command::Add(plans) => self.add(plans),
            Command::Remove(names) => {
                for name in &names {
                    self.remove(name);
                }
                self.children.store_policies();
            }
            Command::SetPatience(patience) => self.ike.set_patience(patience),
            Command::Settle(reply) => _ = reply.send(()),
            Command::Status(reply) => _ = reply.send(self.children.status(&self.ike.sessions())),
            Command::Reset(peer, tunnel, reply) => _ = reply.send(self.reset(&peer, tunnel)),
            Command::Link { up, mtu } => self.link(up, mtu),
            Command::Measure => self.children.measure_all(),
            Command::Stop => {}
        }
    }

    fn add(&mut self, plans: Vec<Plan>) {
        for plan in plans {
            let plan = match self.children.by_name(&plan.connection.name) {
                Some(id) if plan.keeps => match self.update(id, plan) {
                    Some(plan) => plan,
                    None => continue,
                },
                _ => plan,
            };
            self.remove(&plan.connection.name.clone());
            let id = self.ike.add_connection(self.shared.clock.now(), Arc::clone(&plan.connection));
            self.children.add(id, plan.connection, plan.names, plan.children);
        }
        self.children.store_policies();
    }

    /// Changes a connection without ending it; gives the plan back if that cannot be done now.
    fn update(&mut self, id: ConnectionId, plan: Plan) -> Option<Plan> {
        let Some(places) = self.children.places(id, &plan) else { return Some(plan) };
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        if !self.ike.update_connection(now, id, Arc::clone(&plan.connection), &places, &mut out) {
            return Some(plan);
        }
        // Removed tunnels are found by their old index.
        self.carry_out(out);
        for id in self.children.with_instances(id) {
            self.children.update(id, &plan, &places);
        }
        None
    }

    /// Initiates a connection that is configured to be initiated at once.
    fn begin(&mut self, id: ConnectionId, out: &mut Outbox) {
        let begins = self.children.settings(id).is_some_and(|settings| settings.start == Start::Initiate);
        if begins && let Err(error) = self.ike.initiate(self.shared.clock.now(), id, out) {
            tracing::warn!("peer {}: {error}", self.children.name(id));
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(id) = self.children.by_name(name) else { return };
        let mut out = Outbox::new();
        self.ike.remove_connection(self.shared.clock.now(), id, &mut out);
        self.carry_out(out);
        for id in self.children.with_instances(id) {
            self.children.remove(id);
        }
    }

    fn reset(&mut self, peer: &str, tunnel: Option<u32>) -> bool {
        let Some(id) = self.children.called(peer) else { return false };
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        let known = match tunnel {
            None => {
                self.ike.close(now, id, &mut out);
                self.begin(id, &mut out);
                true
            }
            Some(number) => self.children.by_tunnel(id, number).is_some_and(|child| {
                let ids = self.children.with_instances(id).into_iter();
                for spi in ids.flat_map(|id| self.children.spis(id, child)) {
                    self.ike.delete_child(now, spi, &mut out);
                }
                // A peer that may not be called initiates itself.
                let _ = self.ike.handle_traffic(now, id, child, &mut out);
                true
            }),
        };
        self.carry_out(out);
        known
    }

    fn link(&mut self, up: bool, mtu: usize) {
        self.shared.tables.mtu.store(mtu, Ordering::Relaxed);
        if up == self.running {
            return;
        }
        self.running = up;
        if !up {
            return self.close_all();
        }
        let mut out = Outbox::new();
        for id in self.children.connections() {
            self.begin(id, &mut out);
        }
        self.carry_out(out);
    }
}
