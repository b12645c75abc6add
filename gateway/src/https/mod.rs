//! The API for other machines, metrics, the status page and the enrolment of branches: what of them is the daemon's.
//!
//! ```text
//! settings ──> service ──> listening sockets, hashes of keys ══ socket ══> HTTPS server ──> API on the Unix socket
//! ```
//!
//! Bytes of the network are parsed by another process, the HTTPS server (crate `https`): a fault there ends no tunnel, what it
//! allocates is not the gateway's, and it cannot read the memory of the data path. The daemon binds its sockets, so that the server
//! needs no capability for a low port, and gives it salted hashes of the API keys in the place of the keys.

mod api;
mod listeners;
pub mod model;
mod parts;
mod process;
mod service;
pub mod wire;

pub use parts::{EnrollmentService, HttpsService, MetricsService, PageService};
pub use process::Process;
