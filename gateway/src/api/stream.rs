//! Answers that are sent as they are made.
//!
//! ```text
//! sender ── bounded channel ──> Chunks, the body ──> client
//!   └── AtWork, which it drops at its end ──> Streamed ──> the deadline of the connection runs
//! ```

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, watch};

/// What comes through a channel, until its sender is gone.
struct Chunks(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// Marks an answer that may take any time while its sender works: the sender sees to a client that does not read.
#[derive(Clone)]
pub(super) struct Streamed(watch::Receiver<()>);

impl Streamed {
    /// Returns when the sender has ended. The end of the body tells too late: what a client does not read is not asked for its end.
    pub(super) async fn ended(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// Kept by the sender of a streamed answer until it ends.
pub(super) struct AtWork {
    _ended: watch::Sender<()>,
}

/// An answer with what comes through a channel.
pub(super) fn answer(kind: &'static str, chunks: mpsc::Receiver<Bytes>) -> (Response, AtWork) {
    let head = [(header::CONTENT_TYPE, kind), (header::CONNECTION, "close")];
    let mut answer = (head, Body::new(Chunks(chunks))).into_response();
    let (ended, is_at_work) = watch::channel(());
    answer.extensions_mut().insert(Streamed(is_at_work));
    (answer, AtWork { _ended: ended })
}
