//! What the configuration wants: who may read, and by which names.

use crate::keys::Keys;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use base64ct::{Base64, Encoding};
use gateway::https::wire;
use std::net::IpAddr;

/// The part of the state that changes with the configuration.
#[derive(Default)]
pub(crate) struct Serving {
    pub(super) token: Keys,
    /// With which sessions count.
    pub(super) sessions: Vec<u8>,
    /// Names of this machine that browsers may use.
    names: Vec<String>,
    pub(super) has_tls: bool,
}

impl Serving {
    /// What the daemon wants. A token that cannot be read is one that no reader has.
    pub(crate) fn new(wanted: &wire::Page) -> Self {
        let key = wire::Key { id: "token".to_owned(), hash: wanted.token.clone() };
        Self {
            token: Keys::new(&wanted.salt, &[key]),
            sessions: Base64::decode_vec(&wanted.sessions).unwrap_or_default(),
            names: wanted.names.clone(),
            has_tls: wanted.tls.is_some(),
        }
    }

    /// Whether a request names this machine. A page of another site can have its own name point here (DNS rebinding), which an
    /// address cannot.
    pub(super) fn is_host(&self, headers: &HeaderMap) -> bool {
        let Some(host) = host(headers) else { return false };
        let name = host.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let name = name.to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || name == "localhost" || self.names.contains(&name)
    }
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    headers.get(header::HOST)?.to_str().ok()?.parse().ok()
}

/// Whether a form is not one of another site.
pub(super) fn is_own(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.zip(host(headers)).is_some_and(|((_, origin), host)| origin == host.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn only_addresses_and_names_of_this_machine_are_hosts() {
        let serving = Serving { names: vec!["gw.example".to_owned()], ..Serving::default() };
        let is = |host| serving.is_host(&headers(header::HOST, host));
        assert!(is("127.0.0.1:9587") && is("[::1]:9587") && is("LOCALHOST") && is("GW.example.:9587"));
        assert!(!is("rebound.example:9587") && !is("127.0.0.1.rebound.example") && !is("") && !is("a b"));
        assert!(!serving.is_host(&HeaderMap::new()));
    }

    #[test]
    fn forms_of_other_sites_are_refused() {
        let mut asked = headers(header::HOST, "127.0.0.1:9587");
        assert!(is_own(&asked));
        for (origin, own) in [
            ("http://127.0.0.1:9587", true),
            ("http://127.0.0.1:80", false),
            ("http://a.example", false),
            ("null", false),
        ] {
            asked.insert(header::ORIGIN, HeaderValue::from_static(origin));
            assert_eq!(is_own(&asked), own, "{origin}");
        }
    }
}
