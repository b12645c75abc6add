//! Set-up of an IKE SA, up to the authentication of both sides (RFC 7296 sections 1.2 and 2.15).
//!
//! ```text
//! initiator   Initiating ──IKE_SA_INIT──> Authenticating ──IKE_AUTH──> Session
//! responder   answer_init ───────────────> HalfOpen ───────IKE_AUTH──> Session
//! ```
//! Both sides hold IKE_AUTH while the revocation status of its certificate is queried: [`held`]. Each state consumes
//! itself and returns the next; key exchanges and signatures first move the state into a [`Job`](super::job::Job). No
//! state here can install a Child SA. Only a [`Session`](super::session::Session) can, and its constructor requires a
//! [`Verified`](super::auth::proof::Verified).

mod announced;
mod authenticating;
mod half_open;
mod held;
mod initiating;
mod responder;

pub(super) use authenticating::Authenticating;
pub(super) use half_open::HalfOpen;
pub(super) use initiating::{Initiating, Wanted};
pub(super) use responder::{Answer, answer_init};
