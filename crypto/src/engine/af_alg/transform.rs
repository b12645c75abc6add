//! A key in the kernel, and bursts of requests under it.
//!
//! A socket of the kernel holds one request: one buffer, one IV. Requests of a burst overlap only on sockets of their own,
//! and only asynchronous I/O asks all of them before it waits for the first; that is worth it where a device answers. Where
//! the processor itself computes, one socket does all, one request after the other.

use super::super::EngineFailure;
use super::socket::{self, Head, Kind, Queue};
use rustix::io::{Errno, Result};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Requests that are with a device at the same time. Each takes a descriptor for as long as the key lives. With qemu's
/// virtio-crypto, 32 packets of 64 bytes took 295 µs each in a window of 1, 259 in one of 8, 236 in one of 16 and 215 in one
/// of 32; of 1408 bytes 367, 340, 316 and 296. Windows of 2 and 4 gain nothing.
const WINDOW: usize = 16;

/// One request and the length of its answer.
pub(super) struct Request<'a> {
    head: Head,
    parts: [&'a [u8]; 3],
    answer: usize,
    /// Whether the kernel may say that it is not authentic.
    is_judged: bool,
}

impl<'a> Request<'a> {
    /// Seals or opens: the answer is `associated`, the text, and when sealing the tag.
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

    /// Encrypts or decrypts: the answer is as long as the text.
    pub(super) fn plain(encrypts: bool, (iv, iv_length): ([u8; 16], usize), text: &'a [u8]) -> Self {
        let head = Head { encrypts, iv, iv_length, associated: 0 };
        Self { head, parts: [text, &[], &[]], answer: text.len(), is_judged: false }
    }

    /// Room for the answer. The kernel does nothing for a reader of no bytes.
    fn room(&self) -> usize {
        self.answer.max(1)
    }

    fn send(&self, socket: &OwnedFd) -> Result<()> {
        socket::send(socket, Some(self.head), &self.parts.map(IoSlice::new))
    }

    /// Whether it was authentic. Drivers report other faults by the same error, where nothing can be a forgery.
    fn judge(&self, received: Result<usize>) -> std::result::Result<bool, EngineFailure> {
        match received {
            Ok(length) if length == self.answer => Ok(true),
            Err(Errno::BADMSG) if self.is_judged => Ok(false),
            _ => Err(EngineFailure),
        }
    }
}

/// What a thread needs while it waits for the kernel.
///
/// Answers do not land in the packets: another engine could not do a burst again whose first half is overwritten. Copying
/// them costs nothing beside a system call.
pub(super) struct IoContext {
    queue: Option<Queue>,
    room: Vec<u8>,
}

/// As many as there were calls at the same time.
static IO_CONTEXTS: Mutex<Vec<IoContext>> = Mutex::new(Vec::new());

impl IoContext {
    /// Works with a context that no other thread uses.
    pub(super) fn with<R>(work: impl FnOnce(&mut Self) -> R) -> R {
        let idle = lock(&IO_CONTEXTS).pop();
        // Without a queue the requests are made one after the other.
        let mut context = idle.unwrap_or_else(|| Self { queue: Queue::new().ok(), room: Vec::new() });
        let result = work(&mut context);
        lock(&IO_CONTEXTS).push(context);
        result
    }

    /// Room for the answers to `requests`.
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

/// Of each request its answer, if it was authentic.
pub(super) type Answers<'d> = Vec<Option<&'d [u8]>>;

/// A key of one algorithm in the kernel.
pub(super) struct Transform {
    bound: OwnedFd,
    /// Sockets that wait for requests.
    idle: Mutex<Vec<OwnedFd>>,
    window: usize,
}

impl Transform {
    /// Gives `key` to an algorithm or to a driver of this name. Answers of one that is asynchronous are awaited together.
    pub(super) fn new(kind: Kind, name: &str, key: &[u8], tag: Option<usize>) -> Result<Self> {
        let bound = socket::bound(kind, name)?;
        socket::set_key(&bound, key)?;
        if let Some(tag) = tag {
            socket::set_tag_length(&bound, tag)?;
        }
        let first = socket::operation(&bound)?;
        Ok(Self { bound, idle: Mutex::new(vec![first]), window: 1 })
    }

    /// Says whether answers come later.
    pub(super) fn asynchronous(self, is_async: bool) -> Self {
        Self { window: if is_async { WINDOW } else { 1 }, ..self }
    }

    /// Has the kernel do `requests`.
    pub(super) fn run<'d>(
        &self,
        context: &'d mut IoContext,
        requests: &[Request<'_>],
    ) -> std::result::Result<Answers<'d>, EngineFailure> {
        let IoContext { queue, room } = context;
        let mut answers = IoContext::lay(room, requests);
        let mut verdicts = Vec::with_capacity(requests.len());
        // A socket whose request failed is not used again: it closes when this returns early.
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

    /// The digest of `parts` one after the other, of the hash that this is, with at least `length` bytes.
    pub(super) fn digest(
        &self,
        parts: [&[u8]; 3],
        length: usize,
    ) -> std::result::Result<[u8; 64], EngineFailure> {
        let mut digest = [0; 64];
        let sockets = self.take(1).map_err(|_| EngineFailure)?;
        socket::send(&sockets[0], None, &parts.map(IoSlice::new)).map_err(|_| EngineFailure)?;
        let received = socket::receive(&sockets[0], &mut digest).map_err(|_| EngineFailure)?;
        // Unwritten zeros would be a tag that an attacker can guess.
        if received < length {
            return Err(EngineFailure);
        }
        lock(&self.idle).extend(sockets);
        Ok(digest)
    }

    /// This many unused sockets; fewer, but at least one, if the process has no more descriptors.
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

/// One request, waited for.
fn one(socket: &OwnedFd, request: &Request<'_>, answer: &mut [u8]) -> Result<usize> {
    request.send(socket)?;
    socket::receive(socket, answer)
}

/// Requests on a socket each, which the kernel has all before the first is waited for.
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
        // A device whose queue is full makes only those wait who wait for each request.
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
