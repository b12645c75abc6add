//! Another server at the TCP ports (`port-share`): connections that are not OpenVPN go on to it.
//!
//! ```text
//! receiving worker ── the first bytes are not OpenVPN ──> queue ──> thread "IF share" <── both ways ──> the other server
//! ```
//! The worker never waits. All these connections end with the server, and when its ports are closed.

use super::settings::PortShare;
use crate::rights::Rights;
use crate::thread_name::thread_name;
use port::schedule::yield_to_packets;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::OpenOptions;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};

/// Connections at once, and those of one source.
const MOST: usize = 512;
const MOST_OF_SOURCE: usize = 128;
/// Connections that wait for the thread.
const WAITING: usize = 64;
/// How long the other server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long nothing may come on a connection, either way.
const IDLE: Duration = Duration::from_secs(600);
/// Bytes of one read, in each direction.
const READ: usize = 8192;

/// A connection that is not OpenVPN.
struct Foreign {
    socket: OwnedFd,
    remote: SocketAddr,
    /// What it has sent so far.
    begun: Vec<u8>,
}

/// The thread with these connections. Dropping it ends them.
pub(super) struct Share {
    queue: mpsc::Sender<Foreign>,
    /// Changes when all connections end; the thread ends without it.
    ends: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Share {
    /// Starts the thread.
    pub(super) fn start(interface: &str, wanted: PortShare) -> io::Result<Self> {
        let (queue, queued) = mpsc::channel(WAITING);
        let (ends, ended) = watch::channel(());
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let body = move || {
            Rights::None.keep();
            if let Err(error) = yield_to_packets() {
                tracing::debug!("connections of port-share may delay packets: {error}");
            }
            LocalSet::new().block_on(&runtime, serve(Rc::new(wanted), queued, ended));
        };
        let thread = thread::Builder::new().name(thread_name(interface, "share")).spawn(body)?;
        Ok(Self { queue, ends: Some(ends), thread: Some(thread) })
    }

    /// What takes a connection, with what it has sent; false if too many wait.
    pub(super) fn taker(&self) -> impl Fn(OwnedFd, SocketAddr, Vec<u8>) -> bool + Send + Sync + 'static {
        let queue = self.queue.clone();
        move |socket, remote, begun| queue.try_send(Foreign { socket, remote, begun }).is_ok()
    }

    /// Ends all connections.
    pub(super) fn close(&self) {
        if let Some(ends) = &self.ends {
            ends.send_replace(());
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.ends = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of port-share has failed");
        }
    }
}

/// Carries connections until the server ends.
async fn serve(wanted: Rc<PortShare>, mut queued: mpsc::Receiver<Foreign>, mut ended: watch::Receiver<()>) {
    let (mut connections, mut by_source) = (JoinSet::new(), HashMap::new());
    loop {
        tokio::select! {
            biased;
            changed = ended.changed() => {
                while queued.try_recv().is_ok() {}
                connections.shutdown().await;
                by_source.clear();
                if changed.is_err() {
                    return;
                }
            }
            Some(over) = connections.join_next() => {
                if let Ok(source) = over {
                    leave(&mut by_source, source);
                }
            }
            Some(foreign) = queued.recv() => {
                let source = foreign.remote.ip();
                if connections.len() >= MOST || !enter(&mut by_source, source) {
                    tracing::debug!("port-share: too many connections: {} is refused", foreign.remote);
                    continue;
                }
                connections.spawn_local(carry_one(Rc::clone(&wanted), foreign));
            }
        }
    }
}

/// Counts a connection of a source; false if it has too many.
fn enter(by_source: &mut HashMap<IpAddr, usize>, source: IpAddr) -> bool {
    let count = by_source.entry(source).or_default();
    let may = *count < MOST_OF_SOURCE;
    *count += usize::from(may);
    may
}

fn leave(by_source: &mut HashMap<IpAddr, usize>, source: IpAddr) {
    if let Entry::Occupied(mut count) = by_source.entry(source) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// Carries a connection to its end, and returns its source.
async fn carry_one(wanted: Rc<PortShare>, foreign: Foreign) -> IpAddr {
    let remote = foreign.remote;
    if let Err(error) = Box::pin(carry(&wanted, foreign)).await {
        tracing::debug!("port-share: {remote} and {}: {error}", wanted.server);
    }
    remote.ip()
}

async fn carry(wanted: &PortShare, foreign: Foreign) -> io::Result<()> {
    let mut client = TcpStream::from_std(foreign.socket.into())?;
    let connect = tokio::time::timeout(CONNECT, TcpStream::connect(wanted.server));
    let mut server = connect.await.map_err(|_| io::ErrorKind::TimedOut)??;
    server.set_nodelay(true)?;
    // It is there before the server reads a byte, and until the connection has ended.
    let folder = wanted.folder.as_deref();
    let _origin =
        folder.map(|folder| Origin::write(folder, server.local_addr()?, foreign.remote)).transpose()?;
    server.write_all(&foreign.begun).await?;
    let moved = AtomicU64::new(0);
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    tokio::select! {
        both = async { tokio::try_join!(pump(from_client, to_server, &moved), pump(from_server, to_client, &moved)) } => both.map(|_| ()),
        () = idle(&moved) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Copies bytes until there are no more, and says so to the other end.
async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, moved: &AtomicU64) -> io::Result<()> {
    let mut buffer = [0; READ];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        moved.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until nothing has come for long.
async fn idle(moved: &AtomicU64) {
    let mut before = u64::MAX;
    while before != moved.load(Ordering::Relaxed) {
        before = moved.load(Ordering::Relaxed);
        tokio::time::sleep(IDLE).await;
    }
}

/// A file that tells the other server who the client is; removed when it is dropped.
struct Origin(PathBuf);

impl Origin {
    /// Writes the file: its name is our address towards the server, as OpenVPN writes addresses.
    fn write(folder: &Path, own: SocketAddr, client: SocketAddr) -> io::Result<Self> {
        let path = folder.join(name(own));
        // A process that was killed may have left one; the port is ours now.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(in_folder(folder, &error)),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path);
        let mut file = file.map_err(|error| in_folder(folder, &error))?;
        let origin = Self(path);
        io::Write::write_all(&mut file, name(client).as_bytes())?;
        Ok(origin)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn in_folder(folder: &Path, error: &io::Error) -> io::Error {
    tracing::warn!(
        "port-share: {}: {error}\n  fix: let the user of this process write there",
        folder.display()
    );
    io::Error::from(error.kind())
}

/// An address as OpenVPN writes it.
fn name(address: SocketAddr) -> String {
    let family = if address.is_ipv4() { "AF_INET" } else { "AF_INET6" };
    format!("[{family}]{}:{}", address.ip(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Both ends of a connection.
    fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let (accepted, _) = listener.accept().expect("one waits");
        accepted.set_nonblocking(true).expect("a socket");
        (client, accepted)
    }

    fn names(folder: &Path) -> Vec<String> {
        let found = std::fs::read_dir(folder).expect("it is there");
        found.map(|it| it.expect("readable").file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_connection_is_carried_with_its_origin_in_a_file_and_ends_with_the_server() {
        let loopback = || TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let (port, other) = (loopback(), loopback());
        let folder = tempfile::tempdir().expect("a directory");
        let server = other.local_addr().expect("bound");
        let wanted = PortShare { server, folder: Some(folder.path().to_owned()) };
        let share = Share::start("vtun1", wanted).expect("a thread");
        let take = share.taker();
        let (mut client, accepted) = pair(&port);
        let address = client.local_addr().expect("bound");
        assert!(take(accepted.into(), address, b"GET ".to_vec()));
        let (mut served, own) = other.accept().expect("it is carried on");
        served.set_read_timeout(Some(PATIENCE)).expect("not zero");
        client.write_all(b"/ HTTP/1.1").expect("open");
        let mut request = [0; 14];
        served.read_exact(&mut request).expect("it arrives");
        assert_eq!(&request, b"GET / HTTP/1.1");
        assert_eq!(names(folder.path()), [format!("[AF_INET]{own}")]);
        let written = std::fs::read_to_string(folder.path().join(format!("[AF_INET]{own}")));
        assert_eq!(written.expect("readable"), format!("[AF_INET]{address}"));
        // One end is half closed, and the other one goes on.
        client.shutdown(std::net::Shutdown::Write).expect("open");
        assert_eq!(served.read(&mut request).expect("readable"), 0);
        served.write_all(b"answer").expect("open");
        client.read_exact(&mut request[..6]).expect("it arrives");
        assert_eq!(&request[..6], b"answer");
        share.close();
        assert_eq!(client.read(&mut request).unwrap_or(0), 0, "closed ports end what is open");
        // The thread goes on for ports that are opened again.
        let (mut client, accepted) = pair(&port);
        assert!(take(accepted.into(), address, b"x".to_vec()));
        let (served, _) = other.accept().expect("it is carried on");
        drop(share);
        assert_eq!((client.read(&mut request).unwrap_or(0), names(folder.path())), (0, Vec::new()));
        drop(served);
        assert!(!take(port.into(), address, Vec::new()), "nobody takes one any more");
    }

    #[test]
    fn connections_are_limited_by_source() {
        let mut by_source = HashMap::new();
        let [one, other] = ["192.0.2.1", "2001:db8::1"].map(|it| it.parse().expect("literal"));
        assert_eq!((0..1000).filter(|_| enter(&mut by_source, one)).count(), MOST_OF_SOURCE);
        assert!(enter(&mut by_source, other));
        leave(&mut by_source, one);
        assert_eq!((0..9).filter(|_| enter(&mut by_source, one)).count(), 1);
        leave(&mut by_source, other);
        assert!(!by_source.contains_key(&other));
    }
}
