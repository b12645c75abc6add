//! IKEv2 (RFC 7296): two gateways show each other who they are, and agree on keys for ESP.

pub mod keys;
pub mod message;
pub mod proposal;
pub mod selectors;
