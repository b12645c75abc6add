//! The constants of the protocol (section 6.1, unless noted otherwise).

use std::time::Duration;

/// A new key is requested after this many messages.
pub const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// A key is not used after this many messages. The margin keeps the replay window from wrapping.
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);
/// An initiator that sends under a key of this age requests a new one.
pub const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// A key is not used beyond this age.
pub const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);
/// Handshakes are attempted for this time.
pub const REKEY_ATTEMPT_TIME: Duration = Duration::from_secs(90);
/// The interval of handshake initiations.
pub const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of initiations before giving up.
pub const HANDSHAKE_ATTEMPTS: u32 = (REKEY_ATTEMPT_TIME.as_secs() / REKEY_TIMEOUT.as_secs()) as u32;
/// The maximum random part of a timeout, which keeps two peers from colliding for ever.
pub const REKEY_TIMEOUT_JITTER: Duration = Duration::from_millis(333);
/// A keepalive is sent after data was received and nothing was sent for this time.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// A handshake is initiated after data was sent and nothing was received for this time (section 6.5).
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);
/// An initiator that receives under a key of this age requests a new one: there is just time for a handshake.
pub const REKEY_ON_RECEIVE_AFTER_TIME: Duration = Duration::from_secs(165);
/// All keys of a peer are erased this long after the last handshake (section 6.3).
pub const ERASE_AFTER_TIME: Duration = Duration::from_secs(540);
/// A cookie is valid for this time, at both sides (section 5.4.7).
pub const COOKIE_TIME: Duration = Duration::from_secs(120);
/// The minimum interval between two accepted initiations of one peer.
pub const INITIATION_INTERVAL: Duration = Duration::from_millis(20);
/// The maximum number of staged packets of one peer.
pub const STAGED_PACKETS: usize = 128;
/// The DS field of handshake messages: AF41, so that a congested link does not delay new keys.
pub const HANDSHAKE_DS_FIELD: u8 = 0x88;
