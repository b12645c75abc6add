//! Certificates of peers: X.509 as IKEv2 uses it (RFC 5280, RFC 4945).
//!
//! A [`Certificate`] is parsed from a file or a CERT payload. A [`TrustStore`] holds the authorities, the revocation
//! lists and the certificates that are trusted themselves, and answers whether a peer's certificate leads to one of
//! them. Then the peer's [`Identity`] must be one of those that the certificate [holds](Certificate::holds).
//! Nothing is fetched here: what a certificate says about places to ask at becomes a [`Query`] of [`Evidence`], once its chain
//! is known to lead to an authority; the caller, which has network access, answers it.

mod certificate;
mod evidence;
mod identity;
mod list;
mod name;
mod ocsp;
mod signed;
mod status;
mod trust;

pub use certificate::{AlternativeName, Certificate, CertificateError};
pub use evidence::{Evidence, Query};
pub use identity::{Identity, IdentityError};
pub use name::{DistinguishedName, NameError};
pub use trust::{ChainError, ChainFailure, Revocation, RevocationListError, TrustStore, Trusted, chain};
