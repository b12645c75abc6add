//! How long an SA lasts, and the SAs of a pair made ready for the data path.

use super::parameters::ChildSa;
use super::protection::Protection;
use crate::replay;
use crate::sa::{InboundSa, Lifetime, OutboundSa, Volume};
use crate::{Time, esp::parameters::Half};
use crypto::Random;
use crypto::engine::{Engine, LoadError};
use std::time::Duration;

/// When something ends (RFC 4301 section 4.4.2.1); `None` for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// So long after the SA was made.
    pub time: Option<Duration>,
    /// After so many bytes of ESP packets.
    pub bytes: Option<u64>,
    /// After so many packets.
    pub packets: Option<u64>,
}

/// What is decided about an SA on our side alone.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When a new SA is asked for. Time is left to the key exchange if it has a timer of its own.
    pub soft: Limits,
    /// When the SA is used no more.
    pub hard: Limits,
    /// How many sequence numbers a late packet may be behind; 0 for no protection from replays.
    pub replay_window: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { soft: Limits::default(), hard: Limits::default(), replay_window: replay::ESP }
    }
}

impl ChildSa {
    /// Loads the keys of both directions.
    pub fn load(
        &self,
        options: &Options,
        engine: &dyn Engine,
        random: &mut dyn Random,
        now: Time,
    ) -> Result<(OutboundSa, InboundSa), LoadError> {
        let mut protection = |half: &Half| {
            Protection::new(self.transform, self.extended_sequence, self.mode, &half.keys, engine, random)
        };
        let lifetime = options.lifetime(self.extended_sequence, now);
        let outbound = OutboundSa::new(protection(&self.outbound)?, self.outbound.spi, lifetime)
            .with_volume(options.volume());
        let inbound = InboundSa::new(protection(&self.inbound)?, self.inbound.spi, lifetime, true)
            .with_volume(options.volume())
            .with_window(options.replay_window);
        Ok((outbound, inbound))
    }
}

impl Options {
    fn lifetime(&self, extended: bool, now: Time) -> Lifetime {
        // RFC 4303 section 3.3.3: a counter that would begin anew ends the SA.
        let numbers = if extended { u64::MAX } else { 1 << 32 };
        // The first packet has number 1.
        let end_sequence =
            self.hard.packets.map_or(numbers, |packets| numbers.min(packets.saturating_add(1)));
        // A sixteenth of the numbers is enough for any exchange of keys.
        let before_the_end = end_sequence - end_sequence / 16;
        Lifetime {
            renew: self.soft.time.map(|time| now + time),
            renew_sequence: self.soft.packets.map_or(before_the_end, |packets| packets.min(before_the_end)),
            expires: self.hard.time.map_or(Time::from_nanoseconds(u64::MAX), |time| now + time),
            end_sequence,
        }
    }

    fn volume(&self) -> Volume {
        Volume::new(self.soft.bytes.unwrap_or(u64::MAX), self.hard.bytes.unwrap_or(u64::MAX))
    }
}
