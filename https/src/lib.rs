//! The HTTPS server: the API for other machines, in a process of its own.
//!
//! ```text
//! daemon ══ orders: sockets, hashes of keys, certificate ══> process
//!                                                              │
//! clients ──> listen ── limits ──> tls ──> answer ──> key ──> vyos, typed ──> API of the daemon (Unix socket)
//!                                            └── request: form or JSON      └──> local: operational commands, files
//! ```
//!
//! A request is read whole before its key is looked at, as VyOS has the key in the body; until then only bytes are held, and
//! limits bound them. JSON is parsed for those who have a key.
#![forbid(unsafe_code)]

mod answer;
mod app;
mod certificate;
mod daemon;
mod keys;
mod limiter;
mod listen;
mod local;
mod place;
mod process;
mod reply;
pub mod request;
mod source;
mod tls;
mod typed;
mod vyos;

pub use local::Local;
pub use place::Place;
pub use process::serve;
