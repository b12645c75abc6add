//! The endpoint of a peer, which workers read for each SA batch and other threads change.
//!
//! A read copies seven words and is repeated by other means if a writer was at work (a sequence lock): it takes no atomic
//! read-modify-write, which with many peers would cost as much as sealing a small packet, and it never waits.

use arc_swap::ArcSwapOption;
use packet::Endpoint;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The words of an endpoint: family, flags and port; scope and flow; both addresses.
const WORDS: usize = 6;

/// An endpoint that may change at any time.
#[derive(Default)]
pub struct EndpointCell {
    /// Odd while a writer changes the words.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
    /// The same endpoint, for readers that meet a writer.
    whole: ArcSwapOption<Endpoint>,
    writing: Mutex<()>,
}

impl EndpointCell {
    /// The endpoint, if there is one.
    #[inline]
    pub fn load(&self) -> Option<Endpoint> {
        self.read().map_or_else(|| self.load_whole(), unpack)
    }

    /// Whether this is the endpoint.
    #[inline]
    pub fn is(&self, endpoint: &Endpoint) -> bool {
        // In registers: a comparison of arrays is a call of memcmp, with both in memory.
        let same = |words: [u64; WORDS]| {
            words
                .iter()
                .zip(pack(Some(endpoint)))
                .fold(0, |different, (word, other)| different | word ^ other)
                == 0
        };
        self.read().map_or_else(|| self.load_whole().as_ref() == Some(endpoint), same)
    }

    /// The words, unless a writer is at work.
    #[inline]
    fn read(&self) -> Option<[u64; WORDS]> {
        let before = self.version.load(Ordering::Acquire);
        let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        // The words are read before the version is read again.
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(words)
    }

    #[cold]
    fn load_whole(&self) -> Option<Endpoint> {
        self.whole.load().as_deref().copied()
    }

    /// Changes the endpoint.
    pub fn store(&self, endpoint: Option<Endpoint>) {
        self.write(endpoint, &self.lock());
    }

    /// Changes the endpoint if it is still `before`.
    pub fn replace(&self, before: &Endpoint, endpoint: Endpoint) {
        let writing = self.lock();
        if self.load_whole().as_ref() == Some(before) {
            self.write(Some(endpoint), &writing);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, endpoint: Option<Endpoint>, _writing: &MutexGuard<'_, ()>) {
        self.whole.store(endpoint.map(Arc::new));
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // No word changes before the version is odd.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(pack(endpoint.as_ref())) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }
}

/// Bits of the first word. The port is above them, the binding above the port.
const PRESENT: u64 = 1;
const REMOTE_V6: u64 = 2;
const LOCAL_V4: u64 = 4;
const LOCAL_V6: u64 = 8;
const TCP: u64 = 16;
const PORT: u32 = 16;
const BINDING: u32 = 32;

#[inline]
fn pack(endpoint: Option<&Endpoint>) -> [u64; WORDS] {
    let Some(&Endpoint { ref remote, local, is_tcp, binding }) = endpoint else { return [0; WORDS] };
    let mut first = PRESENT | u64::from(remote.port()) << PORT | u64::from(binding) << BINDING;
    let mut words = [0; WORDS];
    match remote {
        SocketAddr::V4(remote) => words[2] = remote.ip().to_bits().into(),
        SocketAddr::V6(remote) => {
            first |= REMOTE_V6;
            words[1] = u64::from(remote.flowinfo()) << 32 | u64::from(remote.scope_id());
            [words[2], words[3]] = halves(*remote.ip());
        }
    }
    match local {
        None => {}
        Some(IpAddr::V4(local)) => {
            first |= LOCAL_V4;
            words[4] = local.to_bits().into();
        }
        Some(IpAddr::V6(local)) => {
            first |= LOCAL_V6;
            [words[4], words[5]] = halves(local);
        }
    }
    words[0] = first | if is_tcp { TCP } else { 0 };
    words
}

#[inline]
fn unpack([first, scope, remote @ .., local_high, local_low]: [u64; WORDS]) -> Option<Endpoint> {
    if first & PRESENT == 0 {
        return None;
    }
    let port = (first >> PORT) as u16;
    let remote = if first & REMOTE_V6 == 0 {
        SocketAddrV4::new(Ipv4Addr::from_bits(remote[0] as u32), port).into()
    } else {
        SocketAddrV6::new(joined(remote), port, (scope >> 32) as u32, scope as u32).into()
    };
    let local = match first & (LOCAL_V4 | LOCAL_V6) {
        0 => None,
        LOCAL_V4 => Some(Ipv4Addr::from_bits(local_high as u32).into()),
        _ => Some(joined([local_high, local_low]).into()),
    };
    Some(Endpoint { remote, local, is_tcp: first & TCP != 0, binding: (first >> BINDING) as u8 })
}

#[inline]
fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

#[inline]
fn joined([high, low]: [u64; 2]) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints() -> Vec<Option<Endpoint>> {
        let remotes: [SocketAddr; 3] = [
            "192.0.2.1:65535".parse().expect("an address"),
            "[2001:db8::1]:1".parse().expect("an address"),
            SocketAddrV6::new("fe80::ffff:1".parse().expect("an address"), 4500, 0x000f_0001, 7).into(),
        ];
        let locals = [None, Some("198.51.100.255"), Some("2001:db8:ffff::2")];
        let mut all = vec![None];
        for remote in remotes {
            for local in locals.map(|local| local.map(|it| it.parse().expect("an address"))) {
                for (is_tcp, binding) in [(false, 0), (true, 3), (false, u8::MAX)] {
                    all.push(Some(Endpoint { remote, local, is_tcp, binding }));
                }
            }
        }
        all
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let cell = EndpointCell::default();
        assert_eq!(cell.load(), None);
        for endpoint in endpoints() {
            cell.store(endpoint);
            assert_eq!((cell.load(), cell.load_whole()), (endpoint, endpoint));
            for other in endpoints().iter().flatten() {
                assert_eq!(cell.is(other), endpoint.as_ref() == Some(other), "{endpoint:?} {other}");
            }
        }
    }

    #[test]
    fn an_endpoint_that_has_changed_is_not_replaced() {
        let cell = EndpointCell::default();
        let all: Vec<Endpoint> = endpoints().into_iter().flatten().collect();
        cell.replace(&all[0], all[1]);
        assert_eq!(cell.load(), None);
        cell.store(Some(all[0]));
        cell.replace(&all[1], all[2]);
        assert_eq!(cell.load(), Some(all[0]));
        cell.replace(&all[0], all[2]);
        assert_eq!(cell.load(), Some(all[2]));
    }

    #[test]
    fn no_reader_sees_parts_of_two_endpoints() {
        let (cell, all) = (EndpointCell::default(), endpoints());
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| (0..2000).for_each(|_| all.iter().for_each(|&it| cell.store(it)))))
                .collect();
            while writers.iter().any(|writer| !writer.is_finished()) {
                assert!(all.contains(&cell.load()));
            }
        });
    }
}
