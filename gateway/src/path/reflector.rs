//! Answers STAMP probes of others, without state of any of them (RFC 8762 section 4.3).
//!
//! ```text
//! datagram ──> is it a probe? ──> rate, in total and of its source ──> reflect ──> back to its source, by the interface it came by
//! ```
//! An answer is as long as the probe. Two reflectors must not answer each other for ever, whatever ports they have. So what a
//! reflector has sent is not answered, which its bytes tell; nor is a datagram from a port of a service, or from our own port.

use super::thread::time;
use packet::header::stamp;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tunnel::bucket::{Bucket, aggregate};

/// Counters of sources, which several may share.
const SOURCES: usize = 1024;
/// Probes of one source a second.
const MOST_OF_SOURCE: u16 = 100;

/// Ports of services (RFC 6335 section 6), that of reflectors among them. Probes come from ephemeral ports.
const SERVICES: std::ops::Range<u16> = 0..1024;

/// What limits the answers.
pub(super) struct Reflector {
    total: Bucket,
    keys: RandomState,
    sources: Vec<u16>,
    second: u64,
    pub(super) counts: Counts,
}

/// What became of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) answered: u64,
    pub(super) malformed: u64,
    pub(super) limited: u64,
    pub(super) unsent: u64,
}

/// A datagram's arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) from: SocketAddr,
    /// The port that it was sent to.
    pub(super) port: u16,
    pub(super) ttl: u8,
    /// Since 1970.
    pub(super) wall: Duration,
    /// How long ago that was.
    pub(super) age: Duration,
}

impl Reflector {
    pub(super) fn new(rate: u32) -> Self {
        Self {
            total: bucket(rate),
            keys: RandomState::new(),
            sources: vec![0; SOURCES],
            second: 0,
            counts: Counts::default(),
        }
    }

    pub(super) fn set_rate(&mut self, rate: u32) {
        self.total = bucket(rate);
    }

    /// Makes the answer in the bytes of a datagram; whether there is one. `now` never goes back.
    pub(super) fn answer(&mut self, bytes: &mut [u8], arrival: &Arrival, now: Duration) -> bool {
        let port = arrival.from.port();
        let is_of_service = SERVICES.contains(&port) || port == arrival.port;
        if is_of_service || bytes.len() < stamp::LENGTH || stamp::is_reflected(bytes) {
            self.counts.malformed += 1;
            return false;
        }
        if !self.may_answer(arrival.from.ip(), now) {
            self.counts.limited += 1;
            return false;
        }
        let (received, sent) = (arrival.wall.saturating_sub(arrival.age), arrival.wall);
        let reflected = stamp::reflect(bytes, stamp::ntp(received), stamp::ntp(sent), arrival.ttl);
        // Both lengths are checked above.
        reflected.is_ok()
    }

    fn may_answer(&mut self, source: IpAddr, now: Duration) -> bool {
        if self.second != now.as_secs() {
            self.second = now.as_secs();
            self.sources.fill(0);
        }
        let place = self.keys.hash_one(aggregate(source)) as usize % SOURCES;
        let may = self.sources[place] < MOST_OF_SOURCE && self.total.take(time(now));
        self.sources[place] += u16::from(may);
        may
    }
}

/// So many answers a second, and a tenth of them at once.
fn bucket(rate: u32) -> Bucket {
    let interval = Duration::from_secs(1) / rate.max(1);
    Bucket::new((rate / 10).max(1), interval, time(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(from: &str) -> Arrival {
        let (from, wall) = (from.parse().expect("literal"), Duration::from_secs(1_700_000_000));
        Arrival { from, port: 862, ttl: 63, wall, age: Duration::from_millis(250) }
    }

    fn probe() -> Vec<u8> {
        let mut bytes = Vec::new();
        stamp::Probe::new(5, 6, 0).emit(stamp::LENGTH, &mut bytes);
        bytes
    }

    #[test]
    fn a_probe_is_answered_with_both_times() {
        let mut reflector = Reflector::new(10);
        let mut bytes = probe();
        assert!(reflector.answer(&mut bytes, &arrival("10.2.0.1:40000"), Duration::ZERO));
        let answer = stamp::Reflected::parse(&bytes).expect("one");
        assert_eq!(answer.timestamp.get() - answer.received.get(), 1 << 30, "a quarter of a second");
        assert_eq!(
            (answer.sender_sequence.get(), answer.sender_timestamp.get(), answer.sender_ttl),
            (5, 6, 63)
        );
    }

    #[test]
    fn garbage_and_what_another_reflector_sends_have_no_answer() {
        let mut reflector = Reflector::new(1000);
        for length in 0..stamp::LENGTH {
            let mut short = probe()[..length].to_vec();
            assert!(!reflector.answer(&mut short, &arrival("10.2.0.1:40000"), Duration::ZERO));
        }
        let of_reflector = Arrival { port: 8620, ..arrival("10.2.0.1:8620") };
        assert!(!reflector.answer(&mut probe(), &of_reflector, Duration::ZERO));
        assert!(!reflector.answer(&mut probe(), &arrival("10.2.0.1:862"), Duration::ZERO));
        assert!(!reflector.answer(&mut probe(), &arrival("10.2.0.1:7"), Duration::ZERO), "echo");
        assert!(!reflector.answer(&mut probe(), &arrival("10.2.0.1:1023"), Duration::ZERO));
        assert_eq!(reflector.counts, Counts { malformed: 48, ..Counts::default() });
        assert!(reflector.answer(&mut probe(), &arrival("10.2.0.1:1024"), Duration::ZERO));
    }

    #[test]
    fn two_reflectors_on_other_ports_do_not_answer_each_other() {
        let mut reflectors = [Reflector::new(1000), Reflector::new(1000)];
        let at = [
            Arrival { port: 8620, ..arrival("10.2.0.2:8621") },
            Arrival { port: 8621, ..arrival("10.2.0.1:8620") },
        ];
        // Who begins may have forged the source, and may set any bytes.
        for forged in [probe(), vec![0xff; stamp::LENGTH], vec![0; 100]] {
            let mut bytes = forged;
            assert!(reflectors[0].answer(&mut bytes, &at[0], Duration::from_secs(1)), "it may be a probe");
            let sent = bytes.clone();
            assert!(!reflectors[1].answer(&mut bytes, &at[1], Duration::from_secs(1)));
            assert_eq!(bytes, sent);
        }
        assert_eq!((reflectors[1].counts.malformed, reflectors[1].counts.answered), (3, 0));
    }

    #[test]
    fn answers_are_limited_in_total_and_for_a_source() {
        let mut reflector = Reflector::new(500);
        let mut answered = |source: u8, milliseconds: u64| {
            let from = arrival(&format!("10.2.0.{source}:40000"));
            reflector.answer(&mut probe(), &from, Duration::from_millis(milliseconds))
        };
        // A second, with a probe of one source each millisecond.
        let of_one = (0..1000).filter(|&at| answered(1, at)).count();
        assert_eq!(of_one, usize::from(MOST_OF_SOURCE));
        // The next second, with one of 250 sources each tenth of a millisecond.
        let of_many = (0..10_000u64).filter(|&at| answered((at % 250) as u8, 1000 + at / 10)).count();
        assert!((450..=551).contains(&of_many), "{of_many}");
        assert!(answered(1, 3000), "it goes on afterwards");
    }
}
