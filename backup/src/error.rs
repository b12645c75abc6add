//! What is wrong with a file that should be a backup.

/// Why a file is not a backup.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// No tar file, or one that is cut off.
    #[error("it is not a tar file, or it is cut off: {0}")]
    Tar(String),
    /// It begins with something else than the list.
    #[error("it does not begin with manifest.json: Postern did not write it")]
    NoManifest,
    /// The list is wrong.
    #[error("its manifest.json is wrong: {0}")]
    Manifest(String),
    /// Another format.
    #[error("it was written by a newer Postern, version {0}\n  fix: restore it with that version")]
    Newer(String),
    /// More than is read.
    #[error("it is too large: {0}")]
    Large(String),
    /// A path outside, or in another form than is written.
    #[error("{0:?} is no place for a file of a backup")]
    Place(String),
    /// A link, a device, a folder.
    #[error("{0:?} is not a regular file")]
    Kind(String),
    /// A file that is not listed, or in another order.
    #[error("{0:?} is not the next file of the list")]
    Unlisted(String),
    /// A file of the list that is not there.
    #[error("{0:?} is missing")]
    Missing(String),
    /// Other bytes than are listed.
    #[error("{0:?} is not what was backed up: its SHA-256 differs")]
    Changed(String),
}
