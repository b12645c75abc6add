//! Certificates and keys in files beside a configuration, and the lines of `pki` that they become.

use super::files::Files;
use super::place::Origin;
use super::report::Draft;
use base64ct::{Base64, Encoding};
use crypto::pem;
use crypto::pki::{Certificate, TrustStore};
use crypto::signature::{SigningKey, VerifyingKey};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Where files are looked up that are named without a path.
#[derive(Clone, Default)]
pub(super) struct Directories {
    pub(super) certificates: Vec<PathBuf>,
    pub(super) authorities: Vec<PathBuf>,
    pub(super) private: Vec<PathBuf>,
    pub(super) public: Vec<PathBuf>,
    pub(super) lists: Vec<PathBuf>,
}

/// A private key, and its text.
struct Private {
    path: PathBuf,
    public: VerifyingKey,
    base64: Zeroizing<String>,
}

/// The certificates and keys of a configuration.
pub(super) struct Store<'a> {
    files: &'a dyn Files,
    directories: Directories,
    private: Vec<Private>,
    /// Private keys that cannot be read, and why.
    unreadable: Vec<String>,
    /// The files of authorities that are named apart.
    trusted: Vec<String>,
}

const CERTIFICATE: &str = "certificate";
const AUTHORITY: &str = "ca";
const KEY_PAIR: &str = "key-pair";

impl<'a> Store<'a> {
    pub(super) fn new(files: &'a dyn Files, directories: Directories) -> Self {
        let mut store =
            Self { files, directories, private: Vec::new(), unreadable: Vec::new(), trusted: Vec::new() };
        for path in store.all(&store.directories.private) {
            store.add_private(&path);
        }
        store
    }

    /// The files in directories, in the order of their names.
    fn all(&self, directories: &[PathBuf]) -> Vec<PathBuf> {
        let files = directories.iter().flat_map(|directory| {
            let names = self.files.list(directory).unwrap_or_default();
            names.into_iter().map(|name| directory.join(name)).collect::<Vec<_>>()
        });
        files.collect()
    }

    /// Reads a private key, beside those in the directories.
    pub(super) fn add_private(&mut self, path: &Path) -> bool {
        if self.private.iter().any(|known| known.path == path) {
            return true;
        }
        let read = || -> Result<Private, String> {
            let text = self.files.read(path).map_err(|error| error.to_string())?;
            let key = SigningKey::from_file(text.bytes()).map_err(|error| error.to_string())?;
            let sections = pem::read(text.bytes()).map_err(|error| error.to_string())?;
            let is_key = |label: &str| label.is_empty() || label.ends_with("PRIVATE KEY");
            let der =
                sections.iter().find(|section| is_key(&section.label)).map(|section| section.der.expose());
            let base64 = Zeroizing::new(Base64::encode_string(der.unwrap_or_default()));
            Ok(Private { path: path.to_owned(), public: key.public().clone(), base64 })
        };
        match read() {
            Ok(private) => self.private.push(private),
            Err(why) => {
                self.unreadable.push(format!("{}: {why}", path.display()));
                return false;
            }
        }
        true
    }

    /// Reads the private key of a file that is named in a configuration.
    pub(super) fn add_named_private(&mut self, name: &str) -> Result<(), String> {
        let (path, _) = self.find(&self.directories.private, name)?;
        if self.add_private(&path) {
            return Ok(());
        }
        Err(self.unreadable.last().cloned().unwrap_or_default())
    }

    /// The first file of a name that is there, and its content.
    fn find(&self, directories: &[PathBuf], name: &str) -> Result<(PathBuf, crate::Text), String> {
        let path = Path::new(name);
        let paths: Vec<PathBuf> = if path.is_absolute() || directories.is_empty() {
            vec![path.to_owned()]
        } else {
            directories.iter().map(|directory| directory.join(path)).collect()
        };
        let mut why = String::new();
        for path in paths {
            match self.files.read(&path) {
                Ok(text) => return Ok((path, text)),
                Err(error) => why = format!("cannot read {}: {error}", path.display()),
            }
        }
        Err(why)
    }

    /// Adds our certificate with its private key; returns its name in `pki`.
    pub(super) fn certificate(
        &self,
        file: &str,
        origin: &Origin,
        draft: &mut Draft,
    ) -> Result<String, String> {
        let (path, text) = self.find(&self.directories.certificates, file)?;
        let found =
            Certificate::from_file(text.bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
        let certificate = found.first().ok_or("it is empty")?;
        let private = self.private.iter().find(|private| private.public.info() == certificate.key().info());
        let Some(private) = private else {
            let others = self.unreadable.first().map(|why| format!("; {why}")).unwrap_or_default();
            return Err(format!("no private key belongs to {}{others}", path.display()));
        };
        let name = draft.names.of_file(CERTIFICATE, &path);
        let at = format!("pki {CERTIFICATE} {name}");
        draft.imply(origin, &format!("{at} certificate"), Some(&Base64::encode_string(certificate.to_der())));
        draft.imply(origin, &format!("{at} private key"), Some(&private.base64));
        Ok(name)
    }

    /// The files of certificates that have a private key.
    pub(super) fn own_certificates(&self) -> Vec<String> {
        let is_own = |path: &PathBuf| {
            let text = self.files.read(path).ok();
            let found = text.and_then(|text| Certificate::from_file(text.bytes()).ok()).unwrap_or_default();
            found.first().is_some_and(|certificate| {
                self.private.iter().any(|private| private.public.info() == certificate.key().info())
            })
        };
        let paths = self.all(&self.directories.certificates).into_iter().filter(is_own);
        paths.map(|path| path.display().to_string()).collect()
    }

    /// Adds an authority with its revocation lists; returns its name in `pki`.
    pub(super) fn authority(&self, file: &str, origin: &Origin, draft: &mut Draft) -> Result<String, String> {
        let (path, text) = self.find(&self.directories.authorities, file)?;
        let found =
            Certificate::from_file(text.bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
        let certificate = found.first().ok_or("it is empty")?;
        if !certificate.is_authority() {
            return Err(format!("{} is no certificate of an authority", path.display()));
        }
        let name = draft.names.of_file(AUTHORITY, &path);
        let at = format!("pki {AUTHORITY} {name}");
        let base64 = Base64::encode_string(certificate.to_der());
        draft.imply(origin, &format!("{at} certificate"), Some(&base64));
        for list in self.all(&self.directories.lists) {
            let mut trust = TrustStore::default();
            let is_its = trust.add_authority(certificate.clone()).is_ok()
                && self.files.read(&list).is_ok_and(|text| trust.add_revocation_lists(text.bytes()).is_ok());
            if is_its {
                draft.imply(origin, &format!("{at} crl-file"), Some(&list.display().to_string()));
            }
        }
        Ok(name)
    }

    /// Adds an authority, by its file, to those that all peers trust.
    pub(super) fn trust(&mut self, file: &str) {
        self.trusted.push(file.to_owned());
    }

    /// The files of all authorities.
    pub(super) fn authorities(&self) -> Vec<String> {
        let of_folder = self.all(&self.directories.authorities).into_iter();
        let mut found: Vec<String> = of_folder.map(|path| path.display().to_string()).collect();
        for file in &self.trusted {
            // It may be one of the folder.
            if !found.iter().any(|known| Path::new(known).ends_with(file)) {
                found.push(file.clone());
            }
        }
        found
    }

    /// Adds a key pair of which the public key is in a file, or is the text itself; with the private key, if that is here.
    pub(super) fn key_pair(&self, file: &str, origin: &Origin, draft: &mut Draft) -> Result<String, String> {
        if let Some(text) = file.strip_prefix("0s") {
            let info = rsa_info(text).ok_or("it is no RSA key of RFC 3110 in base64")?;
            let key = VerifyingKey::from_info(&info).map_err(|error| error.to_string())?;
            return Ok(self.add_key_pair(Path::new(&origin.option), &key, origin, draft));
        }
        let (path, text) = self.find(&self.directories.public, file)?;
        let sections = pem::read(text.bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
        let info = sections.first().map(|section| section.der.expose()).unwrap_or_default();
        let key = VerifyingKey::from_info(info).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(self.add_key_pair(&path, &key, origin, draft))
    }

    fn add_key_pair(&self, path: &Path, key: &VerifyingKey, origin: &Origin, draft: &mut Draft) -> String {
        let name = draft.names.of_file(KEY_PAIR, path);
        let at = format!("pki {KEY_PAIR} {name}");
        draft.imply(origin, &format!("{at} public key"), Some(&Base64::encode_string(key.info())));
        let private = self.private.iter().find(|private| private.public.info() == key.info());
        if let Some(private) = private {
            draft.imply(origin, &format!("{at} private key"), Some(&private.base64));
        }
        name
    }

    /// Adds the key pair of the only private key.
    pub(super) fn only_key_pair(&self, origin: &Origin, draft: &mut Draft) -> Result<String, String> {
        let [private] = &self.private[..] else {
            return Err("there is not one private key alone".to_owned());
        };
        Ok(self.add_key_pair(&private.path, &private.public, origin, draft))
    }
}

/// The SubjectPublicKeyInfo of an RSA key that is written as DNS has it (RFC 3110): the length of the exponent, the
/// exponent, and the modulus, in base64.
fn rsa_info(text: &str) -> Option<Vec<u8>> {
    let mut padded = text.trim_end_matches('=').to_owned();
    (0..(4 - padded.len() % 4) % 4).for_each(|_| padded.push('='));
    let bytes = Base64::decode_vec(&padded).ok()?;
    let (length, rest) = match bytes.split_first()? {
        (0, rest) => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        (length, rest) => (usize::from(*length), rest),
    };
    let (exponent, modulus) = rest.split_at_checked(length)?;
    let key = element(0x30, &[integer(modulus)?, integer(exponent)?].concat());
    // AlgorithmIdentifier of rsaEncryption (RFC 8017, appendix A.1).
    const RSA: [u8; 15] =
        [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
    let bits = element(0x03, &[&[0], &key[..]].concat());
    Some(element(0x30, &[&RSA[..], &bits].concat()))
}

/// An unsigned INTEGER in DER.
fn integer(bytes: &[u8]) -> Option<Vec<u8>> {
    let first = bytes.iter().position(|byte| *byte != 0)?;
    let bytes = &bytes[first..];
    let sign: &[u8] = if bytes[0] >= 0x80 { &[0] } else { &[] };
    Some(element(0x02, &[sign, bytes].concat()))
}

/// An element in DER.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1)..];
    let mut bytes = vec![tag];
    if content.len() < 128 {
        bytes.extend(length);
    } else {
        bytes.push(0x80 | length.len() as u8);
        bytes.extend(length);
    }
    bytes.extend(content);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_dns_is_a_subject_public_key_info() {
        let modulus: Vec<u8> = (0..256u16).map(|number| 0xff - (number % 255) as u8).collect();
        let text = Base64::encode_string(&[&[3, 1, 0, 1], &modulus[..]].concat());
        let info = rsa_info(&text).expect("right");
        let key = VerifyingKey::from_info(&info).expect("a key");
        assert_eq!(key.info(), info);
        let long = Base64::encode_string(&[&[0, 0, 3, 1, 0, 1], &modulus[..]].concat());
        assert_eq!(rsa_info(&long).as_ref(), Some(&info));
        for wrong in ["", "AA", "AwEAAQ", "????", "/w"] {
            assert_eq!(rsa_info(wrong), None, "{wrong}");
        }
    }
}
