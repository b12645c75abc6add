//! The revisions of the configuration, a file each.
//!
//! ```text
//! pending  ── written, fsync ──> applied ── rename ──> NNNNNNNN.conf ── fsync of the folder
//! ```
//!
//! The rename is the moment from which the revision counts. Another rename, which a full disk does not refuse, says that it does not
//! count any more: `NNNNNNNN.replaced`. A file that cannot be read is set aside as `*.corrupt`, and never overwritten. All functions
//! wait for the disk: they are called in a thread of their own.

pub mod revision;

use super::fault;
use config::Text;
use revision::{Damage, Header};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first line of a file is not longer: it names what a commit deleted, and a commit may have 16 MiB.
const LONGEST_HEADER: u64 = 64 << 20;

/// Digits of a number in the name of a file: the next one is a number, too.
const DIGITS: RangeInclusive<usize> = 8..=15;

/// Why a revision could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// No room is left.
    #[error("{}: the disk is full: {error}\n  fix: make room there, then try again", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// Anything else that the kernel refuses.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// Another daemon uses the folder.
    #[error("{} is used by another daemon\n  fix: give this one a folder of its own: --state DIR", .0.display())]
    Busy(PathBuf),
    /// It is not what was written, and was set aside.
    #[error("{}: {damage}; it was set aside as {}", path.display(), aside.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        damage: Damage,
        /// Its new name.
        aside: PathBuf,
    },
    /// There is none of that number.
    #[error("there is no revision {0}\n  fix: see which there are: show system commit")]
    Unknown(u64),
    /// It was set aside before.
    #[error("revision {0} cannot be read, and was set aside as {path}\n  fix: take another: show system commit", path = .1.display())]
    Aside(u64, PathBuf),
    /// Its words are not in this version's grammar.
    #[error("revision {0} was written by another version, and cannot be read: {1}")]
    Foreign(u64, String),
}

impl ArchiveError {
    fn new(path: &Path, error: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let path = path.to_owned();
        match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Self::Full { path, error },
            _ => Self::Io { path, error },
        }
    }
}

/// What is known of a revision.
#[derive(Clone, Debug)]
pub enum Entry {
    /// It can be read.
    Whole {
        /// Its first line.
        header: Header,
        /// Whether it was confirmed.
        is_confirmed: bool,
        /// Whether something else was put in force after it that has no revision.
        is_replaced: bool,
    },
    /// It was set aside as this file.
    Corrupt(PathBuf),
}

impl Entry {
    /// What it is, unless it is corrupt.
    pub fn header(&self) -> Option<&Header> {
        match self {
            Self::Whole { header, .. } => Some(header),
            Self::Corrupt(_) => None,
        }
    }
}

/// A folder of revisions. As long as it lives, no other daemon uses the folder.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    entries: Mutex<BTreeMap<u64, Entry>>,
    _lock: File,
}

/// A revision that is written, and does not count yet. It is removed when it is dropped.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    file: File,
    header: Header,
}

impl Drop for Pending {
    fn drop(&mut self) {
        // It is gone if it was published; and the next start removes what is left.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Archive {
    /// Opens the archive in a state folder, which is made if it is not there. What a daemon that was killed left half done is
    /// removed.
    pub fn open(state: &Path) -> Result<Self, ArchiveError> {
        let folder = state.join("archive");
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| ArchiveError::new(&path, error)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed(&folder))?;
        let path = state.join("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(failed(&path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(ArchiveError::Busy(state.to_owned())),
            outcome => outcome.map_err(io::Error::from).map_err(failed(&path))?,
        }
        let archive = Self { folder, entries: Mutex::default(), _lock: lock };
        archive.remove_pending()?;
        archive.find()?;
        Ok(archive)
    }

    fn remove_pending(&self) -> Result<(), ArchiveError> {
        let path = self.pending();
        match std::fs::remove_file(&path) {
            Ok(()) => {
                tracing::warn!("{}: a commit was not finished, and is not in force: removed", path.display());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(ArchiveError::new(&path, error)),
        }
    }

    /// Reads the first line of each file.
    fn find(&self) -> Result<(), ArchiveError> {
        let failed = |error| ArchiveError::new(&self.folder, error);
        let (mut found, mut confirmed) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&self.folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some((number, kind)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let Some(number) = number.parse().ok().filter(|_| DIGITS.contains(&number.len())) else {
                continue;
            };
            match kind {
                "conf" => found.push((number, false)),
                "replaced" => found.push((number, true)),
                "confirmed" => confirmed.push(number),
                "conf.corrupt" => {
                    self.lock().entry(number).or_insert(Entry::Corrupt(self.folder.join(&name)));
                }
                _ => {}
            }
        }
        for (number, is_replaced) in found {
            let path = self.path(number, kind(is_replaced));
            let is_confirmed = confirmed.contains(&number);
            match read_header(&path) {
                Ok(header) if header.revision == number => {
                    self.lock().insert(number, Entry::Whole { header, is_confirmed, is_replaced });
                }
                Ok(_) => _ = self.set_aside(number, path, Damage::Header),
                Err(HeaderError::Damage(damage)) => _ = self.set_aside(number, path, damage),
                // The others can be used. It stays where it is: the disk may read it again.
                Err(HeaderError::Io(error)) => {
                    tracing::error!("{}: {error}", path.display());
                    self.lock().insert(number, Entry::Corrupt(path));
                }
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, revision: u64, kind: &str) -> PathBuf {
        self.folder.join(format!("{revision:08}.{kind}"))
    }

    fn pending(&self) -> PathBuf {
        self.folder.join("pending")
    }

    /// Renames a file that cannot be used.
    fn set_aside(&self, revision: u64, path: PathBuf, damage: Damage) -> ArchiveError {
        let mut aside = self.path(revision, "conf.corrupt");
        let mut more = 1;
        while aside.exists() {
            more += 1;
            aside = self.path(revision, &format!("conf.{more}.corrupt"));
        }
        if let Err(error) = std::fs::rename(&path, &aside) {
            tracing::warn!("{}: {error}", path.display());
            aside.clone_from(&path);
        }
        self.lock().insert(revision, Entry::Corrupt(aside.clone()));
        let error = ArchiveError::Corrupt { path, damage, aside };
        tracing::error!("{error}");
        error
    }

    /// All revisions, the newest first.
    pub fn list(&self) -> Vec<(u64, Entry)> {
        self.lock().iter().rev().map(|(number, entry)| (*number, entry.clone())).collect()
    }

    /// The number of the newest; 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.lock().last_key_value().map_or(0, |(number, _)| *number)
    }

    /// What is known of a revision.
    pub fn entry(&self, revision: u64) -> Option<Entry> {
        self.lock().get(&revision).cloned()
    }

    /// The newest revision with these lines, by their SHA-256.
    pub fn of_text(&self, text: &str) -> Option<u64> {
        let entries = self.lock();
        let has = |entry: &Entry| entry.header().is_some_and(|header| header.text == text);
        entries.iter().rev().find(|(_, entry)| has(entry)).map(|(number, _)| *number)
    }

    /// The branches that were deleted by their names after a revision.
    pub fn deleted_after(&self, revision: u64) -> Vec<config::Path> {
        let entries = self.lock();
        let headers = entries.range(revision + 1..).filter_map(|(_, entry)| entry.header());
        headers.flat_map(|header| &header.deleted).map(|path| config::Path::new(path.split(' '))).collect()
    }

    /// The lines of a revision. If they are not those that were written, they are set aside.
    pub fn read(&self, revision: u64) -> Result<(Header, Text), ArchiveError> {
        let is_replaced = match self.entry(revision) {
            Some(Entry::Whole { is_replaced, .. }) => is_replaced,
            Some(Entry::Corrupt(path)) => return Err(ArchiveError::Aside(revision, path)),
            None => return Err(ArchiveError::Unknown(revision)),
        };
        let path = self.path(revision, kind(is_replaced));
        let file = Text::read(&path).map_err(|error| ArchiveError::new(&path, error))?;
        match revision::parse(file) {
            Ok((header, lines)) if header.revision == revision => Ok((header, lines)),
            Ok(_) => Err(self.set_aside(revision, path, Damage::Header)),
            Err(damage) => Err(self.set_aside(revision, path, damage)),
        }
    }

    /// Writes a revision so that it survives a loss of power, with the next number, before it is applied.
    pub fn prepare(&self, mut header: Header, lines: &Text) -> Result<Pending, ArchiveError> {
        let path = self.pending();
        header.revision = self.newest() + 1;
        header.text = revision::digest(lines.bytes());
        if let Some(confirm) = header.confirm.as_mut().filter(|confirm| confirm.minutes > 0) {
            // The longest: what comes in its place has room.
            confirm.deadline = u64::MAX;
        }
        // One that could not be removed, perhaps.
        remove(&path)?;
        let failed = |error| ArchiveError::new(&path, error);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        fault::point("pending-created");
        let mut pending = Pending { path: path.clone(), file, header };
        pending.write(lines).map_err(failed)?;
        Ok(pending)
    }

    /// From `now` on, in seconds since the machine booted, it is the newest. Keeps so many, and removes the oldest beyond that.
    pub fn publish(&self, mut pending: Pending, kept: usize, now: u64) -> Result<Header, ArchiveError> {
        let path = self.path(pending.header.revision, "conf");
        pending.set_deadline(now).map_err(|error| ArchiveError::new(&pending.path, error))?;
        // One of this number may have been here once, and been confirmed.
        remove(&self.path(pending.header.revision, "confirmed"))?;
        std::fs::rename(&pending.path, &path).map_err(|error| ArchiveError::new(&path, error))?;
        fault::point("published");
        let header = pending.header.clone();
        let entry = Entry::Whole { header: header.clone(), is_confirmed: false, is_replaced: false };
        self.lock().insert(header.revision, entry);
        // It counts, even if the disk may forget it now.
        if let Err(error) = self.sync() {
            tracing::warn!("{}: {error}", self.folder.display());
        }
        fault::point("recorded");
        // One that may be undone removes nothing for good.
        if header.confirm.is_none() {
            self.remove_oldest(kept);
        }
        fault::point("oldest-removed");
        Ok(header)
    }

    /// Something else is in force after the newest revision, and could not be recorded: it must not come back. Needs no room on
    /// the disk.
    pub fn replace_newest(&self) -> Result<(), ArchiveError> {
        let mut entries = self.lock();
        let Some((number, entry)) = entries.iter_mut().next_back() else { return Ok(()) };
        let Entry::Whole { is_replaced, .. } = entry else { return Ok(()) };
        let (path, replaced) = (self.path(*number, kind(*is_replaced)), self.path(*number, kind(true)));
        std::fs::rename(&path, &replaced).map_err(|error| ArchiveError::new(&path, error))?;
        *is_replaced = true;
        self.sync().map_err(|error| ArchiveError::new(&self.folder, error))
    }

    /// A revision stays in force without further ado.
    pub fn confirm(&self, revision: u64) -> Result<(), ArchiveError> {
        let path = self.path(revision, "confirmed");
        let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        if let Err(error) = made.and_then(|_| self.sync()) {
            // Otherwise it would be confirmed after a restart, and is not now.
            let _ = std::fs::remove_file(&path);
            return Err(ArchiveError::new(&path, error));
        }
        if let Some(Entry::Whole { is_confirmed, .. }) = self.lock().get_mut(&revision) {
            *is_confirmed = true;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn remove_oldest(&self, kept: usize) {
        let mut entries = self.lock();
        let whole = entries.iter().filter_map(|(number, entry)| match entry {
            Entry::Whole { is_replaced, .. } => Some((*number, self.path(*number, kind(*is_replaced)))),
            Entry::Corrupt(_) => None,
        });
        let whole: Vec<(u64, PathBuf)> = whole.collect();
        let surplus = whole.len().saturating_sub(kept.max(1));
        for (number, path) in whole.into_iter().take(surplus) {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!("{}: {error}", path.display());
                continue;
            }
            // Most revisions have none.
            let _ = std::fs::remove_file(self.path(number, "confirmed"));
            entries.remove(&number);
        }
    }
}

impl Pending {
    fn write(&mut self, lines: &Text) -> io::Result<()> {
        self.file.write_all(revision::print(&self.header, lines).bytes())?;
        fault::point("pending-written");
        self.file.sync_all()?;
        fault::point("pending-synced");
        Ok(())
    }

    /// Writes until when it must be confirmed, if it must be, in place of what stands there: that needs no room on the disk.
    fn set_deadline(&mut self, now: u64) -> io::Result<()> {
        let length = self.header.line(0).len();
        let Some(confirm) = self.header.confirm.as_mut().filter(|confirm| confirm.minutes > 0) else {
            return Ok(());
        };
        confirm.deadline = now + 60 * u64::from(confirm.minutes);
        self.file.write_all_at(self.header.line(length).as_bytes(), 0)?;
        self.file.sync_all()
    }
}

/// How the name of its file ends.
fn kind(is_replaced: bool) -> &'static str {
    if is_replaced { "replaced" } else { "conf" }
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> Result<(), ArchiveError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ArchiveError::new(path, error)),
        _ => Ok(()),
    }
}

enum HeaderError {
    Io(io::Error),
    Damage(Damage),
}

fn read_header(path: &Path) -> Result<Header, HeaderError> {
    let file = File::open(path).map_err(HeaderError::Io)?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(file).take(LONGEST_HEADER);
    reader.read_until(b'\n', &mut line).map_err(HeaderError::Io)?;
    let line = line.strip_suffix(b"\n").ok_or(HeaderError::Damage(Damage::Header))?;
    Header::parse(line).map_err(HeaderError::Damage)
}

#[cfg(test)]
mod tests;
