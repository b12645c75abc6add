//! OpenVPN: its interface, its control thread, and how addresses are given to clients.
//!
//! ```text
//! convert (OpenVPN's own files) ──> settings
//! settings ──> interface ──> control_thread: Server or Client, without I/O, in tunnel/src/openvpn/
//!                 │              │ actions: sent, installed; clients admitted with addresses of the pool
//!                 │              └──> Report: the network that a server has given us ──> runner ──> host
//!                 └──> workers of the data path
//! ```
//! TLS and the admission of clients are on the control thread, which carries no packets.

pub mod client_file;
pub mod control_thread;
pub mod convert;
pub mod interface;
pub mod login;
pub mod options;
pub mod pool;
pub mod runner;
pub mod scripts;
pub mod settings;
pub mod tcp;
pub mod tokens;
