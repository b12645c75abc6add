//! Packets in a stream: a length of two bytes before each.

use std::ops::Range;

/// Bytes of the length.
pub const LENGTH: usize = 2;

/// A length of zero, or a larger one than packets have. The boundaries are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

/// The place of the packet whose length is at `start`; `None` if its end has not arrived.
pub fn next(stream: &[u8], start: usize, longest: usize) -> Result<Option<Range<usize>>, BadLength> {
    let Some(length) = stream[start..].first_chunk::<LENGTH>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*length));
    if length == 0 || length > longest {
        return Err(BadLength);
    }
    let packet = start + LENGTH..start + LENGTH + length;
    Ok((packet.end <= stream.len()).then_some(packet))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packets of a stream that arrives in pieces.
    fn split(stream: &[u8], pieces: usize, longest: usize) -> Result<Vec<Vec<u8>>, BadLength> {
        let (mut begun, mut all) = (Vec::<u8>::new(), Vec::new());
        for piece in stream.chunks(pieces) {
            begun.extend_from_slice(piece);
            let mut start = 0;
            while let Some(packet) = next(&begun, start, longest)? {
                start = packet.end;
                all.push(begun[packet].to_vec());
            }
            begun.drain(..start);
        }
        Ok(all)
    }

    #[test]
    fn packets_are_found_however_the_stream_is_cut() {
        let sent: [&[u8]; 3] = [b"a", &[7; 1500], b"last"];
        let framed = |packet: &&[u8]| [&(packet.len() as u16).to_be_bytes(), *packet].concat();
        let stream: Vec<u8> = sent.iter().flat_map(framed).collect();
        for pieces in [1, 2, 3, 1000, 5000] {
            let found = split(&stream, pieces, 1500).expect("no longer ones");
            assert_eq!(found, sent, "{pieces}");
        }
    }

    #[test]
    fn a_length_of_zero_and_one_that_is_too_large_are_refused() {
        for stream in [&[0, 0][..], &[0, 1, 9, 0, 0, 1], &[8, 1], &[0xff, 0xff, 1]] {
            assert_eq!(split(stream, 100, 2048), Err(BadLength), "{stream:?}");
        }
        assert_eq!(split(&[8, 0, 1], 100, 2048), Ok(Vec::new()), "its end has not arrived");
    }
}
