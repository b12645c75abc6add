//! The memory of fragments: chunks of one size, in lists. It is allocated once; the system gives its pages when they are first used.

/// Bytes of a chunk: a fragment of an Ethernet frame has one.
pub const CHUNK: usize = 2048;
/// The end of a list.
const END: u32 = u32::MAX;

/// A list of chunks.
#[derive(Debug, PartialEq, Eq)]
pub struct List(u32);

/// All chunks.
pub struct Chunks {
    bytes: Box<[u8]>,
    /// For each chunk, the one behind it in its list.
    next: Vec<u32>,
    free: u32,
    left: usize,
}

impl Chunks {
    /// So many free chunks.
    pub fn new(count: usize) -> Self {
        let behind = |index: usize| if index + 1 < count { index as u32 + 1 } else { END };
        Self {
            bytes: vec![0; count * CHUNK].into_boxed_slice(),
            next: (0..count).map(behind).collect(),
            free: if count > 0 { 0 } else { END },
            left: count,
        }
    }

    /// How many chunks so many bytes take.
    pub fn needed(length: usize) -> usize {
        length.div_ceil(CHUNK)
    }

    /// How many are free.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Keeps bytes, those of both parts in turn; none if there are not enough chunks.
    pub fn keep(&mut self, parts: [&[u8]; 2]) -> Option<List> {
        let needed = Self::needed(parts[0].len() + parts[1].len());
        if needed == 0 || needed > self.left {
            return None;
        }
        let list = List(self.free);
        let (mut last, mut at) = (self.free, 0);
        for mut part in parts {
            while !part.is_empty() {
                if at == CHUNK {
                    (last, at) = (self.next[last as usize], 0);
                }
                let (now, rest) = part.split_at(part.len().min(CHUNK - at));
                self.bytes[last as usize * CHUNK + at..][..now.len()].copy_from_slice(now);
                (part, at) = (rest, at + now.len());
            }
        }
        self.free = std::mem::replace(&mut self.next[last as usize], END);
        self.left -= needed;
        Some(list)
    }

    /// The first `length` bytes of a list, in parts.
    fn parts(&self, list: &List, length: usize) -> impl Iterator<Item = &[u8]> {
        let (mut index, mut left) = (list.0, length);
        std::iter::from_fn(move || {
            if left == 0 || index == END {
                return None;
            }
            let part = &self.bytes[index as usize * CHUNK..][..left.min(CHUNK)];
            (index, left) = (self.next[index as usize], left - part.len());
            Some(part)
        })
    }

    /// Copies the first bytes of a list.
    pub fn read(&self, list: &List, mut to: &mut [u8]) {
        for part in self.parts(list, to.len()) {
            let (now, rest) = to.split_at_mut(part.len());
            now.copy_from_slice(part);
            to = rest;
        }
    }

    /// Whether the bytes of a list behind the first `skip` are these.
    pub fn holds(&self, list: &List, skip: usize, mut bytes: &[u8]) -> bool {
        let mut skip = skip;
        for part in self.parts(list, skip + bytes.len()) {
            let part = &part[skip.min(part.len())..];
            skip = skip.saturating_sub(CHUNK);
            let (now, rest) = bytes.split_at(part.len());
            if now != part {
                return false;
            }
            bytes = rest;
        }
        bytes.is_empty()
    }

    /// Frees a list.
    pub fn free(&mut self, list: List) {
        let (mut last, mut count) = (list.0, 1);
        while self.next[last as usize] != END {
            last = self.next[last as usize];
            count += 1;
        }
        self.next[last as usize] = self.free;
        self.free = list.0;
        self.left += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_in_as_many_chunks_as_they_need() {
        let mut chunks = Chunks::new(4);
        let long: Vec<u8> = (0..=2 * CHUNK).map(|at| (at / 7) as u8).collect();
        for cut in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, long.len()] {
            let first = chunks.keep([&long[..cut], &long[cut..]]).expect("there are three");
            let second = chunks.keep([b"short", b""]).expect("there is one");
            assert_eq!((chunks.left(), chunks.keep([b"x", b""])), (0, None));
            let mut read = vec![0; long.len()];
            chunks.read(&first, &mut read);
            assert_eq!(read, long);
            for skip in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK] {
                assert!(chunks.holds(&first, skip, &long[skip..]), "{skip}");
                let mut other = long[skip..].to_vec();
                *other.last_mut().expect("it is not empty") ^= 1;
                assert!(!chunks.holds(&first, skip, &other), "{skip}");
            }
            assert!(chunks.holds(&second, 2, b"ort") && !chunks.holds(&second, 0, &long));
            chunks.free(first);
            assert_eq!(chunks.left(), 3);
            chunks.free(second);
        }
        assert_eq!((chunks.left(), Chunks::new(0).keep([b"x", b""])), (4, None));
    }
}
