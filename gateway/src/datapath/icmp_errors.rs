//! ICMP errors for the inside, rate-limited.

use packet::header::icmp::{self, IcmpError};
use packet::header::ip::IpPacket;
use std::time::Duration;
use tunnel::Time;

/// RFC 4443 section 2.4(f) and RFC 1812 section 4.3.2.8 require a rate limit for ICMP errors, such as a token bucket.
/// Rate and burst are the former defaults of Linux for all ICMP messages (icmp_msgs_per_sec, icmp_msgs_burst). A
/// burst of path MTU discoveries is answered in full, and errors for a scan of an empty network cost less than
/// forwarding it would.
const INTERVAL: Duration = Duration::from_millis(1);
const AT_ONCE: u32 = 50;

/// The errors of one burst, and a token bucket of time: [`INTERVAL`] buys one error.
pub struct IcmpErrors {
    credit: Duration,
    last: Time,
    errors: Vec<Vec<u8>>,
}

impl Default for IcmpErrors {
    fn default() -> Self {
        Self { credit: INTERVAL * AT_ONCE, ..Self::none() }
    }
}

impl IcmpErrors {
    /// Sends no errors: for packets whose sender must not get one.
    pub fn none() -> Self {
        Self { credit: Duration::ZERO, last: Time::from_nanoseconds(0), errors: Vec::new() }
    }

    /// Starts a burst.
    pub fn begin(&mut self, now: Time) {
        self.credit = (self.credit + (now - self.last)).min(INTERVAL * AT_ONCE);
        self.last = now;
    }

    /// Adds the error for a packet, if one may be sent.
    #[cold]
    pub fn add(&mut self, packet: &IpPacket<'_>, error: IcmpError) {
        if self.credit < INTERVAL {
            return;
        }
        if let Some(error) = icmp::answer(packet, error) {
            self.credit -= INTERVAL;
            self.errors.push(error);
        }
    }

    /// Whether there are no errors to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Removes the errors, for sending.
    pub fn take(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.errors.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet to somewhere, as far as ICMP looks.
    const PACKET: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];

    fn add(errors: &mut IcmpErrors, packet: &[u8], wanted: usize) -> usize {
        let packet = IpPacket::parse(packet).expect("well-formed");
        (0..wanted).for_each(|_| errors.add(&packet, IcmpError::HostUnreachable));
        errors.take().count()
    }

    #[test]
    fn fifty_errors_are_made_at_once_and_a_thousand_a_second() {
        let mut errors = IcmpErrors::default();
        let mut at = |milliseconds: u64, wanted| {
            errors.begin(Time::from_nanoseconds(1 + milliseconds * 1_000_000));
            add(&mut errors, &PACKET, wanted)
        };
        assert_eq!([at(0, 20), at(0, 100), at(0, 1)], [20, 30, 0]);
        assert_eq!([at(3, 1), at(3, 100)], [1, 2]);
        assert_eq!(at(60_000, 1000), 50, "credit does not grow for ever");
        assert_eq!((60_001..61_001).map(|now| at(now, 7)).sum::<usize>(), 1000);
    }

    #[test]
    fn a_packet_that_is_answered_with_no_error_costs_no_credit() {
        let mut errors = IcmpErrors::default();
        let mut to_all = PACKET;
        to_all[16..].fill(255);
        assert_eq!(add(&mut errors, &to_all, 1000), 0);
        assert_eq!(add(&mut errors, &PACKET, 1000), 50);
        assert_eq!(add(&mut IcmpErrors::none(), &PACKET, 1), 0);
    }
}
