//! Signatures of key exchanges and certificates: RSA, ECDSA and Ed25519.
//!
//! A [`Scheme`] is a signature algorithm with its hash. IKEv2 names it by the AlgorithmIdentifier of RFC 7427, or by an
//! authentication method (RFC 7296, section 3.8, and RFC 4754). A [`SigningKey`] is read from a file, a
//! [`VerifyingKey`] from a certificate.

mod key;
mod raw;
mod scheme;
mod signing;
mod verifying;

pub use key::{KeyError, KeyKind};
pub use scheme::{Scheme, SchemeError};
pub use signing::{SignError, SigningKey};
pub use verifying::{NotSigned, VerifyingKey};
