//! OpenVPN 2: client and server, as in the draft "OpenVPN Wire Protocol" where it agrees with OpenVPN 2.6.
//!
//! ```text
//! packet ──> wrap      (tls-auth, tls-crypt: is it authentic, was it received before?)
//!        ──> channel   (which key does it belong to?)
//!        ──> session   (reliability, TLS, exchange of key method messages)
//!        ──> server or client (push, verdicts) ──> keyring (which key opens, which seals)
//!        ──> Action    (send this packet, install this SA)
//! ```
//! [`Server`] and [`Client`] are the protocol without its data packets, which the data path seals and opens with the
//! resulting SAs ([`data`]). A datagram of a first packet costs a server no state ([`cookie`]). Who a client is, and what it
//! may use, is the caller's decision: the server asks with [`Action::Authenticate`], and the caller answers when it likes.
//!
//! TLS is rustls, with aws-lc. It draws its random numbers from the system, and its time from the caller.

pub mod action;
pub mod activity;
pub mod channel;
pub mod client;
pub mod cookie;
pub mod data;
mod early;
pub mod epoch;
pub mod keepalive;
pub mod key_method;
pub mod keyring;
pub mod keys;
pub mod limits;
pub mod name_fields;
pub mod negotiate;
pub mod offer;
pub mod packet;
mod packet_error;
mod pair;
pub mod peer;
pub mod peer_address;
pub mod peer_info;
pub mod push;
mod refusals;
pub mod reliable;
pub mod server;
pub mod session;
pub mod tls;
pub mod verify;
pub mod wrap;

pub use action::{Action, Cause, Outbox};
pub use client::{Client, ClientConfiguration};
pub use peer_address::PeerAddress;
pub use refusals::of_own_certificate;
pub use server::{Server, ServerConfiguration, Verdict};
