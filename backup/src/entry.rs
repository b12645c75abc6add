//! One file of a backup.

use crypto::hash::sha256;
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a file.
pub const LARGEST: u64 = 64 << 20;
/// Bytes of all files together.
pub const LARGEST_SUM: u64 = 256 << 20;
/// Files of a backup.
pub const MOST: usize = 4096;
/// Characters in the path of a file.
const LONGEST_PATH: usize = 1024;

const FILES: &str = "files";
const REVISIONS: &str = "revisions/";
const HTTPS: &str = "https/";

/// The files of the HTTPS server, the one last that makes the others valid.
pub const HTTPS_FILES: [&str; 3] = ["key.pem", "certificate.pem", "made.json"];

/// A file, with what the disk says about it.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it belongs.
    pub place: Place,
    /// Its permissions, at most 0777.
    pub mode: u32,
    /// The names of its owner and of its group.
    pub user: String,
    /// The name of its group.
    pub group: String,
    /// What it holds.
    pub content: Content,
}

/// The bytes of a file, erased when dropped and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(Zeroizing<Vec<u8>>);

/// Where a file belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// At a path of the machine.
    File(String),
    /// In the archive of revisions, by this name.
    Revision(String),
    /// In the folder of the HTTPS server, by this name: the certificate that it has made, which clients pin.
    Https(String),
}

impl Content {
    /// Takes the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// SHA-256 in hexadecimal.
    pub fn digest(&self) -> String {
        base16ct::lower::encode_string(&sha256(&[&self.0]))
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.0.len())
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:04o} {:?}", self.place, self.mode, self.content)
    }
}

impl Place {
    /// A path of the machine, if a backup can have it: absolute, and in its shortest form.
    pub fn of_path(path: &str) -> Option<Self> {
        is_whole(path).then(|| Self::File(path.to_owned()))
    }

    /// A file in the archive of revisions: its number, and `conf` or `confirmed`.
    pub fn of_revision(name: &str) -> Option<Self> {
        let (number, kind) = name.split_once('.')?;
        let is_number = (8..=20).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && matches!(kind, "conf" | "confirmed")).then(|| Self::Revision(name.to_owned()))
    }

    /// A file of the HTTPS server.
    pub fn of_https(name: &str) -> Option<Self> {
        HTTPS_FILES.contains(&name).then(|| Self::Https(name.to_owned()))
    }

    /// Reads the name that it has in the tar file.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(path) = name.strip_prefix(FILES) {
            return Self::of_path(path);
        }
        match name.strip_prefix(HTTPS) {
            Some(name) => Self::of_https(name),
            None => Self::of_revision(name.strip_prefix(REVISIONS)?),
        }
    }

    /// The path of the machine.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::File(path) => Some(path),
            Self::Revision(_) | Self::Https(_) => None,
        }
    }

    /// The name of a revision's file.
    pub fn revision(&self) -> Option<&str> {
        match self {
            Self::File(_) | Self::Https(_) => None,
            Self::Revision(name) => Some(name),
        }
    }

    /// The last part of its name.
    pub fn name(&self) -> &str {
        match self {
            Self::File(path) => path.rsplit('/').next().unwrap_or(path),
            Self::Revision(name) | Self::Https(name) => name,
        }
    }

    /// The number of a revision; none for the file that says that one was confirmed.
    pub fn number(&self) -> Option<u64> {
        self.revision()?.strip_suffix(".conf")?.parse().ok()
    }
}

/// The name in the tar file.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{FILES}{path}"),
            Self::Revision(name) => write!(f, "{REVISIONS}{name}"),
            Self::Https(name) => write!(f, "{HTTPS}{name}"),
        }
    }
}

fn is_whole(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_printed = !path.contains(char::is_control);
    let parts = path.strip_prefix('/').map(|rest| rest.split('/').all(is_part));
    parts == Some(true) && is_printed && path.chars().count() <= LONGEST_PATH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_and_revisions_are_places() {
        for name in [
            "files/etc/postern/postern.conf",
            "files/a",
            "revisions/00000012.conf",
            "revisions/00000012.confirmed",
            "https/key.pem",
        ] {
            assert_eq!(Place::parse(name).expect(name).to_string(), name);
        }
        for name in [
            "files/../etc/shadow",
            "files/etc/../../a",
            "files/./a",
            "files//a",
            "files",
            "files/",
            "files/a/",
            "filesa",
            "files/a\nb",
            "/etc/shadow",
            "../a",
            "revisions/../a",
            "revisions/12.conf",
            "revisions/00000012.conf.corrupt",
            "revisions/0000001x.conf",
            "revisions/",
            "https/",
            "https/../key.pem",
            "https/other.pem",
            "manifest.json",
            "",
        ] {
            assert_eq!(Place::parse(name), None, "{name}");
        }
        assert_eq!(Place::parse(&format!("files/{}", "a".repeat(1025))), None);
    }
}
