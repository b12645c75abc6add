//! Why a control packet is not accepted.

use super::limits::RENEW_INTERVAL;
use super::packet::Malformed;
use super::wrap::WrapError;

/// Why a packet was not accepted. No key is changed, but a wrap may have noted the packet's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The wrap refused it.
    #[error(transparent)]
    Wrap(#[from] WrapError),
    /// Its session ID, or the one that it acknowledges, is not of this session.
    #[error("the control packet is of another session")]
    OtherSession,
    /// The peer of two sites is expected at another address.
    #[error("the control packet is of another address than that of remote, and float is not set")]
    OtherAddress,
    /// No key has this ID.
    #[error("the control packet is of a key that is not negotiated")]
    UnknownKey,
    /// Too many sessions of this source, or of all, have not authenticated or began at once, or the cookie is spent.
    #[error("too many clients that have not authenticated, or a copy of a packet that has begun a session")]
    TooMany,
    /// Sessions begin more often than is allowed.
    #[error("more clients connect than connect-freq allows")]
    TooOften,
    /// The peer begins to negotiate keys more often than is useful.
    #[error("new keys are negotiated more often than every {} ms", RENEW_INTERVAL.as_millis())]
    TooSoon,
    /// The configuration of TLS is not usable.
    #[error("TLS cannot begin with this configuration")]
    NoTls,
    /// The client's key of tls-crypt-v2 is too old.
    #[error(
        "the client's tls-crypt-v2 key is older than tls-crypt-v2-max-age, or does not say when it was made"
    )]
    OldKey,
    /// A client before 2.6, which is served only if the configuration allows it.
    #[error("a client with tls-crypt-v2 that cannot return a cookie: it is older than 2.6")]
    NoCookie,
}

impl From<Malformed> for PacketError {
    fn from(error: Malformed) -> Self {
        Self::Wrap(error.into())
    }
}
