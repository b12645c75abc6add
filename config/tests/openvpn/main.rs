//! OpenVPN's own configuration: realistic files, each refusal, and nothing that shows a secret.

mod errors;
mod helpers;
mod realistic;
mod refused;
mod table;

use config::Text;
use config::import::Files;
use config::openvpn::{Loaded, OpenVpn, Refusal, load};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// Secrets of the sources, none of which may be shown.
const SECRETS: &[&str] = &["T3BlblNlc2FtZQ", "4f70656e536573616d65", "hunter2"];

/// Files in memory. Certificates and keys are there under any name that ends as they do.
#[derive(Default)]
struct Memory(BTreeMap<PathBuf, String>);

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nT3BlblNlc2FtZQ==\n-----END PRIVATE KEY-----\n";
const STATIC_KEY: &str =
    "-----BEGIN OpenVPN Static key V1-----\n4f70656e536573616d65\n-----END OpenVPN Static key V1-----\n";
const LIST: &str = "-----BEGIN X509 CRL-----\nAA==\n-----END X509 CRL-----\n";

impl Memory {
    fn with(mut self, name: &str, content: &str) -> Self {
        self.0.insert(name.into(), content.to_owned());
        self
    }
}

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Text> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let extension = path.extension().unwrap_or_default();
        let content = match self.0.get(path) {
            Some(content) => content,
            None if extension == "crt" => CERTIFICATE,
            None if ["ta.key", "tls-crypt.key"].contains(&name) => STATIC_KEY,
            None if extension == "key" => KEY,
            None if name == "crl.pem" => LIST,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let mut text = Text::default();
        text.write_str(content).expect("memory");
        Ok(text)
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fn arguments(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Loads a text as the file `it.conf`.
fn text(content: &str) -> Result<Loaded, Vec<Refusal>> {
    let loaded = load(&arguments(&["--config", "it.conf"]), &Memory::default().with("it.conf", content));
    let shown = match &loaded {
        Ok(loaded) => format!("{loaded:?}"),
        Err(refusals) => refusals.iter().map(|refusal| format!("{refusal}{refusal:?}")).collect(),
    };
    for secret in SECRETS {
        assert!(!shown.contains(secret), "{secret} is shown: {shown}");
    }
    loaded
}

/// A text that loads.
fn good(content: &str) -> OpenVpn {
    match text(content) {
        Ok(loaded) => loaded.settings,
        Err(refusals) => panic!("{}\n{content}", shown(&refusals)),
    }
}

/// A text that is refused, with all its errors.
fn bad(content: &str) -> String {
    match text(content) {
        Ok(_) => panic!("it loads: {content}"),
        Err(refusals) => shown(&refusals),
    }
}

fn shown(refusals: &[Refusal]) -> String {
    refusals.iter().map(|refusal| format!("{refusal}\n")).collect()
}

/// The lines that each server needs.
const SERVER: &str = "dev tun\nserver 10.8.0.0 255.255.255.0\nca ca.crt\ncert server.crt\nkey server.key\n";

/// The lines that each client needs.
const CLIENT: &str = "dev tun\nclient\nremote vpn.example.net\nca ca.crt\ncert client.crt\nkey client.key\n";
