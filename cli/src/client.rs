//! Asks running daemons, over their API sockets.

use crate::Failure;
use clap::Args;
use gateway::api;
use gateway::api::client::ClientError;
use gateway::api::model::Problem;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, StatusCode};
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The environment variable that names the socket of the daemon to ask, where no option does.
pub(crate) const API: &str = "POSTERN_API";

/// The socket of the only daemon to ask: that of the option, or else of the environment.
pub(crate) fn chosen(api: Option<PathBuf>) -> Option<PathBuf> {
    api.or_else(|| std::env::var_os(API).filter(|api| !api.is_empty()).map(PathBuf::from))
}

// The daemon to ask, and the format of its answer. Not a doc comment: clap would print that as the help of each verb.
#[derive(Args)]
pub(crate) struct Asking {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Ask the daemon at this socket only; by default at the one in POSTERN_API
    #[arg(long, global = true, value_name = "SOCKET")]
    pub(crate) api: Option<PathBuf>,
}

/// The answers of all daemons, or of the one at `only`.
pub(crate) fn ask<T: DeserializeOwned>(only: Option<&Path>, question: &str) -> Result<Vec<T>, Failure> {
    let answers = ask_each(only, question)?;
    if answers.is_empty() {
        return Err(no_daemon().into());
    }
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

/// The error when no daemon answers.
pub(crate) fn no_daemon() -> String {
    let directory = api::DIRECTORY;
    format!(
        "no daemon answers in {directory}\n  fix: postern run, or postern wireguard wg0; then ask as root"
    )
}

/// The answer of one daemon.
pub(crate) fn ask_one<T: DeserializeOwned>(path: &Path, question: &str) -> Result<T, Failure> {
    runtime()?.block_on(get(path, question)).map_err(|error| at(path, error))
}

/// The answer of each daemon with its socket; empty if no daemon answers.
pub(crate) fn ask_each<T: DeserializeOwned>(
    only: Option<&Path>,
    question: &str,
) -> Result<Vec<(PathBuf, T)>, Failure> {
    runtime()?.block_on(async {
        if let Some(path) = only {
            return Ok(vec![(path.to_owned(), get(path, question).await.map_err(|error| at(path, error))?)]);
        }
        let (mut answers, mut refused) = (Vec::new(), None);
        for path in sockets() {
            // Stale sockets and those of other users are skipped if another daemon answers.
            match get(&path, question).await {
                Ok(answer) => answers.push((path, answer)),
                Err(error) => refused = refused.or_else(|| refusal(&path, &error)),
            }
        }
        if let Some(refused) = refused.filter(|_| answers.is_empty()) {
            return Err(refused.into());
        }
        Ok(answers)
    })
}

/// The error for a daemon that refuses the request; none for a stale socket.
fn refusal(path: &Path, error: &Failure) -> Option<String> {
    let path = path.display();
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::ConnectionRefused | ErrorKind::NotFound) => None,
        Some(ErrorKind::PermissionDenied) => {
            Some(format!("{path}: you may not ask this daemon\n  fix: ask as root"))
        }
        _ if error.to_string().contains("\n  fix: ") => Some(format!("{path}: {error}")),
        _ => Some(format!("{path}: {error}\n  fix: if the daemon is of another version, restart it")),
    }
}

/// Whether a daemon listens, even if it refuses this user.
pub(crate) fn is_any_daemon_here() -> bool {
    let forbidden =
        |path: &Path| std::fs::read_dir(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    let listens = |path: &PathBuf| match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    };
    forbidden(Path::new(api::DIRECTORY)) || sockets().iter().any(listens)
}

/// Sends a request that changes something to the daemon at this socket.
pub(crate) fn tell<T: DeserializeOwned>(
    path: &Path,
    order: &str,
    details: &impl Serialize,
) -> Result<T, Failure> {
    tell_any(path, order, details)?.read().map_err(|error| at(path, error))
}

/// The answer of the daemon at this socket, which must run.
pub(crate) fn ask_running<T: DeserializeOwned>(path: &Path, question: &str) -> Result<T, Failure> {
    runtime()?.block_on(get(path, question)).map_err(|error| not_sent(path, error))
}

/// The answer to an order, whatever its status.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Answered {
    /// What the daemon says, unless it refuses.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let status = StatusCode::from_u16(self.status)?;
        if status.is_success() {
            Ok(serde_json::from_slice(&self.body)?)
        } else {
            Err(refused(status, &self.body))
        }
    }
}

/// Sends a request that changes something to the daemon at this socket; a refusal is an answer too.
pub(crate) fn tell_any(path: &Path, order: &str, details: &impl Serialize) -> Result<Answered, Failure> {
    let body = Bytes::from(serde_json::to_vec(details)?);
    runtime()?.block_on(async {
        let request =
            Request::post(order).header("host", "postern").header("content-type", "application/json");
        let request = request.body(Full::new(body))?;
        answered(path, request).await.map_err(|error| not_sent(path, error))
    })
}

/// The error when a request cannot be sent to a daemon.
fn not_sent(path: &Path, error: Failure) -> Failure {
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            format!("no daemon answers at {}\n  fix: systemctl start postern, or postern run", path.display())
                .into()
        }
        Some(ErrorKind::PermissionDenied) => {
            format!("{}: permission denied\n  fix: run this as root", path.display()).into()
        }
        Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => {
            Box::new(Broken)
        }
        _ if error.is::<hyper::Error>() || error.is::<Broken>() => Box::new(Broken),
        _ => at(path, error),
    }
}

/// The daemon ended before it answered, or is about to: the request may or may not have been carried out.
#[derive(Debug)]
pub(crate) struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the daemon ended before it answered\n  fix: systemctl status postern; then try again")
    }
}

impl std::error::Error for Broken {}

/// The user at the other end of a socket, and its process, unless it is in another PID namespace.
pub(crate) fn peer_of(stream: std::os::unix::net::UnixStream) -> Option<(u32, Option<Pid>)> {
    stream.set_nonblocking(true).ok()?;
    let runtime = runtime().ok()?;
    let _entered = runtime.enter();
    let peer = tokio::net::UnixStream::from_std(stream).ok()?.peer_cred().ok()?;
    Some((peer.uid(), peer.pid().and_then(Pid::from_raw)))
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// The error with which a daemon refuses a request; a daemon of another version may send one that cannot be parsed.
fn refused(status: StatusCode, body: &[u8]) -> Failure {
    match serde_json::from_slice::<Problem>(body) {
        Ok(Problem { error, fix: Some(fix) }) => format!("{error}\n  fix: {fix}").into(),
        Ok(Problem { error, fix: None }) => error.into(),
        Err(_) => format!("the daemon answered {status}: is it another version?").into(),
    }
}

fn at(path: &Path, error: Failure) -> Failure {
    format!("{}: {error}", path.display()).into()
}

/// Where daemons may listen: some of the sockets may be left over.
pub(crate) fn sockets() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(api::DIRECTORY).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
    paths.sort();
    paths
}

/// An answer that has no end, until it is dropped. The signals to end are taken meanwhile.
pub(crate) struct Stream {
    runtime: Runtime,
    body: Incoming,
    signals: [Signal; 2],
}

/// What came of a stream.
pub(crate) enum Next {
    Chunk(Bytes),
    /// The daemon has ended it.
    Ended,
    /// The user has.
    Interrupted,
}

impl Stream {
    /// Asks the daemon at this socket. `None` if it answers 404: it has no such interface, or is too old for the question.
    fn open(path: &Path, question: &str) -> Result<Option<Self>, Failure> {
        let runtime = runtime()?;
        let opened: Result<_, Failure> = runtime.block_on(async {
            let request = Request::get(question).header("host", "postern").body(Full::default())?;
            let answer = match api::client::stream(path, request).await {
                Ok(answer) => answer,
                Err(ClientError::Io(error)) => return Err(error.into()),
                Err(_) => return Err(Broken.into()),
            };
            let (status, body) = (answer.status(), answer.into_body());
            if !status.is_success() {
                let problem = body.collect().await.map_err(|_| Broken)?.to_bytes();
                return if status == StatusCode::NOT_FOUND {
                    Ok((None, None))
                } else {
                    Err(refused(status, &problem))
                };
            }
            let signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
            Ok((Some(body), Some(signals)))
        });
        let (body, signals) = opened.map_err(|error| not_sent(path, error))?;
        Ok(body.zip(signals).map(|(body, signals)| Self { runtime, body, signals }))
    }

    /// Waits for more.
    pub(crate) fn next(&mut self) -> Next {
        let Self { runtime, body, signals: [interrupt, terminate] } = self;
        runtime.block_on(async {
            loop {
                tokio::select! {
                    frame = body.frame() => match frame.map(|frame| frame.map(hyper::body::Frame::into_data)) {
                        Some(Ok(Ok(chunk))) => return Next::Chunk(chunk),
                        Some(Ok(Err(_))) => {}
                        Some(Err(_)) | None => return Next::Ended,
                    },
                    _ = interrupt.recv() => return Next::Interrupted,
                    _ = terminate.recv() => return Next::Interrupted,
                }
            }
        })
    }
}

/// The streams of all daemons that have an answer, or of the one at `only`; the first refusal if there is none.
pub(crate) fn streams(only: Option<&Path>, question: &str) -> Result<Vec<Stream>, Failure> {
    let (mut streams, mut refused) = (Vec::new(), None);
    for socket in only.map_or_else(sockets, |path| vec![path.to_owned()]) {
        match Stream::open(&socket, question) {
            Ok(stream) => streams.extend(stream),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) if streams.is_empty() => Err(error),
        _ => Ok(streams),
    }
}

async fn get<T: DeserializeOwned>(path: &Path, question: &str) -> Result<T, Failure> {
    let request = Request::get(question).header("host", "postern").body(Full::default())?;
    exchange(path, request).await
}

async fn exchange<T: DeserializeOwned>(path: &Path, request: Request<Full<Bytes>>) -> Result<T, Failure> {
    answered(path, request).await?.read()
}

async fn answered(path: &Path, request: Request<Full<Bytes>>) -> Result<Answered, Failure> {
    match api::client::exchange(path, request).await {
        Ok(answer) => Ok(Answered { status: answer.status().as_u16(), body: answer.into_body() }),
        // What it is tells whether a daemon is there.
        Err(ClientError::Io(error)) => Err(error.into()),
        Err(_) => Err(Broken.into()),
    }
}
