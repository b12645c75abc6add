//! The process: scripts, the management interface, log and status, privileges, sockets.

use super::material::Material;
use std::net::SocketAddr;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A user name and a password.
#[derive(Clone)]
pub struct Credentials {
    /// The user name.
    pub user: Zeroizing<String>,
    /// The password; asked for if none.
    pub password: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// Programs that are run, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Scripts {
    /// `script-security`: 2 and more for scripts, 3 for passwords in their environment.
    pub security: u8,
    /// The interface was made.
    pub up: Option<Command>,
    /// The interface was removed.
    pub down: Option<Command>,
    /// `down` runs before the interface is removed.
    pub down_pre: bool,
    /// The interface is made, and `up` runs, once a peer is connected.
    pub up_delay: bool,
    /// `up` and `down` run at restarts too.
    pub up_restart: bool,
    /// Routes were added.
    pub route_up: Option<Command>,
    /// Routes are about to be removed.
    pub route_pre_down: Option<Command>,
    /// The outer address of the peer changed.
    pub ip_change: Option<Command>,
    /// Name servers are set or removed.
    pub dns: Option<Command>,
    /// A client connected.
    pub client_connect: Option<Command>,
    /// A client disconnected.
    pub client_disconnect: Option<Command>,
    /// A client answered a challenge.
    pub client_response: Option<Command>,
    /// An address of a client was learned.
    pub learn_address: Option<Command>,
    /// A certificate of the peer was verified.
    pub tls_verify: Option<Command>,
    /// The directory of the peer's certificates for `tls_verify`.
    pub certificates: Option<PathBuf>,
    /// The metadata of a tls-crypt-v2 key arrived.
    pub tls_crypt_v2_verify: Option<Command>,
    /// Variables of the environment.
    pub environment: Vec<(String, String)>,
}

/// The address of the management interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagementAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A TCP port on the local address of the tunnel.
    Tunnel(u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The management interface.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Management {
    /// Its address.
    pub address: ManagementAddress,
    /// The password that its client must send.
    pub password: Option<Material>,
    /// Connects to the address instead of listening there.
    pub connects: bool,
    /// Waits for its client before the first connection.
    pub hold: bool,
    /// Restarts when its client goes.
    pub signal: bool,
    /// Forgets passwords when its client goes.
    pub forget: bool,
    /// Reports the tunnel.
    pub up_down: bool,
    /// Asks its client for passwords.
    pub query_passwords: bool,
    /// Asks its client for the remote.
    pub query_remote: bool,
    /// Its client authenticates the clients of this server.
    pub client_auth: bool,
    /// Lines of the log that it keeps.
    pub log_lines: u32,
    /// The user that may connect to the Unix socket.
    pub user: Option<String>,
    /// The group that may connect to the Unix socket.
    pub group: Option<String>,
}

/// The status file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The file.
    pub file: PathBuf,
    /// Seconds between writing it.
    pub every_seconds: u32,
}

/// Log and status file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The log file, and whether it is appended to.
    pub file: Option<(PathBuf, bool)>,
    /// The name in the system log, if the log goes there.
    pub syslog: Option<String>,
    /// How much is logged, from 0 to 11.
    pub verbosity: u8,
    /// The maximum number of equal lines in a row; 0 for no limit.
    pub mute: u32,
    /// Lines without the time.
    pub without_time: bool,
    /// The status file.
    pub status: Option<Status>,
    /// The format of the status file, from 1 to 3.
    pub status_version: u8,
    /// Lines of `echo`.
    pub echo: Vec<String>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            file: None,
            syslog: None,
            verbosity: 1,
            mute: 0,
            without_time: false,
            status: None,
            status_version: 1,
            echo: Vec::new(),
        }
    }
}

/// The process and its sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Process {
    /// The user after start.
    pub user: Option<String>,
    /// The group after start.
    pub group: Option<String>,
    /// The directory below which client files, CRLs and temporary files are, as after `chroot`.
    pub root: Option<PathBuf>,
    /// Whether the process detaches from its terminal.
    pub is_daemon: bool,
    /// The file of the process id.
    pub pid_file: Option<PathBuf>,
    /// The priority.
    pub nice: Option<i8>,
    /// Memory is not swapped.
    pub lock_memory: bool,
    /// The send buffer of sockets in bytes.
    pub send_buffer: Option<u32>,
    /// The receive buffer of sockets in bytes.
    pub receive_buffer: Option<u32>,
    /// The mark of outer packets.
    pub mark: Option<u32>,
    /// The network interface that sockets are bound to.
    pub bind_device: Option<String>,
    /// Path MTU discovery: `yes`, `maybe` or `no`.
    pub mtu_discovery: Option<String>,
    /// UDP answers leave from the address that was addressed.
    pub multihome: bool,
    /// The signal that SIGUSR1 stands for: `SIGHUP` or `SIGTERM`.
    pub remap_usr1: Option<String>,
    /// Keys are kept over SIGUSR1.
    pub persist_key: bool,
    /// The outer addresses are kept over SIGUSR1: local, remote.
    pub persist_addresses: (bool, bool),
    /// Bytes a second that are sent.
    pub shaper: Option<u32>,
}
