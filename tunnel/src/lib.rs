//! Tunnel protocols without I/O and without a clock.
//!
//! Every protocol ends in the same contract, a pair of [`sa`] for the data path: one key to send with and one to
//! receive with. How the keys came about is known only here; how packets come and go is not known here.
#![forbid(unsafe_code)]

mod bucket;
pub mod esp;
pub mod ikev2;
pub mod replay;
pub mod sa;
pub mod time;
pub mod wireguard;

pub use sa::{InboundSa, OutboundSa, PeerId};
pub use time::{Now, Time};
