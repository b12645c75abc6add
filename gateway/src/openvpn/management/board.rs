//! What the management interface keeps and tells: states, lines of the log, `echo`, questions; bounded, and never waited for.

use super::history::History;
use super::query::Query;
use crate::openvpn::login::{Credentials, Question};
use crate::openvpn::scripts::environment::printable;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use zeroize::Zeroizing;

/// Entries of states and of `echo`, as in OpenVPN.
const ENTRIES: usize = 100;
/// Bytes of messages that wait for a client. A client that is further behind is closed.
const BEHIND: usize = 4 << 20;
/// How often it is seen whether all was told.
const TELLING: Duration = Duration::from_millis(10);
/// The longest line of the log that is kept, in characters.
const LENGTH: usize = 1024;

/// What a client can be told as it happens, beside what it can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    /// `state`
    State,
    /// `log`
    Log,
    /// `echo`
    Echo,
}

/// Messages that wait for the client that is connected.
#[derive(Default)]
struct Outgoing {
    messages: VecDeque<Zeroizing<String>>,
    bytes: usize,
    is_full: bool,
}

/// What is kept of a topic, and whether the client is told more.
struct Kept {
    history: History,
    is_followed: bool,
}

struct Inner {
    /// In the order of [`Topic`].
    topics: [Kept; 3],
    outgoing: Option<Outgoing>,
    holds: bool,
    /// The message about the hold that is in force.
    waits: Option<String>,
    query: Option<Query>,
    /// The question about the next server.
    remote: Option<String>,
}

/// The board of a process.
pub struct Board {
    inner: Mutex<Inner>,
    wake: Notify,
}

/// A client reads too slowly.
#[derive(Debug)]
pub(super) struct TooSlow;

impl Board {
    /// An empty one, which keeps so many lines of the log. `holds`: the flag of `hold`.
    pub fn new(lines: u32, holds: bool) -> Self {
        let kept = |most| Kept { history: History::new(most), is_followed: false };
        let inner = Inner {
            topics: [kept(ENTRIES), kept(lines as usize), kept(ENTRIES)],
            outgoing: None,
            holds,
            waits: None,
            query: None,
            remote: None,
        };
        Self { inner: Mutex::new(inner), wake: Notify::new() }
    }

    /// Tells a state: its name, and what follows it.
    pub fn state(&self, name: &str, rest: &str) {
        self.keep(Topic::State, "STATE", format!("{},{name},{}", now(), printable(rest)));
    }

    /// Tells a line of the log, with a flag of OpenVPN: I, W, N or D.
    pub fn log(&self, flag: char, text: &str) {
        for line in text.lines() {
            let line: String = line.chars().take(LENGTH).collect();
            self.keep(Topic::Log, "LOG", format!("{},{flag},{}", now(), printable(&line)));
        }
    }

    /// Tells a text of `echo`.
    pub fn echo(&self, text: &str) {
        self.keep(Topic::Echo, "ECHO", format!("{},{}", now(), printable(text)));
    }

    /// Tells whole lines, which begin with `>`.
    pub fn tell(&self, message: Zeroizing<String>) {
        self.lock().push(message);
        self.wake.notify_one();
    }

    fn keep(&self, topic: Topic, name: &str, entry: String) {
        let mut inner = self.lock();
        let kept = &mut inner.topics[topic as usize];
        let message = kept.is_followed.then(|| Zeroizing::new(format!(">{name}:{entry}\n")));
        kept.history.add(entry);
        if let Some(message) = message {
            inner.push(message);
            self.wake.notify_one();
        }
    }

    /// Shows the last entries, and is told more from now on or no more.
    pub(super) fn show(&self, topic: Topic, follow: Option<bool>, count: usize) -> String {
        let kept = &mut self.lock().topics[topic as usize];
        kept.is_followed = follow.unwrap_or(kept.is_followed);
        kept.history.last(count)
    }

    /// Whether the next start waits for `hold release`.
    pub fn holds(&self) -> bool {
        self.lock().holds
    }

    pub(super) fn set_hold(&self, holds: bool) {
        self.lock().holds = holds;
    }

    /// The process waits for `hold release`; otherwise it would wait for so many seconds.
    pub fn wait(&self, seconds: u64) {
        let text = format!(">HOLD:Waiting for hold release:{seconds}\n");
        let mut inner = self.lock();
        inner.push(Zeroizing::new(text.clone()));
        inner.waits = Some(text);
        self.wake.notify_one();
    }

    /// The process waits no more; whether it did.
    pub fn release(&self) -> bool {
        self.lock().waits.take().is_some()
    }

    /// The interface has ended: what it waited for is not asked any more.
    pub fn interface_ended(&self) {
        let mut inner = self.lock();
        (inner.waits, inner.remote, inner.query) = (None, None, None);
    }

    /// Asks where to connect to: host, port and protocol.
    pub fn ask_remote(&self, remote: &str) {
        let text = format!(">REMOTE:{}\n", printable(remote));
        let mut inner = self.lock();
        inner.push(Zeroizing::new(text.clone()));
        inner.remote = Some(text);
        self.wake.notify_one();
    }

    /// That question is answered; whether it was asked.
    pub fn remote_answered(&self) -> bool {
        self.lock().remote.take().is_some()
    }

    /// Asks for a user name and a password, and blocks until they are there.
    ///
    /// # Errors
    /// Another question has taken the place of this one.
    pub fn ask_password(&self, question: &Question) -> Result<Credentials, String> {
        let (answer, answered) = mpsc::channel();
        self.ask(Query::new(question, answer), &answered)
    }

    /// The same for the password of the private key.
    ///
    /// # Errors
    /// As those of [`Self::ask_password`].
    pub fn ask_key_password(&self) -> Result<Zeroizing<String>, String> {
        let (answer, answered) = mpsc::channel();
        self.ask(Query::of_key(answer), &answered).map(|credentials| credentials.password)
    }

    fn ask(&self, query: Query, answered: &mpsc::Receiver<Credentials>) -> Result<Credentials, String> {
        {
            let mut inner = self.lock();
            // The sender of a question that this one takes the place of is dropped here.
            let mut query = query;
            // The thread of an attempt that was given up has no answer.
            if !inner.query.as_mut().is_some_and(|before| before.goes_on(&mut query)) {
                inner.push(Zeroizing::new(query.text().to_owned()));
                inner.query = Some(query);
            }
        }
        self.wake.notify_one();
        answered.recv().map_err(|_| "another question has followed".to_owned())
    }

    /// Takes a part of the answer; whether it is asked for.
    pub(super) fn answer(&self, take: impl FnOnce(&mut Query) -> bool) -> bool {
        let mut inner = self.lock();
        let Some(query) = &mut inner.query else { return false };
        let is_asked = take(query);
        if query.is_complete() {
            inner.query = None;
        }
        is_asked
    }

    /// A client is connected: it is told what is asked.
    pub(super) fn attach(&self) {
        let mut inner = self.lock();
        inner.outgoing = Some(Outgoing::default());
        let asked = [
            inner.waits.clone(),
            inner.query.as_ref().map(|query| query.text().to_owned()),
            inner.remote.clone(),
        ];
        asked.into_iter().flatten().for_each(|text| inner.push(Zeroizing::new(text)));
    }

    /// The client has left.
    pub(super) fn detach(&self) {
        let mut inner = self.lock();
        inner.outgoing = None;
        inner.topics.iter_mut().for_each(|kept| kept.is_followed = false);
    }

    /// The next message.
    pub(super) async fn next(&self) -> Result<Zeroizing<String>, TooSlow> {
        loop {
            if let Some(outgoing) = &mut self.lock().outgoing {
                if outgoing.is_full {
                    return Err(TooSlow);
                }
                if let Some(message) = outgoing.messages.pop_front() {
                    outgoing.bytes -= message.len();
                    return Ok(message);
                }
            }
            self.wake.notified().await;
        }
    }

    /// Waits until the client has been told all, before the process ends.
    pub async fn told(&self) {
        let is_behind = || self.lock().outgoing.as_ref().is_some_and(|it| !it.messages.is_empty());
        while is_behind() {
            tokio::time::sleep(TELLING).await;
        }
    }

    /// No code that holds it logs or waits.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn push(&mut self, message: Zeroizing<String>) {
        let Some(outgoing) = &mut self.outgoing else { return };
        outgoing.is_full |= outgoing.bytes + message.len() > BEHIND;
        if outgoing.is_full {
            outgoing.messages.clear();
            outgoing.bytes = 0;
            return;
        }
        outgoing.bytes += message.len();
        outgoing.messages.push_back(message);
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_none_is_two() {
        let board = Board::new(2, false);
        for line in ["a", "b\nc", &"ü\r>STATE:x".repeat(5000)] {
            board.log('I', line);
        }
        let lines = board.show(Topic::Log, None, usize::MAX);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].ends_with(",I,c") && lines[1].contains("ü_>STATE:x") && lines[1].len() < 3000,
            "{lines:?}"
        );
        assert_eq!(board.show(Topic::Log, None, 1), format!("{}\n", lines[1]));
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_closed_and_costs_no_memory() {
        let board = Board::new(2, false);
        board.tell(Zeroizing::new(">INFO:nothing is kept without a client\n".to_owned()));
        board.attach();
        board.show(Topic::Log, Some(true), 0);
        for _ in 0..6000 {
            board.log('I', &"x".repeat(LENGTH));
        }
        assert!(board.lock().outgoing.as_ref().is_some_and(|it| it.is_full && it.messages.is_empty()));
        assert!(board.next().await.is_err());
        board.detach();
        board.attach();
        board.log('I', "not followed any more");
        board.state("CONNECTED", "SUCCESS");
        board.wait(3);
        assert_eq!(&**board.next().await.as_ref().expect("a message"), ">HOLD:Waiting for hold release:3\n");
    }

    #[tokio::test]
    async fn a_question_is_told_again_to_the_next_client() {
        let board = std::sync::Arc::new(Board::new(2, false));
        board.attach();
        let asking = std::sync::Arc::clone(&board);
        let question = Question { challenge: Some(("PIN\n>X".to_owned(), true)), ..Question::default() };
        let asked = std::thread::spawn(move || asking.ask_password(&question));
        let text = ">PASSWORD:Need 'Auth' username/password SC:1,PIN_>X\n";
        assert_eq!(**board.next().await.as_ref().expect("a message"), text);
        board.detach();
        board.attach();
        assert_eq!(**board.next().await.as_ref().expect("a message"), text);
        let password = Zeroizing::new("secret".to_owned());
        assert!(!board.answer(|query| query.take_password("Private Key", &password)));
        assert!(board.answer(|query| query.take_password("Auth", &password)));
        assert!(board.answer(|query| query.take_user("Auth", "anna")));
        let credentials = asked.join().expect("no panic").expect("an answer");
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("anna", "secret"));
        assert!(!board.answer(|query| query.take_user("Auth", "anna")), "it is answered");
    }

    #[tokio::test]
    async fn the_password_of_the_private_key_is_asked_for_by_its_own_type() {
        let board = std::sync::Arc::new(Board::new(2, false));
        board.attach();
        let asking = std::sync::Arc::clone(&board);
        let asked = std::thread::spawn(move || asking.ask_key_password());
        let text = ">PASSWORD:Need 'Private Key' password\n";
        assert_eq!(**board.next().await.as_ref().expect("a message"), text);
        let password = Zeroizing::new("secret".to_owned());
        assert!(!board.answer(|query| query.take_password("Auth", &password)));
        assert!(!board.answer(|query| query.take_user("Private Key", "anna")));
        assert!(board.answer(|query| query.take_password("Private Key", &password)));
        assert_eq!(*asked.join().expect("no panic").expect("an answer"), *password);
    }

    #[test]
    fn a_question_of_the_server_takes_the_place_of_the_one_before() {
        let board = std::sync::Arc::new(Board::new(2, false));
        let ask = |question: Question| {
            let asking = std::sync::Arc::clone(&board);
            std::thread::spawn(move || asking.ask_password(&question))
        };
        let told = || loop {
            if let Some(query) = &board.lock().query {
                return query.text().to_owned();
            }
            std::thread::yield_now();
        };
        let challenge = Some(("PIN".to_owned(), true));
        let first = ask(Question { challenge: challenge.clone(), ..Question::default() });
        assert_eq!(told(), ">PASSWORD:Need 'Auth' username/password SC:1,PIN\n");
        // The answer to CRV1 is the password, as the program writes it.
        let state = Some("state-1".to_owned());
        let second = ask(Question { challenge, state, ..Question::default() });
        assert!(first.join().expect("no panic").is_err(), "it is not asked any more");
        assert_eq!(told(), ">PASSWORD:Need 'Auth' username/password\n");
        assert!(board.answer(|query| query.take_user("Auth", "anna")));
        let password = Zeroizing::new("CRV1::state-1::123456".to_owned());
        assert!(board.answer(|query| query.take_password("Auth", &password)));
        assert_eq!(*second.join().expect("no panic").expect("an answer").password, *password);
    }
    #[tokio::test]
    async fn what_an_interface_waited_for_is_not_asked_when_it_has_ended() {
        let board = Board::new(2, false);
        board.wait(0);
        board.ask_remote("vpn.example,1194,udp");
        board.interface_ended();
        board.attach();
        board.tell(Zeroizing::new(">INFO:next\n".to_owned()));
        assert_eq!(**board.next().await.as_ref().expect("a message"), ">INFO:next\n");
        assert!(!board.release() && !board.remote_answered());
    }
}
