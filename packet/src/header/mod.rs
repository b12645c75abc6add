//! Protocol headers: each a plain structure laid over checked bytes.
//!
//! A `parse` returns a header only if the bytes can hold it and its lengths agree with them, so that code behind a
//! parse never looks at a length again. Building one is filling in the structure and writing its bytes.

pub mod esp;
pub mod flow;
pub mod icmp;
pub mod ip;
pub mod tcp;
pub mod udp;
pub mod wireguard;

/// The bytes are not what they should be: too short, or lengths that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;
