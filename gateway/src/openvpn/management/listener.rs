//! The socket of the management interface, and who may connect.

use super::connection::{self, Shared};
use super::{Ask, Board, Signal};
use config::openvpn::settings::{Management, ManagementAddress};
use crypto::{Secret, hash};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, chownat};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
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
    /// The other program does not listen, or has another user.
    #[error(
        "management-client {0}: {1}\n  fix: start the program that listens there first, as the user of management-client-user"
    )]
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
    /// Binds the socket, or connects it. `owner`: the user that the process becomes, which has the socket unless another may connect.
    pub fn bind(wanted: &Management, allowed: Allowed, owner: Option<u32>) -> Result<Self, BindError> {
        let socket = socket(wanted, allowed, owner)?;
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
                            Ok((stream, _)) => {
                                // Its process has no number here if it is outside of our PID namespace: that does not matter.
                                let who = stream.peer_cred();
                                if who.is_ok_and(|it| is_allowed(it.uid(), it.gid(), allowed)) {
                                    client(stream, &shared, ends).await;
                                } else {
                                    tracing::warn!(
                                        "management: a client of another user or group is refused"
                                    );
                                }
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

fn socket(wanted: &Management, allowed: Allowed, owner: Option<u32>) -> Result<Socket, BindError> {
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
                let connected = unix::UnixStream::connect(path).and_then(|stream| {
                    // It gets passwords, and decides about clients.
                    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
                    let is_allowed = is_allowed(peer.uid.as_raw(), peer.gid.as_raw(), allowed);
                    is_allowed.then_some(stream).ok_or(io::ErrorKind::PermissionDenied.into())
                });
                return connected.map(Socket::UnixClient).map_err(|error| name(error, BindError::Connect));
            }
            let (user, group) = allowed;
            let bound = listen(path, (user.or(owner), group));
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
    // The kernel refuses other users. The mode is that of the new socket: a chmod of the path follows links.
    let mask = Mode::from_raw_mode(if group.is_some() { 0o117 } else { 0o177 });
    let before = rustix::process::umask(mask);
    let bound = socket.bind(&socket2::SockAddr::unix(path)?);
    rustix::process::umask(before);
    bound?;
    let own = rustix::process::geteuid().as_raw();
    let user = user.filter(|user| *user != own);
    if user.is_some() || group.is_some() {
        give(path, (user, group))?;
    }
    socket.listen(8)?;
    Ok(std::os::fd::OwnedFd::from(socket).into())
}

/// Gives a socket to a user and to a group. Its folder may be of that user, who may have replaced it by something else.
fn give(path: &Path, (user, group): Allowed) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = rustix::fs::open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&there)?.st_mode) != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "another program has replaced the socket"));
    }
    let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
    Ok(chownat(&there, "", user, group, AtFlags::EMPTY_PATH)?)
}

/// Whether the other program may be a client. Root always may.
fn is_allowed(uid: u32, gid: u32, (user, group): Allowed) -> bool {
    let is = user.is_none_or(|user| user == uid) && group.is_none_or(|group| group == gid);
    is || uid == 0
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn a_link_in_the_place_of_the_socket_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("shadow"), folder.path().join("socket"));
        std::fs::write(&file, "secret").expect("ours");
        let before = std::fs::metadata(&file).expect("it is there");
        symlink(&file, &link).expect("ours");
        // The user of this test may give a file to itself.
        let other = if before.uid() == 0 { 4711 } else { before.uid() };
        assert!(give(&link, (Some(other), None)).is_err() && give(&file, (Some(other), None)).is_err());
        assert_eq!(std::fs::metadata(&file).expect("it is there").uid(), before.uid());
        // Nor a link to a socket of another program.
        let socket = folder.path().join("other");
        let _other = unix::UnixListener::bind(&socket).expect("ours");
        std::fs::remove_file(&link).expect("ours");
        symlink(&socket, &link).expect("ours");
        assert!(give(&link, (Some(other), None)).is_err());
    }

    #[test]
    fn the_socket_has_its_mode_and_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let own = std::fs::metadata(folder.path()).expect("it is there");
        let is_root = own.uid() == 0;
        let (uid, gid) = if is_root { (4711, 4712) } else { (own.uid(), own.gid()) };
        for (allowed, mode) in [
            ((None, None), 0o600),
            ((Some(uid), None), 0o600),
            ((None, Some(gid)), 0o660),
            ((Some(uid), Some(gid)), 0o660),
        ] {
            let _socket = listen(&path, allowed).expect("an old one is replaced");
            let there = std::fs::metadata(&path).expect("it is there");
            let expected = (allowed.0.unwrap_or(own.uid()), allowed.1.unwrap_or(there.gid()), mode);
            assert_eq!((there.uid(), there.gid(), there.permissions().mode() & 0o777), expected);
        }
    }
}
