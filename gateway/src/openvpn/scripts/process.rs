//! The process that runs programs: requests from the daemon, one thread each while a program runs.
//!
//! ```text
//! socket ──> line (in order) ──> queue ──> thread: run ──> Answer ──> socket
//!                                             └──> deferred: files are looked at until they answer ──┘
//! ```

use super::running::{Awaited, Variables, run};
use super::{Answer, Outcome, Programs, Request, wire};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Programs that run at once.
const RUNNING: usize = 64;
/// Requests that wait. The daemon has one for each client that connects, and a few for each one that leaves.
const WAITING: usize = 16_384;
/// How often the files of deferred answers are looked at.
const LOOKED_AT: Duration = Duration::from_millis(100);
/// How long children that were killed are waited for.
const ENDING: Duration = Duration::from_secs(2);

struct Job {
    id: u64,
    request: Request,
    came: Instant,
}

#[derive(Default)]
struct Queue {
    running: usize,
    waiting: usize,
    ready: VecDeque<Job>,
    /// Jobs behind the one of their line that runs.
    lines: HashMap<u64, VecDeque<Job>>,
    awaited: Vec<(u64, Awaited)>,
    is_ended: bool,
}

impl Queue {
    /// A job cannot be run, and neither can those behind it in its line: they would wait for ever. Returns the jobs.
    fn drop_line(&mut self, id: u64, line: u64) -> Vec<u64> {
        let behind = self.lines.remove(&line).unwrap_or_default();
        let ids: Vec<u64> = iter::once(id).chain(behind.iter().map(|job| job.id)).collect();
        self.waiting -= ids.len();
        ids
    }
}

struct Process {
    programs: Programs,
    socket: Mutex<UnixStream>,
    queue: Mutex<Queue>,
    /// Hangs up when the daemon has ended.
    ended: OwnedFd,
}

/// Runs programs until the daemon closes the socket; then kills those that run. `enter`: goes to the working directory of the programs.
///
/// # Errors
/// The daemon sent no list of programs.
pub fn serve(socket: UnixStream, enter: fn(&Path) -> io::Result<()>) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    let programs = wire::parse_programs(&wire::receive(&socket)?).ok_or(io::ErrorKind::InvalidData)?;
    if let Err(error) = enter(&programs.folder) {
        tracing::warn!("{}: {error}", programs.folder.display());
    }
    let (ended, end) = pipe_with(PipeFlags::CLOEXEC)?;
    let answers = Mutex::new(socket.try_clone()?);
    let process = Arc::new(Process { programs, socket: answers, queue: Mutex::default(), ended });
    let deferred = Arc::clone(&process);
    thread::Builder::new().name("deferred".to_owned()).spawn(move || deferred.look())?;
    while let Ok(message) = wire::receive(&socket) {
        let Some((id, request)) = wire::parse_request(&message) else { break };
        process.take(Job { id, request, came: Instant::now() });
    }
    process.queue().is_ended = true;
    drop(end);
    process.wait_for_children();
    Ok(())
}

impl Process {
    /// A thread that panicked leaves a queue that is whole.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, id: u64, answer: &Answer) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        // The daemon may have ended.
        let _ = wire::send(&*socket, &wire::emit_answer(id, answer));
    }

    fn take(self: &Arc<Self>, job: Job) {
        let mut queue = self.queue();
        if queue.waiting >= WAITING {
            drop(queue);
            return self.answer(job.id, &Answer::failed("too many programs wait"));
        }
        queue.waiting += 1;
        if job.request.line != 0 {
            if let Some(behind) = queue.lines.get_mut(&job.request.line) {
                return behind.push_back(job);
            }
            queue.lines.insert(job.request.line, VecDeque::new());
        }
        queue.ready.push_back(job);
        self.start(&mut queue);
    }

    /// Starts a thread for the next job, if there may be one more.
    fn start(self: &Arc<Self>, queue: &mut Queue) {
        if queue.running >= RUNNING || queue.is_ended {
            return;
        }
        let Some(job) = queue.ready.pop_front() else { return };
        let (process, id, line) = (Arc::clone(self), job.id, job.request.line);
        match thread::Builder::new().name("program".to_owned()).spawn(move || process.work(job)) {
            Ok(_) => queue.running += 1,
            Err(error) => {
                for id in queue.drop_line(id, line) {
                    self.answer(id, &Answer::failed(error.to_string()));
                }
            }
        }
    }

    /// Runs jobs until none is ready.
    fn work(self: Arc<Self>, mut job: Job) {
        loop {
            self.run(&job);
            let mut queue = self.queue();
            queue.waiting -= 1;
            let line = job.request.line;
            if let Some(behind) = queue.lines.get_mut(&line) {
                match behind.pop_front() {
                    Some(next) => queue.ready.push_back(next),
                    None => _ = queue.lines.remove(&line),
                }
            }
            let Some(next) = queue.ready.pop_front().filter(|_| !queue.is_ended) else {
                queue.running -= 1;
                return;
            };
            job = next;
        }
    }

    fn run(&self, job: &Job) {
        let Job { id, request, came } = job;
        let from = if request.line == 0 { *came } else { Instant::now() };
        let until = from + request.deadline;
        if Instant::now() >= until {
            return self.answer(*id, &Answer::failed("it waited too long for other programs"));
        }
        let Some(inherited) = self.inherited(request.answers) else {
            return self.answer(*id, &Answer::failed("it came too late"));
        };
        let (answer, awaited) = run(&self.programs, request, &inherited, until, self.ended.as_fd());
        if let Some(awaited) = awaited {
            // Neither the other answer nor a request that answers comes before this.
            let mut queue = self.queue();
            self.answer(*id, &answer);
            queue.awaited.push((*id, awaited));
        } else {
            self.answer(*id, &answer);
        }
    }

    /// The files of a request that is answered later; `None` if it was answered.
    fn inherited(&self, answers: u64) -> Option<Variables> {
        if answers == 0 {
            return Some(Variables::new());
        }
        let queue = self.queue();
        queue.awaited.iter().find(|(id, _)| *id == answers).map(|(_, awaited)| awaited.variables())
    }

    /// Looks at the files of deferred answers.
    fn look(&self) {
        loop {
            thread::sleep(LOOKED_AT);
            let (now, mut queue) = (Instant::now(), self.queue());
            if queue.is_ended {
                queue.awaited.clear();
                return;
            }
            let mut answers = Vec::new();
            queue.awaited.retain(|(id, awaited)| match awaited.answer(now) {
                Some(answer) => {
                    answers.push((*id, answer));
                    false
                }
                None => true,
            });
            drop(queue);
            for (id, answer) in &answers {
                debug_assert!(answer.outcome != Outcome::Deferred, "it is the last one");
                self.answer(*id, answer);
            }
        }
    }

    fn wait_for_children(&self) {
        let until = Instant::now() + ENDING;
        while Instant::now() < until {
            let queue = self.queue();
            if queue.running == 0 && queue.awaited.is_empty() {
                return;
            }
            drop(queue);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, Hook};
    use super::*;

    #[test]
    fn a_line_whose_first_job_cannot_be_run_is_given_up_whole() {
        let job = |id| {
            let mut request = Request::new(Hook::Up, Environment::default(), LOOKED_AT);
            request.line = 9;
            Job { id, request, came: Instant::now() }
        };
        let mut queue = Queue { waiting: 4, ..Queue::default() };
        queue.lines.insert(9, [job(2), job(3)].into());
        queue.lines.insert(8, VecDeque::new());
        assert_eq!(queue.drop_line(1, 9), [1, 2, 3]);
        assert_eq!((queue.waiting, queue.lines.len()), (1, 1));
        // Without a line, it is alone.
        assert_eq!(queue.drop_line(4, 0), [4]);
    }
}
