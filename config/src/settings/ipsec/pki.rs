//! Certificates and keys of `pki`, as a peer's authentication names them.

use super::super::pki::Reference;
use super::{Authority, Named, Reader, Revocation, Rsa, X509};
use crate::schema::bytes_of;
use crate::tree::Tree;

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
        let (branch, public) = self.public(named.root, &certificate, "certificate", &["certificate"])?;
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
        let own = self.branch(named.root, &local).and_then(|branch| self.private_key(&local, branch));
        let (_, public_key) = self.public(named.root, &remote, "public key", &["public", "key"])?;
        Some(Rsa {
            local_key: local.name.to_owned(),
            private_key: own?,
            remote_key: remote.name.to_owned(),
            public_key,
        })
    }

    fn authority(&mut self, named: &Named<'_>, reference: &Reference<'_>) -> Option<Authority> {
        let (tree, certificate) = self.public(named.root, reference, "certificate", &["certificate"])?;
        let lists = tree.values("crl").into_iter().filter_map(bytes_of);
        Some(Authority {
            name: reference.name.to_owned(),
            certificate,
            revocation_lists: lists.map(|mut list| std::mem::take(&mut *list)).collect(),
            revocation_files: tree.values("crl-file").into_iter().map(str::to_owned).collect(),
        })
    }
}
