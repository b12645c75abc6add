//! The daemon's end: requests to the process that runs programs, and its answers.

use super::{Answer, Hook, Outcome, Programs, Request, wire};
use crate::rights::Rights;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Requests that are not answered yet.
const PENDING: usize = 8192;

type OnAnswer = Box<dyn FnMut(Answer) + Send>;

/// The programs of a configuration, to be run. A copy is another handle of the same process.
#[derive(Clone, Default)]
pub struct Scripts {
    inner: Option<Arc<Inner>>,
}

struct Inner {
    hooks: BTreeSet<Hook>,
    requests: Sender<wire::Message>,
    pending: Mutex<Pending>,
    is_done: Condvar,
}

#[derive(Default)]
struct Pending {
    last: u64,
    by_id: HashMap<u64, OnAnswer>,
    is_gone: bool,
}

impl Scripts {
    /// Tells the process at the other end of the socket which programs there are. Call it before the network is read: the
    /// process takes no other programs later.
    pub fn start(socket: UnixStream, programs: &Programs) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        wire::send(&socket, &wire::emit_programs(programs))?;
        let (requests, queue) = bounded::<wire::Message>(PENDING);
        let hooks = programs.by_hook.keys().copied().collect();
        let inner = Arc::new(Inner { hooks, requests, pending: Mutex::default(), is_done: Condvar::new() });
        let (reads, weak) = (socket.try_clone()?, Arc::downgrade(&inner));
        thread::Builder::new().name("script requests".to_owned()).spawn(move || write(&queue, &socket))?;
        thread::Builder::new().name("script answers".to_owned()).spawn(move || {
            Rights::None.keep();
            while let Ok(message) = wire::receive(&reads) {
                let (Some(inner), Some((id, answer))) = (weak.upgrade(), wire::parse_answer(&message)) else {
                    break;
                };
                inner.answered(id, answer);
            }
            if let Some(inner) = weak.upgrade() {
                inner.gone();
            }
        })?;
        Ok(Self { inner: Some(inner) })
    }

    /// Whether the configuration names a program for this.
    pub fn has(&self, hook: Hook) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.hooks.contains(&hook))
    }

    /// Runs a program. `on_answer` is called on another thread, once, or twice if the first answer is [`Outcome::Deferred`].
    /// It must not wait. Returns the number of the request; 0 if it was answered at once.
    pub fn run(&self, request: &Request, mut on_answer: impl FnMut(Answer) + Send + 'static) -> u64 {
        let Some(inner) = self.inner.as_ref().filter(|inner| inner.hooks.contains(&request.hook)) else {
            on_answer(Answer::failed("the configuration has no such program"));
            return 0;
        };
        let mut pending = inner.pending();
        if pending.is_gone || pending.by_id.len() >= PENDING {
            let gone = "the process that runs programs has ended";
            let reason = if pending.is_gone { gone } else { "too many programs wait" };
            drop(pending);
            on_answer(Answer::failed(reason));
            return 0;
        }
        pending.last += 1;
        let id = pending.last;
        pending.by_id.insert(id, Box::new(on_answer));
        drop(pending);
        // The queue has room for all that are pending.
        if inner.requests.try_send(wire::emit_request(id, request)).is_err() {
            inner.answered(id, Answer::failed("too many programs wait"));
        }
        id
    }

    /// Runs a program whose answer is only logged.
    pub fn tell(&self, request: &Request) {
        let name = request.hook.directive();
        self.run(request, move |answer| match answer.outcome {
            Outcome::Ended(0) | Outcome::Deferred => {}
            Outcome::Ended(status) => tracing::warn!("{name}: exit status {status}"),
            Outcome::Failed(reason) => tracing::warn!("{name}: {reason}"),
        });
    }

    /// Runs a program, and waits for its last answer. Blocks the thread: not for one that carries packets or serves clients.
    pub fn run_and_wait(&self, request: &Request) -> Answer {
        let (send, receive) = bounded(2);
        self.run(request, move |answer| _ = send.send(answer));
        loop {
            match receive.recv() {
                Ok(Answer { outcome: Outcome::Deferred, .. }) => {}
                Ok(answer) => return answer,
                Err(_) => return Answer::failed("the process that runs programs has ended"),
            }
        }
    }

    /// Waits until all requests are answered, at most this long.
    pub fn finish(&self, longest: Duration) {
        let Some(inner) = &self.inner else { return };
        let until = Instant::now() + longest;
        let mut pending = inner.pending();
        while !pending.by_id.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = inner.is_done.wait_timeout(pending, left);
            pending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn write(queue: &Receiver<wire::Message>, socket: &UnixStream) {
    Rights::None.keep();
    while let Ok(message) = queue.recv() {
        if wire::send(socket, &message).is_err() {
            break;
        }
    }
    // The last handle is gone: the process is to end, and the other thread too.
    let _ = socket.shutdown(std::net::Shutdown::Both);
}

impl Inner {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, id: u64, answer: Answer) {
        let Some(mut on_answer) = self.pending().by_id.remove(&id) else { return };
        let is_last = answer.outcome != Outcome::Deferred;
        on_answer(answer);
        let mut pending = self.pending();
        if !is_last {
            pending.by_id.insert(id, on_answer);
        }
        if pending.by_id.is_empty() {
            self.is_done.notify_all();
        }
    }

    /// The process has ended: nothing is answered any more.
    fn gone(&self) {
        let mut pending = self.pending();
        pending.is_gone = true;
        let unanswered = std::mem::take(&mut pending.by_id);
        drop(pending);
        for mut on_answer in unanswered.into_values() {
            on_answer(Answer::failed("the process that runs programs has ended"));
        }
        self.is_done.notify_all();
    }
}
