//! The layout of ESP packets, which is the same for all packets of an SA.

use super::parameters::Transform;
use crypto::cipher::Encryption;
use packet::DropReason;
use packet::header::esp::{ALIGNMENT, HEADER, TRAILER, padding};

/// The lengths of the parts of an ESP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the initialization vector.
    pub iv: usize,
    /// The block size of the cipher.
    cipher_block: usize,
    /// Bytes of the tag.
    pub tag: usize,
}

impl Layout {
    /// The layout of a transform.
    pub fn of(transform: Transform) -> Self {
        match transform {
            // RFC 4106, RFC 4309, RFC 7634: an explicit IV of 8 bytes.
            Transform::Aead(_, tag) => Self { iv: 8, cipher_block: 1, tag },
            Transform::Gmac(_) => Self { iv: 8, cipher_block: 1, tag: 16 },
            Transform::Null => Self { iv: 0, cipher_block: 1, tag: 0 },
            Transform::Pair(pair) => {
                let iv = match pair.encryption {
                    Encryption::Null => 0,
                    Encryption::AesCtr(_) => 8,
                    Encryption::AesCbc(_) | Encryption::TripleDesCbc => pair.encryption.block(),
                };
                Self { iv, cipher_block: pair.encryption.block(), tag: pair.integrity.tag_length() }
            }
        }
    }

    /// Bytes before the payload.
    #[inline]
    pub fn header(&self) -> usize {
        HEADER + self.iv
    }

    /// Bytes after `length` bytes of payload, without the tag.
    #[inline]
    pub fn trailer(&self, length: usize) -> usize {
        padding(length, self.block()) + TRAILER
    }

    /// Bytes of the packet with `length` bytes of payload.
    #[inline]
    pub fn sealed(&self, length: usize) -> usize {
        self.header() + length + self.trailer(length) + self.tag
    }

    /// The block size to which payload and trailer are padded.
    #[inline]
    fn block(&self) -> usize {
        self.cipher_block.max(ALIGNMENT)
    }

    /// The longest payload whose packet has at most `length` bytes.
    #[inline]
    pub fn largest(&self, length: usize) -> usize {
        let text = length.saturating_sub(self.header() + self.tag);
        // Blocks are powers of two; a division takes as long as the rest of a stage does for a packet.
        (text & !(self.block() - 1)).saturating_sub(TRAILER)
    }

    /// Whether a packet of `length` bytes can belong to this SA.
    ///
    /// Only the block size of the cipher is checked. Padding to four bytes is the sender's duty, and a packet without
    /// it is accepted.
    #[inline]
    pub fn check(&self, length: usize) -> Result<(), DropReason> {
        let text = length.checked_sub(self.header() + self.tag).ok_or(DropReason::TooShort)?;
        if text < TRAILER {
            return Err(DropReason::TooShort);
        }
        if text & (self.cipher_block - 1) == 0 { Ok(()) } else { Err(DropReason::BadPadding) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Cipher;
    use crypto::cipher::{Integrity, Pair};

    fn pair(encryption: Encryption, integrity: Integrity) -> Layout {
        Layout::of(Transform::Pair(Pair { encryption, integrity }))
    }

    #[test]
    fn ivs_and_tags_are_those_of_the_rfcs() {
        let lengths = |layout: Layout| (layout.iv, layout.tag);
        assert_eq!(lengths(Layout::of(Transform::Aead(Cipher::Aes128Gcm, 8))), (8, 8), "RFC 4106");
        assert_eq!(lengths(Layout::of(Transform::Gmac(Cipher::Aes128Gcm))), (8, 16), "RFC 4543");
        assert_eq!(lengths(pair(Encryption::AesCbc(16), Integrity::HmacSha256)), (16, 16), "RFC 3602");
        assert_eq!(lengths(pair(Encryption::TripleDesCbc, Integrity::HmacSha1)), (8, 12), "RFC 2451");
        assert_eq!(lengths(pair(Encryption::AesCtr(32), Integrity::HmacSha512)), (8, 32), "RFC 3686");
        assert_eq!(lengths(pair(Encryption::Null, Integrity::AesXcbc)), (0, 12), "RFC 2410");
    }

    #[test]
    fn the_largest_payload_fits_and_one_byte_more_does_not() {
        for layout in [
            Layout::of(Transform::Aead(Cipher::Aes256Gcm, 16)),
            pair(Encryption::AesCbc(32), Integrity::HmacSha1),
            pair(Encryption::TripleDesCbc, Integrity::HmacSha512),
            pair(Encryption::Null, Integrity::AesXcbc),
        ] {
            let whole = |payload| layout.sealed(payload);
            for room in 100..1600 {
                let largest = layout.largest(room);
                assert!(whole(largest) <= room && whole(largest + 1) > room, "{room}");
                assert_eq!(layout.check(whole(largest)), Ok(()));
            }
        }
    }

    #[test]
    fn what_is_too_short_or_no_whole_block_is_refused() {
        let layout = pair(Encryption::AesCbc(16), Integrity::HmacSha1);
        assert_eq!(layout.check(0), Err(DropReason::TooShort));
        assert_eq!(layout.check(8 + 16 + 12), Err(DropReason::TooShort), "no text");
        assert_eq!(layout.check(8 + 16 + 15 + 12), Err(DropReason::BadPadding));
        assert_eq!(layout.check(8 + 16 + 16 + 12), Ok(()));
    }
}
