//! Keeps events in memory, for the API: those that are logged, and those that a trace wants.

use super::event::{Fields, level_name, line};
use gateway::log::kept::{self, keep};
use gateway::log::{Subsystem, is_on};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

pub(crate) struct Kept;

impl<S: Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (metadata, fields) = (event.metadata(), Fields::of(event));
        let is_on = is_on(metadata);
        if !is_on && !fields.is_traced(event) {
            return;
        }
        let text = line(*metadata.level(), &fields.message);
        keep(&kept::Event {
            text: &text,
            level: level_name(*metadata.level()),
            subsystem: Subsystem::of(metadata.target()),
            interface: fields.interface.as_deref(),
            peer: fields.peer.as_deref(),
            is_traced: !is_on,
        });
    }
}
