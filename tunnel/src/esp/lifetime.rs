//! Lifetimes of SAs, and loading of a Child SA for the data path.

use super::keys::SaKeys;
use super::parameters::{ChildSa, Transform};
use crate::replay;
use crate::sa::{InboundSa, Lifetime, OutboundSa, Volume};
use crate::{Time, esp::parameters::Half};
use crypto::Random;
use crypto::cipher::{Encryption, Pair};
use crypto::engine::{Engine, LoadError};
use std::time::Duration;

/// The limits of an SA (RFC 4301 section 4.4.2.1); `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The time since the SA was installed.
    pub time: Option<Duration>,
    /// Bytes of ESP packets.
    pub bytes: Option<u64>,
    /// The number of packets.
    pub packets: Option<u64>,
}

/// The local parameters of an SA, which are not negotiated.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The limits at which a new SA is requested. The time limit is unused if the key exchange has its own timer.
    pub soft: Limits,
    /// The limits at which the SA expires.
    pub hard: Limits,
    /// The size of the replay window in packets; 0 disables replay protection.
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
            SaKeys::new(self.transform, self.extended_sequence, self.mode, &half.keys, engine, random)
        };
        let lifetime = options.lifetime(self.extended_sequence, now);
        let outbound = OutboundSa::new(protection(&self.outbound)?, self.outbound.spi, lifetime)
            .with_volume(options.volume(self.transform));
        // The packet limit does not apply to inbound sequence numbers: the peer may skip numbers.
        let lifetime = Lifetime { end_sequence: numbers(self.extended_sequence), ..lifetime };
        let volume = options.volume(self.transform).with_packets(options.hard.packets.unwrap_or(u64::MAX));
        let inbound = InboundSa::new(protection(&self.inbound)?, self.inbound.spi, lifetime, true)
            .with_volume(volume)
            .with_window(options.replay_window);
        Ok((outbound, inbound))
    }
}

/// The end of the sequence numbers (RFC 4303 section 3.3.3): the counter must not wrap, so the SA ends before.
fn numbers(extended: bool) -> u64 {
    if extended { u64::MAX } else { 1 << 32 }
}

/// The default soft limit: the last sixteenth is time enough for any key exchange.
fn before(end: u64) -> u64 {
    end - end / 16
}

/// The data limit of a key. SWEET32: among 2^32 blocks of 64 bits, or 32 GiB, about two collide and leak plaintext;
/// one GiB keeps far from that.
fn most_bytes(transform: Transform) -> u64 {
    match transform {
        Transform::Pair(Pair { encryption: Encryption::TripleDesCbc, .. }) => 1 << 30,
        _ => u64::MAX,
    }
}

impl Options {
    fn lifetime(&self, extended: bool, now: Time) -> Lifetime {
        let numbers = numbers(extended);
        // The first packet has sequence number 1.
        let end_sequence =
            self.hard.packets.map_or(numbers, |packets| numbers.min(packets.saturating_add(1)));
        let latest = before(end_sequence);
        Lifetime {
            renew: self.soft.time.map(|time| now + time),
            renew_sequence: self.soft.packets.map_or(latest, |packets| packets.min(latest)),
            expires: self.hard.time.map_or(Time::from_nanoseconds(u64::MAX), |time| now + time),
            end_sequence,
        }
    }

    fn volume(&self, transform: Transform) -> Volume {
        let end = self.hard.bytes.unwrap_or(u64::MAX).min(most_bytes(transform));
        let renew = self.soft.bytes.filter(|renew| *renew < end).unwrap_or(before(end));
        Volume::new(renew, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::esp::Mode;
    use crypto::cipher::Integrity;
    use crypto::engine::aws_lc::AwsLc;
    use crypto::{Cipher, SecretBytes, random};
    use packet::DropReason;

    const NOW: Time = Time::from_nanoseconds(1);

    fn pair(hard: Limits) -> (OutboundSa, InboundSa) {
        pair_of(Transform::Aead(Cipher::Aes128Gcm, 16), hard)
    }

    fn pair_of(transform: Transform, hard: Limits) -> (OutboundSa, InboundSa) {
        let keys = || SecretBytes::new((0..transform.key_material_length()).map(|at| at as u8).collect());
        let half = || Half { spi: 9, keys: keys() };
        let child = ChildSa {
            transform,
            extended_sequence: false,
            mode: Mode::Tunnel,
            outbound: half(),
            inbound: half(),
            local: Vec::new(),
            remote: Vec::new(),
        };
        let options = Options { hard, ..Options::default() };
        child.load(&options, &AwsLc, &mut random::System::default(), NOW).expect("keys fit")
    }

    #[test]
    fn the_default_soft_limit_is_before_the_hard_limit() {
        let (outbound, inbound) = pair(Limits { bytes: Some(1600), packets: Some(160), time: None });
        outbound.spend(1, 1500).expect("they are left");
        assert!(!outbound.wants_renewal(NOW));
        outbound.spend(1, 1).expect("they are left");
        assert!(outbound.wants_renewal(NOW));
        inbound.spend(1, 1501);
        assert!(inbound.wants_renewal(NOW));
    }

    #[test]
    fn both_directions_end_with_their_packets() {
        let (outbound, inbound) = pair(Limits { packets: Some(10), ..Limits::default() });
        assert_eq!(outbound.assign(10, NOW), Ok(1..11));
        assert_eq!(outbound.assign(1, NOW), Err(DropReason::CounterExhausted));
        inbound.spend(9, 900);
        assert_eq!(inbound.check_age(NOW), Ok(()));
        inbound.spend(1, 100);
        assert_eq!(inbound.check_age(NOW), Err(DropReason::KeyExpired));
        assert_eq!(inbound.end_sequence(), 1 << 32, "late numbers are no fault of the sender");
    }

    #[test]
    fn a_cipher_with_short_blocks_ends_long_before_they_repeat() {
        let bytes = |encryption, bytes| {
            let transform = Transform::Pair(Pair { encryption, integrity: Integrity::HmacSha256 });
            let hard = Limits { bytes, ..Limits::default() };
            let (outbound, _) = pair_of(transform, hard);
            outbound.spend(1, (1 << 30) - 1).is_ok() && outbound.spend(1, 2).is_ok()
        };
        assert!(!bytes(Encryption::TripleDesCbc, None));
        assert!(!bytes(Encryption::TripleDesCbc, Some(1 << 40)));
        assert!(bytes(Encryption::AesCbc(16), None));
    }

    #[test]
    fn without_limits_only_the_numbers_end() {
        let (outbound, _) = pair(Limits::default());
        outbound.spend(1, usize::MAX / 2).expect("no limit");
        assert!(outbound.is_usable(Time::from_nanoseconds(u64::MAX - 1)));
    }
}
