//! Packets on TCP: a length of two bytes before each.

use tunnel::openvpn::packet::Malformed;

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
