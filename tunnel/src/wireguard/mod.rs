//! WireGuard, as specified in its whitepaper (Donenfeld, NDSS 2017; section numbers refer to it).
//!
//! ```text
//! datagram ──> cookie (are the MACs right, has the sender proved its address?)
//!          ──> noise  (consume_initiation, create_response, consume_response)
//!          ──> peer   (sessions: next, current, previous; timers)
//!          ──> failover (which of its addresses is called)
//!          ──> DeviceAction (install this SA, send this message)
//! ```
//! [`Device`] is the protocol without its data messages, which the data path seals and opens with the resulting SAs.
//! The data path notes sent and received packets in [`Activity`].

pub mod activity;
pub mod allowed_ips;
pub mod cookie;
pub mod data;
pub mod device;
pub mod failover;
pub mod limiter;
pub mod limits;
pub mod noise;
pub mod peer;
pub mod report;
pub mod tai64n;

pub use crate::PeerId;
pub use activity::Activity;
pub use allowed_ips::AllowedIps;
pub use device::{Device, DeviceAction};
pub use failover::{Failover, Reason};
pub use report::{Event, Trouble};
