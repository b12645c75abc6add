//! Unix sockets in the file system: made safely, replaced when stale, missed when deleted.

use crate::rights::Rights;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// How long another process may take to let a socket go, as one whose interface was deleted just now.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another process answers there.
    #[error("{} is served by another process\n  fix: stop that one first", .0.display())]
    Busy(PathBuf),
    /// Something is there that is none of ours to remove.
    #[error("{} is there and is no socket\n  fix: move it away, or name another place", .0.display())]
    Occupied(PathBuf),
    /// What is served there cannot have such a name.
    #[error("{0:?} cannot be the name of an interface: 1 to 15 characters, none of them a space, / or :")]
    Name(String),
    /// Anything else.
    #[error("{}: {error}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// A listening socket that only its owner may use. The file is removed when it is dropped.
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Tells our file from one that another process has put in its place.
    identity: (u64, u64),
    deleted: watch::Receiver<bool>,
}

impl Listener {
    /// Listens at `path`. A socket that a process that was killed left there is removed; anything else is left alone.
    pub async fn bind(path: &Path) -> Result<Self, SocketError> {
        Prepared::bind(path).await?.listen()
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        self.socket.accept().await.map(|(stream, _)| stream)
    }

    /// Returns when the socket was deleted, which tells a WireGuard daemon to end.
    pub async fn deleted(&self) {
        // An error means that the watcher has ended, which it does only when the socket is gone.
        let _ = self.deleted.clone().wait_for(|&deleted| deleted).await;
    }
}

/// A socket that was made by a user that may, for a process that runs as another user later. It starts no thread.
pub struct Prepared {
    socket: UnixListener,
    path: PathBuf,
    identity: (u64, u64),
}

impl Prepared {
    /// See [`Listener::bind`].
    pub async fn bind(path: &Path) -> Result<Self, SocketError> {
        let io = |error| SocketError::Io { path: path.to_owned(), error };
        let directory = path.parent().unwrap_or(Path::new("/"));
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(io)?;
        let until = Instant::now() + PATIENCE;
        while let Err(error) = remove_stale(path).await {
            if !matches!(error, SocketError::Busy(_)) || Instant::now() > until {
                return Err(error);
            }
            sleep(PAUSE).await;
        }
        // No other user may connect, not even before the permissions are set.
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let socket = bound.map_err(io)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(io)?;
        let identity = identity(path).map_err(io)?;
        Ok(Self { socket, path: path.to_owned(), identity })
    }

    /// Follows the file from now on.
    pub fn listen(self) -> Result<Listener, SocketError> {
        let Self { socket, path, identity } = self;
        let directory = path.parent().unwrap_or(Path::new("/"));
        match watch(directory, &path) {
            Ok(deleted) => Ok(Listener { socket, path, identity, deleted }),
            Err(error) => Err(SocketError::Io { path, error }),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Gone already if that was the reason to end.
        if identity(&self.path).is_ok_and(|there| there == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let there = std::fs::symlink_metadata(path)?;
    Ok((there.dev(), there.ino()))
}

/// Removes a socket without a listener.
async fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let io = |error| SocketError::Io { path: path.to_owned(), error };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(there) if !there.file_type().is_socket() => return Err(SocketError::Occupied(path.to_owned())),
        Ok(_) => {}
    }
    let refused = match UnixStream::connect(path).await {
        // Too busy to let us in is busy too.
        Ok(_) => return Err(SocketError::Busy(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(SocketError::Busy(path.to_owned()));
        }
        Err(error) => error,
    };
    let removed = match refused.kind() {
        io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Err(refused),
    };
    // Another process may have been faster.
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(io(error)) })
}

/// Watches `path` from a thread of its own, which ends with the socket.
fn watch(directory: &Path, path: &Path) -> io::Result<watch::Receiver<bool>> {
    let fd = inotify::init(CreateFlags::CLOEXEC)?;
    inotify::add_watch(
        &fd,
        directory,
        WatchFlags::DELETE | WatchFlags::DELETE_SELF | WatchFlags::MOVED_FROM,
    )?;
    let (sender, receiver) = watch::channel(false);
    let path = path.to_owned();
    std::thread::Builder::new().name("socket".to_owned()).spawn(move || {
        Rights::None.keep();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&fd, &mut buffer);
        while path.exists() && events.next().is_ok() {}
        // After the daemon itself has removed it, there is no receiver.
        let _ = sender.send(true);
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("postern-{}-{name}.sock", std::process::id()))
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_served_one_is_not() {
        let path = path("stale");
        std::mem::forget(std::os::unix::net::UnixListener::bind(&path).expect("free"));
        assert!(matches!(Listener::bind(&path).await, Err(SocketError::Busy(_))));
        std::fs::remove_file(&path).expect("it is there");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("free"));
        let listener = Listener::bind(&path).await.expect("no other process answers there");
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_process_that_ends_is_waited_for() {
        let path = path("ending");
        let ending = Listener::bind(&path).await.expect("free");
        let ends = async {
            sleep(Duration::from_millis(200)).await;
            drop(ending);
        };
        let (bound, ()) = tokio::join!(Listener::bind(&path), ends);
        drop(bound.expect("it was waited for"));
    }

    #[tokio::test]
    async fn what_is_no_socket_stays() {
        let path = path("file");
        std::fs::write(&path, "precious").expect("a file");
        assert!(matches!(Listener::bind(&path).await, Err(SocketError::Occupied(_))));
        assert_eq!(std::fs::read(&path).expect("it is there"), b"precious");
        std::fs::remove_file(&path).expect("it is there");
        std::os::unix::fs::symlink("/nowhere/at/all", &path).expect("a link");
        assert!(matches!(Listener::bind(&path).await, Err(SocketError::Occupied(_))));
        std::fs::remove_file(&path).expect("it is there");
    }

    #[tokio::test]
    async fn a_listener_too_busy_to_answer_keeps_its_socket() {
        let path = path("busy");
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None)
                .expect("a socket");
        let address = rustix::net::SocketAddrUnix::new(&path).expect("short enough");
        rustix::net::bind(&socket, &address).expect("free");
        rustix::net::listen(&socket, 0).expect("bound");
        let mut waiting = Vec::new();
        while let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
        }
        assert!(matches!(Listener::bind(&path).await, Err(SocketError::Busy(_))));
        assert!(path.exists());
        std::fs::remove_file(&path).expect("it is there");
    }

    #[tokio::test]
    async fn a_successor_keeps_its_socket() {
        let path = path("successor");
        let first = Listener::bind(&path).await.expect("free");
        std::fs::remove_file(&path).expect("it is there");
        let second = Listener::bind(&path).await.expect("free again");
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn deletion_is_noticed() {
        let path = path("deleted");
        let listener = Listener::bind(&path).await.expect("free");
        let removal = async {
            sleep(Duration::from_millis(20)).await;
            std::fs::remove_file(&path).expect("it is there");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = listener.deleted() => {}
            () = removal => unreachable!("it never ends"),
        }
    }
}
