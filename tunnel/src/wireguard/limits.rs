//! Every limit of the protocol on one page (section 6.1 unless said otherwise).

use std::time::Duration;

/// After this many messages under one key, a new one is asked for.
pub const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// After this many messages a key is not used any more. The margin keeps the replay window away from the wrap.
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);
/// An initiator that sends under a key of this age asks for a new one.
pub const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// A key of this age is not used any more.
pub const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);
/// Handshakes are tried for this long.
pub const REKEY_ATTEMPT_TIME: Duration = Duration::from_secs(90);
/// Time from one handshake initiation to the next.
pub const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// How many initiations are sent before giving up.
pub const HANDSHAKE_ATTEMPTS: u32 = (REKEY_ATTEMPT_TIME.as_secs() / REKEY_TIMEOUT.as_secs()) as u32;
/// Up to this much is added to a timeout, so that two peers do not collide for ever.
pub const REKEY_TIMEOUT_JITTER: Duration = Duration::from_millis(333);
/// Whoever received data and sent nothing for this long sends a keepalive.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Whoever sent data and heard nothing for this long begins a handshake (section 6.5).
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);
/// An initiator that receives under a key of this age asks for a new one: it has just time for it.
pub const REKEY_ON_RECEIVE_AFTER_TIME: Duration = Duration::from_secs(165);
/// All keys of a peer are erased this long after the last handshake (section 6.3).
pub const ERASE_AFTER_TIME: Duration = Duration::from_secs(540);
/// A cookie is valid for this long, at the one who gave it and at the one who got it (section 5.4.7).
pub const COOKIE_TIME: Duration = Duration::from_secs(120);
/// One peer's initiations are consumed no faster than one in this time.
pub const INITIATION_INTERVAL: Duration = Duration::from_millis(20);
/// Packets of one peer that wait for a key.
pub const STAGED_PACKETS: usize = 128;
/// The DS field of handshake messages: AF41, so that a link full of data does not delay the keys for it.
pub const HANDSHAKE_DS_FIELD: u8 = 0x88;
