//! ESP (RFC 4303): SAs for the data path, built from a negotiated Child SA, and the policies that select packets.
//!
//! ```text
//! outbound   policy (SPD) → lay out: header, padding, trailer → seal, one call of the engine for up to 64 packets
//! inbound    check: infer the high half of the sequence number → open, one call for up to 64 packets
//!            → accept: the window moves → strip → selectors of the SA
//! ```

pub mod keys;
pub mod layout;
pub mod lifetime;
pub mod open;
pub mod parameters;
pub mod policy;
pub mod seal;
pub mod selector;
mod transport;

pub(crate) use keys::IvSource;
pub use keys::SaKeys;
pub use layout::Layout;
pub use lifetime::{Limits, Options};
pub use parameters::{ChildSa, Half, Mode, Outer, Transform, Transport};
pub use policy::{Policies, Policy, PolicyWriter, Processing};
pub use selector::{Selectors, TrafficSelector};
