//! The HTTPS server: the API for other machines, metrics and the status page, in a process of its own.
//!
//! ```text
//! daemon ══ orders: sockets, hashes of keys, certificate ══> process
//!                                                              │
//! clients ──> listen ── limits ──> tls ──> answer ──> key ──> vyos, typed ──> API of the daemon (Unix socket)
//!                                │           └── request: form or JSON      └──> local: operational commands, files
//!                                ├──> metrics: page, made of a snapshot of facts
//!                                ├──> page: HTML for browsers with a session, made of the same snapshot
//!                                └──> enrollment: a token and a public key, for the tunnel of a branch
//! ```
//!
//! A key in a header is checked before the body is read. VyOS has the key in the body, which is then read first; until its key
//! is known only bytes are held, and limits bound them. Operations are parsed only for clients with a key.
#![forbid(unsafe_code)]

mod answer;
mod app;
mod certificate;
pub mod client;
mod clock;
mod daemon;
pub mod enrollment;
mod gate;
mod keys;
mod limiter;
mod listen;
mod local;
mod long_bodies;
pub mod mail;
pub mod metrics;
#[cfg(feature = "page")]
pub mod page;
#[cfg(not(feature = "page"))]
#[path = "without_page.rs"]
mod page;
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
