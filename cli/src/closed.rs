//! `postern close` and `postern open`: block or release protected prefixes while no daemon runs.

use crate::{Outcome, log, privilege};
use clap::Args;
use gateway::daemon;
use gateway::daemon::file::ConfigFile;
use gateway::host;
use gateway::host::Host;
use std::io::ErrorKind;
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

/// Releases what an earlier daemon or `postern close` has left blocked.
pub(crate) fn open(arguments: &Open) -> Outcome {
    log::start()?;
    if runs(&arguments.api) {
        let api = arguments.api.display();
        return Err(format!("a daemon serves {api} and would close them again\n  fix: systemctl stop postern, then postern open").into());
    }
    privilege::drop_unneeded(privilege::Needs::default())?;
    host::open()?;
    println!("no protected prefix is blocked any more");
    Ok(())
}
