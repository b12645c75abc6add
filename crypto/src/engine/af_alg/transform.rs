//! A key in the kernel, and bursts of requests that use it.
//!
//! An operation socket holds one request: one buffer, one IV. To overlap the requests of a burst, each needs a socket
//! of its own, and asynchronous I/O to submit all before the first answer is awaited. That pays off for a device. If
//! the CPU computes, one socket handles all requests in turn.

use super::super::EngineFailure;
use super::socket::{self, Head, Kind, Queue};
use rustix::io::{Errno, Result};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Requests submitted to a device at the same time. Each takes a file descriptor for the life of the key.
///
/// With qemu's virtio-crypto and bursts of 32 packets, a packet of 64 bytes took 295 µs with a window of 1, 259 with 8,
/// 236 with 16 and 215 with 32. A packet of 1408 bytes took 367, 340, 316 and 296 µs. Windows of 2 and 4 gain nothing.
const WINDOW: usize = 16;

/// A request and the length of its answer.
pub(super) struct Request<'a> {
    head: Head,
    parts: [&'a [u8]; 3],
    answer: usize,
    /// Whether the kernel may reject it as not authentic.
    is_judged: bool,
}

impl<'a> Request<'a> {
    /// A request to seal or open. The answer is `associated`, the text and, when sealing, the tag.
    pub(super) fn authenticated(
        encrypts: bool,
        (iv, iv_length): ([u8; 16], usize),
        associated: &'a [u8],
        text: &'a [u8],
        tag: &'a [u8],
    ) -> Self {
        let head = Head { encrypts, iv, iv_length, associated: associated.len() };
        let without_tag = associated.len() + text.len();
        let (given, answer) = if encrypts { (&[][..], without_tag + tag.len()) } else { (tag, without_tag) };
        Self { head, parts: [associated, text, given], answer, is_judged: !encrypts }
    }

    /// A request to encrypt or decrypt. The answer is as long as the text.
    pub(super) fn plain(encrypts: bool, (iv, iv_length): ([u8; 16], usize), text: &'a [u8]) -> Self {
        let head = Head { encrypts, iv, iv_length, associated: 0 };
        Self { head, parts: [text, &[], &[]], answer: text.len(), is_judged: false }
    }

    /// Buffer size for the answer. It is never zero, because the kernel computes nothing for an empty read.
    fn room(&self) -> usize {
        self.answer.max(1)
    }

    fn send(&self, socket: &OwnedFd) -> Result<()> {
        socket::send(socket, Some(self.head), &self.parts.map(IoSlice::new))
    }

    /// Whether the packet is authentic. Drivers also return `BADMSG` for other faults, so it counts only when opening.
    fn judge(&self, received: Result<usize>) -> std::result::Result<bool, EngineFailure> {
        match received {
            Ok(length) if length == self.answer => Ok(true),
            Err(Errno::BADMSG) if self.is_judged => Ok(false),
            _ => Err(EngineFailure),
        }
    }
}

/// The queue and buffer of a thread that waits for the kernel.
///
/// Answers are not received into the packets: if half of a burst were overwritten, no other engine could process it
/// again. Copying costs nothing compared to a system call.
pub(super) struct IoContext {
    queue: Option<Queue>,
    room: Vec<u8>,
}

/// Idle contexts: at most as many as calls ran at the same time.
static IO_CONTEXTS: Mutex<Vec<IoContext>> = Mutex::new(Vec::new());

impl IoContext {
    /// Calls `work` with a context that no other thread uses.
    pub(super) fn with<R>(work: impl FnOnce(&mut Self) -> R) -> R {
        let idle = lock(&IO_CONTEXTS).pop();
        // Without a queue, requests are processed one at a time.
        let mut context = idle.unwrap_or_else(|| Self { queue: Queue::new().ok(), room: Vec::new() });
        let result = work(&mut context);
        lock(&IO_CONTEXTS).push(context);
        result
    }

    /// Splits the buffer into one part per answer.
    fn lay<'d>(room: &'d mut Vec<u8>, requests: &[Request<'_>]) -> Vec<&'d mut [u8]> {
        let total = requests.iter().map(Request::room).sum();
        if room.len() < total {
            room.resize(total, 0);
        }
        let mut rest = &mut room[..];
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let (answer, others) = rest.split_at_mut(request.room());
            answers.push(answer);
            rest = others;
        }
        answers
    }
}

/// For each request the answer, if it is authentic.
pub(super) type Answers<'d> = Vec<Option<&'d [u8]>>;

/// A key of one algorithm in the kernel.
pub(super) struct Transform {
    bound: OwnedFd,
    /// Idle operation sockets.
    idle: Mutex<Vec<OwnedFd>>,
    window: usize,
}

impl Transform {
    /// Binds an algorithm or driver by name and sets its key. The default is one request at a time.
    pub(super) fn new(kind: Kind, name: &str, key: &[u8], tag: Option<usize>) -> Result<Self> {
        let bound = socket::bound(kind, name)?;
        socket::set_key(&bound, key)?;
        if let Some(tag) = tag {
            socket::set_tag_length(&bound, tag)?;
        }
        let first = socket::operation(&bound)?;
        Ok(Self { bound, idle: Mutex::new(vec![first]), window: 1 })
    }

    /// Sets whether the driver is asynchronous, so that requests are submitted together.
    pub(super) fn asynchronous(self, is_async: bool) -> Self {
        Self { window: if is_async { WINDOW } else { 1 }, ..self }
    }

    /// Runs `requests` in the kernel.
    pub(super) fn run<'d>(
        &self,
        context: &'d mut IoContext,
        requests: &[Request<'_>],
    ) -> std::result::Result<Answers<'d>, EngineFailure> {
        let IoContext { queue, room } = context;
        let mut answers = IoContext::lay(room, requests);
        let mut verdicts = Vec::with_capacity(requests.len());
        // After a failed request, returning early closes the sockets: they are not reused.
        let sockets = self.take(requests.len().min(self.window)).map_err(|_| EngineFailure)?;
        match queue.as_ref().filter(|_| sockets.len() > 1) {
            None => {
                for (request, answer) in requests.iter().zip(&mut answers) {
                    verdicts.push(request.judge(one(&sockets[0], request, answer))?);
                }
            }
            Some(queue) => {
                for (requests, answers) in
                    requests.chunks(sockets.len()).zip(answers.chunks_mut(sockets.len()))
                {
                    let received = many(queue, &sockets, requests, answers).map_err(|_| EngineFailure)?;
                    for (request, received) in requests.iter().zip(received) {
                        verdicts.push(request.judge(received)?);
                    }
                }
            }
        }
        lock(&self.idle).extend(sockets);
        let answer = |((request, answer), authentic): ((&Request<'_>, &'d mut [u8]), bool)| {
            authentic.then_some(&answer[..request.answer])
        };
        Ok(requests.iter().zip(answers).zip(verdicts).map(answer).collect())
    }

    /// The digest of the concatenated `parts`; fails if it has fewer than `length` bytes.
    pub(super) fn digest(
        &self,
        parts: [&[u8]; 3],
        length: usize,
    ) -> std::result::Result<[u8; 64], EngineFailure> {
        let mut digest = [0; 64];
        let sockets = self.take(1).map_err(|_| EngineFailure)?;
        socket::send(&sockets[0], None, &parts.map(IoSlice::new)).map_err(|_| EngineFailure)?;
        let received = socket::receive(&sockets[0], &mut digest).map_err(|_| EngineFailure)?;
        // Bytes that were not written are zeros, which an attacker could guess as a tag.
        if received < length {
            return Err(EngineFailure);
        }
        lock(&self.idle).extend(sockets);
        Ok(digest)
    }

    /// Takes `wanted` idle sockets, creating them if needed. Fewer, but at least one, if the process is out of
    /// descriptors.
    fn take(&self, wanted: usize) -> Result<Vec<OwnedFd>> {
        let mut sockets = {
            let mut idle = lock(&self.idle);
            let from = idle.len().saturating_sub(wanted.max(1));
            idle.split_off(from)
        };
        while sockets.len() < wanted.max(1) {
            match socket::operation(&self.bound) {
                Ok(socket) => sockets.push(socket),
                Err(error) if sockets.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sockets)
    }
}

/// Runs one request and waits for its answer.
fn one(socket: &OwnedFd, request: &Request<'_>, answer: &mut [u8]) -> Result<usize> {
    request.send(socket)?;
    socket::receive(socket, answer)
}

/// Runs requests on one socket each, all submitted before the first answer is awaited.
fn many(
    queue: &Queue,
    sockets: &[OwnedFd],
    requests: &[Request<'_>],
    answers: &mut [&mut [u8]],
) -> Result<Vec<Result<usize>>> {
    for (socket, request) in sockets.iter().zip(requests) {
        request.send(socket)?;
    }
    let mut asked: Vec<_> =
        sockets.iter().map(AsFd::as_fd).zip(answers.iter_mut().map(|answer| &mut **answer)).collect();
    let mut received = queue.receive(&mut asked);
    for (i, received) in received.iter_mut().enumerate() {
        // The queue, or the device, was full: wait for these requests one at a time.
        match *received {
            None => *received = Some(socket::receive(&sockets[i], answers[i])),
            Some(Err(Errno::BUSY | Errno::NOSPC | Errno::AGAIN)) => {
                *received = Some(one(&sockets[i], &requests[i], answers[i]));
            }
            Some(_) => {}
        }
    }
    Ok(received.into_iter().flatten().collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
