//! The socket of the management interface, and who may connect.

use super::connection::{self, Shared};
use super::{Ask, Board, Signal};
use config::openvpn::settings::{Management, ManagementAddress};
use crypto::{Secret, hash};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;

/// Requests that wait for the loop of the process.
const WAITING: usize = 64;
/// The pause after an error of the socket.
const PAUSE: Duration = Duration::from_millis(200);

/// Why there is no management interface.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The socket was refused.
    #[error(
        "management {0}: {1}\n  fix: choose an address and a port that are free, or a path that can be made"
    )]
    Socket(String, io::Error),
    /// The other program does not listen.
    #[error("management-client {0}: {1}\n  fix: start the program that listens there first")]
    Connect(String, io::Error),
    /// The password is missing.
    #[error("management: the file of the password has no password\n  fix: write it on the first line")]
    NoPassword,
}

/// What follows when a client leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// SIGUSR1 (`management-signal`).
    pub restarts: bool,
    /// Passwords are forgotten (`management-forget-disconnect`).
    pub forgets: bool,
}

enum Socket {
    Tcp(std::net::TcpListener),
    Unix(unix::UnixListener, PathBuf),
    /// Connected (`management-client`).
    TcpClient(std::net::TcpStream),
    UnixClient(unix::UnixStream),
}

/// A bound socket. It serves nothing yet, so that it can be bound before the process changes its user.
pub struct Listener {
    socket: Socket,
    password: Option<Arc<Secret>>,
    ends: Ends,
    /// The user and the group that may connect.
    allowed: Allowed,
}

/// The ids of `management-client-user` and `management-client-group`.
type Allowed = (Option<u32>, Option<u32>);

impl Listener {
    /// Binds the socket, or connects it.
    pub fn bind(wanted: &Management, allowed: Allowed) -> Result<Self, BindError> {
        let socket = socket(wanted, allowed)?;
        let ends = Ends { restarts: wanted.signal, forgets: wanted.forget };
        Ok(Self { socket, password: password(wanted)?, ends, allowed })
    }

    /// Serves one client after the other from now on, on the runtime of the caller; what the loop of the process is asked.
    pub fn serve(self, board: Arc<Board>) -> io::Result<mpsc::Receiver<Ask>> {
        let Self { socket, password, ends, allowed } = self;
        let (asks, asked) = mpsc::channel(WAITING);
        let shared = Shared { board, asks, password };
        match socket {
            Socket::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                let socket = TcpListener::from_std(socket)?;
                tokio::spawn(async move {
                    loop {
                        match socket.accept().await {
                            Ok((stream, _)) => client(stream, &shared, ends).await,
                            Err(_) => tokio::time::sleep(PAUSE).await,
                        }
                    }
                });
            }
            Socket::Unix(socket, path) => {
                socket.set_nonblocking(true)?;
                let socket = UnixListener::from_std(socket)?;
                tokio::spawn(async move {
                    let _path = Removed(path);
                    loop {
                        match socket.accept().await {
                            Ok((stream, _)) if is_allowed(&stream, allowed) => {
                                client(stream, &shared, ends).await;
                            }
                            Ok(_) => {
                                tracing::warn!("management: a client of another user or group is refused");
                            }
                            Err(_) => tokio::time::sleep(PAUSE).await,
                        }
                    }
                });
            }
            Socket::TcpClient(stream) => {
                stream.set_nonblocking(true)?;
                let stream = TcpStream::from_std(stream)?;
                tokio::spawn(async move { only_client(stream, &shared, ends).await });
            }
            Socket::UnixClient(stream) => {
                stream.set_nonblocking(true)?;
                let stream = UnixStream::from_std(stream)?;
                tokio::spawn(async move { only_client(stream, &shared, ends).await });
            }
        }
        Ok(asked)
    }
}

/// The path of a socket, which is removed at the end as far as the user of the process may.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn password(wanted: &Management) -> Result<Option<Arc<Secret>>, BindError> {
    let Some(material) = &wanted.password else { return Ok(None) };
    let first = material.text().and_then(|text| text.lines().next());
    let first = first.map(str::trim_end).filter(|first| !first.is_empty()).ok_or(BindError::NoPassword)?;
    Ok(Some(Arc::new(Secret::new(hash::sha256(&[first.as_bytes()])))))
}

fn socket(wanted: &Management, allowed: Allowed) -> Result<Socket, BindError> {
    match &wanted.address {
        ManagementAddress::Tcp(address) => {
            let name = |error, of: fn(String, io::Error) -> BindError| of(address.to_string(), error);
            if wanted.connects {
                let connected = std::net::TcpStream::connect(address);
                return connected.map(Socket::TcpClient).map_err(|error| name(error, BindError::Connect));
            }
            let bound = std::net::TcpListener::bind(address);
            bound.map(Socket::Tcp).map_err(|error| name(error, BindError::Socket))
        }
        ManagementAddress::Unix(path) => {
            let name = |error, of: fn(String, io::Error) -> BindError| of(path.display().to_string(), error);
            if wanted.connects {
                let connected = unix::UnixStream::connect(path);
                return connected.map(Socket::UnixClient).map_err(|error| name(error, BindError::Connect));
            }
            let bound = listen(path, allowed);
            bound
                .map(|socket| Socket::Unix(socket, path.clone()))
                .map_err(|error| name(error, BindError::Socket))
        }
        // The conversion has refused it.
        ManagementAddress::Tunnel(port) => {
            let error = io::ErrorKind::Unsupported.into();
            Err(BindError::Socket(SocketAddr::from(([0, 0, 0, 0], *port)).to_string(), error))
        }
    }
}

/// Makes a Unix socket. As in OpenVPN, a socket at its path is replaced. Until the mode and the owner are set, nothing listens.
fn listen(path: &Path, (user, group): Allowed) -> io::Result<unix::UnixListener> {
    if std::fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = socket.bind(&socket2::SockAddr::unix(path)?);
    rustix::process::umask(before);
    bound?;
    let own = rustix::process::geteuid().as_raw();
    let user = user.filter(|user| *user != own);
    if user.is_some() || group.is_some() {
        chown(path, user, group)?;
    }
    // The kernel refuses other users.
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    socket.listen(8)?;
    Ok(std::os::fd::OwnedFd::from(socket).into())
}

/// Whether the other program may be a client. Root always may.
fn is_allowed(stream: &UnixStream, (user, group): Allowed) -> bool {
    let Ok(peer) = stream.peer_cred() else { return false };
    let is = user.is_none_or(|user| user == peer.uid()) && group.is_none_or(|group| group == peer.gid());
    is || peer.uid() == 0
}

async fn client(stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared, ends: Ends) {
    if !connection::serve(stream, shared.clone()).await {
        return;
    }
    let forgets = ends.forgets.then_some(Ask::Forget);
    let restarts = ends.restarts.then_some(Ask::Signal(Signal::User1));
    for ask in forgets.into_iter().chain(restarts) {
        // The process may be about to end.
        let _ = shared.asks.send(ask).await;
    }
}

/// The program that was connected to; the process ends with it.
async fn only_client(stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared, ends: Ends) {
    client(stream, shared, ends).await;
    tracing::info!("management-client: the connection has ended, and the process ends with it");
    let _ = shared.asks.send(Ask::Signal(Signal::Terminate)).await;
}
