//! In place of the status page, in a program that is built without it: `service page` is refused, so no request comes.

use crate::listen::Answering;
use crate::place::Place;
use crate::reply::json;
use crate::source::Source;
use axum::http::StatusCode;
use axum::response::Response;
use gateway::api::connections::Deadline;
use gateway::https::wire;
use hyper::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Duration;

/// Why the page is refused.
pub(crate) const REFUSED: Option<&str> = Some(
    "this program was built without the status page: use one that was built with the cargo feature `page`",
);

/// Answers nothing.
pub(crate) struct StatusPage;

/// What is ordered of it.
pub(crate) struct Serving;

impl StatusPage {
    pub(crate) fn new(_: &Place) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the page itself keeps it")]
    pub(crate) fn set_serving(&self, Serving: Serving) {}
}

impl Serving {
    pub(crate) fn new(_: &wire::Page) -> Self {
        Self
    }
}

impl Answering for StatusPage {
    const NAME: &'static str = "page";

    async fn answer(self: Arc<Self>, _: Request<Incoming>, _: Source, _: Deadline, _: Duration) -> Response {
        Self::not_allowed(REFUSED.unwrap_or_default())
    }

    fn not_allowed(why: &str) -> Response {
        json(StatusCode::NOT_FOUND, why.to_owned())
    }
}
