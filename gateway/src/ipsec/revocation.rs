//! Revocation status: fetches lists and OCSP responses by HTTP, and reads files again when they change. This has a thread of
//! its own, so that IKE never waits for a server. The results are in [`Evidence`], where IKE looks them up.
//!
//! Requests go only to URLs in certificates whose chain leads to a trusted authority. Responses are signed, and bounded in
//! bytes and time. A redirection is not followed. An authority could name a server of this machine or of its link, which
//! others cannot reach: no request goes to such addresses.

mod fetch;
mod outside;

use super::peer_error::PeerError;
use crate::clock::Clock;
use crate::rights::Rights;
use config::settings::IpSec;
use config::settings::ipsec::{Authentication, Authority, Peer, Revocation, X509};
use crypto::pki::{Certificate, Evidence};
use outside::OutsideConnector;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Concurrent requests, to all servers and to each: a silent server must not block the others.
const AT_ONCE: usize = 16;
const AT_ONCE_EACH: usize = 2;
/// The interval of the checks for changed files and for lists that are about to expire.
const TURN: Duration = Duration::from_secs(3);
/// The longest file of lists.
const MOST_FILE: u64 = 64 << 20;

/// A file of lists, the authority that signs them, and its metadata at the last reading.
struct Watched {
    path: String,
    place: String,
    authority: Certificate,
    stamp: Option<[i64; 5]>,
}

/// Fetches and reads until it is dropped.
pub(super) struct Revocations {
    evidence: Arc<Evidence>,
    connector: OutsideConnector,
    files: Arc<Mutex<Vec<Watched>>>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Revocations {
    /// Starts the thread. It cannot mark sockets: a task of the calling runtime does.
    pub(super) fn start() -> io::Result<Self> {
        let (wake, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let woken = Arc::clone(&wake);
        let evidence = Arc::new(Evidence::new(move || woken.notify_one()));
        let files = Arc::new(Mutex::new(Vec::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connector = OutsideConnector::start();
        let worker = Worker {
            evidence: Arc::clone(&evidence),
            connector: connector.clone(),
            files: Arc::clone(&files),
            wake,
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("revocation".to_owned()).spawn(move || {
            Rights::None.keep();
            runtime.block_on(async {
                tokio::select! {
                    () = worker.run() => {}
                    () = stopped.notified() => {}
                }
            });
            // Do not wait for a resolver that does not answer.
            runtime.shutdown_background();
        })?;
        Ok(Self { evidence, connector, files, stop, thread: Some(thread) })
    }

    /// The known revocation status.
    pub(super) fn evidence(&self) -> Arc<Evidence> {
        Arc::clone(&self.evidence)
    }

    /// Reads the files of these peers, now and when they change, and no other files. Forgets what was fetched for authorities
    /// that no peer has any more. Servers behind a peer are reached through its tunnels. The peers in `before` count as well,
    /// as long as a change may be undone.
    pub(super) fn watch(&self, settings: &IpSec, before: Option<&IpSec>) {
        let peers = before.into_iter().chain([settings]).flat_map(|settings| settings.peers.values());
        self.connector.set_tunnels(settings);
        // Thousands of peers may have the same.
        let authorities: BTreeSet<_> = authorities(peers.clone()).map(|it| &it.certificate).collect();
        let authorities = authorities.into_iter().filter_map(|it| Certificate::from_der(it).ok());
        self.evidence.keep_authorities(&authorities.map(|it| it.key_hash()).collect());
        let wanted = files(peers);
        self.evidence.keep_files(&wanted.keys().map(String::as_str).collect::<Vec<_>>());
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files
            .retain(|file| wanted.get(&file.path).is_some_and(|(_, authority)| *authority == file.authority));
        for (path, (place, authority)) in wanted {
            if files.iter().all(|file| file.path != path) {
                files.push(Watched { path, place, authority, stamp: None });
            }
        }
        files.iter_mut().for_each(|file| file.read(&self.evidence));
    }
}

impl Drop for Revocations {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

/// Whether a peer needs revocation data from outside the configuration.
pub(crate) fn is_needed(peer: &Peer) -> bool {
    let Authentication::X509(x509) = &peer.authentication else { return false };
    x509.revocation != Revocation::Relaxed
        || x509.authorities.iter().any(|it| !it.revocation_files.is_empty())
}

/// The authorities that peers must lead to.
fn authorities<'a>(peers: impl Iterator<Item = &'a Arc<Peer>>) -> impl Iterator<Item = &'a Authority> {
    let authorities = peers.filter_map(|peer| match &peer.authentication {
        Authentication::X509(x509) => Some(&x509.authorities),
        _ => None,
    });
    authorities.flatten()
}

/// The files of lists by their paths: where each is named, and the authority that signs it.
fn files<'a>(peers: impl Iterator<Item = &'a Arc<Peer>>) -> BTreeMap<String, (String, Certificate)> {
    let named = authorities(peers).flat_map(|authority| {
        let certificate = Certificate::from_der(&authority.certificate).ok();
        let place = format!("pki ca {} crl-file", authority.name);
        let of_path = move |path: &String| Some((path.clone(), (place.clone(), certificate.clone()?)));
        authority.revocation_files.iter().filter_map(of_path).collect::<Vec<_>>()
    });
    named.collect()
}

/// Checks that the files of a peer can be read.
pub(super) fn check(peer: &str, x509: &X509) -> Result<(), PeerError> {
    let evidence = Evidence::new(|| {});
    for authority in &x509.authorities {
        let place = || format!("pki ca {} crl-file", authority.name);
        for path in &authority.revocation_files {
            let certificate = Certificate::from_der(&authority.certificate)
                .map_err(|error| PeerError::pki(peer, format!("pki ca {}", authority.name), error))?;
            let bytes = read(path).map_err(|error| PeerError::file(peer, &place(), path, error))?;
            evidence
                .set_file(path, &certificate, &bytes)
                .map_err(|error| PeerError::file(peer, &place(), path, error))?;
        }
    }
    Ok(())
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_FILE {
        return Err(io::Error::other(format!("it is longer than {MOST_FILE} bytes")));
    }
    Ok(bytes)
}

impl Watched {
    /// Reads it if it has changed. If it cannot be read, the earlier content stays valid.
    fn read(&mut self, evidence: &Evidence) {
        let stamp = std::fs::metadata(&self.path)
            .map(|it| [it.mtime(), it.mtime_nsec(), it.size() as i64, it.ino() as i64, it.dev() as i64]);
        let stamp = stamp.unwrap_or_default();
        if self.stamp.replace(stamp) == Some(stamp) {
            return;
        }
        let bytes = read(&self.path).map_err(|error| error.to_string());
        let set = bytes.and_then(|bytes| {
            evidence.set_file(&self.path, &self.authority, &bytes).map_err(|error| error.to_string())
        });
        let Self { path, place, .. } = self;
        match set {
            Ok(()) => tracing::info!("{place} {path}: read"),
            Err(error) => tracing::warn!(
                "{place} {path}: {error}; what was known before still counts\n  fix: write the list there, in PEM or DER; it \
                 is read again when it changes"
            ),
        }
    }
}

/// The work of the thread.
struct Worker {
    evidence: Arc<Evidence>,
    connector: OutsideConnector,
    files: Arc<Mutex<Vec<Watched>>>,
    wake: Arc<Notify>,
}

/// Limits the concurrent requests.
struct Limits {
    all: Arc<Semaphore>,
    /// By host and port.
    servers: BTreeMap<String, Arc<Semaphore>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), servers: BTreeMap::new() }
    }
}

impl Limits {
    /// Waits until a request may be sent. The permits are held until it has ended.
    fn turn(&mut self, url: &str) -> impl Future<Output = Permits> + use<> {
        let server = self.servers.entry(server_of(url).to_owned());
        let server = Arc::clone(server.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE_EACH))));
        let all = Arc::clone(&self.all);
        // First the server's: a request that waits for a silent server takes none of the others.
        async move { [server.acquire_owned().await.ok(), all.acquire_owned().await.ok()] }
    }

    /// Removes servers without requests.
    fn sweep(&mut self) {
        self.servers.retain(|_, server| Arc::strong_count(server) > 1);
    }
}

/// The permits of one request: of its server and of all.
type Permits = [Option<OwnedSemaphorePermit>; 2];

/// The host and port of an HTTP URL.
fn server_of(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or(url)
}

impl Worker {
    async fn run(self) {
        let mut limits = Limits::default();
        let mut running = JoinSet::new();
        loop {
            {
                let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
                files.iter_mut().for_each(|file| file.read(&self.evidence));
            }
            for query in self.evidence.due(Clock.now().wall) {
                let (evidence, connector) = (Arc::clone(&self.evidence), self.connector.clone());
                let turn = limits.turn(query.url());
                running.spawn(async move {
                    let _permits = turn.await;
                    let fetched = fetch::fetch(&query, &connector).await;
                    match evidence.answer(&query, Clock.now().wall, fetched) {
                        Ok(()) => tracing::info!("revocation: {} has answered", query.url()),
                        Err(error) => tracing::warn!("revocation: {} {error}", query.url()),
                    }
                });
            }
            while running.try_join_next().is_some() {}
            limits.sweep();
            tokio::select! {
                () = self.wake.notified() => {}
                () = sleep(TURN) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Whether a request may be sent now.
    fn poll<F: Future>(turn: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match turn.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_silent_server_gets_few_requests_and_blocks_no_other() {
        let mut limits = Limits::default();
        let (silent, other) = ("http://silent.example:8080/a", "http://other.example/a");
        let mut held: Vec<Permits> = Vec::new();
        for number in 0..AT_ONCE_EACH {
            let url = format!("http://silent.example:8080/{number}");
            held.extend(poll(pin!(limits.turn(&url))));
        }
        assert_eq!(held.len(), AT_ONCE_EACH);
        // As many as to all servers wait for it.
        let mut waiting: Vec<_> = (0..AT_ONCE).map(|_| Box::pin(limits.turn(silent))).collect();
        assert!(waiting.iter_mut().all(|turn| poll(turn.as_mut()).is_none()));
        assert!(poll(pin!(limits.turn(other))).is_some(), "another server is not blocked");
        held.pop();
        let ready = waiting.iter_mut().filter_map(|turn| poll(turn.as_mut())).collect::<Vec<Permits>>();
        assert_eq!(ready.len(), 1);
    }

    #[test]
    fn all_servers_together_get_a_limited_number_of_requests() {
        let mut limits = Limits::default();
        let url = |number: usize| format!("http://host{number}.example/");
        let mut held: Vec<Permits> =
            (0..AT_ONCE).filter_map(|number| poll(pin!(limits.turn(&url(number))))).collect();
        assert_eq!(held.len(), AT_ONCE);
        let mut next = pin!(limits.turn(&url(AT_ONCE)));
        assert!(poll(next.as_mut()).is_none());
        held.pop();
        assert!(poll(next.as_mut()).is_some());
        limits.sweep();
        assert!(limits.servers.len() <= AT_ONCE);
    }
}
