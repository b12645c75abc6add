//! `postern import easy-rsa`: the folder `pki` of easy-rsa as lines of `set pki`.
//!
//! ```text
//! ca.crt, crl.pem, private/ca.key ──────> pki ca NAME
//! issued/NAME.crt, private/NAME.key ────> pki certificate NAME
//! ta.key, private/easyrsa-tls.key ──────> pki openvpn shared-secret NAME
//! ```

use super::digits_of;
use crate::Failure;
use base64ct::{Base64, Encoding};
use clap::Args;
use config::schema::Type;
use crypto::pem::{self, Section};
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Where easy-rsa keeps a static key, and the name that it gets.
const STATIC_KEYS: &[(&str, &str)] = &[
    ("ta.key", "ta"),
    ("tc.key", "tc"),
    ("private/ta.key", "ta"),
    ("private/easyrsa-tls.key", "easyrsa-tls"),
];
/// More certificates than that are not read.
const MOST: usize = 10_000;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The folder of easy-rsa, or the folder `pki` in it
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Name of the authority in the configuration
    #[arg(long, default_value = "easy-rsa")]
    ca: String,
    /// Write the lines to a new file that only its owner can read
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// The lines, and what was left.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) lines: Zeroizing<String>,
    pub(crate) left: Vec<String>,
}

/// Reads the folder.
pub(crate) fn import(arguments: &Arguments) -> Result<Found, Failure> {
    let Arguments { folder, ca, .. } = arguments;
    let inner = folder.join("pki");
    let folder = if inner.join("ca.crt").exists() { inner } else { folder.clone() };
    let name = folder.join("ca.crt");
    let mut found = Found::default();
    let path = format!("pki ca {}", named(ca)?);
    found.certificate(&name, &path)?;
    found.key(&folder.join("private/ca.key"), &path)?;
    if let Some(list) = sections(&folder.join("crl.pem"))?.and_then(|sections| sections.into_iter().next()) {
        found.set(&path, "crl", &Zeroizing::new(Base64::encode_string(list.der.expose())));
    }
    for (name, file) in issued(&folder.join("issued"))? {
        let Ok(name) = named(&name) else {
            found.left.push(format!("{}: its name has white space: rename the file", file.display()));
            continue;
        };
        let path = format!("pki certificate {name}");
        found.certificate(&file, &path)?;
        found.key(&folder.join(format!("private/{name}.key")), &path)?;
    }
    for (file, name) in STATIC_KEYS {
        if let Some(text) = read(&folder.join(file))?
            && let Some(digits) = digits_of(std::str::from_utf8(&text).unwrap_or_default())
        {
            found.set(&format!("pki openvpn shared-secret {name}"), "key", &digits);
        }
    }
    Ok(found)
}

impl Found {
    fn set(&mut self, path: &str, word: &str, value: &str) {
        // No copy of a key is left behind by growth.
        let length = self.lines.len() + path.len() + word.len() + value.len() + 8;
        if length > self.lines.capacity() {
            let mut larger = Zeroizing::new(String::with_capacity(2 * length));
            larger.push_str(&self.lines);
            self.lines = larger;
        }
        let _ = writeln!(self.lines, "set {path} {word} {value}");
    }

    fn certificate(&mut self, file: &Path, path: &str) -> Result<(), Failure> {
        let sections = sections(file)?.unwrap_or_default();
        let certificate = sections.iter().find(|section| section.label == "CERTIFICATE");
        let certificate = certificate.ok_or_else(|| {
            format!("{}: there is no certificate\n  fix: name the folder pki of easy-rsa", file.display())
        })?;
        self.set(path, "certificate", &Base64::encode_string(certificate.der.expose()));
        Ok(())
    }

    /// A key that is not there is not an error: requests are signed on another machine than that of the key.
    fn key(&mut self, file: &Path, path: &str) -> Result<(), Failure> {
        let sections = sections(file)?.unwrap_or_default();
        let Some(key) = sections.iter().find(|section| section.label.ends_with("PRIVATE KEY")) else {
            return Ok(());
        };
        if key.encrypted || key.label.starts_with("ENCRYPTED") {
            self.left.push(format!(
                "{}: it has a passphrase; to take it: openssl pkey -in FILE -out FILE, and import again",
                file.display()
            ));
            return Ok(());
        }
        self.set(path, "private key", &Zeroizing::new(Base64::encode_string(key.der.expose())));
        Ok(())
    }
}

fn named(name: &str) -> Result<&str, Failure> {
    Type::Name.check(name)?;
    Ok(name)
}

/// The certificates of a folder, by name.
fn issued(folder: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", folder.display()).into()),
    };
    let paths = entries.flatten().map(|entry| entry.path()).take(MOST);
    let mut found: Vec<(String, PathBuf)> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "crt"))
        .filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path)))
        .collect();
    found.sort();
    Ok(found)
}

fn sections(file: &Path) -> Result<Option<Vec<Section>>, Failure> {
    let Some(bytes) = read(file)? else { return Ok(None) };
    Ok(Some(pem::read(&bytes).map_err(|error| format!("{}: {error}", file.display()))?))
}

/// The content of a file, if it is there.
fn read(file: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(Zeroizing::new(bytes))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", file.display()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = "text\n-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";

    #[test]
    fn the_folder_of_easy_rsa_becomes_lines_of_set() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join("pki").join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("ca.crt", CERTIFICATE);
        write("issued/anna.crt", CERTIFICATE);
        write("issued/bert.crt", CERTIFICATE);
        write("private/anna.key", KEY);
        write("private/bert.key", &KEY.replace("PRIVATE", "ENCRYPTED PRIVATE"));
        let lines = "4f".repeat(16) + "\n";
        let static_key = format!(
            "#\n# 2048 bit OpenVPN static key\n#\n-----BEGIN OpenVPN Static key V1-----\n{}-----END OpenVPN Static key V1-----\n",
            lines.repeat(16)
        );
        write("ta.key", &static_key);
        let arguments = Arguments { folder: folder.path().to_owned(), ca: "users".to_owned(), output: None };
        let found = import(&arguments).expect("read");
        assert_eq!(
            found.lines.as_str(),
            format!(
                "set pki ca users certificate MAA=\nset pki certificate anna certificate MAA=\n\
                 set pki certificate anna private key MAA=\nset pki certificate bert certificate MAA=\n\
                 set pki openvpn shared-secret ta key {}\n",
                "4f".repeat(256)
            )
        );
        assert!(config::parse(&found.lines).is_ok());
        assert!(
            found.left.len() == 1 && found.left[0].contains("bert.key: it has a passphrase"),
            "{:?}",
            found.left
        );
        let empty = tempfile::tempdir().expect("a folder");
        let arguments = Arguments { folder: empty.path().to_owned(), ..arguments };
        assert!(
            import(&arguments).err().is_some_and(|error| error.to_string().contains("fix: name the folder"))
        );
    }
}
