//! Set-up of an IKE SA, up to the authentication of both sides (RFC 7296 sections 1.2 and 2.15).
//!
//! ```text
//! initiator   Initiating ──IKE_SA_INIT──> Agreeing ──keys──> Authenticating ──IKE_AUTH──> Session
//! responder   Answering ──keys──> HalfOpen ──IKE_AUTH──> Session
//! ```
//! With several rounds of authentication (RFC 4739), Authenticating and HalfOpen last for several IKE_AUTH exchanges.
//! Both sides hold IKE_AUTH while the revocation status of its certificate is queried: [`held`]. Each state consumes
//! itself and returns a `Step`, by which the endpoint chooses the next; key exchanges and signatures are
//! [`Job`](super::job::Job)s, whose output the state waits for. No
//! state here can install a Child SA. Only a [`Session`](super::session::Session) can, and its constructor requires an
//! [`Authenticated`](super::auth::rounds::Authenticated).

pub(super) mod agreeing;
mod announced;
pub(super) mod authenticating;
mod configuration;
pub(super) mod half_open;
mod held;
pub(super) mod initiating;
pub(super) mod responder;
mod shown;
mod waiting;
