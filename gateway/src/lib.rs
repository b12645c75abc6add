//! The daemon.
//!
//! ```text
//! inside ──> worker: datapath, outbound ──> outside        one thread a direction and interface
//! inside <── worker: datapath, inbound  <── outside
//!                 │ handshake messages, notices
//!                 v
//!            control::lane, the protocol                    one thread an interface, behind a bounded queue
//!                 ^ updates, questions
//!                 │
//!            control, api: configuration, UAPI, show        one thread for all
//! ```
#![forbid(unsafe_code)]

pub mod api;
pub mod bed;
pub mod clock;
pub mod control;
pub mod datapath;
pub mod early;
pub mod icmp_errors;
pub mod indexed;
pub mod staging;
pub mod tables;
pub mod worker;
