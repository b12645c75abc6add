//! OpenVPN's sizes and times, and our bounds for what an unauthenticated peer may occupy.

use std::time::Duration;

/// The registered UDP and TCP port.
pub const PORT: u16 = 1194;

/// Acknowledgments in a packet without a message.
pub const MAX_ACKS: usize = 8;
/// Acknowledgments in a packet with a message.
pub const MAX_CARRIED_ACKS: usize = 4;
/// Messages sent and not acknowledged.
pub const SEND_WINDOW: usize = 6;
/// Messages from the next expected one on that are accepted.
pub const RECEIVE_WINDOW: u32 = 12;
/// The time to the first retransmission; it doubles with each.
pub const RETRANSMIT: Duration = Duration::from_secs(2);
/// A message is sent again at once when this many later ones are acknowledged.
pub const EARLY_RETRANSMIT: u32 = 3;
/// The default limit of a control packet, with its UDP and IP header.
pub const CONTROL_PACKET: usize = 1250;
/// What all but the wrap takes of [`CONTROL_PACKET`]: IP and UDP headers, type, session ID, acknowledgments, message number.
pub const CONTROL_OVERHEAD: usize = 40 + 8 + 1 + 8 + 1 + 4 * MAX_CARRIED_ACKS + 8 + 4;
/// A control packet carries at least so many bytes of TLS, even if it is longer than wanted then.
pub const LEAST_CHUNK: usize = 16;
/// The longest control packet accepted.
pub const LONGEST_PACKET: usize = 2048;
/// The longest command or key exchange message accepted, in one TLS record.
pub const LONGEST_MESSAGE: usize = 16_384;
/// Bytes of TLS that wait for the send window. A session with more ends.
pub const MAX_BACKLOG: usize = 65_536;

/// A handshake ends after this time.
pub const HAND_WINDOW: Duration = Duration::from_secs(60);
/// The lifetime of data keys.
pub const RENEGOTIATE: Duration = Duration::from_secs(3600);
/// The peer's soft reset is not answered earlier than this after the last negotiation began: each costs a TLS handshake.
pub const RENEW_INTERVAL: Duration = Duration::from_millis(500);
/// The longest user name and the longest password accepted, as in OpenVPN with PKCS #11.
pub const LONGEST_CREDENTIAL: usize = 4096;
/// The replaced key still opens packets for this time.
pub const TRANSITION_WINDOW: Duration = Duration::from_secs(3600);
/// The client asks again for the server's push reply after this time.
pub const PUSH_REQUEST_INTERVAL: Duration = Duration::from_secs(5);
/// From this packet number on, a new key is negotiated.
pub const RENEW_PACKET: u64 = 0xff00_0000;
/// The first packet number that is not sent.
pub const END_PACKET: u64 = 0xffff_ffff;
/// Bytes under one AES-GCM key before a new one is negotiated: half of 2^36 blocks.
pub const RENEW_BYTES: u64 = 1 << 39;
/// Bytes under one AES-GCM key: 2^36 blocks of 16 bytes.
pub const END_BYTES: u64 = 1 << 40;

/// Packets in one epoch: with the longest ones, 2^36 blocks of AES-GCM.
pub const EPOCH_PACKETS: u64 = 1 << 24;
/// The packet of this epoch's end asks for new keys.
pub const RENEW_EPOCH: u64 = 0xf000;
/// Epochs after the present one whose packets are accepted.
pub const FUTURE_EPOCHS: usize = 4;

/// Sessions of a server whose peer has not authenticated.
pub const MAX_PENDING: usize = 1024;
/// The same from one source, an IPv4 address or an IPv6 /64, where any sender may begin a session.
pub const MAX_PENDING_SOURCE: usize = 32;
/// The same where first packets are authenticated by a wrap: all users behind one NAT may come back at once.
pub const MAX_PENDING_SOURCE_AUTHENTIC: usize = 256;
/// Sessions that one source may begin in this time beyond these: each costs a TLS handshake.
pub const BEGIN_INTERVAL: Duration = Duration::from_millis(100);
/// Sessions that all sources may begin at once, and the time in which one more may begin.
pub const BEGINS: u32 = 1024;
/// See [`BEGINS`].
pub const BEGINS_INTERVAL: Duration = Duration::from_millis(2);
/// Cookies that are remembered because they have begun a session: more than [`BEGINS`] allows in a cookie's life.
pub const MAX_SPENT: usize = 65_536;
/// Answers to first packets at once, and the time in which one more is allowed, where any sender gets one: 100 in 10
/// seconds, as in OpenVPN.
pub const RESET_ANSWERS: (u32, Duration) = (100, Duration::from_millis(100));
/// The same where first packets are authenticated by a wrap: a thousand clients may come back at once.
pub const AUTHENTIC_RESET_ANSWERS: (u32, Duration) = (2048, Duration::from_millis(5));
/// The highest peer ID. 0xffffff stands for "none".
pub const LAST_PEER_ID: u32 = 0x00ff_fffe;
/// A push message is split at this length.
pub const PUSH_LENGTH: usize = 1024;
/// Push messages of one reply that a client accepts.
pub const MAX_PUSH_MESSAGES: usize = 64;
