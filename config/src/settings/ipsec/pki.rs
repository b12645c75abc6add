//! Certificates and keys of `pki`, as a peer's authentication names them.

use super::{Authority, Named, Reader, Revocation, Rsa, X509};
use crate::error::Location;
use crate::schema::bytes_of;
use crate::tree::Tree;
use crypto::SecretBytes;

/// A reference to a branch of `pki`.
struct Reference<'a> {
    /// The path whose value it is.
    from: String,
    location: Location,
    /// `certificate`, `ca` or `key-pair`.
    kind: &'static str,
    name: &'a str,
}

impl Reference<'_> {
    fn target(&self) -> String {
        format!("pki {} {}", self.kind, self.name)
    }
}

impl Reader {
    pub(super) fn x509(&mut self, named: &Named<'_>, path: &str, tree: &Tree) -> Option<X509> {
        let path = format!("{path} authentication x509");
        let tree = tree.at(&["authentication"])?;
        let empty = Tree::default();
        let x509 = tree.at(&["x509"]).unwrap_or(&empty);
        let certificate = self.reference(&path, tree, x509, "certificate", "certificate");
        if !x509.has("ca-certificate") {
            let fix = format!(
                "set {path} ca-certificate NAME, the authority that signed the certificate of the peer"
            );
            self.error(tree.location(), format!("{path}: ca-certificate is not set"), fix);
        }
        let authorities: Vec<Option<Authority>> = x509
            .values("ca-certificate")
            .into_iter()
            .map(|name| {
                let from = format!("{path} ca-certificate");
                let location = x509.location_of("ca-certificate");
                self.authority(named, &Reference { from, location, kind: "ca", name })
            })
            .collect();
        let certificate = certificate?;
        let (branch, public) = self.public(named, &certificate, "certificate", &["certificate"])?;
        Some(X509 {
            name: certificate.name.to_owned(),
            certificate: public,
            private_key: self.private_key(&certificate, branch)?,
            authorities: authorities.into_iter().collect::<Option<_>>()?,
            accept_sha1: x509.has("accept-sha1"),
            revocation: match x509.value("revocation") {
                Some("strict") => Revocation::Strict,
                Some("ifuri") => Revocation::IfUri,
                _ => Revocation::Relaxed,
            },
        })
    }

    pub(super) fn rsa(&mut self, named: &Named<'_>, path: &str, tree: &Tree) -> Option<Rsa> {
        let path = format!("{path} authentication rsa");
        let tree = tree.at(&["authentication"])?;
        let empty = Tree::default();
        let rsa = tree.at(&["rsa"]).unwrap_or(&empty);
        let local = self.reference(&path, tree, rsa, "local-key", "key-pair");
        let remote = self.reference(&path, tree, rsa, "remote-key", "key-pair");
        let (local, remote) = (local?, remote?);
        let own = self.branch(named, &local).and_then(|branch| self.private_key(&local, branch));
        let (_, public_key) = self.public(named, &remote, "public key", &["public", "key"])?;
        Some(Rsa {
            local_key: local.name.to_owned(),
            private_key: own?,
            remote_key: remote.name.to_owned(),
            public_key,
        })
    }

    fn authority(&mut self, named: &Named<'_>, reference: &Reference<'_>) -> Option<Authority> {
        let (tree, certificate) = self.public(named, reference, "certificate", &["certificate"])?;
        let lists = tree.values("crl").into_iter().filter_map(bytes_of);
        Some(Authority {
            name: reference.name.to_owned(),
            certificate,
            revocation_lists: lists.map(|mut list| std::mem::take(&mut *list)).collect(),
            revocation_files: tree.values("crl-file").into_iter().map(str::to_owned).collect(),
        })
    }

    /// The name that a word refers to; it must be set.
    fn reference<'a>(
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
    fn branch<'a>(&mut self, named: &Named<'a>, reference: &Reference<'_>) -> Option<&'a Tree> {
        let tree = self.follow(named.root, &reference.from, reference.name, reference.location)?;
        let target = reference.target();
        if tree.has("revoke") {
            let reason = format!("{}: {target} is revoked", reference.from);
            self.error(reference.location, reason, format!("name another, or delete {target} revoke"));
            return None;
        }
        Some(tree)
    }

    /// The branch that a name leads to, and something public in it.
    fn public<'a>(
        &mut self,
        named: &Named<'a>,
        reference: &Reference<'_>,
        what: &str,
        path: &[&str],
    ) -> Option<(&'a Tree, Vec<u8>)> {
        let tree = self.branch(named, reference)?;
        let bytes = path.split_last().and_then(|(word, path)| bytes_of(tree.at(path)?.value(word)?));
        if bytes.is_none() {
            let target = reference.target();
            let reason = format!("{}: {target} has no {what}", reference.from);
            self.error(reference.location, reason, format!("set {target} {what} BASE64"));
        }
        bytes.map(|mut bytes| (tree, std::mem::take(&mut *bytes)))
    }

    fn private_key(&mut self, reference: &Reference<'_>, tree: &Tree) -> Option<SecretBytes> {
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
