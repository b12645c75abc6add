//! Answers browsers.
//!
//! ```text
//! GET /  /style.css  /login    POST /login  /logout
//! ```

use super::html::{self, Wanted};
use super::sessions::{COOKIE, LIFETIME, Sessions};
use super::view::Latest;
use crate::daemon::Daemon;
use crate::gate::{Denied, Gate};
use crate::keys::Keys;
use crate::listen::Answering;
use crate::place::Place;
use crate::reply::retry_after;
use crate::source::Source;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gateway::api::connections::Deadline;
use gateway::api::server::whole;
use gateway::https::wire;
use hyper::Request;
use hyper::body::Incoming;
use maud::Markup;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Bytes of a form.
const LONGEST: usize = 4 << 10;
/// Times a browser may ask again when the daemon has not answered.
const RETRY: Duration = Duration::from_secs(1);
const STYLE: &str = include_str!("style.css");
/// Nothing but what this server sends is loaded or run, and no other page shows this one in a frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The state that all browsers share.
pub(crate) struct StatusPage {
    daemon: Daemon,
    serving: Mutex<Arc<Serving>>,
    sessions: Mutex<Sessions>,
    gate: Gate,
    latest: Latest,
}

/// The part of it that changes with the configuration.
#[derive(Default)]
pub(crate) struct Serving {
    token: Keys,
    /// Names of this machine that browsers may use.
    names: Vec<String>,
    has_tls: bool,
}

impl Serving {
    /// What the daemon wants. A token that cannot be read is one that no reader has.
    pub(crate) fn new(wanted: &wire::Page) -> Self {
        let key = wire::Key { id: "token".to_owned(), hash: wanted.token.clone() };
        Self {
            token: Keys::new(&wanted.salt, &[key]),
            names: wanted.names.clone(),
            has_tls: wanted.tls.is_some(),
        }
    }

    /// Whether a request names this machine. A page of another site can have its own name point here (DNS rebinding), which an
    /// address cannot.
    fn is_host(&self, headers: &HeaderMap) -> bool {
        let Some(host) = host(headers) else { return false };
        let name = host.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let name = name.to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || name == "localhost" || self.names.contains(&name)
    }
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    headers.get(header::HOST)?.to_str().ok()?.parse().ok()
}

/// Whether a form is not one of another site.
fn is_own(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.zip(host(headers)).is_some_and(|((_, origin), host)| origin == host.as_str())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StatusPage {
    pub(crate) fn new(place: &Place) -> Self {
        Self {
            daemon: Daemon::new(place.api.clone()),
            serving: Mutex::default(),
            sessions: Mutex::default(),
            gate: Gate::default(),
            latest: Latest::default(),
        }
    }

    /// Serves so from now on. The token may be another one: sessions end.
    pub(crate) fn set_serving(&self, serving: Serving) {
        *lock(&self.serving) = Arc::new(serving);
        *lock(&self.sessions) = Sessions::default();
    }

    async fn respond(&self, head: &Parts, body: Incoming, source: Source, deadline: &Deadline) -> Response {
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
                lock(&self.sessions).end(&head.headers);
                let mut response = to("/login");
                set_cookie(&mut response, "", Duration::ZERO, serving.has_tls);
                response
            }
            (&Method::GET | &Method::HEAD, path) => {
                drop(body);
                deadline.suspend();
                self.get(head, path).await
            }
            _ => {
                let why = "the page is only read";
                page(StatusCode::METHOD_NOT_ALLOWED, html::failed("Not allowed", why, false))
            }
        }
    }

    async fn get(&self, head: &Parts, path: &str) -> Response {
        let is_known = lock(&self.sessions).has(&head.headers, Instant::now());
        match path {
            "/style.css" => {
                let kind = HeaderValue::from_static("text/css; charset=utf-8");
                ([(header::CONTENT_TYPE, kind)], STYLE).into_response()
            }
            "/login" => page(StatusCode::OK, html::login(None)),
            _ if !is_known => to("/login"),
            "/" => match self.latest.view(&self.daemon).await {
                Ok(view) => {
                    let wanted = Wanted::of(head.uri.query().unwrap_or_default());
                    page(StatusCode::OK, html::overview(&view, &wanted))
                }
                Err(why) => {
                    let failed = html::failed("The daemon does not answer", &why, true);
                    retry_after(page(StatusCode::SERVICE_UNAVAILABLE, failed), RETRY)
                }
            },
            _ => page(StatusCode::NOT_FOUND, html::failed("Not found", "there is no such page", true)),
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
                let name = lock(&self.sessions).begin(Instant::now());
                let mut response = to("/");
                set_cookie(&mut response, &name, LIFETIME, serving.has_tls);
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

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        source: Source,
        deadline: Deadline,
        _: Duration,
    ) -> Response {
        let (head, body) = request.into_parts();
        let mut response = self.respond(&head, body, source, &deadline).await;
        secure(response.headers_mut());
        response
    }

    fn not_allowed(why: &str) -> Response {
        let mut response = page(StatusCode::FORBIDDEN, html::failed("Not allowed", why, false));
        secure(response.headers_mut());
        response
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn only_addresses_and_names_of_this_machine_are_hosts() {
        let serving = Serving { names: vec!["gw.example".to_owned()], ..Serving::default() };
        let is = |host| serving.is_host(&headers(header::HOST, host));
        assert!(is("127.0.0.1:9587") && is("[::1]:9587") && is("LOCALHOST") && is("GW.example.:9587"));
        assert!(!is("rebound.example:9587") && !is("127.0.0.1.rebound.example") && !is("") && !is("a b"));
        assert!(!serving.is_host(&HeaderMap::new()));
    }

    #[test]
    fn forms_of_other_sites_are_refused() {
        let mut asked = headers(header::HOST, "127.0.0.1:9587");
        assert!(is_own(&asked));
        for (origin, own) in [
            ("http://127.0.0.1:9587", true),
            ("http://127.0.0.1:80", false),
            ("http://a.example", false),
            ("null", false),
        ] {
            asked.insert(header::ORIGIN, HeaderValue::from_static(origin));
            assert_eq!(is_own(&asked), own, "{origin}");
        }
    }
}
