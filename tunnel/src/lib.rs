//! Tunnel protocols without I/O and without a clock.
//!
//! Every protocol has the same result: a pair of SAs ([`sa`]) for the data path, one to send and one to receive. This
//! crate knows how keys are negotiated, but not how packets are sent and received.
#![forbid(unsafe_code)]

pub mod bucket;
pub mod esp;
pub mod ikev2;
mod opening;
pub mod openvpn;
pub mod protection;
pub mod replay;
pub mod sa;
pub mod time;
pub mod timers;
pub mod wireguard;

pub use protection::Protection;
pub use sa::{InboundSa, OutboundSa, PeerId};
pub use time::{Now, Time};
