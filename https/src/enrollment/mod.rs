//! Branches join head office with a token: their own key for a tunnel.
//!
//! ```text
//! head office                                              branch
//! postern enroll create ── token, on paper or by phone ──> postern join TOKEN
//!   hash of the secret in the configuration                  makes its key
//! serve  <── TLS 1.3, pinned key ── request: secret, public key ── client
//!   grant: the peer, committed and saved ── granted: address, networks, key ──>  commits its side
//! ```
//! Until the secret is found right, a client holds a connection, a TLS session and a request of at most 1 KiB. Secrets are
//! compared as hashes, in constant time. The same secret with the same public key is answered again: the answer may be lost.

mod client;
mod grant;
mod message;
mod serve;
mod tls;
mod token;

pub use client::{EnrollError, enroll};
pub use message::{Granted, Refused, Request, VERSION};
pub(crate) use serve::Enrolling;
pub(crate) use tls::config;
pub use token::{BadToken, MOST_ADDRESSES, Token, hash};
