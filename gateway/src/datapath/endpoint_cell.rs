//! The endpoint of a peer, which workers read for each SA batch and other threads change.
//!
//! A read copies seven words and is repeated by other means if a writer was at work (a sequence lock): it takes no atomic
//! read-modify-write, which with many peers would cost as much as sealing a small packet, and it never waits.

use arc_swap::ArcSwapOption;
use packet::packed_endpoint::WORDS;
use packet::{Endpoint, PackedEndpoint};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
        self.load_packed().map(|packed| packed.unpack())
    }

    /// The endpoint as words, if there is one.
    #[inline]
    pub fn load_packed(&self) -> Option<PackedEndpoint> {
        let words = self.read().unwrap_or_else(|| PackedEndpoint::words(self.load_whole().as_ref()));
        PackedEndpoint::from_words(words)
    }

    /// Whether this is the endpoint.
    #[inline]
    pub fn is(&self, endpoint: &Endpoint) -> bool {
        // In registers: a comparison of arrays is a call of memcmp, with both in memory.
        let same = |words: [u64; WORDS]| {
            words
                .iter()
                .zip(PackedEndpoint::words(Some(endpoint)))
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
        for (word, value) in self.words.iter().zip(PackedEndpoint::words(endpoint.as_ref())) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, SocketAddrV6};

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
