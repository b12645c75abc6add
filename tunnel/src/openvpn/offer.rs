//! What TLS may negotiate: versions, cipher suites and groups, as `tls-cipher`, `tls-ciphersuites` and `tls-groups` limit them.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{SupportedProtocolVersion, version};
use std::sync::Arc;

/// What TLS may negotiate; by default all that is served. Names are those of IANA, the preferred first.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// Cipher suites of TLS 1.2.
    pub suites_tls12: Option<Vec<String>>,
    /// Cipher suites of TLS 1.3.
    pub suites_tls13: Option<Vec<String>>,
    /// Groups of the key exchange.
    pub groups: Option<Vec<String>>,
    /// TLS 1.2 is refused (`tls-version-min 1.3`).
    pub without_tls12: bool,
    /// TLS 1.3 is refused (`tls-version-max 1.2`).
    pub without_tls13: bool,
}

impl Offer {
    /// The versions, the newest first. A version without a suite is none.
    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let is_empty = |suites: &Option<Vec<String>>| suites.as_ref().is_some_and(Vec::is_empty);
        let versions = [
            (&version::TLS13, self.without_tls13 || is_empty(&self.suites_tls13)),
            (&version::TLS12, self.without_tls12 || is_empty(&self.suites_tls12)),
        ];
        versions.into_iter().filter(|(_, without)| !without).map(|(version, _)| version).collect()
    }

    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = aws_lc_rs::default_provider();
        let all = std::mem::take(&mut provider.cipher_suites);
        let (tls13, tls12): (Vec<_>, Vec<_>) = all.into_iter().partition(|suite| suite.tls13().is_some());
        for (wanted, all) in [(&self.suites_tls13, tls13), (&self.suites_tls12, tls12)] {
            let name = |suite: rustls::SupportedCipherSuite| suite.suite().as_str().unwrap_or_default();
            provider.cipher_suites.extend(limited(wanted.as_deref(), all, |suite| iana(name(suite))));
        }
        let groups = std::mem::take(&mut provider.kx_groups);
        let name = |group: &dyn rustls::crypto::SupportedKxGroup| group.name().as_str().unwrap_or_default();
        provider.kx_groups = limited(self.groups.as_deref(), groups, |group| name(group).to_owned());
        Arc::new(provider)
    }
}

/// rustls calls `TLS_AES_128_GCM_SHA256` by a name of its own.
fn iana(name: &str) -> String {
    name.replace("TLS13_", "TLS_")
}

/// The suites or groups of the list, in its order; all of them without a list.
fn limited<T: Copy>(wanted: Option<&[String]>, all: Vec<T>, name: impl Fn(T) -> String) -> Vec<T> {
    let Some(wanted) = wanted else { return all };
    let found = |it: &String| all.iter().copied().find(|one| name(*one).eq_ignore_ascii_case(it));
    wanted.iter().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn suites_and_groups_are_limited_in_the_order_of_the_list() {
        let offer = Offer {
            suites_tls12: Some(list(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])),
            suites_tls13: Some(list(&["TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_256_GCM_SHA384"])),
            groups: Some(list(&["secp384r1", "X25519"])),
            ..Offer::default()
        };
        let provider = offer.provider();
        let suites: Vec<String> =
            provider.cipher_suites.iter().map(|it| iana(it.suite().as_str().unwrap_or_default())).collect();
        assert_eq!(
            suites,
            [
                "TLS_CHACHA20_POLY1305_SHA256",
                "TLS_AES_256_GCM_SHA384",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
            ]
        );
        let groups: Vec<&str> =
            provider.kx_groups.iter().map(|it| it.name().as_str().unwrap_or_default()).collect();
        assert_eq!(groups, ["secp384r1", "X25519"]);
        assert_eq!(offer.versions().len(), 2);
        let all = Offer::default().provider();
        assert!(all.cipher_suites.len() == 9 && all.kx_groups.len() > 2);
    }

    #[test]
    fn a_version_that_is_refused_or_has_no_suite_is_not_offered() {
        let no_suite = Offer { suites_tls12: Some(list(&[])), ..Offer::default() };
        assert_eq!(no_suite.versions(), [&version::TLS13]);
        let refused = Offer { without_tls13: true, ..Offer::default() };
        assert_eq!(refused.versions(), [&version::TLS12]);
    }
}
