//! IKEv2 (RFC 7296): two gateways show each other who they are, and agree on keys for ESP.

mod channel;
mod cookie;
mod fragments;
pub mod identity;
pub mod keys;
pub mod limits;
pub mod message;
pub mod nat;
pub mod proposal;
pub mod selectors;
