//! `pki`: certificates and keys, as other branches name them.

use super::Reader;
use crate::error::Location;
use crate::schema::bytes_of;
use crate::tree::Tree;
use crypto::SecretBytes;

/// A reference to a branch of `pki`.
pub(super) struct Reference<'a> {
    /// The path whose value it is.
    pub(super) from: String,
    pub(super) location: Location,
    /// `certificate`, `ca` or `key-pair`.
    pub(super) kind: &'static str,
    pub(super) name: &'a str,
}

impl Reference<'_> {
    fn target(&self) -> String {
        format!("pki {} {}", self.kind, self.name)
    }
}

impl Reader {
    /// The name that a word refers to; it must be set.
    pub(super) fn reference<'a>(
        &mut self,
        path: &str,
        parent: &Tree,
        tree: &'a Tree,
        word: &str,
        kind: &'static str,
    ) -> Option<Reference<'a>> {
        let from = format!("{path} {word}");
        let Some(name) = tree.value(word) else {
            let fix = format!("set {from} NAME, the name of a pki {kind}");
            self.error(parent.location(), format!("{path}: {word} is not set"), fix);
            return None;
        };
        Some(Reference { from, location: tree.location_of(word), kind, name })
    }

    /// The branch that a name leads to; it must be there and not be revoked.
    pub(super) fn branch<'a>(&mut self, root: &'a Tree, reference: &Reference<'_>) -> Option<&'a Tree> {
        let tree = self.follow(root, &reference.from, reference.name, reference.location)?;
        let target = reference.target();
        if tree.has("revoke") {
            let reason = format!("{}: {target} is revoked", reference.from);
            self.error(reference.location, reason, format!("name another, or delete {target} revoke"));
            return None;
        }
        Some(tree)
    }

    /// The branch that a name leads to, and something public in it.
    pub(super) fn public<'a>(
        &mut self,
        root: &'a Tree,
        reference: &Reference<'_>,
        what: &str,
        path: &[&str],
    ) -> Option<(&'a Tree, Vec<u8>)> {
        let tree = self.branch(root, reference)?;
        let bytes = path.split_last().and_then(|(word, path)| bytes_of(tree.at(path)?.value(word)?));
        if bytes.is_none() {
            let target = reference.target();
            let reason = format!("{}: {target} has no {what}", reference.from);
            self.error(reference.location, reason, format!("set {target} {what} BASE64"));
        }
        bytes.map(|mut bytes| (tree, std::mem::take(&mut *bytes)))
    }

    pub(super) fn private_key(&mut self, reference: &Reference<'_>, tree: &Tree) -> Option<SecretBytes> {
        let target = reference.target();
        let private = tree.at(&["private"]);
        if private.is_some_and(|private| private.has("password-protected")) {
            let reason = format!(
                "{}: the private key of {target} has a passphrase, which is not supported",
                reference.from
            );
            let fix = format!(
                "set {target} private key BASE64, decrypted with `openssl pkey`; delete {target} private password-protected"
            );
            self.error(reference.location, reason, fix);
            return None;
        }
        let key = private.and_then(|private| bytes_of(private.value("key")?));
        if key.is_none() {
            let reason = format!("{}: {target} has no private key", reference.from);
            self.error(reference.location, reason, format!("set {target} private key BASE64"));
        }
        key.map(|mut key| SecretBytes::new(std::mem::take(&mut *key)))
    }
}
