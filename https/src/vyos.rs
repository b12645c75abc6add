//! Requests in VyOS's shapes, and answers in its: `{"success": true, "data": ..., "error": null}`.

mod changes;
mod config_file;
mod only;
mod operational;
mod retrieve;
mod section;

use crate::app::App;
use crate::daemon::Refused;
use crate::gate::{Client, Denied};
use crate::long_bodies::Room;
use crate::reply::{json, retry_after};
use crate::request::{Operations, Unreadable, fields, operations};
use crate::source::Source;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use hyper::body::Bytes;
use serde_json::{Value, json as value};

/// The endpoints of VyOS; what cannot be done here is refused with a reason.
const ENDPOINTS: &[(&str, Endpoint)] = &[
    ("/retrieve", Endpoint::Retrieve),
    ("/configure", Endpoint::Configure),
    ("/configure-section", Endpoint::ConfigureSection),
    ("/config-file", Endpoint::ConfigFile),
    ("/show", Endpoint::Operational("show")),
    ("/generate", Endpoint::Operational("generate")),
    ("/reset", Endpoint::Operational("reset")),
    ("/info", Endpoint::Info),
    ("/reboot", Endpoint::Refused(POWER)),
    ("/poweroff", Endpoint::Refused(POWER)),
    (
        "/image",
        Endpoint::Refused(
            "Postern is a package of this machine, not an image\n  fix: use its package manager",
        ),
    ),
    (
        "/container-image",
        Endpoint::Refused("containers are not run here\n  fix: use the machine's own programs"),
    ),
    (
        "/import-pki",
        Endpoint::Refused("certificates are part of the configuration\n  fix: POST /configure, set pki ..."),
    ),
    ("/renew", Endpoint::Refused("certificates are not renewed here\n  fix: POST /configure, set pki ...")),
    ("/traceroute", Endpoint::Refused("the server starts no programs\n  fix: traceroute, at the machine")),
];

const POWER: &str = "a key of the API may not restart or stop the machine\n  fix: systemctl reboot, or poweroff, at the machine";

#[derive(Clone, Copy)]
enum Endpoint {
    Retrieve,
    Configure,
    ConfigureSection,
    ConfigFile,
    /// An operational command that begins with this word.
    Operational(&'static str),
    Info,
    /// VyOS has it.
    Refused(&'static str),
}

fn endpoint(path: &str) -> Option<Endpoint> {
    ENDPOINTS.iter().find(|(known, _)| *known == path).map(|(_, endpoint)| *endpoint)
}

pub(crate) fn is_endpoint(path: &str) -> bool {
    endpoint(path).is_some()
}

/// Answers a request, whose client is known if it has a key in a header. A long request gives up its room once its client is known.
pub(crate) async fn answer(
    app: &App,
    head: &Parts,
    body: Bytes,
    source: Source,
    client: Option<Client>,
    room: Option<Room<'_>>,
) -> (Option<Client>, Response) {
    let Some(endpoint) = endpoint(head.uri.path()) else {
        return (client, error(StatusCode::NOT_FOUND, "Not Found"));
    };
    let method = if matches!(endpoint, Endpoint::Info) { Method::GET } else { Method::POST };
    if head.method != method {
        let text = format!("Method Not Allowed\n  fix: {method}");
        return (client, error(StatusCode::METHOD_NOT_ALLOWED, &text));
    }
    if matches!(endpoint, Endpoint::Info) {
        let response = info(client.is_some());
        return (client, response);
    }
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let fields = match fields(kind, &body) {
        Ok(fields) => fields,
        Err(Unreadable { status, error: text }) => return (client, error(status_of(status), &text)),
    };
    drop(body);
    let client = match client {
        Some(client) => client,
        None => match app.client(fields.key.as_ref().map(|key| key.as_bytes()), source).await {
            Ok(client) => client,
            Err(denied) => return (None, denial(denied)),
        },
    };
    drop(room);
    let response = match operations(&fields.data) {
        Ok(asked) => match carry_out(app, endpoint, asked, &client).await {
            Ok(data) => success(&data),
            Err(refused) => error(refused.status, &refused.error),
        },
        Err(Unreadable { status, error: text }) => error(status_of(status), &text),
    };
    (Some(client), response)
}

async fn carry_out(
    app: &App,
    endpoint: Endpoint,
    asked: Operations,
    client: &Client,
) -> Result<Value, Refused> {
    match endpoint {
        Endpoint::Retrieve => retrieve::retrieve(app, &asked).await,
        Endpoint::Configure => changes::configure(app, asked, client).await,
        Endpoint::ConfigureSection => section::configure(app, asked, client).await,
        Endpoint::ConfigFile => config_file::carry_out(app, &asked, client).await,
        Endpoint::Operational(verb) => operational::run(app, verb, &asked).await,
        Endpoint::Refused(why) => Err(Refused::bad(why)),
        Endpoint::Info => Ok(Value::Null),
    }
}

/// The version and the host name. VyOS sends them to all clients; here a client without a key learns only that this is Postern.
fn info(is_known: bool) -> Response {
    let (version, host) = if is_known {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        (format!("Postern {}", env!("CARGO_PKG_VERSION")), host)
    } else {
        ("Postern".to_owned(), String::new())
    };
    success(&value!({ "version": version, "hostname": host, "banner": "Postern VPN gateway" }))
}

/// The answer to a request without a right key.
pub(crate) fn denial(denied: Denied) -> Response {
    match denied {
        Denied::WrongKey => error(StatusCode::UNAUTHORIZED, "Valid API key is required"),
        Denied::TooMany(wait) => retry_after(
            error(StatusCode::TOO_MANY_REQUESTS, "too many requests\n  fix: wait, as Retry-After says"),
            wait,
        ),
    }
}

fn status_of(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST)
}

fn success(data: &Value) -> Response {
    let body = value!({ "success": true, "data": data, "error": null });
    json(StatusCode::OK, body.to_string())
}

/// An error in VyOS's shape.
pub(crate) fn error(status: StatusCode, text: &str) -> Response {
    let body = value!({ "success": false, "data": null, "error": text });
    let mut response = json(status, body.to_string());
    // What was not read of the request is not to be taken for the next one.
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
