//! Packets on TCP: a length of two bytes before each.

use super::packet::Malformed;

/// Bytes of the length.
pub const LENGTH: usize = 2;
/// The longest packet accepted: the largest MTU of a tunnel, with the overhead of data packets.
pub const LONGEST: usize = 65_535;

/// Writes the length before a packet.
pub fn frame(packet: &[u8]) -> Result<Vec<u8>, Malformed> {
    let length = u16::try_from(packet.len()).map_err(|_| Malformed)?;
    if length == 0 {
        return Err(Malformed);
    }
    Ok([&length.to_be_bytes(), packet].concat())
}

/// Cuts a stream into packets. What it holds is bounded by one packet and what was received at once.
#[derive(Default)]
pub struct Deframer {
    bytes: Vec<u8>,
    /// Bytes at the start that the caller has taken as packets.
    consumed: usize,
}

impl Deframer {
    /// Takes received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet. After an error, the connection must end: the boundaries are lost.
    pub fn next_packet(&mut self, longest: usize) -> Result<Option<&[u8]>, Malformed> {
        let rest = &self.bytes[self.consumed..];
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*length));
        if length == 0 || length > longest {
            return Err(Malformed);
        }
        let Some(packet) = rest.get(..length) else { return Ok(None) };
        self.consumed += LENGTH + length;
        Ok(Some(packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_found_however_the_stream_is_cut() {
        let packets: [&[u8]; 3] = [b"a", &[7; 1500], b"last"];
        let stream: Vec<u8> = packets.iter().flat_map(|packet| frame(packet).expect("short")).collect();
        for size in [1, 2, 3, 1000, 5000] {
            let (mut deframer, mut found) = (Deframer::default(), Vec::new());
            for chunk in stream.chunks(size) {
                deframer.receive(chunk);
                while let Some(packet) = deframer.next_packet(LONGEST).expect("well-formed") {
                    found.push(packet.to_vec());
                }
            }
            assert_eq!(found, packets, "{size}");
        }
    }

    #[test]
    fn empty_and_long_packets_are_refused() {
        for start in [&[0, 0][..], &[8, 1], &[0xff, 0xff, 1]] {
            let mut deframer = Deframer::default();
            deframer.receive(start);
            assert_eq!(deframer.next_packet(2048), Err(Malformed));
        }
        assert_eq!(frame(&[]), Err(Malformed));
        assert_eq!(frame(&vec![0; 65_536]), Err(Malformed));
    }
}
