//! Which events go on: those of a level that is logged, and those that a trace may want; and of those that repeat, a bounded number.

use super::event::Fields;
use gateway::log::{is_on, may_be_traced};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines of one place in the program at once, and how often one more is allowed then. Messages about peers have bounds of their own; this
/// one is for what nobody has thought of.
const AT_ONCE: u32 = 500;
const ONE_MORE: Duration = Duration::from_millis(20);

/// The layer that chooses.
#[derive(Default)]
pub(crate) struct Gate(Mutex<HashMap<Identifier, Allowance>>);

/// What one place may still log.
struct Allowance {
    left: u32,
    since: Instant,
    left_out: u64,
}

impl Allowance {
    /// Whether it may log now, and how many of its lines were left out before.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let more = now.saturating_duration_since(self.since).as_nanos() / ONE_MORE.as_nanos();
        if more > 0 {
            self.left = (u128::from(self.left) + more).min(u128::from(AT_ONCE)) as u32;
            self.since = now;
        }
        if self.left == 0 {
            self.left_out += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

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
            let now = Instant::now();
            let fresh = || Allowance { left: AT_ONCE, since: now, left_out: 0 };
            places.entry(event.metadata().callsite()).or_insert_with(fresh).take(now)
        };
        if let Some(left_out) = taken.filter(|left_out| is_on && *left_out > 0) {
            tracing::warn!("{left_out} lines like the next one were left out");
        }
        taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_repeats_is_bounded_and_says_how_much_was_left_out() {
        let begun = Instant::now();
        let mut place = Allowance { left: AT_ONCE, since: begun, left_out: 0 };
        assert!((0..AT_ONCE).all(|_| place.take(begun) == Some(0)));
        assert!((0..7).all(|_| place.take(begun).is_none()));
        assert_eq!(place.take(begun + ONE_MORE), Some(7));
        assert_eq!(place.take(begun + ONE_MORE), None);
        let later = begun + Duration::from_secs(3600);
        assert_eq!(place.take(later), Some(1));
        assert_eq!(
            (1..AT_ONCE).filter(|_| place.take(later).is_some()).count(),
            AT_ONCE as usize - 1,
            "no more than at first"
        );
        assert_eq!(place.take(later), None);
    }
}
