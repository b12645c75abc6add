//! What a process may do that reads bytes of others beside the daemon: memory, files, network and system calls.

use crate::Failure;
use gateway::rights::filter::{self, FilterError};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, getpriority_process, setpriority_process, setrlimit};
use std::path::PathBuf;

/// Bytes of memory that a process may write to: clients could otherwise make it take those of the gateway.
const MEMORY: u64 = 1 << 30;
/// It yields to the data path.
const NICE: i32 = 10;

/// What a process uses of the file system; by default nothing that is not open.
#[derive(Clone, Copy, Default)]
pub(crate) struct Files<'a> {
    /// Files and folders that it reads.
    pub(crate) read: &'a [&'a str],
    /// Files that it also writes to.
    pub(crate) devices: &'a [&'a str],
    /// Folders that it may change.
    pub(crate) folders: &'a [PathBuf],
}

/// Limits this process, which the log calls `name`. Must be called before any thread is started.
pub(crate) fn confine(name: &str, files: Files<'_>) -> Result<(), Failure> {
    let most = Some(MEMORY);
    setrlimit(Resource::Data, Rlimit { current: most, maximum: most })?;
    // A service manager may have made the daemon nicer than that, and going back needs a right.
    setpriority_process(None, getpriority_process(None)?.max(NICE))?;
    match limit_files(files) {
        Ok(RulesetStatus::NotEnforced) => {
            tracing::warn!("files of {name} are not limited: this kernel has no Landlock");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!("files of {name} are not limited: {error}"),
    }
    if let Err(error) = filter::filter_server() {
        tracing::warn!("system calls of {name} are not filtered: {error}");
    }
    Ok(())
}

/// What a program of the system reads and executes to start.
const LIBRARIES: [&str; 7] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/ld.so.preload"];
/// Bytes of memory of a DHCP client.
const MEMORY_OF_CLIENT: u64 = 128 << 20;

/// Limits this process, which becomes a DHCP client, to these programs and their libraries, and to sockets of packets and of IPv4. It
/// opens no other file, and reaches no other process. What this kernel does not limit is returned.
pub(crate) fn confine_dhcp_client(programs: &[&str]) -> Result<Vec<String>, Failure> {
    let mut lacking = Vec::new();
    if limit_programs(programs)? == RulesetStatus::NotEnforced {
        lacking.push("files are not limited: this kernel has no Landlock".to_owned());
    }
    match filter::filter_dhcp_client() {
        Ok(()) => {}
        Err(FilterError::Architecture) => lacking.push("system calls are not filtered".to_owned()),
        Err(error) => return Err(error.into()),
    }
    Ok(lacking)
}

/// Limits the memory of this process, and of what it becomes.
pub(crate) fn limit_memory_of_client() -> Result<(), Failure> {
    let most = Some(MEMORY_OF_CLIENT);
    Ok(setrlimit(Resource::Data, Rlimit { current: most, maximum: most })?)
}

/// Lets the process execute these programs, and read them and libraries.
fn limit_programs(programs: &[&str]) -> Result<RulesetStatus, RulesetError> {
    let reads = AccessFs::from_read(ABI::V4);
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V4))?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .scope(Scope::Signal)?
        .scope(Scope::AbstractUnixSocket)?
        .create()?
        .add_rules(path_beneath_rules(programs.iter().copied().chain(LIBRARIES), reads))?
        .add_rules(path_beneath_rules(["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile))?;
    Ok(rules.restrict_self()?.ruleset)
}

/// Lets the process use these files, and Unix sockets. It may neither connect to nor bind TCP ports, nor send signals to other
/// processes. Older kernels have a part of this (Landlock, Linux 5.13 to 6.12).
fn limit_files(Files { read, devices, folders }: Files<'_>) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(ABI::V4);
    let reads = AccessFs::from_read(ABI::V4) & !AccessFs::Execute;
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(read, reads))?
        .add_rules(path_beneath_rules(devices, reads | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(folders, all & !AccessFs::Execute))?;
    Ok(rules.restrict_self()?.ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{ErrorKind, Read};
    use std::net::TcpStream;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Command, Stdio};

    #[test]
    fn a_confined_thread_uses_its_folders_only_and_no_network() {
        let (ours, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (folder, foreign) = (ours.path().to_owned(), other.path().join("a"));
        fs::write(&foreign, "secret").expect("ours");
        let confined = std::thread::spawn(move || {
            let (read, folders) = (["/proc", "/sys"], [folder.clone()]);
            let files = Files { read: &read, folders: &folders, ..Files::default() };
            let status = limit_files(files).expect("rules");
            if status == RulesetStatus::NotEnforced {
                return;
            }
            fs::write(folder.join("new"), "text").expect("it may write there");
            fs::rename(folder.join("new"), folder.join("old")).expect("it may replace there");
            assert!(fs::read("/proc/self/status").is_ok() && fs::read_dir("/sys").is_ok());
            let denied = |outcome: std::io::Result<()>| {
                outcome.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
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

    #[test]
    fn a_dhcp_client_starts_its_programs_and_reaches_neither_files_nor_the_daemon() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("api");
        let _daemon = UnixListener::bind(&socket).expect("a socket");
        let secret = folder.path().join("secret");
        fs::write(&secret, "secret").expect("ours");
        rustix::thread::set_no_new_privs(true).expect("allowed");
        let client = std::thread::spawn(move || {
            let lacking = confine_dhcp_client(&["/bin/cat"]).expect("rules");
            let run = |program: &str| {
                let mut command = Command::new(program);
                command.arg("/bin/cat").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
            };
            let mut child = run("/bin/cat").expect("it may be started");
            let mut read = Vec::new();
            child.stdout.take().expect("a pipe").read_to_end(&mut read).expect("a pipe");
            assert!(child.wait().expect("ours").success() && read.starts_with(b"\x7fELF"));
            let denied = |outcome: std::io::Result<()>| {
                outcome.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
            };
            if !lacking.iter().any(|it| it.contains("filtered")) {
                assert!(denied(UnixStream::connect(&socket).map(|_| ())), "connected to the daemon");
            }
            if !lacking.iter().any(|it| it.contains("Landlock")) {
                assert!(denied(fs::read(&secret).map(|_| ())), "read");
                assert!(denied(fs::write(&secret, "text")), "written");
                assert!(denied(fs::read("/proc/1/environ").map(|_| ())), "another process");
                assert!(denied(run("/bin/ls").map(|_| ())), "another program");
            }
            std::net::UdpSocket::bind("127.0.0.1:0").expect("IPv4 is allowed");
        });
        client.join().expect("it is held to its rights");
    }
}
