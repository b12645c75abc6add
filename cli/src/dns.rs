//! The process that sets name servers for clients of OpenVPN and of DHCP, which have no right to it.

use crate::{Failure, Outcome, child, log};
use clap::Args;
#[cfg(feature = "openvpn")]
use gateway::dns::NameServers;
use gateway::dns::helper::{Helper, is_tunnel};
#[cfg(feature = "openvpn")]
use gateway::openvpn::settings::{Role, Settings};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The folder that stands for the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Starts the process for a client; must be called before rights are given up. It ends when the socket is closed.
#[cfg(feature = "openvpn")]
pub(crate) fn start(settings: &Settings) -> Result<Option<UnixStream>, Failure> {
    let Role::Client(client) = &settings.role else { return Ok(None) };
    if client.own.dns.is_off {
        return Ok(None);
    }
    of_daemon(Path::new("/")).map(Some)
}

/// The same for a daemon, whose clients come later. `root` stands for the machine.
pub(crate) fn of_daemon(root: &Path) -> Result<UnixStream, Failure> {
    // A signal from the terminal is for the daemon alone.
    let mut command = child::command("name-servers");
    command.arg("--root").arg(std::path::absolute(root)?).process_group(0);
    child::start(&mut command, "sets name servers")
}

/// Hands the process to a client.
#[cfg(feature = "openvpn")]
pub(crate) fn give(settings: &mut Settings, name_servers: Option<&NameServers>) {
    if let Role::Client(client) = &mut settings.role {
        client.name_servers = name_servers.filter(|_| !client.own.dns.is_off).cloned();
    }
}

/// Sets name servers until the daemon ends.
pub(crate) fn serve(Arguments { root }: Arguments) -> Outcome {
    log::start()?;
    let socket = child::socket()?;
    socket.set_nonblocking(false)?;
    // A service manager sends signals to all processes. This one ends with the daemon, behind which it has something to put back.
    let _ignores = child::ignore_signals()?;
    Ok(Helper::start(root, is_tunnel).serve(&socket, &socket)?)
}
