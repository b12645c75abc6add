//! Attempts that wait: a queue for each source, served in turn, so that a source with many attempts delays its own alone.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// Attempts of one source that wait.
const MOST_OF_SOURCE: usize = 64;
/// Attempts of all sources that wait. As many clients can wait for a decision.
const MOST: usize = 1024;

/// Too many attempts wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Attempts that wait.
pub(super) struct Queue<T> {
    by_source: BTreeMap<IpAddr, VecDeque<T>>,
    /// Sources with attempts, in the order in which they are served.
    turns: VecDeque<IpAddr>,
    count: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { by_source: BTreeMap::new(), turns: VecDeque::new(), count: 0 }
    }
}

impl<T> Queue<T> {
    pub(super) fn push(&mut self, address: IpAddr, attempt: T) -> Result<(), Full> {
        let source = source(address);
        let waiting = self.by_source.get(&source).map_or(0, VecDeque::len);
        if waiting >= MOST_OF_SOURCE || self.count >= MOST {
            return Err(Full);
        }
        if waiting == 0 {
            self.turns.push_back(source);
        }
        self.by_source.entry(source).or_default().push_back(attempt);
        self.count += 1;
        Ok(())
    }

    /// The oldest attempt of the source that is next.
    pub(super) fn pop(&mut self) -> Option<T> {
        let source = self.turns.pop_front()?;
        let own = self.by_source.get_mut(&source)?;
        let attempt = own.pop_front()?;
        self.count -= 1;
        if own.is_empty() {
            self.by_source.remove(&source);
        } else {
            self.turns.push_back(source);
        }
        Some(attempt)
    }
}

/// One host has a whole /64 of IPv6.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("literal")
    }

    #[test]
    fn a_source_with_many_attempts_does_not_delay_the_others() {
        let mut queue = Queue::default();
        let flood = address("192.0.2.1");
        for number in 0..MOST_OF_SOURCE {
            queue.push(flood, number).expect("room");
        }
        assert_eq!(queue.push(flood, 0), Err(Full));
        assert_eq!(queue.push(address("::ffff:192.0.2.1"), 0), Err(Full), "the same one");
        queue.push(address("2001:db8::1"), 1000).expect("another one");
        queue.push(address("2001:db8::2"), 1001).expect("of the same network");
        queue.push(address("2001:db8:0:1::2"), 1002).expect("another one");
        let first: Vec<usize> = std::iter::from_fn(|| queue.pop()).take(6).collect();
        assert_eq!(first, [0, 1000, 1002, 1, 1001, 2]);
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), MOST_OF_SOURCE - 3);
        assert!(queue.by_source.is_empty() && queue.turns.is_empty() && queue.count == 0);
    }

    #[test]
    fn all_sources_have_a_limit() {
        let mut queue = Queue::default();
        for number in 0..MOST {
            queue.push(IpAddr::from((number as u32).to_be_bytes()), number).expect("room");
        }
        assert_eq!(queue.push(address("192.0.2.1"), 0), Err(Full));
        queue.pop().expect("one");
        assert_eq!(queue.push(address("192.0.2.1"), 0), Ok(()));
    }
}
