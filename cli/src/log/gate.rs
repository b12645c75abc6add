//! The first filter of events: the level of their subsystem, or a trace of their peer; and a token bucket for each place in the program.

use super::event::Fields;
use gateway::log::limit::Limit;
use gateway::log::{is_on, may_be_traced};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines of one place in the program at once, and how often one more is allowed then. Messages about peers have limits of their own; this
/// one is for all others.
const AT_ONCE: u32 = 500;
const ONE_MORE: Duration = Duration::from_millis(20);

/// The layer that filters.
#[derive(Default)]
pub(crate) struct Gate(Mutex<HashMap<Identifier, Limit>>);

impl<S: Subscriber> Layer<S> for Gate {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // Levels change at any time.
        Interest::sometimes()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        is_on(metadata) || may_be_traced(metadata)
    }

    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let is_on = is_on(event.metadata());
        // Others of its subsystem must not use up what a traced peer may log.
        if !is_on && !Fields::of(event).is_traced(event) {
            return false;
        }
        let taken = {
            let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = || Limit::new(AT_ONCE, ONE_MORE);
            places.entry(event.metadata().callsite()).or_insert_with(fresh).take()
        };
        if let Some(left_out) = taken.filter(|left_out| is_on && *left_out > 0) {
            tracing::warn!("{left_out} lines like the next one were left out");
        }
        taken.is_some()
    }
}
