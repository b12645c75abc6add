//! Learns what is revoked: fetches lists and answers of OCSP by HTTP, and reads files again when they change. A thread of its
//! own, so that IKE never waits for a server; what was learnt is [`Evidence`], which IKE asks.
//!
//! Only places are asked that a certificate names whose chain leads to a trusted authority. What they send is signed, and
//! bounded in bytes and time. A redirection is not followed. An authority could name a server of this machine or of its link,
//! which others cannot reach: such addresses are not asked.

use super::connections::PeerError;
use crate::clock::Clock;
use crate::control::rights::Rights;
use config::settings::ipsec::{Authentication, Authority, Peer, Revocation, X509};
use crypto::pki::{Certificate, Evidence, Query};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long a server has for its whole answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Servers that are asked at once.
const AT_ONCE: usize = 4;
/// How often it is looked whether files have changed, and whether a list is about to be too old.
const TURN: Duration = Duration::from_secs(3);
/// The longest file of lists.
const MOST_FILE: u64 = 64 << 20;
/// The longest head of an answer.
const MOST_HEAD: usize = 16 << 10;

/// A file of lists, the authority that signs them, and what it was like when it was read.
struct Watched {
    path: String,
    place: String,
    authority: Certificate,
    stamp: Option<[i64; 5]>,
}

/// Fetches and reads until it is dropped.
pub(super) struct Revocations {
    evidence: Arc<Evidence>,
    files: Arc<Mutex<Vec<Watched>>>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Revocations {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let (wake, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let woken = Arc::clone(&wake);
        let evidence = Arc::new(Evidence::new(move || woken.notify_one()));
        let files = Arc::new(Mutex::new(Vec::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let worker = Worker { evidence: Arc::clone(&evidence), files: Arc::clone(&files), wake };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("revocation".to_owned()).spawn(move || {
            Rights::None.keep();
            runtime.block_on(async {
                tokio::select! {
                    () = worker.run() => {}
                    () = stopped.notified() => {}
                }
            });
            // A resolver that does not answer is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { evidence, files, stop, thread: Some(thread) })
    }

    /// What is known.
    pub(super) fn evidence(&self) -> Arc<Evidence> {
        Arc::clone(&self.evidence)
    }

    /// Reads the files of these peers, now and when they change, and no others any more; forgets what was fetched for
    /// authorities of which none of them has one.
    pub(super) fn watch<'a>(&self, peers: impl Iterator<Item = &'a Arc<Peer>> + Clone) {
        let authorities =
            authorities(peers.clone()).filter_map(|it| Certificate::from_der(&it.certificate).ok());
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
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// Whether a peer's settings ask for anything that is not in the configuration.
pub(super) fn is_needed(peer: &Peer) -> bool {
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

/// Says whether the files of a peer can be read.
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
    /// Reads it, if it is another one than before. What cannot be read leaves what was read before.
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

/// What the thread does.
struct Worker {
    evidence: Arc<Evidence>,
    files: Arc<Mutex<Vec<Watched>>>,
    wake: Arc<Notify>,
}

impl Worker {
    async fn run(self) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut running = JoinSet::new();
        loop {
            {
                let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
                files.iter_mut().for_each(|file| file.read(&self.evidence));
            }
            for query in self.evidence.due(Clock.now().wall) {
                let (places, evidence) = (Arc::clone(&places), Arc::clone(&self.evidence));
                running.spawn(async move {
                    let _place = places.acquire_owned().await;
                    let fetched = fetch(&query).await;
                    match evidence.answer(&query, Clock.now().wall, fetched) {
                        Ok(()) => tracing::info!("revocation: {} has answered", query.url()),
                        Err(error) => tracing::warn!("revocation: {} {error}", query.url()),
                    }
                });
            }
            while running.try_join_next().is_some() {}
            tokio::select! {
                () = self.wake.notified() => {}
                () = sleep(TURN) => {}
            }
        }
    }
}

/// What is at a place, or why it cannot be had: a text that goes on after the place's name.
async fn fetch(query: &Query) -> Result<Vec<u8>, String> {
    let late = |_| Err(format!("does not answer within {} seconds", PATIENCE.as_secs()));
    timeout(PATIENCE, exchange(query)).await.unwrap_or_else(late)
}

async fn exchange(query: &Query) -> Result<Vec<u8>, String> {
    let uri: Uri = query.url().parse().map_err(|error| format!("is no address: {error}"))?;
    let authority = uri.authority().filter(|it| !it.as_str().contains('@')).ok_or("is no address of HTTP")?;
    let stream = connect(authority.host(), authority.port_u16().unwrap_or(80)).await?;
    let said = |error: hyper::Error| format!("does not speak HTTP: {error}");
    let mut builder = http1::Builder::new();
    let (mut sender, connection) =
        builder.max_buf_size(MOST_HEAD).handshake(TokioIo::new(stream)).await.map_err(said)?;
    let request = request(query, &uri, authority.as_str())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(said)?;
        if response.status() != StatusCode::OK {
            return Err(format!("answers {}", response.status()));
        }
        let body = Limited::new(response.into_body(), query.limit()).collect().await;
        body.map(|body| body.to_bytes().to_vec())
            .map_err(|error| format!("has no whole answer of at most {} bytes: {error}", query.limit()))
    };
    // The connection does its work meanwhile, and goes with the answer or the end of patience.
    let mut working = JoinSet::new();
    working.spawn(connection);
    answer.await
}

fn request(query: &Query, uri: &Uri, authority: &str) -> Result<Request<Full<Bytes>>, String> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder().uri(path).header(HOST, authority).header(CONNECTION, "close");
    let request = match query.body() {
        None => request.method("GET").body(Full::default()),
        Some(body) => request
            .method("POST")
            .header(CONTENT_TYPE, "application/ocsp-request")
            .body(Full::from(body.to_vec())),
    };
    request.map_err(|error| format!("is no address of HTTP: {error}"))
}

/// Connects to the first address of a host that answers.
async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| format!("has no address now: {error}"))?.collect();
    let mut why = "leads only to addresses of this machine or its link, which are not asked".to_owned();
    for address in found.into_iter().filter(|address| may_ask(address.ip())) {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => why = format!("is not reached: {address}: {error}"),
        }
    }
    Err(why)
}

/// Whether an address may be asked: none that means this machine, its link (where clouds have their secrets), or a group.
fn may_ask(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(it) => {
            !(it.is_loopback()
                || it.is_link_local()
                || it.is_multicast()
                || it.is_broadcast()
                || it.octets()[0] == 0)
        }
        IpAddr::V6(it) => {
            !(it.is_loopback() || it.is_unspecified() || it.is_multicast() || it.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_this_machine_or_link_reaches_is_not_asked() {
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(!may_ask(address.parse().expect("literal")), "{address}");
        }
        for address in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1"] {
            assert!(may_ask(address.parse().expect("literal")), "{address}");
        }
    }
}
