//! OpenVPN: its interface, its control thread, and how addresses are given to clients.
//!
//! ```text
//! tree (interfaces openvpn) ─┐
//! convert (OpenVPN's own files) ──> settings
//! service, served: the interfaces of a daemon ──> runner: one interface ──> host
//! settings ──> interface ──> control_thread: Server or Client, without I/O, in tunnel/src/openvpn/
//!                 │              │ actions: sent, installed; clients admitted with addresses of the pool
//!                 │              └──> Report: the network that a server has given us ──> runner ──> host
//!                 └──> workers of the data path
//! ```
//! TLS and the admission of clients are on the control thread, which carries no packets.

pub mod api;
pub mod certificates;
pub mod client_file;
pub mod client_network;
pub(crate) mod closed;
pub mod control_thread;
pub mod convert;
mod explain;
mod facts;
pub mod interface;
pub mod key_files;
pub mod lifecycle;
pub mod limits;
pub mod login;
pub mod management;
pub mod model;
pub mod named_routes;
pub mod names;
pub mod options;
pub mod passwords;
pub mod pool;
mod port_share;
mod routing;
pub mod runner;
pub mod scripts;
pub mod self_test;
mod served;
pub mod service;
pub mod settings;
pub mod status;
pub mod tcp;
pub mod tokens;
mod tree;
mod watched_file;
