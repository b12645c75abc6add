//! `postern close` and `postern open`: block or release protected prefixes while no daemon runs.

use crate::{Outcome, client, log, privilege};
use clap::Args;
use gateway::daemon;
use gateway::daemon::file::ConfigFile;
use gateway::host;
use gateway::host::Host;
use rustix::process::Pid;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Close {
    /// The configuration: lines of `set`, in the words of VyOS
    #[arg(short, long, value_name = "FILE", default_value = "/etc/postern/postern.conf")]
    config: PathBuf,
    /// The API socket of a running daemon
    #[arg(long, value_name = "SOCKET", default_value = "/run/postern/postern.sock")]
    api: PathBuf,
}

#[derive(Args)]
pub(crate) struct Open {
    /// The API socket of a running daemon
    #[arg(long, value_name = "SOCKET", default_value = "/run/postern/postern.sock")]
    api: PathBuf,
}

/// Whether a daemon listens on the socket, even if this user may not connect to it.
fn runs(api: &Path) -> bool {
    let absent = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    UnixStream::connect(api).map_or_else(|error| !absent.contains(&error.kind()), |_| true)
}

/// Blocks the prefixes that a configuration protects, until the daemon starts.
pub(crate) fn close(arguments: &Close) -> Outcome {
    log::start()?;
    if runs(&arguments.api) {
        println!("nothing to do: a daemon runs and blocks what its tunnels protect");
        return Ok(());
    }
    let settings = ConfigFile::new(arguments.config.clone(), None).read()?.settings;
    // It reads files that only their owner may read.
    let wanted = daemon::wanted(&settings);
    privilege::drop_unneeded(privilege::Needs::default())?;
    Host::start(wanted)?.end(false);
    println!(
        "the protected prefixes are blocked until postern run serves them or postern open releases them"
    );
    Ok(())
}

/// A process of `postern openvpn` in this network namespace, with its interface: its routes and rules would be removed too. Each such
/// process has a socket, named after the interface and maybe the namespace.
fn openvpn_process() -> Option<(String, Pid)> {
    client::sockets().into_iter().find_map(|socket| {
        let process = listener(&socket).filter(|it| is_openvpn(*it) && shares_network(*it))?;
        let name = socket.file_stem()?.to_string_lossy().into_owned();
        Some((name.split('@').next()?.to_owned(), process))
    })
}

/// The process that listens on a socket.
fn listener(socket: &Path) -> Option<Pid> {
    let (_, process) = client::peer_of(UnixStream::connect(socket).ok()?)?;
    process
}

fn is_openvpn(process: Pid) -> bool {
    fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| has_verb_openvpn(&line))
}

/// Whether the command line of proc(5) is one of `postern openvpn`.
fn has_verb_openvpn(line: &[u8]) -> bool {
    let words = line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    crate::command_line(words).get(1).is_some_and(|verb| verb == "openvpn")
}

/// Whether a process is in the network namespace of this one, as far as it can be seen.
fn shares_network(process: Pid) -> bool {
    let namespace = |of: &str| fs::metadata(format!("/proc/{of}/ns/net")).ok().map(|it| (it.dev(), it.ino()));
    let its = namespace(&process.to_string());
    its.is_none() || its == namespace("thread-self")
}

/// Releases what an earlier daemon or `postern close` has left blocked.
pub(crate) fn open(arguments: &Open) -> Outcome {
    log::start()?;
    if runs(&arguments.api) {
        let api = arguments.api.display();
        return Err(format!("a daemon serves {api} and would close them again\n  fix: systemctl stop postern, then postern open").into());
    }
    // First: it looks at processes of another user.
    let runs = openvpn_process();
    privilege::drop_unneeded(privilege::Needs::default())?;
    host::open()?;
    if let Some((interface, process)) = runs {
        println!(
            "what the daemon has blocked is released; postern openvpn, process {process}, serves {interface} and keeps its traffic inside\n  \
             fix: if that is to end, too: kill {process}, then postern open"
        );
        return Ok(());
    }
    host::open_of_one_interface()?;
    println!("no protected prefix is blocked any more");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_process_of_openvpn_is_known_by_its_command_line() {
        assert!(has_verb_openvpn(b"postern\0openvpn\0--config\0a.conf\0"));
        assert!(has_verb_openvpn(b"/usr/sbin/openvpn\0--config\0a.conf\0"));
        assert!(!has_verb_openvpn(b"postern\0run\0--config\0openvpn\0"));
        assert!(!has_verb_openvpn(b"postern-wireguard\0wg0\0"));
        assert!(!has_verb_openvpn(b""));
    }

    #[test]
    fn the_process_of_a_socket_is_found_while_it_listens() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tun0.sock");
        let bound = UnixListener::bind(&path).expect("a socket");
        assert_eq!(listener(&path), Some(getpid()));
        assert!(shares_network(getpid()));
        drop(bound);
        assert_eq!(listener(&path), None, "what is left of the socket is no process");
    }
}
