//! IKEv2 (RFC 7296): two gateways authenticate each other and negotiate keys for ESP.
//!
//! ```text
//! datagram ──> message    (is it well formed?)
//!          ──> endpoint   (whose is it? cookies, half-open SAs)
//!          ──> setup      IKE_SA_INIT, IKE_AUTH: one type a state, none can install anything
//!          ──> session    CREATE_CHILD_SA, INFORMATIONAL: only what is authenticated becomes one
//!          ──> Action     (send this, install this Child SA, do this work)
//! ```
//! Under them lie `channel` (numbers, retransmission, fragments), `keys` and `proposal`.

mod action;
mod auth;
mod cause;
mod channel;
mod config;
mod conflicts;
mod connections;
mod context;
mod cookie;
mod endpoint;
mod event;
mod fragments;
mod half_open_table;
mod identity;
mod ids;
mod inbound;
mod instances;
mod job;
pub mod keys;
pub mod limits;
pub mod message;
mod nat;
pub mod precedence;
pub mod proposal;
pub mod receivers;
mod retransmission;
pub mod selectors;
mod session;
mod setup;

pub use action::{Action, Install, Outbox};
pub use cause::{AuthMessage, Cause, Unproved};
pub use config::{
    Authentication, Child, Connection, Credentials, DeadPeerDetection, FurtherRound, Patience, RawKeys,
    Start, WhenLost,
};
pub use endpoint::{
    CannotInitiate, ChildState, ChildStatus, Details, Endpoint, Ignored, IkeStatus, Load, SessionStatus,
    State,
};
pub use event::{Asked, CloseReason, Event};
pub use identity::Identity;
pub use ids::{ConnectionId, SessionId};
pub use job::{Finished, Job};
pub use nat::{Follows, Nat, Path};
