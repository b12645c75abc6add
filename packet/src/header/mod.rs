//! Protocol headers: each is a plain structure over checked bytes.
//!
//! A `parse` returns a header only if the bytes can hold it and its lengths are consistent, so later code need not
//! check lengths. To build a header, fill in the structure and write its bytes.

pub mod arp;
pub mod chain;
pub mod echo;
pub mod esp;
pub mod ethernet;
pub mod flow;
pub mod fragment;
pub mod icmp;
pub mod ip;
pub mod neighbour;
pub mod stamp;
pub mod tcp;
pub mod udp;
pub mod wireguard;

/// The bytes are malformed: too short, or with inconsistent lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;
