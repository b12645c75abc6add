//! `postern close` and `postern open`: what tunnels are to protect, while no gateway runs.

use crate::{Outcome, log, privilege, run};
use clap::Args;
use gateway::control::host::{self, Host};
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Close {
    /// The configuration: lines of `set`, in the words of VyOS
    #[arg(short, long, value_name = "FILE", default_value = "/etc/postern/postern.conf")]
    config: PathBuf,
    /// Where the API of a gateway that runs listens
    #[arg(long, value_name = "SOCKET", default_value = "/run/postern/postern.sock")]
    api: PathBuf,
}

#[derive(Args)]
pub(crate) struct Open {
    /// Where the API of a gateway that runs listens
    #[arg(long, value_name = "SOCKET", default_value = "/run/postern/postern.sock")]
    api: PathBuf,
}

/// Whether a gateway listens there: also one that does not let this user in.
fn runs(api: &Path) -> bool {
    let absent = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    UnixStream::connect(api).map_or_else(|error| !absent.contains(&error.kind()), |_| true)
}

/// Closes what the tunnels of a configuration are to protect, for the time before the gateway starts.
pub(crate) fn close(arguments: &Close) -> Outcome {
    log::start()?;
    if runs(&arguments.api) {
        println!("a gateway runs, and protects what its configuration says");
        return Ok(());
    }
    let settings = run::read(&arguments.config, None, false)?.settings;
    privilege::drop_unneeded(privilege::Needs::default())?;
    Host::start(&settings)?.end(false);
    Ok(())
}

/// Opens what gateways have left closed.
pub(crate) fn open(arguments: &Open) -> Outcome {
    log::start()?;
    if runs(&arguments.api) {
        let api = arguments.api.display();
        return Err(format!("a gateway serves {api}, and would close all again\n  fix: systemctl stop postern, then postern open").into());
    }
    privilege::drop_unneeded(privilege::Needs::default())?;
    host::open()?;
    println!("the routes, rules and the nftables table that gateways had left are removed");
    Ok(())
}
