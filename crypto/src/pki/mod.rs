//! X.509 certificates of peers, as IKEv2 uses them (RFC 5280, RFC 4945).
//!
//! A [`Certificate`] is parsed from a file or a CERT payload. A [`TrustStore`] holds the trusted CAs, revocation lists
//! and pinned peer certificates, and verifies the chain of a peer's certificate. After that the certificate must
//! [hold](Certificate::holds) the peer's [`Identity`].
//!
//! Nothing is fetched here. Once a chain is known to lead to a trusted CA, [`Evidence`] turns the CRL and OCSP
//! addresses of its certificates into [`Query`]s. The caller, which has network access, answers them.

mod certificate;
mod evidence;
mod identity;
mod list;
mod name;
mod ocsp;
mod openssl;
mod plain_list;
mod signed;
mod status;
mod trust;

pub use certificate::{AlternativeName, Certificate, CertificateError};
pub use der::DateTime;
pub use evidence::{Evidence, Query};
pub use identity::{Identity, IdentityError};
pub use name::{AttributeType, DistinguishedName, NameError};
pub use openssl::Field;
pub use plain_list::PlainList;
pub use trust::{ChainError, ChainFailure, Revocation, RevocationListError, TrustStore, Trusted, chain};
