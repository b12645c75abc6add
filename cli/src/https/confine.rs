//! What the process may do that the network talks to: memory, files, network and system calls.

use crate::Failure;
use gateway::rights::filter;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, getpriority_process, setpriority_process, setrlimit};
use std::path::{Path, PathBuf};

/// Bytes of memory that the server may write to: clients could otherwise make it take those of the gateway.
const MEMORY: u64 = 1 << 30;
/// The server yields to the data path.
const NICE: i32 = 10;

/// What operational commands read: the kernel, devices, libraries of ciphers with their settings, and the names of users.
const READ: &[&str] = &[
    "/proc",
    "/sys",
    "/dev",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/ssl/openssl.cnf",
    "/run/systemd",
    "/var/cache/postern",
];

/// Limits the process. `folders` are those it may write to. Must be called before any thread is started.
pub(super) fn confine(folders: &[PathBuf]) -> Result<(), Failure> {
    let most = Some(MEMORY);
    setrlimit(Resource::Data, Rlimit { current: most, maximum: most })?;
    // A service manager may have made the daemon nicer than that, and going back needs a right.
    setpriority_process(None, getpriority_process(None)?.max(NICE))?;
    match limit_files(folders) {
        Ok(RulesetStatus::NotEnforced) => {
            tracing::warn!("files of the HTTPS server are not limited: this kernel has no Landlock");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!("files of the HTTPS server are not limited: {error}"),
    }
    if let Err(error) = filter::filter_server() {
        tracing::warn!("system calls of the HTTPS server are not filtered: {error}");
    }
    Ok(())
}

/// Lets the process read what operational commands need, write to these folders, and use Unix sockets. It may neither connect to
/// nor bind TCP ports, nor send signals to other processes. Older kernels have a part of this (Landlock, Linux 5.13 to 6.12).
fn limit_files(folders: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(ABI::V4);
    let read = AccessFs::from_read(ABI::V4) & !AccessFs::Execute;
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(READ, read))?
        .add_rules(path_beneath_rules(["/dev/null", "/dev/crypto"], read | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(folders, all & !AccessFs::Execute))?;
    Ok(rules.restrict_self()?.ruleset)
}

/// The folder of a file, where it is replaced: of the file itself, if a link leads to it.
pub(super) fn folder_of(file: &Path) -> Option<PathBuf> {
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::TcpStream;

    #[test]
    fn a_confined_thread_uses_its_folders_only_and_no_network() {
        let (ours, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (folder, foreign) = (ours.path().to_owned(), other.path().join("a"));
        fs::write(&foreign, "secret").expect("ours");
        let confined = std::thread::spawn(move || {
            let status = limit_files(std::slice::from_ref(&folder)).expect("rules");
            if status == RulesetStatus::NotEnforced {
                return;
            }
            fs::write(folder.join("new"), "text").expect("it may write there");
            fs::rename(folder.join("new"), folder.join("old")).expect("it may replace there");
            assert!(fs::read("/proc/self/status").is_ok() && fs::read_dir("/sys").is_ok());
            let denied = |outcome: std::io::Result<()>| {
                outcome.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
            };
            assert!(denied(fs::read(&foreign).map(|_| ())), "read");
            assert!(denied(fs::write(&foreign, "text")), "written");
            assert!(denied(fs::remove_file(&foreign)), "removed");
            assert!(denied(fs::write("/proc/self/comm", "text")), "written to the kernel");
            if status == RulesetStatus::FullyEnforced {
                assert!(denied(TcpStream::connect(address).map(|_| ())), "connected");
            }
        });
        confined.join().expect("it is held to its rights");
        assert_eq!(fs::read_to_string(other.path().join("a")).expect("there"), "secret");
    }
}
