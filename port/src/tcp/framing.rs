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

/// The shortest first packet of a client in OpenVPN: opcode, session ID, no acknowledgments, packet ID.
const SHORTEST_FIRST: usize = 14;
/// The opcodes of such a packet, with key 0: a reset of version 2 or 3.
const FIRST: [u8; 2] = [7 << 3, 10 << 3];

/// Whether a stream that a client of OpenVPN opens cannot begin so. `longest` is the limit of its first packet.
pub fn is_foreign(stream: &[u8], longest: usize) -> bool {
    match *stream {
        [] => false,
        [high] => usize::from(high) > longest >> 8,
        [high, low, ref rest @ ..] => {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let fits = (SHORTEST_FIRST..=longest).contains(&length);
            !fits || rest.first().is_some_and(|opcode| !FIRST.contains(opcode))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_clients_and_others_are_told_from_clients_of_openvpn_by_three_bytes() {
        let first = [0, 14, 0x38, 1, 2, 3];
        let with_key = [1, 0x36, 0x50, 1, 2, 3];
        for stream in [first, with_key] {
            assert!((0..stream.len()).all(|length| !is_foreign(&stream[..length], 2048)), "{stream:?}");
        }
        // HTTP, TLS, SSH; a length that no first packet has, and a packet of data.
        let others: [&[u8]; 6] = [b"G", b"\x16", b"SSH", &[0, 13], &[8, 1], &[0, 60, 0x48]];
        for stream in others {
            assert!(is_foreign(stream, 2048), "{stream:?}");
        }
    }

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
