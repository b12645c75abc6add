//! What bytes mean: buffers, batches, the reasons why packets are dropped, and protocol headers.
//!
//! Nothing here does I/O, keeps time or knows a key. A packet enters a [`Batch`] through a port, is worked on in
//! place by the stages of the data path, and leaves through another port without having been copied.
#![forbid(unsafe_code)]

pub mod batch;
pub mod buffer;
pub mod checksum;
pub mod drop;
pub mod endpoint;
pub mod header;

pub use batch::{Batch, Train};
pub use buffer::Slab;
pub use drop::{DropCounters, DropReason};
pub use endpoint::Endpoint;
