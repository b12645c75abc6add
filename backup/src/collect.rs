//! Gathers what a backup has from the disk.

use crate::Backup;
use crate::entry::{Content, Entry, HTTPS_FILES, LARGEST, LARGEST_SUM, MOST, Place};
use crate::owner::Owners;
use config::{Tree, files};
use disk::Folder;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Folders within a folder.
const DEEPEST: usize = 16;

/// What is to be backed up.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The configuration file.
    pub configuration: PathBuf,
    /// The state folder of the daemon.
    pub state: PathBuf,
    /// How many of the newest revisions.
    pub revisions: usize,
    /// Folders and files that the configuration does not name.
    pub more: Vec<PathBuf>,
    /// The version of Postern, the time and the name of the machine.
    pub version: String,
    /// In UTC (RFC 3339).
    pub time: String,
    /// The name of the machine.
    pub host: String,
}

/// A backup, and what is not in it.
#[derive(Debug)]
pub struct Collected {
    /// What was found.
    pub backup: Backup,
    /// What could not be read, a sentence each.
    pub left: Vec<String>,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The configuration file cannot be read.
    #[error("{}: {error}\n  fix: write it with save in postern configure, or name another: --config FILE", path.display())]
    Configuration {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// More than a backup has.
    #[error(
        "there is too much for a backup: {0}\n  fix: back up fewer revisions: --revisions 0, or fewer other files"
    )]
    Large(String),
}

/// Reads everything. What cannot be read is left out and named, but for the configuration file.
pub fn collect(wanted: &Wanted) -> Result<Collected, CollectError> {
    let mut gathering =
        Gathering { owners: Owners::here(), entries: Vec::new(), known: BTreeSet::new(), left: Vec::new() };
    let unreadable = |error| CollectError::Configuration { path: wanted.configuration.clone(), error };
    let path = whole(&wanted.configuration).map_err(unreadable)?;
    gathering.add(&path).map_err(unreadable)?;
    let configuration = path.display().to_string();
    match gathering.entries.first().map(|entry| parse(entry.content.bytes())) {
        Some(Some(tree)) => gathering.add_named(&tree),
        _ => gathering
            .left
            .push(format!("{configuration} is not valid, so the files that it names are not known")),
    }
    for path in &wanted.more {
        gathering.add_tree(path, 0);
    }
    gathering.add_revisions(&wanted.state.join("archive"), wanted.revisions);
    gathering.add_certificate(&wanted.state.join("https"));
    let Gathering { entries, left, .. } = gathering;
    let sum: u64 = entries.iter().map(|entry| entry.content.bytes().len() as u64).sum();
    if entries.len() > MOST || sum > LARGEST_SUM {
        return Err(CollectError::Large(format!("{} files, {} MiB", entries.len(), sum >> 20)));
    }
    let Wanted { version, time, host, .. } = wanted.clone();
    Ok(Collected { backup: Backup { version, time, host, configuration, entries }, left })
}

fn parse(text: &[u8]) -> Option<Tree> {
    config::parse(std::str::from_utf8(text).ok()?).ok()
}

/// The absolute path in its shortest form.
fn whole(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    if absolute.to_str().and_then(Place::of_path).is_some() { Ok(absolute) } else { fs::canonicalize(path) }
}

struct Gathering {
    owners: Owners,
    entries: Vec<Entry>,
    known: BTreeSet<Place>,
    left: Vec<String>,
}

impl Gathering {
    /// Adds a file. A link is followed unless another user may have made it, and its path stays.
    fn add(&mut self, path: &Path) -> io::Result<()> {
        let place = path.to_str().and_then(Place::of_path);
        let place = place
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no path that can be backed up"))?;
        if self.known.contains(&place) {
            return Ok(());
        }
        self.insert(place, disk::read(path, LARGEST)?);
        Ok(())
    }

    fn insert(&mut self, place: Place, (mut bytes, metadata): (Zeroizing<Vec<u8>>, Metadata)) {
        self.known.insert(place.clone());
        self.entries.push(Entry {
            place,
            mode: metadata.mode() & 0o777,
            user: self.owners.user_name(metadata.uid()),
            group: self.owners.group_name(metadata.gid()),
            content: Content::new(std::mem::take(&mut *bytes)),
        });
    }

    fn add_named(&mut self, tree: &Tree) {
        for files::Named { node, file } in files::named(tree) {
            if let Err(error) = whole(Path::new(&file)).and_then(|path| self.add(&path)) {
                self.left.push(format!("{file}, which {node} names: {error}"));
            }
        }
    }

    /// Adds a file, or all regular files of a folder.
    fn add_tree(&mut self, path: &Path, depth: usize) {
        if let Err(error) = self.try_tree(path, depth) {
            // A folder that is backed up wherever it is.
            let is_missing = error.kind() == io::ErrorKind::NotFound && depth == 0;
            if !is_missing {
                self.left.push(format!("{}: {error}", path.display()));
            }
        }
    }

    fn try_tree(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        let path = whole(path)?;
        let kind = if depth == 0 { fs::metadata(&path)? } else { fs::symlink_metadata(&path)? };
        if !kind.is_dir() {
            if kind.is_symlink() {
                let target = fs::read_link(&path)?;
                self.left.push(format!("{} is a link to {}", path.display(), target.display()));
                return Ok(());
            }
            return self.add(&path);
        }
        if depth == DEEPEST || self.entries.len() > MOST {
            self.left.push(format!("{}: it is too deep, or there is too much before it", path.display()));
            return Ok(());
        }
        let mut inside: Vec<PathBuf> =
            fs::read_dir(&path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        inside.sort();
        for path in inside {
            self.add_tree(&path, depth + 1);
        }
        Ok(())
    }

    /// Adds the newest revisions. They are in a folder of the daemon's user, so no link there is followed.
    fn add_revisions(&mut self, archive: &Path, count: usize) {
        if count == 0 {
            return;
        }
        let read = Folder::open(archive).and_then(|folder| folder.names().map(|names| (folder, names)));
        let (folder, names) = match read {
            Ok(read) => read,
            Err(error) => {
                self.left.push(format!("the revisions in {}: {error}", archive.display()));
                return;
            }
        };
        let names = names.into_iter().filter_map(|name| name.into_string().ok());
        let mut numbers: Vec<(u64, String)> = names
            .filter(|name| Place::of_revision(name).is_some())
            .filter_map(|name| {
                name.strip_suffix(".conf").and_then(|it| Some((it.parse().ok()?, it.to_owned())))
            })
            .collect();
        numbers.sort_unstable();
        for (_, number) in numbers.into_iter().rev().take(count) {
            match self.add_revision(&folder, &format!("{number}.conf")) {
                // Only one that had to be confirmed has a second file.
                Ok(()) => _ = self.add_revision(&folder, &format!("{number}.confirmed")),
                // A commit has just removed the oldest.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.left.push(format!("revision {number}: {error}")),
            }
        }
    }

    fn add_revision(&mut self, folder: &Folder, name: &str) -> io::Result<()> {
        let read = folder.read(OsStr::new(name), LARGEST)?;
        if let Some(place) = Place::of_revision(name) {
            self.insert(place, read);
        }
        Ok(())
    }

    /// Adds the certificate that the HTTPS server has made, with its key, if there is one.
    fn add_certificate(&mut self, path: &Path) {
        let read = Folder::open(path).and_then(|folder| {
            let read = |name: &'static str| Ok((name, folder.read(OsStr::new(name), LARGEST)?));
            HTTPS_FILES.into_iter().map(read).collect::<io::Result<Vec<_>>>()
        });
        match read {
            Ok(files) => {
                for (name, read) in files {
                    self.insert(Place::Https(name.to_owned()), read);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.left.push(format!("the certificate in {}: {error}", path.display())),
        }
    }
}
