//! Certificates and keys of `pki`, as the inline blocks of a file of OpenVPN.

use super::super::pki::Reference;
use super::profile::File;
use super::{Interface, Mode, Reader};
use crate::schema::bytes_of;
use crate::tree::Tree;
use base64ct::{Base64, Encoding};
use std::fmt::Write;
use zeroize::Zeroizing;

/// Characters in a line of a PEM file.
const PEM_LINE: usize = 64;
/// Hexadecimal digits in a line of a static key.
const KEY_LINE: usize = 32;
const STATIC_KEY: &str = "OpenVPN Static key V1";

impl Reader {
    /// Writes what `tls` names.
    pub(super) fn tls(&mut self, interface: &Interface<'_>, file: &mut File) {
        let empty = Tree::default();
        let tls = interface.tree.at(&["tls"]).unwrap_or(&empty);
        let path = interface.at("tls");
        self.authorities(interface, &path, tls, file);
        if tls.has("certificate") {
            self.certificate(interface, &path, tls, file);
        }
        for word in ["auth-key", "crypt-key"] {
            if tls.has(word) {
                self.shared_secret(interface, &path, tls, word, file);
            }
        }
        for fingerprint in tls.values("peer-fingerprint") {
            file.line(&format!("{path} peer-fingerprint"), &["peer-fingerprint", fingerprint]);
        }
        // Versions before 1.2 are never used.
        match tls.value("tls-version-min") {
            Some("1.3") => file.line(&format!("{path} tls-version-min"), &["tls-version-min", "1.3"]),
            Some(_) => file.line(&format!("{path} tls-version-min"), &["tls-version-min", "1.2"]),
            None => {}
        }
    }

    fn authorities(&mut self, interface: &Interface<'_>, path: &str, tls: &Tree, file: &mut File) {
        let (mut authorities, mut lists) = (String::new(), String::new());
        let from = format!("{path} ca-certificate");
        let mut list_files = 0;
        for name in tls.values("ca-certificate") {
            let location = tls.location_of("ca-certificate");
            let reference = Reference { from: from.clone(), location, kind: "ca", name };
            let Some((tree, der)) = self.public(interface.root, &reference, "certificate", &["certificate"])
            else {
                continue;
            };
            authorities.push_str(&pem("CERTIFICATE", &der));
            for list in tree.values("crl").into_iter().filter_map(bytes_of) {
                lists.push_str(&pem("X509 CRL", &list));
            }
            for list in tree.values("crl-file") {
                list_files += 1;
                file.line(&format!("pki ca {name} crl-file"), &["crl-verify", list]);
            }
        }
        if list_files > 1 || list_files == 1 && !lists.is_empty() {
            // OpenVPN would use the last one alone.
            let reason = format!("{from}: there are several revocation lists, of which one is a file");
            let fix = "put all lists into one file, and set it once: set pki ca NAME crl-file FILE";
            self.error(tls.location_of("ca-certificate"), reason, fix);
        }
        if !authorities.is_empty() {
            file.block(&from, "ca", &authorities);
        }
        if !lists.is_empty() {
            file.block(&from, "crl-verify", &lists);
        }
    }

    fn certificate(&mut self, interface: &Interface<'_>, path: &str, tls: &Tree, file: &mut File) {
        let Some(reference) = self.reference(path, interface.tree, tls, "certificate", "certificate") else {
            return;
        };
        let Some((tree, der)) = self.public(interface.root, &reference, "certificate", &["certificate"])
        else {
            return;
        };
        let Some(key) = self.private_key(&reference, tree) else { return };
        file.block(&reference.from, "cert", &pem("CERTIFICATE", &der));
        // OpenSSL tells the kind of a key from its content.
        file.block(&reference.from, "key", &pem("PRIVATE KEY", key.expose()));
    }

    fn shared_secret(
        &mut self,
        interface: &Interface<'_>,
        path: &str,
        tls: &Tree,
        word: &str,
        file: &mut File,
    ) {
        let kind = "openvpn shared-secret";
        let Some(reference) = self.reference(path, interface.tree, tls, word, kind) else { return };
        let Some(tree) = self.branch(interface.root, &reference) else { return };
        let Some(digits) = tree.value("key") else {
            let target = format!("pki {kind} {}", reference.name);
            let reason = format!("{}: {target} has no key", reference.from);
            let fix = format!("set {target} key HEX; make one with: postern generate {kind}");
            return self.error(
                reference.location,
                reason,
                fix.replace("generate openvpn", "generate pki openvpn"),
            );
        };
        let tag = if word == "auth-key" { "tls-auth" } else { "tls-crypt" };
        file.block(&reference.from, tag, &lines(STATIC_KEY, digits, KEY_LINE));
        if word == "auth-key" {
            let is_first = match interface.mode {
                Mode::Server => true,
                Mode::Client => false,
                Mode::SiteToSite => tls.value("role") != Some("active"),
            };
            file.line(&reference.from, &["key-direction", if is_first { "0" } else { "1" }]);
        }
    }
}

/// A section of a PEM file.
fn pem(label: &str, der: &[u8]) -> Zeroizing<String> {
    lines(label, &Zeroizing::new(Base64::encode_string(der)), PEM_LINE)
}

fn lines(label: &str, text: &str, length: usize) -> Zeroizing<String> {
    // No copy of a key is left behind by growth.
    let mut section = Zeroizing::new(String::with_capacity(text.len() + text.len() / length + 200));
    let _ = writeln!(section, "-----BEGIN {label}-----");
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(length.min(rest.len()));
        let _ = writeln!(section, "{line}");
        rest = after;
    }
    let _ = writeln!(section, "-----END {label}-----");
    section
}
