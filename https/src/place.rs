//! Where the daemon is.

use std::path::PathBuf;

/// Where the daemon and its files are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The Unix socket of its API.
    pub api: PathBuf,
    /// The folder of its state.
    pub state: PathBuf,
}
