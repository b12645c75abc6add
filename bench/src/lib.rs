//! Measurements, on networks that they make themselves and remove again.
//!
//! What is compared is compared in one run, in alternation, and given as a ratio of medians: absolute speeds of a shared
//! machine move by a third from minute to minute.
#![forbid(unsafe_code)]

pub mod choice;
pub mod crowd;
pub mod crypto;
pub mod demo;
pub mod doctor;
pub mod flood;
pub mod gateway_under_test;
pub mod ike;
pub mod ipsec_under_test;
pub mod lab;
pub mod peers;
pub mod pipeline;
pub mod report;
pub mod sites;
pub mod strongswan;
pub mod system;
pub mod traffic;
pub mod tunnel;

/// Any failure, for a person.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
