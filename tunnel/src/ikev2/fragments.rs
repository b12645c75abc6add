//! Reassembly of fragmented messages (RFC 7383 section 2.6).
//!
//! Only authenticated fragments are stored, so that only the peer can occupy memory, at most one message of bounded
//! size. Before IKE_AUTH the peer can be any host: the [`HalfOpenTable`](super::endpoint) bounds the memory of all of
//! them together.

use super::limits::{FRAGMENTS, REASSEMBLED};

/// The message that is being reassembled.
#[derive(Default)]
pub(super) struct Reassembly {
    message_id: u32,
    first: u8,
    pieces: Vec<Option<Vec<u8>>>,
}

/// One decrypted fragment.
pub(super) struct Fragment {
    pub(super) message_id: u32,
    pub(super) number: u16,
    pub(super) total: u16,
    /// The type of the first payload; only that of the first fragment counts.
    pub(super) first: u8,
    pub(super) bytes: Vec<u8>,
}

impl Reassembly {
    /// Adds a fragment; returns the type of the first payload and the chain of payloads once all are there.
    pub(super) fn add(&mut self, fragment: Fragment) -> Option<(u8, Vec<u8>)> {
        let total = usize::from(fragment.total);
        if fragment.total > FRAGMENTS || fragment.number == 0 || fragment.number > fragment.total {
            return None;
        }
        // A sender that learns of a smaller MTU splits the message into more fragments, which replace the earlier
        // ones. Fewer fragments are older ones.
        if fragment.message_id != self.message_id || total > self.pieces.len() {
            *self = Self { message_id: fragment.message_id, first: 0, pieces: vec![None; total] };
        } else if total < self.pieces.len() {
            return None;
        }
        if fragment.number == 1 {
            self.first = fragment.first;
        }
        if self.held() + fragment.bytes.len() > REASSEMBLED {
            self.clear();
            return None;
        }
        let place = self.pieces.get_mut(usize::from(fragment.number) - 1)?;
        place.get_or_insert(fragment.bytes);
        self.finish()
    }

    fn finish(&mut self) -> Option<(u8, Vec<u8>)> {
        if self.pieces.iter().any(Option::is_none) {
            return None;
        }
        let chain = self.pieces.drain(..).flatten().collect::<Vec<_>>().concat();
        let first = self.first;
        self.clear();
        Some((first, chain))
    }

    /// Bytes held.
    pub(super) fn held(&self) -> usize {
        self.pieces.iter().flatten().map(Vec::len).sum()
    }

    /// Drops all fragments.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(message_id: u32, number: u16, total: u16, bytes: &[u8]) -> Fragment {
        Fragment { message_id, number, total, first: if number == 1 { 35 } else { 0 }, bytes: bytes.to_vec() }
    }

    #[test]
    fn fragments_are_put_together_in_any_order() {
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.add(fragment(1, 3, 3, b"c")), None);
        assert_eq!(reassembly.add(fragment(1, 1, 3, b"a")), None);
        assert_eq!(reassembly.add(fragment(1, 1, 3, b"again")), None, "only the first copy counts");
        assert_eq!(reassembly.add(fragment(1, 2, 3, b"b")), Some((35, b"abc".to_vec())));
        assert_eq!(reassembly.add(fragment(1, 2, 3, b"b")), None, "reassembly restarts");
    }

    /// CVE-2026-12413: gaps, changes of the total, numbers beyond it.
    #[test]
    fn the_total_may_only_grow() {
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.add(fragment(1, 1, 2, b"a")), None);
        assert_eq!(reassembly.add(fragment(1, 1, 3, b"x")), None, "smaller fragments restart reassembly");
        assert_eq!(reassembly.add(fragment(1, 2, 2, b"b")), None, "an old piece");
        assert_eq!(reassembly.add(fragment(1, 4, 3, b"d")), None);
        assert_eq!(reassembly.add(fragment(1, 0, 3, b"d")), None);
        assert_eq!(reassembly.add(fragment(1, 2, 3, b"y")), None);
        assert_eq!(reassembly.add(fragment(1, 3, 3, b"z")), Some((35, b"xyz".to_vec())));
    }

    #[test]
    fn one_message_is_held_and_it_is_bounded() {
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.add(fragment(1, 1, FRAGMENTS + 1, b"a")), None);
        assert_eq!(reassembly.pieces.len(), 0);
        reassembly.add(fragment(1, 1, 2, b"a"));
        reassembly.add(fragment(2, 1, 2, b"x"));
        assert_eq!(reassembly.add(fragment(1, 2, 2, b"b")), None, "message 1 was forgotten");
        let large = vec![0; REASSEMBLED / 2];
        for number in 1..=3 {
            reassembly.add(fragment(3, number, 4, &large));
        }
        assert_eq!(reassembly.pieces.len(), 0, "given up");
    }
}
