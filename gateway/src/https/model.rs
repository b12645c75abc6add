//! The answers of the API about the server of HTTPS, metrics, the status page and enrolment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/service/https`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Https {
    /// Whether requests are answered.
    pub is_served: bool,
    /// Where connections are accepted.
    pub addresses: Vec<String>,
    /// The names of the keys.
    pub keys: Vec<String>,
    /// SHA-256 of the certificate, in hexadecimal.
    pub fingerprint: Option<String>,
    /// Why nothing is answered, if so.
    pub problem: Option<String>,
}

/// `GET /v1/service/metrics` and `GET /v1/service/page`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Metrics {
    /// Whether requests are answered.
    pub is_served: bool,
    /// Where connections are accepted.
    pub addresses: Vec<String>,
    /// Whether clients must send a token.
    pub has_token: bool,
    /// SHA-256 of the certificate, in hexadecimal; none if connections are not secured.
    pub fingerprint: Option<String>,
    /// Why nothing is answered, if so.
    pub problem: Option<String>,
}

/// `GET /v1/service/enrollment`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Enrollment {
    /// Whether branches may join.
    pub is_served: bool,
    /// Where connections are accepted.
    pub addresses: Vec<String>,
    /// The names of the branches that have joined, or may.
    pub branches: Vec<String>,
    /// SHA-256 of the public key of the certificate, in hexadecimal: tokens have it.
    pub pin: Option<String>,
    /// Why nothing is answered, if so.
    pub problem: Option<String>,
}
