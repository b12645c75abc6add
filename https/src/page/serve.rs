//! Answers browsers.
//!
//! ```text
//! GET /  /tunnel  /performance  /drops    GET /events and the same: what changes of it
//! GET /style.css  /live.js  /icon.svg     GET POST /login    POST /logout
//! ```

use super::asked::Asked;
use super::assets;
use super::health::Healths;
use super::html::{self, Rendered};
use super::performance::Performance;
use super::serving::{Serving, is_own};
use super::sessions::{COOKIE, LIFETIME, Session, Sessions};
use super::stream::{BEAT, Events, Gone, Sender, Streams};
use super::view::{Held, Latest, View};
use crate::clock::now;
use crate::daemon::Daemon;
use crate::gate::{Denied, Gate};
use crate::listen::Answering;
use crate::place::Place;
use crate::reply::retry_after;
use crate::source::Source;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gateway::api::connections::Deadline;
use gateway::api::server::whole;
use gateway::facts::FRESH;
use hyper::Request;
use hyper::body::Incoming;
use maud::Markup;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

/// Bytes of a form.
const LONGEST: usize = 4 << 10;
/// Times a browser may ask again when the daemon has not answered.
const RETRY: Duration = Duration::from_secs(1);
/// Bytes of events that wait for a reader in the kernel: one that stalls is noticed when they and the queue are full.
const SEND_BUFFER: usize = 64 << 10;
/// Nothing but what this server sends is loaded or run, and no other page shows this one in a frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The state that all browsers share.
pub(crate) struct StatusPage {
    daemon: Arc<Daemon>,
    serving: Mutex<Arc<Serving>>,
    sessions: Mutex<Sessions>,
    /// One writes the sessions after the other.
    keeping: tokio::sync::Mutex<()>,
    /// The folder in which they are kept.
    folder: PathBuf,
    streams: Arc<Streams>,
    /// Streams of an earlier configuration end: their clients may no longer be allowed.
    configuration: AtomicU64,
    gate: Gate,
    latest: Latest,
    performance: Performance,
    health: Healths,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StatusPage {
    pub(crate) fn new(place: &Place) -> Self {
        Self {
            daemon: Arc::new(Daemon::new(place.api.clone())),
            serving: Mutex::default(),
            sessions: Mutex::default(),
            keeping: tokio::sync::Mutex::default(),
            folder: place.state.join("https/page"),
            streams: Arc::default(),
            configuration: AtomicU64::new(0),
            gate: Gate::default(),
            latest: Latest::default(),
            performance: Performance::default(),
            health: Healths::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Serves so from now on. With another token, sessions end.
    pub(crate) fn set_serving(&self, serving: Serving) {
        self.configuration.fetch_add(1, Ordering::Relaxed);
        let mut sessions = lock(&self.sessions);
        if !sessions.are_of(&serving.sessions) {
            *sessions = Sessions::kept(&self.folder, &serving.sessions);
        }
        *lock(&self.serving) = Arc::new(serving);
    }

    /// Writes the sessions, so that they outlive the process. Without that they end with it.
    async fn keep_sessions(&self) {
        let _turn = self.keeping.lock().await;
        let (sessions, folder) = (lock(&self.sessions).clone(), self.folder.clone());
        let kept = spawn_blocking(move || sessions.keep(&folder)).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!("page: {}: sessions end with the next restart: {error}", self.folder.display());
        }
    }

    async fn respond(
        self: &Arc<Self>,
        head: &Parts,
        body: Incoming,
        source: Source,
        deadline: &Deadline,
        patience: Duration,
    ) -> Response {
        let serving = Arc::clone(&lock(&self.serving));
        if !serving.is_host(&head.headers) {
            let why = "this page is reached by an address, or by a name that service page host-name lists";
            return page(StatusCode::MISDIRECTED_REQUEST, html::failed("Wrong name", why, false));
        }
        match (&head.method, head.uri.path()) {
            (&Method::POST, "/login" | "/logout") if !is_own(&head.headers) => {
                page(StatusCode::FORBIDDEN, html::failed("Refused", "the form is of another site", false))
            }
            (&Method::POST, "/login") => self.login(&serving, body, source, deadline).await,
            (&Method::POST, "/logout") => {
                deadline.suspend();
                lock(&self.sessions).end(&head.headers);
                self.keep_sessions().await;
                let mut response = to("/login");
                set_cookie(&mut response, "", Duration::ZERO, serving.has_tls);
                response
            }
            (&Method::GET | &Method::HEAD, path) => {
                drop(body);
                deadline.suspend();
                self.get(head, path, deadline, patience).await
            }
            _ => {
                let why = "the page is only read";
                page(StatusCode::METHOD_NOT_ALLOWED, html::failed("Not allowed", why, false))
            }
        }
    }

    async fn get(
        self: &Arc<Self>,
        head: &Parts,
        path: &str,
        deadline: &Deadline,
        patience: Duration,
    ) -> Response {
        if let Some(asset) = assets::at(path) {
            return asset;
        }
        let session = lock(&self.sessions).of(&head.headers, now());
        let query = head.uri.query().unwrap_or_default();
        let of_events = path.strip_prefix("/events").filter(|rest| rest.starts_with('/'));
        match (of_events, session) {
            _ if path == "/login" => page(StatusCode::OK, html::login(None)),
            (Some(_), None) => (StatusCode::UNAUTHORIZED, "log in first\n").into_response(),
            (None, None) => to("/login"),
            (Some(path), Some(session)) => match Asked::at(path, query) {
                Some(asked) => self.stream(asked, session, head.method == Method::HEAD, deadline, patience),
                None => StatusCode::NOT_FOUND.into_response(),
            },
            (None, Some(_)) => match Asked::at(path, query) {
                Some(asked) => self.show(&asked).await,
                None => page(StatusCode::NOT_FOUND, html::failed("Not found", "there is no such page", true)),
            },
        }
    }

    /// An answer that goes on with what changes of a view; only its head, if that is asked for.
    fn stream(
        self: &Arc<Self>,
        asked: Asked,
        session: Session,
        is_head: bool,
        deadline: &Deadline,
        patience: Duration,
    ) -> Response {
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))];
        if is_head && self.streams.has_room(&session) {
            return kind.into_response();
        }
        let Some(open) = self.streams.open(session) else {
            let why = "too many pages are open: close some\n";
            return retry_after((StatusCode::TOO_MANY_REQUESTS, why).into_response(), RETRY);
        };
        let (events, sender) = Events::new(open, deadline.clone(), patience);
        tokio::spawn(Arc::clone(self).follow(asked, session, sender));
        (kind, Body::new(events)).into_response()
    }

    /// Tells a browser what changes of a view, until it is gone, its session ends, or the configuration changes.
    async fn follow(self: Arc<Self>, asked: Asked, session: Session, mut sender: Sender) {
        let configuration = self.configuration.load(Ordering::Relaxed);
        let is_current = || {
            self.configuration.load(Ordering::Relaxed) == configuration
                && lock(&self.sessions).has(&session, now())
        };
        let tell = async {
            sender.begin().await?;
            while is_current() {
                self.tell(&asked, &mut sender).await?;
                sleep(FRESH).await;
            }
            Ok::<(), Gone>(())
        };
        // What ends is told by the end of the answer.
        let _ = tell.await;
    }

    /// Tells what has changed.
    async fn tell(&self, asked: &Asked, sender: &mut Sender) -> Result<(), Gone> {
        let mut rendered = pin!(self.rendered(asked));
        let rendered = loop {
            match timeout(BEAT, &mut rendered).await {
                Ok(rendered) => break rendered,
                Err(_) => sender.send("beat", &()).await?,
            }
        };
        match rendered {
            Ok(Some(view)) => {
                let changes = sender.sent.changes(&view.parts);
                if !changes.is_empty() {
                    let json = serde_json::to_string(&changes).map_err(|_| Gone)?;
                    return sender.send_json("parts", &json).await;
                }
                sender.send("now", &()).await
            }
            Ok(None) => sender.send("gone", &()).await,
            Err(why) => sender.send("silent", &why).await,
        }
    }

    /// The document of a view.
    async fn show(&self, asked: &Asked) -> Response {
        match self.rendered(asked).await {
            Ok(Some(view)) => page(StatusCode::OK, html::page(asked, &view)),
            Ok(None) => {
                let why = "there is no such tunnel: it may have been removed";
                page(StatusCode::NOT_FOUND, html::failed("Not found", why, true))
            }
            Err(why) => {
                let failed = html::failed("The daemon does not answer", &why, true);
                retry_after(page(StatusCode::SERVICE_UNAVAILABLE, failed), RETRY)
            }
        }
    }

    /// A view as HTML; none if what it is of is not there. Another thread renders it, as it looks through all tunnels.
    async fn rendered(&self, asked: &Asked) -> Result<Option<Rendered>, String> {
        let (daemon, performance, latest) = (&self.daemon, &self.performance, &self.latest);
        match asked.clone() {
            Asked::Overview(filter) => {
                let held = latest.view(daemon).await?;
                render(held, move |view| Some(html::overview(view, &filter))).await
            }
            Asked::Tunnel(named) => {
                let ciphers = performance.ciphers(daemon).await.unwrap_or_default();
                let held = latest.view(daemon).await?;
                render(held, move |view| html::tunnel(view, &named, &ciphers)).await
            }
            Asked::Performance => {
                let (limits, history) = (performance.limits(daemon), performance.history(daemon));
                let (limits, history, ciphers) = tokio::join!(limits, history, performance.ciphers(daemon));
                let held = latest.view(daemon).await?;
                let draw = move |view: &View| Some(html::performance(view, &limits, &history, &ciphers));
                render(held, draw).await
            }
            Asked::Health => {
                // Ten thousand tunnels are not looked at for it: facts are not asked for.
                let health = self.health.get(daemon).await?;
                Ok(Some(html::health(&health)))
            }
            Asked::Drops(wanted) => {
                let held = latest.view(daemon).await?;
                render(held, move |view| Some(html::drops(view, &wanted))).await
            }
        }
    }

    async fn login(
        &self,
        serving: &Serving,
        body: Incoming,
        source: Source,
        deadline: &Deadline,
    ) -> Response {
        let Ok(body) = whole(body, LONGEST).await else {
            return page(StatusCode::BAD_REQUEST, html::login(Some("The form is incomplete or too long.")));
        };
        deadline.suspend();
        let mut fields = form_urlencoded::parse(&body);
        let token = fields.find(|(name, _)| name == "token");
        let token = token.map(|(_, token)| Zeroizing::new(token.into_owned().into_bytes()));
        let token = token.unwrap_or_default();
        match self.gate.client(&serving.token, Some(&token), source).await {
            Ok(_) => {
                tracing::info!("page: {source} has logged in");
                let name = lock(&self.sessions).begin(now());
                self.keep_sessions().await;
                let mut response = to("/");
                set_cookie(&mut response, &name, Duration::from_secs(LIFETIME), serving.has_tls);
                response
            }
            Err(Denied::WrongKey) => {
                page(StatusCode::UNAUTHORIZED, html::login(Some("This is not the token.")))
            }
            Err(Denied::TooMany(wait)) => {
                let why = format!("Too many attempts: wait {} s.", wait.as_secs() + 1);
                retry_after(page(StatusCode::TOO_MANY_REQUESTS, html::login(Some(&why))), wait)
            }
        }
    }
}

impl Answering for StatusPage {
    const NAME: &'static str = "page";
    const SEND_BUFFER: Option<usize> = Some(SEND_BUFFER);

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        source: Source,
        deadline: Deadline,
        patience: Duration,
    ) -> Response {
        let (head, body) = request.into_parts();
        let mut response = self.respond(&head, body, source, &deadline, patience).await;
        secure(response.headers_mut());
        response
    }

    fn not_allowed(why: &str) -> Response {
        let mut response = page(StatusCode::FORBIDDEN, html::failed("Not allowed", why, false));
        secure(response.headers_mut());
        response
    }

    fn end(&self) {
        self.configuration.fetch_add(1, Ordering::Relaxed);
        let mut sessions = lock(&self.sessions);
        sessions.end_all();
        if let Err(error) = sessions.keep(&self.folder) {
            tracing::warn!("page: {}: {error}", self.folder.display());
        }
    }
}

/// Renders in another thread. The view is let go before the turn is.
async fn render(
    held: Held<'_>,
    draw: impl FnOnce(&View) -> Option<Rendered> + Send + 'static,
) -> Result<Option<Rendered>, String> {
    let Held { view, turn } = held;
    let rendered = spawn_blocking(move || draw(&view)).await;
    drop(turn);
    rendered.map_err(|_| "the view cannot be rendered: see the log".to_owned())
}

/// What each answer says to the browser.
fn secure(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // With no-referrer, forms would come from the origin "null".
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

fn page(status: StatusCode, page: Markup) -> Response {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    (status, [(header::CONTENT_TYPE, kind)], page.into_string()).into_response()
}

fn to(place: &'static str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, HeaderValue::from_static(place))]).into_response()
}

fn set_cookie(response: &mut Response, name: &str, lifetime: Duration, has_tls: bool) {
    let secure = if has_tls { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE}={name}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", lifetime.as_secs());
    let cookie = HeaderValue::try_from(cookie).expect("hexadecimal digits are text");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
}
