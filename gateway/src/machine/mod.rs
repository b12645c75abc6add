//! What other programs of the machine are to do, and the kernel: tuning, tasks, logging, SNMP.
//!
//! ```text
//! settings ──> service ──> client ══ socket ══> helper ──> files of cron, rsyslog, snmpd; values of the kernel
//!                 │                               │
//!                 └──> API: what is managed       └──> the program is told
//! ```
//!
//! The daemon has no right to any of it. The helper is a process of root that knows what may be done, one of four parts at a
//! time, and makes every byte of the files itself: a request has the lines of a part as the configuration has them, which it
//! reads and checks again. It ends with the daemon's end of the socket. What it has done stays.

mod api;
mod client;
pub mod helper;
pub mod model;
pub mod request;
mod service;

pub use client::{Client, Connection};
pub use service::MachineService;
