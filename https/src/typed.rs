//! The JSON API of the daemon, for clients with a key: `/v1/...`, as on the Unix socket. A route that is added there is here too.

use crate::app::App;
use crate::daemon::Refused;
use crate::gate::{Client, Denied};
use crate::reply::{json, retry_after};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use gateway::api::model::{Commit, Problem, Via};
use hyper::Request;
use hyper::body::Bytes;

/// Where all of it is.
pub(crate) const PREFIX: &str = "/v1/";
const COMMIT: &str = "/v1/configuration/commit";
/// The typed configuration, whose parameters name the user.
pub(crate) const TREE: &str = "/v1/configuration/tree";
/// What only clients on the machine itself may ask for: streams of packets and of the log.
const LOCAL: &str = "/v1/local/";
/// The place where a program reports that it has written the file: over HTTPS, only this server writes it.
const SAVED: &str = "/v1/configuration/saved";

/// The answer to a request without a right key in a header.
pub(crate) fn denial(denied: Denied) -> Response {
    match denied {
        Denied::TooMany(wait) => {
            let problem =
                problem(StatusCode::TOO_MANY_REQUESTS, "too many requests", "wait, as Retry-After says");
            retry_after(problem, wait)
        }
        Denied::WrongKey => {
            let fix = "send the header Authorization: Bearer KEY";
            let mut problem = problem(StatusCode::UNAUTHORIZED, "a valid API key is required", fix);
            problem.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            problem
        }
    }
}

/// Answers a request of a client.
pub(crate) async fn answer(app: &App, head: &Parts, body: Bytes, client: &Client) -> Response {
    let path = head.uri.path();
    if path.starts_with(LOCAL) {
        return problem(
            StatusCode::NOT_FOUND,
            "this is not served over HTTPS",
            "ask on the machine, as root",
        );
    }
    if path == SAVED {
        return problem(
            StatusCode::NOT_FOUND,
            "clients over HTTPS do not write the file of the daemon",
            "POST /config-file with op save",
        );
    }
    let body = if path == COMMIT && head.method == Method::POST {
        match commit_of(&body, client) {
            Ok(body) => body,
            Err(error) => {
                return problem(
                    StatusCode::BAD_REQUEST,
                    error,
                    "send base and edits: docs/https.md has an example",
                );
            }
        }
    } else {
        body
    };
    let place = if path == TREE { signed(path, head.uri.query(), client) } else { path.to_owned() };
    let mut request = Request::builder().method(&head.method).uri(place);
    if let Some(base) = head.headers.get(header::IF_MATCH) {
        request = request.header(header::IF_MATCH, base);
    }
    match app.daemon.forward(request, body).await {
        Ok(answer) => {
            let (answered, body) = answer.into_parts();
            let mut response = json(answered.status, body);
            if let Some(revision) = answered.headers.get(header::ETAG) {
                response.headers_mut().insert(header::ETAG, revision.clone());
            }
            response
        }
        Err(refused) => refusal(refused),
    }
}

/// An error of this server.
pub(crate) fn refusal(Refused { status, error }: Refused) -> Response {
    let (error, fix) = error.split_once("\n  fix: ").unwrap_or((&error, "send it again"));
    let mut response = problem(status, error, fix);
    // What was not read of the request must not be taken for the next one.
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A place and its parameters with the name of the key as the user, in place of one that the client gives.
fn signed(path: &str, query: Option<&str>, client: &Client) -> String {
    let mut parameters = form_urlencoded::Serializer::for_suffix(format!("{path}?"), path.len() + 1);
    let given = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    parameters.extend_pairs(given.filter(|(name, _)| name != "user"));
    parameters.append_pair("user", &client.id).finish()
}

/// The commit with the name of the key as its user, in place of one that the client gives.
fn commit_of(body: &[u8], client: &Client) -> Result<Bytes, String> {
    let mut commit: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(body).map_err(|_| "the commit is no JSON object".to_owned())?;
    commit.insert("user".to_owned(), client.id.clone().into());
    commit.insert("via".to_owned(), "api".into());
    let commit: Commit = serde_json::from_value(commit.into())
        .map_err(|_| "the commit has a field that is missing or of another type".to_owned())?;
    debug_assert_eq!(commit.via, Via::Api);
    serde_json::to_vec(&commit).map(Bytes::from).map_err(|error| error.to_string())
}

fn problem(status: StatusCode, error: impl Into<String>, fix: &str) -> Response {
    let problem = Problem { error: error.into(), fix: Some(fix.to_owned()) };
    json(status, serde_json::to_vec(&problem).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_change_is_in_the_name_of_its_key() {
        let client = Client { id: "ansible".to_owned() };
        let place = |query| signed(TREE, query, &client);
        assert_eq!(place(None), "/v1/configuration/tree?user=ansible");
        assert_eq!(
            place(Some("us%65r=root&comment=a%26user%3Droot&user=root")),
            "/v1/configuration/tree?comment=a%26user%3Droot&user=ansible"
        );
    }

    #[test]
    fn a_commit_is_in_the_name_of_its_key() {
        let client = Client { id: "ansible".to_owned() };
        let of = |body: &str| commit_of(body.as_bytes(), &client);
        let body = of(r#"{"base": 7, "edits": ["set a"], "user": "root", "via": "cli"}"#).expect("right");
        let commit: Commit = serde_json::from_slice(&body).expect("a commit");
        assert_eq!((commit.base, commit.user.as_str(), commit.via), (7, "ansible", Via::Api));
        assert!(of(r#"{"base": 7, "edits": []}"#).is_ok(), "the user may be left out");
        for wrong in ["", "[]", r#"{"base": "7"}"#, r#"{"edits": []}"#] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
