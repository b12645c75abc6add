//! The daemon.
//!
//! ```text
//! inside ──> datapath::worker, outbound ──> outside        one thread a direction and interface
//! inside <── datapath::worker, inbound  <── outside
//!                 │ handshake messages, data path events
//!                 v
//!            wireguard::handshake_thread, ipsec::ike_thread  one thread an interface, behind a bounded queue
//!                 ^ updates, questions
//!                 │
//!            daemon, api: configuration, UAPI, show          one thread for all
//!            host: addresses, routes, rules, nftables        one thread for all
//! ```
#![forbid(unsafe_code)]

pub mod api;
pub mod bed;
pub mod bottleneck;
mod by_name;
mod child;
pub mod clock;
pub mod daemon;
pub mod datapath;
pub mod dhcp;
pub mod dns;
pub mod facts;
pub mod failover;
pub mod firewall;
pub mod health;
pub mod helper;
pub mod host;
pub mod https;
pub mod ipsec;
#[cfg(any(test, not(all(feature = "openvpn", feature = "secgw"))))]
mod left_out;
pub mod log;
pub mod machine;
pub mod nat;
pub mod openvpn;
pub mod path;
pub mod resolver;
pub mod rights;
pub mod router;
pub mod secgw;
pub mod service;
pub mod snmp;
pub mod thread_name;
pub mod tunnel_interface;
pub mod unix_socket;
mod unsent;
pub mod wireguard;
