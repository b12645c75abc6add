//! One client of the management interface: its password, its lines, and what it is told.

use super::board::{Board, Topic};
use super::help::HELP;
use super::line::{self, Command, LONGEST, Shown};
use super::{Ask, ClientKey, Signal};
use crate::openvpn::control_thread::{Decision, Victim};
use crate::openvpn::status::VERSION;
use config::openvpn::settings::AuthRetry;
use crypto::{Secret, hash};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

/// The time that a client has to read what is written, and to enter the password.
const PATIENCE: Duration = Duration::from_secs(30);
/// Attempts to enter the password, as in OpenVPN.
const ATTEMPTS: usize = 3;
/// The longest block of lines of `client-auth`.
const LONGEST_BLOCK: usize = 64 << 10;
/// The most lines of `test`.
const TEST: u32 = 10_000;
/// The end of a block of lines.
const END: &str = "END";

/// What the clients of a process share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) board: Arc<Board>,
    pub(super) asks: mpsc::Sender<Ask>,
    /// The hash of the password.
    pub(super) password: Option<Arc<Secret>>,
}

/// Why a connection ends.
pub(super) struct Over;

/// The settings of a client that is accepted, as far as they were read.
struct Block {
    key: ClientKey,
    text: String,
}

/// A client.
struct Connection<S> {
    stream: S,
    shared: Shared,
    /// Bytes of a line that has no end yet. They may be of a password; the capacity never grows.
    rest: Zeroizing<Vec<u8>>,
    block: Option<Block>,
    /// The interval of `bytecount`.
    counts: Option<Duration>,
}

/// Serves a client until it leaves. Returns whether it was one: with the password, if there is one.
pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Shared) -> bool {
    let board = Arc::clone(&shared.board);
    let rest = Zeroizing::new(Vec::with_capacity(LONGEST + 1024));
    let mut connection = Connection { stream, shared, rest, block: None, counts: None };
    if connection.enter().await.is_err() {
        return false;
    }
    tracing::info!("management: a client is connected");
    board.attach();
    let _ = connection.run().await;
    board.detach();
    tracing::info!("management: the client has left");
    true
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Asks for the password, if there is one.
    async fn enter(&mut self) -> Result<(), Over> {
        let Some(password) = self.shared.password.clone() else { return Ok(()) };
        for _ in 0..ATTEMPTS {
            self.write("ENTER PASSWORD:").await?;
            let line = timeout(PATIENCE, self.line()).await.map_err(|_| Over)??;
            // Hashes have one length, and are compared in constant time.
            if Secret::new(hash::sha256(&[&line])) == *password {
                return self.write("SUCCESS: password is correct\n").await;
            }
            // Guesses of a program take time.
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.write("ERROR: bad password\n").await?;
        }
        tracing::warn!("management: a client has not entered the password");
        Err(Over)
    }

    async fn run(&mut self) -> Result<(), Over> {
        self.write(">INFO:OpenVPN Management Interface Version 5 -- type 'help' for more info\n").await?;
        let board = Arc::clone(&self.shared.board);
        let mut counted = Instant::now();
        loop {
            let due = self.counts.map(|every| counted + every);
            tokio::select! {
                line = self.line() => self.take(&line?).await?,
                message = board.next() => {
                    let Ok(message) = message else {
                        tracing::warn!("management: the client is closed: it reads too slowly");
                        return Err(Over);
                    };
                    self.write(&message).await?;
                }
                () = until(due) => {
                    counted = Instant::now();
                    self.count().await?;
                }
            }
        }
    }

    /// The next line. What was read is kept if the caller does something else first.
    async fn line(&mut self) -> Result<Zeroizing<Vec<u8>>, Over> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let returns = self.rest[..end].iter().rev().take_while(|byte| **byte == b'\r').count();
                let line = Zeroizing::new(self.rest[..end - returns].to_vec());
                let left = self.rest.len() - end - 1;
                self.rest.copy_within(end + 1.., 0);
                self.rest[left..].fill(0);
                self.rest.truncate(left);
                return Ok(line);
            }
            if self.rest.len() > LONGEST {
                self.write("ERROR: the line is too long\n").await?;
                return Err(Over);
            }
            let mut bytes = Zeroizing::new([0; 1024]);
            match self.stream.read(&mut *bytes).await {
                Ok(count @ 1..) => self.rest.extend_from_slice(&bytes[..count]),
                _ => return Err(Over),
            }
        }
    }

    /// Writes lines, which end as in OpenVPN. A client that does not read is closed.
    async fn write(&mut self, text: &str) -> Result<(), Over> {
        match timeout(PATIENCE, self.stream.write_all(with_returns(text).as_bytes())).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Over),
        }
    }

    /// Takes a line: a command, or a line of a block.
    async fn take(&mut self, line: &[u8]) -> Result<(), Over> {
        let Ok(line) = std::str::from_utf8(line) else {
            self.write("ERROR: the line is not UTF-8\n").await?;
            // A client is not accepted with a part of its settings.
            return if self.block.is_some() { Err(Over) } else { Ok(()) };
        };
        let Some(block) = &mut self.block else { return self.command(line).await };
        if line.trim() != END {
            if block.text.len() + line.len() > LONGEST_BLOCK {
                self.write("ERROR: the block is too long\n").await?;
                return Err(Over);
            }
            block.text.push_str(line);
            block.text.push('\n');
            return Ok(());
        }
        let Some(Block { key, text }) = self.block.take() else { return Ok(()) };
        let answer = self.decide("client-auth", key, Decision::Accept(text)).await?;
        self.write(&answer).await
    }

    async fn command(&mut self, line: &str) -> Result<(), Over> {
        let answer = match line::parse(line) {
            Ok(command) => self.carry_out(command).await?,
            Err(reason) => format!("ERROR: {reason}\n"),
        };
        self.write(&answer).await
    }

    async fn carry_out(&mut self, command: Command) -> Result<String, Over> {
        let board = Arc::clone(&self.shared.board);
        Ok(match command {
            Command::Nothing | Command::Version(true) => String::new(),
            Command::Help => HELP.to_owned(),
            Command::Version(false) => format!("OpenVPN Version: {VERSION}\nManagement Version: 5\nEND\n"),
            Command::Pid => format!("SUCCESS: pid={}\n", std::process::id()),
            Command::Status(format) => {
                let status = self.ask(|reply| Ask::Status(format, reply)).await?;
                status.unwrap_or_else(|| unsupported("status"))
            }
            Command::State(wanted) => {
                shown("state", wanted, |count| board.show(Topic::State, wanted.follow, count))
            }
            Command::Log(wanted) => {
                shown("log", wanted, |count| board.show(Topic::Log, wanted.follow, count))
            }
            Command::Echo(wanted) => {
                shown("echo", wanted, |count| board.show(Topic::Echo, wanted.follow, count))
            }
            Command::ByteCount(seconds) => {
                self.counts = (seconds != 0).then(|| Duration::from_secs(seconds.into()));
                "SUCCESS: bytecount interval changed\n".to_owned()
            }
            Command::LoadStats => self.load().await?,
            Command::Hold => format!("SUCCESS: hold={}\n", u8::from(board.holds())),
            Command::SetHold(holds) => {
                board.set_hold(holds);
                format!("SUCCESS: hold flag set to {}\n", if holds { "ON" } else { "OFF" })
            }
            Command::Release => {
                self.send(Ask::Release).await?;
                "SUCCESS: hold release succeeded\n".to_owned()
            }
            Command::Signal(signal) => {
                // Before a signal that ends the process.
                self.write(&format!("SUCCESS: signal {} thrown\n", signal.name())).await?;
                self.send(Ask::Signal(signal)).await?;
                String::new()
            }
            Command::Verb(value) => {
                let verb = self.ask(|reply| Ask::Verb(value, reply)).await?;
                level("verb", value.is_some(), u32::from(verb))
            }
            Command::Mute(value) => {
                level("mute", value.is_some(), self.ask(|reply| Ask::Mute(value, reply)).await?)
            }
            Command::EnvironmentFilter(level) => format!("SUCCESS: env_filter_level={level}\n"),
            Command::Test(lines) => {
                (0..lines.min(TEST)).map(|line| format!("[{line}] a line of the command test\n")).collect()
            }
            Command::Exit => return Err(Over),
            other => return self.about_sessions(other).await,
        })
    }

    /// Commands about clients of a server, and about the session of a client.
    async fn about_sessions(&mut self, command: Command) -> Result<String, Over> {
        let board = Arc::clone(&self.shared.board);
        Ok(match command {
            Command::Kill(victim, told) => {
                let name = if told.is_some() { "client-kill" } else { "kill" };
                let told = told.unwrap_or_else(|| "RESTART".to_owned());
                let killed = self.ask(|reply| Ask::Kill(victim.clone(), told, reply)).await?;
                killed.map_or_else(|| unsupported(name), |count| killed_text(&victim, count))
            }
            Command::ClientAuth(key) => {
                self.block = Some(Block { key, text: String::new() });
                String::new()
            }
            Command::ClientAuthAlone(key) => {
                self.decide("client-auth", key, Decision::Accept(String::new())).await?
            }
            Command::ClientDeny(key, reason, told) => {
                let decision = Decision::Refuse { reason, told: told.unwrap_or_default() };
                self.decide("client-deny", key, decision).await?
            }
            Command::ClientPending(key, text, seconds) => {
                let wait = Duration::from_secs(seconds.into());
                let is_done = self.ask(|reply| Ask::Pending(key, text, wait, reply)).await?;
                done("client-pending-auth", is_done, "client-pending-auth command succeeded")
            }
            Command::Respond(text) => {
                let is_done = self.ask(|reply| Ask::Respond(text, reply)).await?;
                done("cr-response", is_done, "command succeeded")
            }
            Command::AuthRetry(value) => {
                let retry = self.ask(|reply| Ask::AuthRetry(value, reply)).await?;
                match value {
                    Some(_) => "SUCCESS: auth-retry parameter changed\n".to_owned(),
                    None => format!("SUCCESS: auth-retry={}\n", retry_name(retry)),
                }
            }
            Command::Forget => {
                self.send(Ask::Forget).await?;
                "SUCCESS: Passwords were forgotten\n".to_owned()
            }
            Command::User(kind, user) => {
                entered(&kind, "username", board.answer(|query| query.take_user(&kind, &user)))
            }
            Command::Password(kind, password) => {
                entered(&kind, "password", board.answer(|query| query.take_password(&kind, &password)))
            }
            Command::Remote(choice) => {
                let is_done = self.ask(|reply| Ask::Remote(choice, reply)).await?;
                done("remote", is_done, "remote command succeeded")
            }
            Command::RemoteCount => match self.ask(Ask::Remotes).await? {
                Some(remotes) => format!("{}\nEND\n", remotes.len()),
                None => unsupported("remote-entry-count"),
            },
            Command::RemoteEntries(first, end) => match self.ask(Ask::Remotes).await? {
                Some(remotes) => entries(&remotes, first, end),
                None => unsupported("remote-entry-get"),
            },
            _ => String::new(),
        })
    }

    async fn decide(&mut self, name: &str, key: ClientKey, decision: Decision) -> Result<String, Over> {
        let is_done = self.ask(|reply| Ask::Decide(key, decision, reply)).await?;
        Ok(done(name, is_done, &format!("{name} command succeeded")))
    }

    async fn load(&mut self) -> Result<String, Over> {
        let (clients, (received, sent)) = match self.ask(Ask::Sessions).await? {
            Some((it, is_server)) => (if is_server { it.sessions.len() } else { 0 }, it.bytes()),
            None => (0, (0, 0)),
        };
        Ok(format!("SUCCESS: nclients={clients},bytesin={received},bytesout={sent}\n"))
    }

    /// The byte counts that `bytecount` asks for.
    async fn count(&mut self) -> Result<(), Over> {
        let Some((snapshot, is_server)) = self.ask(Ask::Sessions).await? else { return Ok(()) };
        if !is_server {
            let (received, sent) = snapshot.bytes();
            return self.write(&format!(">BYTECOUNT:{received},{sent}\n")).await;
        }
        let lines = snapshot
            .sessions
            .iter()
            .map(|it| format!(">BYTECOUNT_CLI:{},{},{}\n", it.client_id, it.received_bytes, it.sent_bytes));
        let text: String = lines.collect();
        self.write(&text).await
    }

    async fn send(&self, ask: Ask) -> Result<(), Over> {
        // The loop is gone when the process ends.
        self.shared.asks.send(ask).await.map_err(|_| Over)
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Over> {
        let (reply, answer) = oneshot::channel();
        self.send(ask(reply)).await?;
        answer.await.map_err(|_| Over)
    }
}

/// Lines with the ends of OpenVPN. One may be a password: a string that grows leaves copies behind.
fn with_returns(text: &str) -> Zeroizing<String> {
    let lines = text.matches('\n').count();
    let mut own = Zeroizing::new(String::with_capacity(text.len() + lines));
    for line in text.split_inclusive('\n') {
        match line.strip_suffix('\n') {
            Some(line) => {
                own.push_str(line);
                own.push_str("\r\n");
            }
            None => own.push_str(line),
        }
    }
    own
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn unsupported(name: &str) -> String {
    format!("ERROR: The '{name}' command is not supported by the current daemon mode\n")
}

/// The answer to a command that may have come too late.
fn done(name: &str, is_done: Option<bool>, success: &str) -> String {
    match is_done {
        None => unsupported(name),
        Some(false) => format!("ERROR: {name} command failed\n"),
        Some(true) => format!("SUCCESS: {success}\n"),
    }
}

fn entered(kind: &str, what: &str, is_asked: bool) -> String {
    if is_asked {
        format!("SUCCESS: '{kind}' {what} entered, but not yet verified\n")
    } else {
        format!("ERROR: no {what} is currently needed at this time\n")
    }
}

/// The answer to `state`, `log` and `echo`. The history is read and followed in one step.
fn shown(name: &str, wanted: Shown, show: impl FnOnce(usize) -> String) -> String {
    let history = show(wanted.count.unwrap_or(0));
    let is_set = |on: bool| {
        format!("SUCCESS: real-time {name} notification set to {}\n", if on { "ON" } else { "OFF" })
    };
    let mut text = wanted.follow.map(is_set).unwrap_or_default();
    if wanted.count.is_some() {
        text += &history;
        text += "END\n";
    }
    text
}

fn level(name: &str, is_set: bool, value: u32) -> String {
    if is_set { format!("SUCCESS: {name} level changed\n") } else { format!("SUCCESS: {name}={value}\n") }
}

fn killed_text(victim: &Victim, killed: usize) -> String {
    match (killed, victim) {
        (0, Victim::Name(name)) => format!("ERROR: common name '{name}' not found\n"),
        (0, Victim::Address { socket, .. }) => format!("ERROR: client at address {socket} not found\n"),
        (0, Victim::Client(_)) => "ERROR: client-kill command failed\n".to_owned(),
        (count, Victim::Name(name)) => {
            format!("SUCCESS: common name '{name}' found, {count} client(s) killed\n")
        }
        (count, Victim::Address { socket, .. }) => {
            format!("SUCCESS: {count} client(s) at address {socket} killed\n")
        }
        (_, Victim::Client(_)) => "SUCCESS: client-kill command succeeded\n".to_owned(),
    }
}

fn entries(remotes: &[String], first: usize, end: usize) -> String {
    if first >= remotes.len() {
        return "ERROR: remote-entry-get: there is no such entry\n".to_owned();
    }
    let wanted = remotes.iter().enumerate().take(end).skip(first);
    let lines: String = wanted.map(|(index, remote)| format!("{index},{remote},enabled\n")).collect();
    lines + "END\n"
}

fn retry_name(retry: AuthRetry) -> &'static str {
    match retry {
        AuthRetry::None => "none",
        AuthRetry::NoInteract => "nointeract",
        AuthRetry::Interact => "interact",
    }
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Hangup => "SIGHUP",
            Self::Terminate => "SIGTERM",
            Self::User1 => "SIGUSR1",
            Self::User2 => "SIGUSR2",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_copy_of_what_is_written_is_left_behind() {
        for (text, written) in
            [("a\n\nlong enough to grow\n", "a\r\n\r\nlong enough to grow\r\n"), ("x:", "x:"), ("", "")]
        {
            let own = with_returns(text);
            assert_eq!((own.as_str(), own.capacity()), (written, written.len()));
        }
    }
}
