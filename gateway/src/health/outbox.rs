//! The daemon's end of the socket to the process that sends messages to receivers. Nothing waits for it: messages that do not fit are counted.

use super::model::Receiver;
use super::wire::{LONGEST, Message, Orders, Receiver as Wanted, Reports};
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, watch};

/// Messages that wait for the process.
const WAITING: usize = 256;

/// Where the process is that tells receivers.
#[derive(Debug, Default)]
pub enum Connection {
    /// At the other end of this socket; it runs programs in these folders.
    Inherited(StdStream, Vec<PathBuf>),
    /// There is none.
    #[default]
    Off,
}

/// Why receivers cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// There is no process for it.
    #[error("no process sends alerts\n  fix: start the daemon without --no-alerts")]
    Off,
    /// The socket cannot be used.
    #[error("the process that sends alerts cannot be reached: {0}\n  fix: restart the daemon")]
    Unreachable(#[from] io::Error),
    /// It has ended.
    #[error("the process that sends alerts has ended\n  fix: restart the daemon")]
    Ended,
}

/// The way to the process, which is used once there is something to tell.
#[derive(Default)]
pub(super) struct Outbox {
    connection: Connection,
    link: Option<Link>,
}

struct Link {
    orders: watch::Sender<Orders>,
    messages: mpsc::Sender<Message>,
}

/// What the process has reported.
pub(super) type Reported = Arc<Mutex<Vec<Receiver>>>;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, link: None }
    }

    /// The folders whose programs the process runs.
    pub(super) fn folders(&self) -> &[PathBuf] {
        match &self.connection {
            Connection::Inherited(_, folders) => folders,
            Connection::Off => &[],
        }
    }

    /// Replaces the receivers.
    pub(super) fn order(&mut self, orders: Orders, reported: &Reported) -> Result<(), OutboxError> {
        let is_none = orders == Orders::default();
        if self.link.is_none() {
            if is_none {
                return Ok(());
            }
            let Connection::Inherited(stream, _) = &self.connection else { return Err(OutboxError::Off) };
            self.link = Some(Link::start(stream, Arc::clone(reported))?);
        }
        known(&orders, reported);
        let sent = self.link.as_ref().is_none_or(|link| link.orders.send(orders).is_ok());
        if sent || is_none { Ok(()) } else { Err(OutboxError::Ended) }
    }

    /// Sends the process a message, unless too many wait.
    pub(super) fn tell(&self, message: Message) {
        if let Some(link) = &self.link
            && let Err(mpsc::error::TrySendError::Full(_)) = link.messages.try_send(message)
        {
            tracing::warn!("alerts are lost: the process that sends them does not read");
        }
    }
}

/// Shows new receivers before the process knows of them.
fn known(orders: &Orders, reported: &Reported) {
    let mut reported = lock(reported);
    let before = std::mem::take(&mut *reported);
    let of = |wanted: &Wanted| {
        let is_it = |it: &&Receiver| it.name == wanted.name && it.way == wanted.way.name();
        let new = || Receiver {
            name: wanted.name.clone(),
            way: wanted.way.name().to_owned(),
            ..Receiver::default()
        };
        before.iter().find(is_it).cloned().unwrap_or_else(new)
    };
    *reported = orders.receivers.iter().map(of).collect();
}

impl Link {
    fn start(stream: &StdStream, reported: Reported) -> io::Result<Self> {
        let (reader, writer) = UnixStream::from_std(stream.try_clone()?)?.into_split();
        let (orders, ordered) = watch::channel(Orders::default());
        let (messages, queue) = mpsc::channel(WAITING);
        let asked = Arc::new(Notify::new());
        tokio::spawn(write(writer, ordered, queue, Arc::clone(&asked)));
        tokio::spawn(read(reader, reported, asked));
        Ok(Self { orders, messages })
    }
}

/// Writes messages until the process or the daemon has ended; orders also when they are asked for.
async fn write(
    mut writer: OwnedWriteHalf,
    mut orders: watch::Receiver<Orders>,
    mut queue: mpsc::Receiver<Message>,
    asked: Arc<Notify>,
) {
    loop {
        let message = tokio::select! {
            biased;
            () = asked.notified() => Message::Orders(orders.borrow_and_update().clone()),
            Ok(()) = orders.changed() => Message::Orders(orders.borrow_and_update().clone()),
            message = queue.recv() => match message {
                Some(message) => message,
                None => return,
            },
        };
        let Ok(mut line) = serde_json::to_vec(&message) else { continue };
        line.push(b'\n');
        if writer.write_all(&line).await.is_err() {
            tracing::error!("{}", OutboxError::Ended);
            return;
        }
    }
}

/// Takes reports, until the process has ended.
async fn read(reader: OwnedReadHalf, reported: Reported, asked: Arc<Notify>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LONGEST as u64).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|bytes| bytes > 0) {
            let problem = Some(OutboxError::Ended.to_string());
            lock(&reported).iter_mut().for_each(|receiver| receiver.problem.clone_from(&problem));
            return;
        }
        match serde_json::from_slice::<Reports>(&line) {
            Ok(Reports { is_new: true, .. }) => asked.notify_one(),
            Ok(reports) => *lock(&reported) = reports.receivers,
            Err(error) => tracing::debug!("the process that sends alerts: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Line, Log};
    use super::*;
    use std::io::{BufRead, Write};
    use std::time::{Duration, Instant};

    fn orders() -> Orders {
        Orders { log: Some(Log { days: 1, kilobytes: 16 }), ..Orders::default() }
    }

    fn line(text: &str) -> Message {
        Message::Log(Line { at: 7, text: text.to_owned() })
    }

    async fn until(is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it does not come");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn orders_and_messages_arrive_and_reports_are_shown_until_the_end() {
        let (ours, theirs) = StdStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("ours");
        let mut outbox = Outbox::new(Connection::Inherited(ours, Vec::new()));
        let reported = Reported::default();
        outbox.tell(line("before anybody is to hear"));
        outbox.order(Orders::default(), &reported).expect("nothing to do");
        outbox.order(orders(), &reported).expect("it is there");
        let reads = tokio::task::spawn_blocking(move || {
            let mut lines = io::BufReader::new(theirs.try_clone().expect("ours")).lines();
            let mut next = || serde_json::from_str(&lines.next().expect("one").expect("text")).expect("JSON");
            let first: Message = next();
            let mut theirs = theirs;
            theirs.write_all(b"{\"receivers\":[],\"is_new\":true}\n").expect("sent");
            assert_eq!(first, next(), "it asked again");
            theirs.write_all(b"{\"receivers\":[{\"name\":\"a\",\"way\":\"exec\",\"delivered\":1,\"failed\":0,\"dropped\":0}]}\n").expect("sent");
            (first, next())
        });
        until(|| !lock(&reported).is_empty()).await;
        outbox.tell(line("an alert"));
        assert_eq!(reads.await.expect("read"), (Message::Orders(orders()), line("an alert")));
        assert_eq!(lock(&reported)[0].name, "a");
        until(|| lock(&reported)[0].problem.is_some()).await;
        outbox.tell(line("lost"));
        until(|| outbox.link.as_ref().is_some_and(|link| link.orders.is_closed())).await;
        assert!(matches!(outbox.order(orders(), &reported), Err(OutboxError::Ended)));
    }

    #[tokio::test]
    async fn a_process_that_does_not_read_delays_nobody() {
        let (ours, theirs) = StdStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("ours");
        let mut outbox = Outbox::new(Connection::Inherited(ours, Vec::new()));
        outbox.order(orders(), &Reported::default()).expect("it is there");
        let long = "a".repeat(10_000);
        for _ in 0..10 * WAITING {
            outbox.tell(line(&long));
            tokio::task::yield_now().await;
        }
        outbox.order(Orders::default(), &Reported::default()).expect("a commit is in force");
        drop(theirs);
        assert!(Outbox::default().order(orders(), &Reported::default()).is_err(), "there is none");
    }
}
