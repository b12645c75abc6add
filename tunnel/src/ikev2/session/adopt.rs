//! Configuration changes of an established session.

use super::entry::Procedure;
use super::{Session, Task};
use crate::ikev2::config::Connection;
use crate::ikev2::context::Context;
use std::collections::HashMap;
use std::sync::Arc;

impl Session {
    /// Whether a Child SA is being negotiated: its answer belongs to the configuration at the time of the request.
    pub(in crate::ikev2) fn is_making_child(&self) -> bool {
        self.ikes.iter().any(|ike| matches!(ike.procedure, Some(Procedure::CreateChild(_))))
    }

    /// Replaces the configuration of the session's connection; no Child SA may be in negotiation. `places` maps each
    /// old child to its new index; children without one are deleted.
    pub(in crate::ikev2) fn adopt(
        &mut self,
        config: Arc<Connection>,
        places: &[Option<usize>],
        context: &mut Context<'_>,
    ) {
        let place = |child: usize| places.get(child).copied().flatten();
        let gone = self.children.iter().filter(|child| place(child.child).is_none());
        for spi in gone.map(|child| child.inbound).collect::<Vec<u32>>() {
            self.remove_child(spi, context);
            self.enqueue(Task::Disown(spi));
        }
        for child in &mut self.children {
            child.child = place(child.child).unwrap_or(child.child);
        }
        let moved = |task: Task| match task {
            Task::Child(child) => place(child).map(Task::Child),
            task => Some(task),
        };
        self.queue = self.queue.drain(..).filter_map(moved).collect();
        self.delayed = self.delayed.drain(..).filter_map(|(at, task)| Some((at, moved(task)?))).collect();
        self.succession.missing = self.succession.missing.and_then(place);
        // The change may have removed the reason of a refusal.
        self.refused = HashMap::new();
        self.config = config;
        self.count_again(context);
        for child in &self.children {
            self.occupy(child.inbound, child.child, [&child.local, &child.remote], context);
        }
        self.pump(context);
    }
}
