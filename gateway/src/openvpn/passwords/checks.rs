//! The threads that hash passwords: none that carries packets, and none that serves clients.

use super::queue::{Full, Queue};
use super::{Attempt, Users};
use crate::rights::Rights;
use crate::thread_name::thread_name;
use port::schedule::yield_to_packets;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

/// The threads of an interface. Each holds the memory of one hash.
const THREADS: usize = 2;

type OnAnswer = Box<dyn FnOnce(bool) + Send>;

/// The queue of an interface, and its threads, which end with it.
pub(super) struct Checks(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    is_changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: Queue<Check>,
    is_over: bool,
}

struct Check {
    users: Arc<Users>,
    attempt: Attempt,
    until: Instant,
    on_answer: OnAnswer,
}

impl Checks {
    pub(super) fn start(interface: &str) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), is_changed: Condvar::new() });
        let checks = Self(Arc::clone(&shared));
        for _ in 0..THREADS {
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new().name(thread_name(interface, "password"));
            let spawned = thread.spawn(move || {
                Rights::None.keep();
                if let Err(error) = yield_to_packets() {
                    tracing::debug!("checks of passwords may delay packets: {error}");
                }
                shared.serve();
            });
            // Without a thread, no attempt is answered in time.
            if let Err(error) = spawned {
                tracing::error!(
                    "interface {interface}: a thread that checks passwords cannot start: {error}"
                );
            }
        }
        checks
    }

    pub(super) fn ask(&self, users: Arc<Users>, attempt: Attempt, on_answer: OnAnswer) -> Result<(), Full> {
        let (source, until) = (attempt.source, Instant::now() + attempt.longest);
        self.0.state().queue.push(source, Check { users, attempt, until, on_answer })?;
        self.0.is_changed.notify_one();
        Ok(())
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_over = true;
        state.queue = Queue::default();
        self.0.is_changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks passwords until the interface ends.
    fn serve(&self) {
        while let Some(Check { users, attempt, until, on_answer }) = self.next() {
            // The client was refused meanwhile.
            if Instant::now() < until {
                on_answer(users.admits(&attempt.user, &attempt.password));
            }
        }
    }

    fn next(&self) -> Option<Check> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(check) = state.queue.pop() {
                return Some(check);
            }
            state = self.is_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::users::tests::ANNA;
    use super::*;
    use crossbeam_channel::unbounded;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn passwords_are_answered_and_those_that_nobody_waits_for_are_not() {
        let users = Arc::new(Users::read("users", ANNA.as_bytes()).expect("right"));
        let checks = Checks::start("tun0");
        let (answers, answered) = unbounded();
        for (number, (password, longest)) in
            [("Hello world!", LONG), ("wrong", LONG), ("Hello world!", Duration::ZERO)]
                .into_iter()
                .enumerate()
        {
            let (answers, user) = (answers.clone(), "anna".to_owned());
            let password = password.to_owned().into();
            let attempt = Attempt { source: Ipv4Addr::LOCALHOST.into(), user, password, longest };
            let on_answer = Box::new(move |is_right| answers.send((number, is_right)).expect("it waits"));
            checks.ask(Arc::clone(&users), attempt, on_answer).expect("room");
        }
        drop(answers);
        let mut all: Vec<(usize, bool)> = answered.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [(0, true), (1, false)]);
    }

    #[test]
    fn the_threads_end_with_the_interface() {
        let checks = Checks::start("tun0");
        let shared = Arc::downgrade(&checks.0);
        drop(checks);
        let until = Instant::now() + LONG;
        while shared.strong_count() > 0 {
            assert!(Instant::now() < until, "a thread runs still");
            thread::yield_now();
        }
    }
}
