//! Events for browsers that keep a page open (server-sent events, WHATWG HTML section 9.2).
//!
//! ```text
//! view, once a second ──> parts that changed ──> queue ──> connection, which must take them in time
//! ```
//! What a stream holds is bounded: a queue of two events, and what the connection buffers. A reader that stalls is late, and the
//! connection is closed as that of any client that does not take its answer.

use super::changes::Sent;
use super::sessions::Session;
use gateway::api::connections::Deadline;
use hyper::body::{Body, Bytes, Frame};
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Streams at once, and of a session.
pub(super) const MOST: usize = 32;
pub(super) const MOST_OF_SESSION: usize = 8;
/// Events that wait for a connection.
const QUEUE: usize = 2;
/// A stream is never silent for longer than this.
pub(super) const BEAT: Duration = Duration::from_secs(5);
/// How long a browser waits before it connects again, in milliseconds.
const BEGIN: &str = "retry: 1000\n\n";

/// The streams that are open.
#[derive(Default)]
pub(super) struct Streams(Mutex<Vec<Session>>);

impl Streams {
    fn lock(&self) -> MutexGuard<'_, Vec<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a session may open one more.
    pub(super) fn has_room(&self, session: &Session) -> bool {
        let open = self.lock();
        open.len() < MOST && open.iter().filter(|it| *it == session).count() < MOST_OF_SESSION
    }

    /// Opens one more; none if there are too many.
    pub(super) fn open(self: &Arc<Self>, session: Session) -> Option<Open> {
        if !self.has_room(&session) {
            return None;
        }
        self.lock().push(session);
        Some(Open { of: Arc::clone(self), session })
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }
}

/// An open stream, which counts until it is dropped.
pub(super) struct Open {
    of: Arc<Streams>,
    session: Session,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.of.lock();
        if let Some(at) = open.iter().position(|it| *it == self.session) {
            open.swap_remove(at);
        }
    }
}

/// The body of an answer that goes on. Its deadline begins anew with each event that the connection takes.
pub(super) struct Events {
    queue: mpsc::Receiver<Bytes>,
    deadline: Deadline,
    patience: Duration,
    _open: Open,
}

impl Events {
    /// The body, and what its events are put into.
    pub(super) fn new(open: Open, deadline: Deadline, patience: Duration) -> (Self, Sender) {
        let (sender, queue) = mpsc::channel(QUEUE);
        (Self { queue, deadline, patience, _open: open }, Sender { queue: sender, sent: Sent::default() })
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = std::task::ready!(self.queue.poll_recv(context));
        self.deadline.restart(self.patience);
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}

/// Where events are put.
pub(super) struct Sender {
    queue: mpsc::Sender<Bytes>,
    pub(super) sent: Sent,
}

/// The reader is gone.
pub(super) struct Gone;

impl Sender {
    /// Begins the stream.
    pub(super) async fn begin(&self) -> Result<(), Gone> {
        self.queue.send(Bytes::from_static(BEGIN.as_bytes())).await.map_err(|_| Gone)
    }

    /// Sends an event.
    pub(super) async fn send(&self, name: &str, data: &impl Serialize) -> Result<(), Gone> {
        self.send_json(name, &serde_json::to_string(data).map_err(|_| Gone)?).await
    }

    /// Sends an event with data that are JSON already: it has no line breaks, which would end a line of data.
    pub(super) async fn send_json(&self, name: &str, json: &str) -> Result<(), Gone> {
        let event = Bytes::from(format!("event: {name}\ndata: {json}\n\n"));
        self.queue.send(event).await.map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sessions::Sessions;
    use super::*;
    use axum::http::{HeaderMap, HeaderValue, header};

    fn session(sessions: &mut Sessions) -> Session {
        let name = format!("{}={}", super::super::sessions::COOKIE, sessions.begin(7));
        let cookie = HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(name).expect("text"))]);
        sessions.of(&cookie, 7).expect("it has begun")
    }

    #[test]
    fn streams_are_bounded_for_each_session_and_in_all() {
        let (streams, mut sessions) = (Arc::new(Streams::default()), Sessions::default());
        let first = session(&mut sessions);
        let mut open: Vec<Open> = (0..MOST_OF_SESSION).map(|_| streams.open(first).expect("room")).collect();
        assert!(streams.open(first).is_none());
        open.pop();
        open.push(streams.open(first).expect("one has ended"));
        while open.len() < MOST {
            let other = session(&mut sessions);
            open.push(streams.open(other).expect("room"));
        }
        let other = session(&mut sessions);
        assert!(streams.open(other).is_none() && streams.count() == MOST);
        drop(open);
        assert!(streams.open(other).is_some());
        assert_eq!(streams.count(), 0);
    }
}
