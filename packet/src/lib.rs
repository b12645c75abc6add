//! Packets in memory: buffers, batches, drop reasons and protocol headers.
//!
//! This crate does no I/O, reads no clock and has no keys. A packet enters a [`Batch`] through a port, is processed
//! in place by the stages of the data path, and leaves through another port without a copy.
#![forbid(unsafe_code)]

pub mod batch;
pub mod buffer;
pub mod checksum;
pub mod drop;
pub mod endpoint;
pub mod header;
pub mod packed_endpoint;

pub use batch::{Batch, Train};
pub use buffer::Slab;
pub use drop::{DropCounters, DropReason};
pub use endpoint::Endpoint;
pub use packed_endpoint::PackedEndpoint;
