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
pub mod ike;
pub mod peers;
pub mod pipeline;
pub mod report;
pub mod sites;
pub mod system;
pub mod tunnel;

pub use lab::Outcome;
