//! Operational commands about the machine itself: its interfaces, processes, sensors and versions.

pub(crate) mod interfaces;
pub(crate) mod processes;
pub(crate) mod reboot;
pub(crate) mod sensors;
pub(crate) mod version;

use std::path::{Path, PathBuf};

/// The environment variable with the directory that has `/proc` and `/sys`: a copy of another machine's, for tests.
const ROOT: &str = "POSTERN_ROOT";

/// Where `/proc`, `/sys` and `/dev` are.
pub(crate) fn root() -> PathBuf {
    copy().unwrap_or_else(|| PathBuf::from("/"))
}

/// The copy of another machine's, if one is to be read.
pub(crate) fn copy() -> Option<PathBuf> {
    std::env::var_os(ROOT).map(PathBuf::from)
}

/// The text of a file without white space at its ends; `None` if it cannot be read or is empty.
pub(crate) fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The entries of a directory, in natural order of their names.
pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    found.sort_by(|a, b| config::tree::natural_order(&name(a), &name(b)));
    found
}
