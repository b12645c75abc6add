//! Certificates, made by strongSwan's own tool: a root, an authority below it for each side, and hosts below those.
//!
//! ```text
//! root ─┬─ between-a ── a    ours
//!       └─ between-b ── b    charon's
//! ```

use crate::support::skip;
use bench::Outcome;
use lab::{Lab, has_program, run};
use std::path::Path;
use tempfile::TempDir;

/// Which keys there are: of the authorities, and of the hosts.
#[derive(Clone, Copy)]
pub struct Keys {
    pub authorities: &'static str,
    pub hosts: &'static str,
}

/// A folder of certificates in PEM, each beside its key; or of keys alone.
pub struct Authorities {
    folder: TempDir,
}

/// The sites, where the tool is there.
pub fn sites() -> Option<Lab> {
    if !has_program("pki") {
        skip("needs strongswan-pki, which is not installed");
        return None;
    }
    super::sites()
}

/// The subject of a certificate.
fn subject(name: &str) -> String {
    format!("C=CH, O=Sites, CN={name}")
}

impl Authorities {
    /// All of the picture, the hosts with these names besides their subjects.
    pub fn new(keys: Keys, names: [&[&str]; 2]) -> Outcome<Self> {
        let this = Self { folder: TempDir::new()? };
        for name in ["root", "between-a", "between-b"] {
            this.key(name, keys.authorities)?;
        }
        let root = this.path("root.key");
        let subject = subject("root");
        this.pki("root.pem", &["--self", "--in", &root, "--type", "priv", "--ca", "--dn", &subject])?;
        for (host, between, names) in [("a", "between-a", names[0]), ("b", "between-b", names[1])] {
            this.issue(between, "root", &["--ca"])?;
            this.key(host, keys.hosts)?;
            let names: Vec<&str> = names.iter().flat_map(|name| ["--san", name]).collect();
            this.issue(host, between, &names)?;
        }
        Ok(this)
    }

    /// Keys alone, each beside its public one.
    pub fn without(names: &[&str], kind: &str) -> Outcome<Self> {
        let this = Self { folder: TempDir::new()? };
        for name in names {
            this.key(name, kind)?;
            let key = this.path(&format!("{name}.key"));
            this.pki(&format!("{name}.pub"), &["--pub", "--type", "priv", "--in", &key])?;
        }
        Ok(this)
    }

    /// Where a file is; the folder itself for none.
    pub fn path(&self, file: &str) -> String {
        self.folder.path().join(file).to_string_lossy().into_owned()
    }

    /// Runs the tool, whose output is a file.
    fn pki(&self, file: &str, arguments: &[&str]) -> Outcome<()> {
        let written = run("pki", arguments.iter().copied().chain(["--outform", "pem"]))?;
        Ok(std::fs::write(self.folder.path().join(file), written)?)
    }

    fn key(&self, name: &str, kind: &str) -> Outcome<()> {
        let kind: Vec<&str> = ["--gen", "--type"].into_iter().chain(kind.split(' ')).collect();
        self.pki(&format!("{name}.key"), &kind)
    }

    /// A certificate for a key that is there.
    pub fn issue(&self, name: &str, issuer: &str, more: &[&str]) -> Outcome<()> {
        let [key, authority, its_key] =
            [format!("{name}.key"), format!("{issuer}.pem"), format!("{issuer}.key")]
                .map(|it| self.path(&it));
        let subject = subject(name);
        let issue = ["--issue", "--in", &key, "--type", "priv", "--cacert", &authority, "--cakey", &its_key];
        self.pki(&format!("{name}.pem"), &[&issue, &["--dn", &subject][..], more].concat())
    }

    /// Has an authority revoke these certificates, in a list of its own.
    pub fn revoke(&self, authority: &str, revoked: &[&str]) -> Outcome<()> {
        let [its, key] = [format!("{authority}.pem"), format!("{authority}.key")].map(|it| self.path(&it));
        let revoked: Vec<String> = revoked.iter().map(|name| self.path(&format!("{name}.pem"))).collect();
        let revoked = revoked.iter().flat_map(|path| ["--reason", "key-compromise", "--cert", path]);
        let list: Vec<&str> =
            ["--signcrl", "--cacert", &its, "--cakey", &key].into_iter().chain(revoked).collect();
        self.pki(&format!("{authority}.crl"), &list)
    }

    /// What stands in a PEM file, as our configuration wants it.
    pub fn base64(&self, file: &str) -> String {
        let text = std::fs::read_to_string(self.folder.path().join(file)).expect("it was made");
        text.lines().filter(|line| !line.starts_with('-')).collect()
    }

    /// Gives a file to charon.
    pub fn hand(&self, file: &str, to: &Path) -> Outcome<()> {
        std::fs::copy(self.folder.path().join(file), to.join(file))?;
        Ok(())
    }
}
