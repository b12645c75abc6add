//! Benchmarks, in network namespaces that they create and remove.
//!
//! Alternatives are measured in one run, in alternation, and compared by the ratio of their medians: absolute speeds on
//! a shared machine change by a third from minute to minute.
#![forbid(unsafe_code)]

mod api;
pub mod calls;
pub mod ceiling;
pub mod choice;
pub mod commit;
pub mod crowd;
pub mod crypto;
pub mod demo;
pub mod demo_secgw;
pub mod doctor;
pub mod document;
pub mod eal;
pub mod fairness;
pub mod flood;
pub mod ike;
pub mod look_up;
pub mod openvpn;
pub mod peers;
pub mod pipeline;
pub mod report;
pub mod rfc2544;
pub mod scaling;
pub mod secgw;
pub mod sites;
pub mod storm;
mod svg;
pub mod system;
pub mod tunnel;

pub use lab::Outcome;
