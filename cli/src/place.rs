//! Where the configuration, the state and the socket of a daemon are by default.

use crate::service_user::STATE;
use std::path::{Path, PathBuf};

/// The default socket of the API.
pub(crate) const API: &str = "/run/postern/postern.sock";
/// The default configuration file.
pub(crate) const CONFIG: &str = "/etc/postern/postern.conf";

/// The default state directory for a configuration file: each file has its own.
pub(crate) fn state_of(config: &Path) -> PathBuf {
    if config == Path::new(CONFIG) {
        return PathBuf::from(STATE);
    }
    let whole = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    let name = whole.to_string_lossy().trim_start_matches('/').replace('/', "-");
    Path::new(STATE).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_folder_of_its_own() {
        assert_eq!(state_of(Path::new(CONFIG)), Path::new("/var/lib/postern"));
        assert_eq!(state_of(Path::new("/tmp/a/b.conf")), Path::new("/var/lib/postern/tmp-a-b.conf"));
    }
}
