//! A thread and a bounded queue for each receiver, and what became of its messages.

use super::{exec, form, journal, letter, syslog};
use base64ct::{Base64, Encoding};
use gateway::health::model::{Receiver as Report, Severity};
use gateway::health::wire::{
    Line, Log, Mail, MailTls, Notification, Orders, Receiver, Reports, Way, Webhook,
};
use https::client::{Post, post};
use https::mail::{self, Protection, Server};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Queue, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// Messages that wait for a receiver.
const WAITING: usize = 64;
/// Lines that wait for the disk.
const LINES: usize = 1024;
/// How long a webhook may take.
const WEBHOOK: Duration = Duration::from_secs(10);
/// How long a mail server may take: RFC 5321 4.5.3.2 has minutes for each answer, which nobody waits for who is to hear of an alert.
const MAIL: Duration = Duration::from_secs(30);
/// The pauses between the tries of a webhook or a mail server.
const PAUSES: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(45)];
/// How often a thread that waits looks whether it is to end.
const STEP: Duration = Duration::from_millis(100);
/// How long the end of the process waits for programs to be killed.
const ENDING: Duration = Duration::from_secs(1);
/// Characters of the text of a problem.
const SHOWN: usize = 300;

/// Whether a thread is to end.
#[derive(Clone, Default)]
pub(super) struct Gone(Arc<AtomicBool>);

impl Gone {
    pub(super) fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Waits; whether it is to end.
    fn sleep(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.is() {
            thread::sleep(STEP.min(until.saturating_duration_since(Instant::now())));
        }
        self.is()
    }
}

/// The state of all receivers, which the daemon shows.
struct Board {
    socket: UnixStream,
    receivers: Vec<Report>,
}

impl Board {
    /// Tells the daemon.
    fn tell(&mut self) {
        self.send(&Reports { receivers: self.receivers.clone(), is_new: false });
    }

    fn send(&mut self, reports: &Reports) {
        if let Ok(mut line) = serde_json::to_vec(reports) {
            line.push(b'\n');
            let _ = self.socket.write_all(&line);
        }
    }

    fn of<'a>(&'a mut self, receiver: &Receiver) -> Option<&'a mut Report> {
        let is_it = |it: &&mut Report| it.name == receiver.name && it.way == receiver.way.name();
        self.receivers.iter_mut().find(is_it)
    }
}

type Shared = Arc<Mutex<Board>>;

fn lock(board: &Shared) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A receiver with its thread.
struct Delivery {
    receiver: Receiver,
    queue: SyncSender<Notification>,
    gone: Gone,
    thread: thread::JoinHandle<()>,
}

/// All receivers, and the log.
pub(super) struct Hub {
    board: Shared,
    folder: PathBuf,
    scripts: Arc<Vec<PathBuf>>,
    deliveries: Vec<Delivery>,
    log: Option<(Log, SyncSender<Line>)>,
}

impl Hub {
    pub(super) fn new(socket: UnixStream, folder: PathBuf, scripts: Vec<PathBuf>) -> Self {
        let mut board = Board { socket, receivers: Vec::new() };
        board.send(&Reports { is_new: true, ..Reports::default() });
        let board = Arc::new(Mutex::new(board));
        Self { board, folder, scripts: Arc::new(scripts), deliveries: Vec::new(), log: None }
    }

    /// Tells these receivers from now on. One that stays keeps its queue.
    pub(super) fn obey(&mut self, Orders { receivers, log }: Orders) {
        let (kept, ended): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.deliveries).into_iter().partition(|it| receivers.contains(&it.receiver));
        for it in &ended {
            it.gone.set();
        }
        self.deliveries = kept;
        {
            let mut board = lock(&self.board);
            let before = std::mem::take(&mut board.receivers);
            let new = |receiver: &Receiver| Report {
                name: receiver.name.clone(),
                way: receiver.way.name().to_owned(),
                ..Report::default()
            };
            let is_same = |a: &Report, b: &Report| (&a.name, &a.way) == (&b.name, &b.way);
            let of =
                |report: Report| before.iter().find(|it| is_same(it, &report)).cloned().unwrap_or(report);
            board.receivers = receivers.iter().map(|receiver| of(new(receiver))).collect();
            board.tell();
        }
        for receiver in receivers {
            if !self.deliveries.iter().any(|it| it.receiver == receiver) {
                self.begin(receiver);
            }
        }
        if self.log.as_ref().map(|(log, _)| *log) != log {
            self.log = log.and_then(|log| Some((log, self.keep_log(log)?)));
        }
    }

    fn begin(&mut self, receiver: Receiver) {
        let (queue, waiting) = sync_channel(WAITING);
        let gone = Gone::default();
        let worker = Worker {
            receiver: receiver.clone(),
            board: Arc::clone(&self.board),
            scripts: Arc::clone(&self.scripts),
            gone: gone.clone(),
        };
        let named = thread::Builder::new().name(format!("alert {}", receiver.way.name()));
        match named.spawn(move || worker.work(&waiting)) {
            Ok(thread) => self.deliveries.push(Delivery { receiver, queue, gone, thread }),
            Err(error) => tracing::error!("alert {} is not told: {error}", receiver.name),
        }
    }

    fn keep_log(&self, log: Log) -> Option<SyncSender<Line>> {
        let (queue, lines) = sync_channel(LINES);
        let journal = journal::Journal::new(self.folder.clone(), log);
        let named = thread::Builder::new().name("alert log".to_owned());
        let started = named.spawn(move || lines.iter().for_each(|line| journal.write(&line)));
        started.inspect_err(|error| tracing::error!("the log of health is not written: {error}")).ok()?;
        Some(queue)
    }

    /// Puts a message into the queues of those who are to hear it.
    pub(super) fn notify(&self, notification: &Notification) {
        for delivery in &self.deliveries {
            if delivery.receiver.only_critical && notification.severity != Severity::Critical {
                continue;
            }
            if delivery.queue.try_send(notification.clone()).is_err() {
                let mut board = lock(&self.board);
                if let Some(report) = board.of(&delivery.receiver) {
                    report.dropped += 1;
                    report.problem = Some(format!("more than {WAITING} messages wait for it"));
                }
                board.tell();
            }
        }
    }

    /// Puts a line into the queue of the log; one that does not fit is lost.
    pub(super) fn log(&self, line: Line) {
        if let Some((_, queue)) = &self.log {
            let _ = queue.try_send(line);
        }
    }

    /// Ends all threads; programs that run are killed.
    pub(super) fn stop(self) {
        self.deliveries.iter().for_each(|it| it.gone.set());
        let until = Instant::now() + ENDING;
        let is_alive = |it: &Delivery| matches!(it.receiver.way, Way::Exec(_)) && !it.thread.is_finished();
        while Instant::now() < until && self.deliveries.iter().any(is_alive) {
            thread::sleep(STEP / 10);
        }
    }
}

/// What the thread of a receiver has.
struct Worker {
    receiver: Receiver,
    board: Shared,
    scripts: Arc<Vec<PathBuf>>,
    gone: Gone,
}

impl Worker {
    fn work(&self, queue: &Queue<Notification>) {
        for notification in queue {
            if self.gone.is() {
                return;
            }
            let outcome = self.deliver(&notification);
            if let Err(why) | Ok(Some(why)) = &outcome {
                let Receiver { name, way, .. } = &self.receiver;
                tracing::warn!("service health alert {name} {}: {why}", way.name());
            }
            let mut board = lock(&self.board);
            if let Some(report) = board.of(&self.receiver) {
                match outcome {
                    Ok(problem) => {
                        report.delivered += 1;
                        report.problem = problem.map(|why| why.chars().take(SHOWN).collect());
                    }
                    Err(why) => {
                        report.failed += 1;
                        report.problem = Some(why.chars().take(SHOWN).collect());
                    }
                }
            }
            board.tell();
        }
    }

    /// Delivers a message; what was wrong with a part of it.
    fn deliver(&self, notification: &Notification) -> Result<Option<String>, String> {
        let Receiver { name, way, .. } = &self.receiver;
        let outcome = match way {
            Way::Exec(path) => exec::run(path, &self.scripts, name, notification, &self.gone),
            Way::Webhook(webhook) => self.post(webhook, notification),
            Way::Mail(mail) => return self.mail(mail, notification),
            Way::Syslog => syslog::send(syslog::SOCKET.as_ref(), notification),
        };
        outcome.map(|()| None)
    }

    /// Posts a message, and again after pauses if that may help.
    fn post(&self, webhook: &Webhook, notification: &Notification) -> Result<(), String> {
        let authority = webhook.authority.as_ref().and_then(|text| Base64::decode_vec(text).ok());
        let request = Post {
            url: webhook.url.as_str(),
            token: webhook.token.as_ref().map(gateway::api::model::SecretText::as_str),
            authority: authority.as_deref(),
            body: form::json(&self.receiver.name, notification).into(),
        };
        self.try_again(|| post(&request, WEBHOOK), https::client::PostError::is_temporary)
    }

    /// Hands a message to a mail server, and again after pauses if that may help; the addresses that were refused, if others were not.
    fn mail(&self, mail: &Mail, notification: &Notification) -> Result<Option<String>, String> {
        let authority = mail.authority.as_ref().and_then(|text| Base64::decode_vec(text).ok());
        let own_name = letter::own_name();
        let server = Server {
            host: &mail.server,
            port: mail.port,
            protection: match mail.tls {
                MailTls::StartTls => Protection::StartTls,
                MailTls::Implicit => Protection::Tls,
                MailTls::Off => Protection::Nothing,
            },
            authority: authority.as_deref(),
            login: mail.login.as_ref().map(|(user, password)| (&**user, password.as_str())),
            own_name: &own_name,
        };
        let from = mail.from.clone().unwrap_or_else(|| format!("postern@{own_name}"));
        let to: Vec<&str> = mail.to.iter().map(String::as_str).collect();
        let text = letter::write(&from, &to, &own_name, notification);
        let message = mail::Message { from: &from, to: &to, text: &text };
        let refused =
            self.try_again(|| mail::send(&server, &message, MAIL), mail::MailError::is_temporary)?;
        let refused: Vec<String> =
            refused.into_iter().map(|(address, why)| format!("{address} got no mail: {why}")).collect();
        Ok((!refused.is_empty()).then(|| refused.join("; ")))
    }

    /// Tries until it succeeds, or more tries do not help.
    fn try_again<T, E, F>(&self, attempt: impl Fn() -> F, is_temporary: fn(&E) -> bool) -> Result<T, String>
    where
        E: std::fmt::Display,
        F: Future<Output = Result<T, E>>,
    {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let mut pauses = PAUSES.into_iter();
        let outcome = loop {
            let error = match runtime.block_on(attempt()) {
                Ok(done) => break Ok(done),
                Err(error) => error,
            };
            let pause = pauses.next().filter(|_| is_temporary(&error));
            let Some(pause) = pause else { break Err(error.to_string()) };
            tracing::debug!("service health alert {}: {error}", self.receiver.name);
            if self.gone.sleep(pause) {
                break Err(error.to_string());
            }
        };
        // A name server that does not answer is not waited for.
        runtime.shutdown_background();
        outcome
    }
}
