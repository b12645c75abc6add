//! `system`, typed.

use super::set_or_default;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// What is decided about crypto engines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crypto {
    /// The engine for a cipher, by their names.
    pub pinned: BTreeMap<String, String>,
    /// Whether accelerators on a bus may be used.
    pub accelerators: bool,
}

impl Crypto {
    pub(super) fn new(tree: &Tree) -> Self {
        let ciphers = tree.at(&["system", "crypto", "engine"]);
        let pins = ciphers.into_iter().flat_map(|ciphers| {
            let names = ciphers.children().map(|(cipher, _)| cipher);
            names.filter_map(|cipher| Some((cipher.to_owned(), ciphers.value(cipher)?.to_owned())))
        });
        Self { pinned: pins.collect(), accelerators: tree.at(&["system", "acceleration", "qat"]).is_some() }
    }
}

/// How many revisions of the configuration are kept.
pub(super) fn commit_revisions(tree: &Tree) -> usize {
    const PARENT: &str = "system config-management";
    let branch = tree.at(&["system", "config-management"]).cloned().unwrap_or_default();
    set_or_default(&branch, PARENT, "commit-revisions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn a_thousand_revisions_are_kept_unless_it_is_said_otherwise() {
        let kept = |text: &str| commit_revisions(&parse(text).expect("right"));
        assert_eq!((kept(""), kept("set system config-management commit-revisions 7")), (1000, 7));
    }

    #[test]
    fn ciphers_and_pairs_are_pinned_by_their_names() {
        let text = "set system crypto engine aes-256-gcm openssl\n\
                    set system crypto engine aes-256-cbc+hmac-sha256-128 ipsec-mb";
        let crypto = Crypto::new(&parse(text).expect("right"));
        let pins: Vec<_> = crypto.pinned.iter().map(|(cipher, engine)| (&**cipher, &**engine)).collect();
        assert_eq!(pins, [("aes-256-cbc+hmac-sha256-128", "ipsec-mb"), ("aes-256-gcm", "openssl")]);
    }

    #[test]
    fn a_pair_that_does_not_exist_is_refused_with_the_nearest() {
        let errors = parse("set system crypto engine aes-256-cbc+hmac-sha256 openssl").expect_err("wrong");
        assert!(errors[0].fix.as_ref().is_some_and(|fix| fix.contains("hmac-sha")), "{errors:?}");
        let errors = parse("set system crypto engine aes-256-cbc+hmac-sha256-12 openssl").expect_err("wrong");
        assert_eq!(errors[0].fix.as_deref(), Some("did you mean aes-256-cbc+hmac-sha256-128?"));
    }
}
