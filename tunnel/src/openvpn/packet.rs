//! Control packets: the leading byte, and the body that follows the wrap.
//!
//! ```text
//! leading byte   opcode << 3 | key ID
//! plain packet   leading byte | session ID 8 | body
//! body           n 1 | n times message ID 4 | peer's session ID 8, if n > 0 | message ID 4, if not ACK | payload
//! ```
//! A [`wrap`](super::wrap) puts its fields between session ID and body, and may encrypt the body.

use super::limits::MAX_ACKS;
use arrayvec::ArrayVec;
use crypto::Random;

/// The type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// P_CONTROL_SOFT_RESET_V1: begins a negotiation of new keys.
    SoftReset,
    /// P_CONTROL_V1: bytes of TLS.
    Control,
    /// P_ACK_V1: acknowledgments only.
    Ack,
    /// P_DATA_V1: data without a peer ID.
    DataV1,
    /// P_CONTROL_HARD_RESET_CLIENT_V2: begins a session.
    ClientResetV2,
    /// P_CONTROL_HARD_RESET_SERVER_V2: the server's answer.
    ServerReset,
    /// P_DATA_V2: data with a peer ID.
    DataV2,
    /// P_CONTROL_HARD_RESET_CLIENT_V3: begins a session; the client's wrapped key follows (tls-crypt-v2).
    ClientResetV3,
    /// P_CONTROL_WKC_V1: like `Control`, and the client's wrapped key follows.
    ControlWithKey,
}

impl Opcode {
    const NUMBERS: [(u8, Self); 9] = [
        (3, Self::SoftReset),
        (4, Self::Control),
        (5, Self::Ack),
        (6, Self::DataV1),
        (7, Self::ClientResetV2),
        (8, Self::ServerReset),
        (9, Self::DataV2),
        (10, Self::ClientResetV3),
        (11, Self::ControlWithKey),
    ];

    fn from_number(number: u8) -> Option<Self> {
        Self::NUMBERS.iter().find(|(other, _)| *other == number).map(|(_, opcode)| *opcode)
    }

    fn number(self) -> u8 {
        let found = Self::NUMBERS.iter().find(|(_, opcode)| *opcode == self);
        found.map_or(0, |(number, _)| *number)
    }

    /// Whether the packet carries data, not a control message.
    pub fn is_data(self) -> bool {
        matches!(self, Self::DataV1 | Self::DataV2)
    }

    /// Whether the packet begins a session of a client.
    pub fn is_client_reset(self) -> bool {
        matches!(self, Self::ClientResetV2 | Self::ClientResetV3)
    }
}

/// The leading byte of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The type of the packet.
    pub opcode: Opcode,
    /// Which of the session's keys the packet belongs to, 0 to 7.
    pub key_id: u8,
}

impl Lead {
    /// `None` if the opcode is unknown, or obsolete.
    pub fn parse(byte: u8) -> Option<Self> {
        Some(Self { opcode: Opcode::from_number(byte >> 3)?, key_id: byte & 7 })
    }

    /// The leading byte.
    pub fn byte(self) -> u8 {
        self.opcode.number() << 3 | self.key_id & 7
    }
}

/// Identifies a session of one side; random, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 8]);

impl SessionId {
    /// A random ID.
    pub fn random(random: &mut dyn Random) -> Self {
        let mut id = [0; 8];
        random.fill(&mut id);
        // Zero means "none" in other implementations.
        id[0] |= 1;
        Self(id)
    }
}

/// Why a control packet cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a well-formed OpenVPN control packet")]
pub struct Malformed;

/// A control packet without leading byte, session ID and wrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// Acknowledged messages.
    pub acks: ArrayVec<u32, MAX_ACKS>,
    /// Session ID of the receiver, if there are acknowledgments.
    pub receiver: Option<SessionId>,
    /// The number of this message; `None` in an ACK.
    pub message: Option<u32>,
    /// Bytes of TLS.
    pub payload: &'a [u8],
}

impl<'a> Body<'a> {
    /// Reads the body of a packet with this opcode.
    pub fn parse(opcode: Opcode, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (&count, mut rest) = bytes.split_first().ok_or(Malformed)?;
        if usize::from(count) > MAX_ACKS {
            return Err(Malformed);
        }
        let mut acks = ArrayVec::new();
        for _ in 0..count {
            acks.push(take_u32(&mut rest)?);
        }
        let receiver = if count > 0 { Some(SessionId(take(&mut rest)?)) } else { None };
        let message = if opcode == Opcode::Ack { None } else { Some(take_u32(&mut rest)?) };
        Ok(Self { acks, receiver, message, payload: rest })
    }

    /// The bytes. With acknowledgments, the receiver must be known.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + 4 * self.acks.len() + 12 + self.payload.len());
        let acks = if self.receiver.is_some() { &self.acks[..] } else { &[] };
        bytes.push(acks.len() as u8);
        for ack in acks {
            bytes.extend(ack.to_be_bytes());
        }
        if let Some(receiver) = self.receiver.filter(|_| !acks.is_empty()) {
            bytes.extend(receiver.0);
        }
        if let Some(message) = self.message {
            bytes.extend(message.to_be_bytes());
        }
        bytes.extend_from_slice(self.payload);
        bytes
    }
}

/// The next `N` bytes.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (first, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    Ok(*first)
}

/// The next four bytes as a number.
pub(super) fn take_u32(bytes: &mut &[u8]) -> Result<u32, Malformed> {
    take(bytes).map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_bytes_of_the_wire_protocol() {
        for (byte, opcode, key_id) in
            [(0x38, Opcode::ClientResetV2, 0), (0x40, Opcode::ServerReset, 0), (0x4b, Opcode::DataV2, 3)]
        {
            let lead = Lead::parse(byte).expect("known");
            assert_eq!((lead.opcode, lead.key_id, lead.byte()), (opcode, key_id, byte));
        }
        for obsolete in [0, 1 << 3, 2 << 3, 12 << 3, 31 << 3] {
            assert_eq!(Lead::parse(obsolete), None);
        }
    }

    fn bodies() -> Vec<(Opcode, Body<'static>)> {
        let receiver = Some(SessionId([7; 8]));
        let eight = (0..8).collect();
        vec![
            (
                Opcode::ClientResetV2,
                Body { acks: ArrayVec::new(), receiver: None, message: Some(0), payload: b"" },
            ),
            (Opcode::Ack, Body { acks: eight, receiver, message: None, payload: b"" }),
            (
                Opcode::Control,
                Body { acks: [1, 9].into_iter().collect(), receiver, message: Some(5), payload: b"tls" },
            ),
        ]
    }

    #[test]
    fn bodies_are_read_as_they_were_written() {
        for (opcode, body) in bodies() {
            let bytes = body.emit();
            assert_eq!(Body::parse(opcode, &bytes).as_ref(), Ok(&body));
        }
    }

    #[test]
    fn no_truncated_body_is_read() {
        for (opcode, body) in bodies() {
            let bytes = body.emit();
            for length in 0..bytes.len() - body.payload.len() {
                assert_eq!(Body::parse(opcode, &bytes[..length]), Err(Malformed), "{length}");
            }
        }
        assert_eq!(Body::parse(Opcode::Ack, &[9; 100]), Err(Malformed), "nine acknowledgments");
    }
}
