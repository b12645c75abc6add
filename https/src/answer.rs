//! From a request to its answer: the place, the body, the key, and what it asks for.

use crate::daemon::{Daemon, Refused};
use crate::keys::Keys;
use crate::limiter::{Limiter, Rate};
use crate::local::Local;
use crate::process::Place;
use crate::source::Source;
use crate::{typed, vyos};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use gateway::api::connections::Deadline;
use gateway::api::server::{Unread, whole};
use hyper::Request;
use hyper::body::{Body as _, Bytes, Incoming};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

/// Bytes of a request.
const LONGEST: usize = 64 << 10;
/// Bytes of a request that may have a whole configuration.
const LONGEST_CONFIGURATION: usize = 16 << 20;
/// Such requests at once: until its key is known, each may be an attacker's.
const LONG_AT_ONCE: usize = 4;
/// How long such a request may take.
const LONG_PATIENCE: Duration = Duration::from_secs(60);
/// Operational commands at once.
const LOCAL_AT_ONCE: usize = 4;

/// Wrong keys of a source: 10 at once, then one in 10 s.
const WRONG_KEYS: Rate = Rate { burst: 10.0, per_second: 0.1 };
/// Sources that are remembered for their wrong keys.
const SOURCES: usize = 4096;
/// How long the answer to a wrong key is held back.
const WRONG_KEY_DELAY: Duration = Duration::from_millis(500);
/// Requests of a key: 200 at once, then 50 a second.
const REQUESTS: Rate = Rate { burst: 200.0, per_second: 50.0 };
/// Keys that are counted.
const KEYS: usize = 1024;

/// What all requests share.
pub(crate) struct App {
    pub(crate) daemon: Daemon,
    pub(crate) local: Arc<dyn Local>,
    pub(crate) local_permits: Semaphore,
    /// One commit after the other, as VyOS does.
    pub(crate) commits: tokio::sync::Mutex<()>,
    /// The folder that `/config-file` names files in.
    pub(crate) files: PathBuf,
    pub(crate) long_permits: Semaphore,
    serving: Mutex<Arc<Serving>>,
    wrong_keys: Mutex<Limiter<Source>>,
    requests: Mutex<Limiter<String>>,
}

/// What changes with the configuration.
#[derive(Default)]
pub(crate) struct Serving {
    pub(crate) keys: Keys,
    pub(crate) is_strict: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who asks.
pub(crate) struct Client {
    /// The name of the key.
    pub(crate) id: String,
}

impl App {
    pub(crate) fn new(place: &Place, local: Arc<dyn Local>) -> Self {
        Self {
            daemon: Daemon::new(place.api.clone()),
            local,
            local_permits: Semaphore::new(LOCAL_AT_ONCE),
            commits: tokio::sync::Mutex::default(),
            files: place.state.join("config"),
            long_permits: Semaphore::new(LONG_AT_ONCE),
            serving: Mutex::default(),
            wrong_keys: Mutex::new(Limiter::new(WRONG_KEYS, SOURCES)),
            requests: Mutex::new(Limiter::new(REQUESTS, KEYS)),
        }
    }

    pub(crate) fn set_serving(&self, serving: Serving) {
        *lock(&self.serving) = Arc::new(serving);
    }

    pub(crate) fn serving(&self) -> Arc<Serving> {
        Arc::clone(&lock(&self.serving))
    }

    /// Who has this key. A source with too many wrong ones must wait, also with a right one: else it would learn which is right.
    pub(crate) async fn client(&self, key: Option<&[u8]>, source: Source) -> Result<Client, Denied> {
        let now = Instant::now();
        if let Some(wait) = lock(&self.wrong_keys).wait(&source, now) {
            return Err(Denied::TooMany(wait));
        }
        let serving = self.serving();
        let Some(id) = key.and_then(|key| serving.keys.name(key)) else {
            if key.is_some() {
                let last = {
                    let mut wrong = lock(&self.wrong_keys);
                    wrong.take(&source, now).is_ok() && wrong.wait(&source, now).is_some()
                };
                if last {
                    tracing::warn!("https: {source} sends wrong keys, and must wait");
                }
                tokio::time::sleep(WRONG_KEY_DELAY).await;
            }
            return Err(Denied::WrongKey);
        };
        let id = id.to_owned();
        lock(&self.requests).take(&id, now).map_err(Denied::TooMany)?;
        Ok(Client { id })
    }
}

/// Why a client may not ask.
#[derive(Debug, PartialEq)]
pub(crate) enum Denied {
    WrongKey,
    TooMany(Duration),
}

/// Answers a request.
pub(crate) async fn answer(
    app: Arc<App>,
    request: Request<Incoming>,
    source: Source,
    deadline: Deadline,
    patience: Duration,
) -> Response {
    let (head, body) = request.into_parts();
    let is_typed = head.uri.path().starts_with(typed::PREFIX);
    if !is_typed && !vyos::is_endpoint(head.uri.path()) {
        return vyos::error(StatusCode::NOT_FOUND, &format!("there is no {}", head.uri.path()));
    }
    let body = match read(&app, &head, body, &deadline, patience).await {
        Ok(body) => body,
        Err(refused) => return vyos::error(refused.status, &refused.error),
    };
    deadline.suspend();
    let (method, path) = (head.method.clone(), head.uri.path().to_owned());
    let (client, response) = if is_typed {
        typed::answer(&app, &head, body, source).await
    } else {
        vyos::answer(&app, &head, body, source).await
    };
    let (id, status) = (client.map_or("-".to_owned(), |client| client.id), response.status().as_u16());
    if method == Method::GET || path == "/retrieve" || path == "/show" {
        tracing::debug!("https: {source} {id} {method} {path} {status}");
    } else {
        tracing::info!("https: {source} {id} {method} {path} {status}");
    }
    response
}

/// The whole body, if it is not too long.
async fn read(
    app: &App,
    head: &Parts,
    body: Incoming,
    deadline: &Deadline,
    patience: Duration,
) -> Result<Bytes, Refused> {
    let is_short = body.size_hint().upper().is_some_and(|upper| upper <= LONGEST as u64);
    let may_be_long = matches!(
        head.uri.path(),
        "/configure" | "/configure-section" | "/config-file" | "/v1/configuration/commit" | typed::TREE
    );
    let longest = if may_be_long { LONGEST_CONFIGURATION } else { LONGEST };
    let _permit = if may_be_long && !is_short {
        let permit = app.long_permits.try_acquire().map_err(|_| {
            let error = format!("{LONG_AT_ONCE} long requests are being read: send this one again");
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, error)
        })?;
        deadline.restart(patience.max(LONG_PATIENCE));
        Some(permit)
    } else {
        None
    };
    whole(body, longest).await.map_err(|unread| match unread {
        Unread::TooLarge => {
            Refused::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a request has at most {longest} bytes here"))
        }
        Unread::Incomplete(error) => Refused::bad(format!("the request is incomplete: {error}")),
    })
}

/// The key in a header: `Authorization: Bearer KEY`, or `X-API-Key: KEY`.
pub(crate) fn header_key(headers: &HeaderMap) -> Option<Zeroizing<Vec<u8>>> {
    let of = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let bearer = of("authorization").and_then(|value| {
        let (scheme, key) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
    });
    bearer.or_else(|| of("x-api-key")).map(|key| Zeroizing::new(key.to_vec()))
}

/// An answer of JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Answers may have secrets.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Says how long to wait.
pub(crate) fn retry_after(mut response: Response, wait: Duration) -> Response {
    let seconds = wait.as_secs() + 1;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
