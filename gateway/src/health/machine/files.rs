//! Files below a root, read with bounds. What cannot be read is an error that says which file and why.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a file: the kernel's have a page or a few.
const LONGEST: u64 = 1 << 20;
/// Entries of a folder.
const MOST: usize = 4096;

/// What is known, or why it is not.
pub type Known<T> = Result<T, String>;

/// The files below a root, by their paths from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    pub(super) root: &'a Path,
}

impl Files<'_> {
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Opens a file. One that is a pipe, or a device without data, is not waited for.
    pub(super) fn open(&self, path: &str) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(self.at(path))
    }

    /// The text of a file without white space at its ends.
    pub(super) fn text(&self, path: &str) -> Known<String> {
        let mut bytes = Vec::new();
        let read = self.open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
        read.map_err(|error| why(path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that a file holds.
    pub(super) fn number<T: std::str::FromStr>(&self, path: &str) -> Known<T> {
        let text = self.text(path)?;
        text.parse().map_err(|_| format!("/{path} holds no number that is understood"))
    }

    /// The names in a folder, in order.
    pub(super) fn names(&self, path: &str) -> Known<Vec<String>> {
        let entries = std::fs::read_dir(self.at(path)).map_err(|error| why(path, &error))?;
        let mut names: Vec<String> = entries
            .flatten()
            .take(MOST)
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_by(|a, b| config::tree::natural_order(a, b));
        Ok(names)
    }

    /// Whether something is there.
    pub(super) fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }
}

/// Why a file is not known.
pub(super) fn why(path: &str, error: &io::Error) -> String {
    let said = match error.kind() {
        io::ErrorKind::NotFound => "is not there".to_owned(),
        io::ErrorKind::PermissionDenied => "can be read by root only".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    format!("/{path} {said}")
}
