//! The list of a backup's files, as JSON: what can be read without this program.

use crate::Backup;
use crate::entry::{Entry, LARGEST, LARGEST_SUM, MOST, Place};
use crate::error::UnpackError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The name of the list in the tar file.
pub const NAME: &str = "manifest.json";
/// Bytes of the list.
pub const LONGEST: u64 = 8 << 20;
/// What is written and read. A later one means that a file has another meaning.
const FORMAT: u32 = 1;

/// The list.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this list.
    pub format: u32,
    /// The version of Postern that wrote it.
    pub postern: String,
    /// When, in UTC (RFC 3339).
    pub time: String,
    /// The name of the machine.
    pub host: String,
    /// The path of the configuration file.
    pub configuration: String,
    /// All files, in the order in which they follow.
    pub files: Vec<Listed>,
}

/// A file of the list.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Its name in the tar file.
    pub name: String,
    /// Its bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Its permissions in octal.
    pub mode: String,
    /// The name of its owner.
    pub user: String,
    /// The name of its group.
    pub group: String,
}

impl Manifest {
    /// The list of a backup.
    pub fn of(backup: &Backup) -> Self {
        let Backup { version, time, host, configuration, entries } = backup;
        Self {
            format: FORMAT,
            postern: version.clone(),
            time: time.clone(),
            host: host.clone(),
            configuration: configuration.clone(),
            files: entries.iter().map(Listed::of).collect(),
        }
    }

    /// Reads a list. Every file of it has a place and a size that are allowed.
    pub fn parse(json: &[u8]) -> Result<Self, UnpackError> {
        let wrong = |why: String| UnpackError::Manifest(why);
        let manifest: Self = serde_json::from_slice(json).map_err(|error| wrong(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(UnpackError::Newer(manifest.postern));
        }
        let texts = [&manifest.postern, &manifest.time, &manifest.host];
        // They are shown.
        if texts.iter().any(|text| text.len() > 255 || text.contains(char::is_control)) {
            return Err(wrong("a name in it is no name".to_owned()));
        }
        if manifest.files.len() > MOST {
            return Err(UnpackError::Large(format!("{} files", manifest.files.len())));
        }
        let mut names = BTreeSet::new();
        for listed in &manifest.files {
            listed.check()?;
            if !names.insert(&listed.name) {
                return Err(wrong(format!("{:?} is in it twice", listed.name)));
            }
        }
        let sum = manifest.files.iter().map(|listed| listed.size).fold(0, u64::saturating_add);
        if sum > LARGEST_SUM {
            return Err(UnpackError::Large(format!("{sum} bytes")));
        }
        let configuration = Place::of_path(&manifest.configuration).map(|place| place.to_string());
        if !configuration.is_some_and(|name| names.contains(&name)) {
            return Err(wrong("the configuration is not in it".to_owned()));
        }
        Ok(manifest)
    }
}

impl Listed {
    fn of(entry: &Entry) -> Self {
        Self {
            name: entry.place.to_string(),
            size: entry.content.bytes().len() as u64,
            sha256: entry.content.digest(),
            mode: format!("{:04o}", entry.mode),
            user: entry.user.clone(),
            group: entry.group.clone(),
        }
    }

    /// Its permissions.
    pub fn mode(&self) -> Option<u32> {
        u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777)
    }

    fn check(&self) -> Result<(), UnpackError> {
        let name = &self.name;
        if Place::parse(name).is_none() {
            return Err(UnpackError::Place(name.clone()));
        }
        if self.size > LARGEST {
            return Err(UnpackError::Large(format!("{} bytes in {name:?}", self.size)));
        }
        let is_name = |text: &str| text.len() <= 255 && !text.contains(|c: char| c.is_control() || c == ':');
        if self.mode().is_none() || !is_name(&self.user) || !is_name(&self.group) {
            return Err(UnpackError::Manifest(format!("mode or owner of {name:?}")));
        }
        Ok(())
    }
}
