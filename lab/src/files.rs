//! The files of a machine, below a temporary folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder in place of `/`, removed when it is dropped.
#[derive(Debug)]
pub struct Files(TempDir);

impl Default for Files {
    fn default() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }
}

impl Files {
    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file below the folder.
    pub fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// The same as text.
    pub fn named(&self, path: &str) -> String {
        self.at(path).display().to_string()
    }

    /// Writes a file with its folders; its path.
    pub fn write(&self, path: &str, text: &str, mode: u32) -> String {
        let at = self.at(path);
        fs::create_dir_all(at.parent().expect("a folder")).expect("a folder");
        fs::write(&at, text).expect("a file");
        fs::set_permissions(&at, Permissions::from_mode(mode)).expect("it is ours");
        self.named(path)
    }

    /// The content of a file, if it is there.
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
    }

    /// The names in a folder, in order; none if it is not there.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The permissions of a file.
    pub fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.at(path)).expect("it is there").permissions().mode() & 0o7777
    }
}
