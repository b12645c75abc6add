//! `postern agentx`: the sub-agent of the machine's snmpd.
//!
//! ```text
//! snmpd ── Unix socket, AgentX ──> bounded buffer ──> session ──> answer, from objects at most a second old
//! daemon ── GET /v1/facts, /v1/health ──> objects, and what has changed ──> traps
//! ```
//! A process of its own without capabilities: what snmpd sends cannot touch the daemon, and one that hangs costs it nothing. Each call
//! to either has a deadline. If the connection ends, it is opened again after a pause.

use crate::place::API;
use crate::{Failure, Outcome, log, privilege};
use clap::Args;
use gateway::api::client::exchange;
use gateway::facts::model::Facts;
use gateway::health::model::Health;
use gateway::snmp::agentx::{self, HEADER, Header, LONGEST, Message};
use gateway::snmp::changes::{Changes, Trap};
use gateway::snmp::mib::{Mib, Numbers, POSTERN};
use gateway::snmp::session::{Next, answer};
use http_body_util::Full;
use hyper::Request;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// How long objects are the answer.
const FRESH: Duration = Duration::from_secs(1);
/// How often changes are looked for although nobody asks.
const LOOK: Duration = Duration::from_secs(5);
/// How long the daemon may take: snmpd waits for longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long snmpd waits for an answer, in seconds.
const SNMPD_WAITS: u8 = 5;
/// How long snmpd may take to read, or to send the rest of a message.
const DEADLINE: Duration = Duration::from_secs(5);
/// How often a read returns although nothing has come.
const TICK: Duration = Duration::from_secs(1);
/// The pause before snmpd is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// The sub-agent yields to the data path.
const NICE: i32 = 10;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The socket of the daemon's API
    #[arg(long, value_name = "SOCKET", default_value = API)]
    api: PathBuf,
    /// The socket of snmpd, whose file says `master agentx`
    #[arg(long, value_name = "SOCKET", default_value = "/var/agentx/master")]
    master: PathBuf,
}

/// Serves until the process is ended.
pub(crate) fn run(Arguments { api, master }: Arguments) -> Outcome {
    log::start()?;
    privilege::drop_all()?;
    rustix::process::setpriority_process(None, NICE)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut source = Source {
        api,
        runtime,
        numbers: Numbers::default(),
        changes: Changes::default(),
        mib: Mib::default(),
        read_at: None,
        is_silent: false,
    };
    let mut is_known = false;
    loop {
        match Connection::open(&master) {
            Ok(mut connection) => {
                tracing::info!("snmpd asks for what is below {}", dotted(POSTERN));
                is_known = false;
                let ended = connection.serve(&mut source);
                tracing::warn!(
                    "snmpd: {}; it is tried again",
                    ended.err().unwrap_or_else(|| "it has ended".into())
                );
            }
            Err(error) if !is_known => {
                is_known = true;
                let fix = "start snmpd with `master agentx` in its file, or name its socket: --master SOCKET";
                tracing::warn!("{}: {error}; it is tried again\n  fix: {fix}", master.display());
            }
            Err(_) => {}
        }
        std::thread::sleep(PAUSE);
    }
}

fn dotted(oid: &[u32]) -> String {
    oid.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

/// The objects, and where they come from.
struct Source {
    api: PathBuf,
    runtime: Runtime,
    numbers: Numbers,
    changes: Changes,
    mib: Mib,
    read_at: Option<Instant>,
    /// Whether the daemon did not answer the last time.
    is_silent: bool,
}

impl Source {
    /// Reads the facts, if they are older than that. What has changed since the last time comes as traps.
    fn refresh(&mut self, oldest: Duration) -> Vec<Trap> {
        if self.read_at.is_some_and(|at| at.elapsed() < oldest) {
            return Vec::new();
        }
        let read =
            self.ask::<Facts>("/v1/facts").and_then(|facts| Ok((facts, self.ask::<Health>("/v1/health")?)));
        self.read_at = Some(Instant::now());
        match read {
            Ok((facts, health)) => {
                self.is_silent = false;
                let numbered = self.numbers.assign(&facts.tunnels);
                self.mib = Mib::new(&facts, &health, &numbered);
                self.changes.look(&facts, &health, &numbered)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_silent, true) {
                    tracing::warn!("{}: {error}", self.api.display());
                }
                // What is not known is not answered: old counters would look as if nothing moved.
                self.mib = Mib::default();
                Vec::new()
            }
        }
    }

    fn ask<T: DeserializeOwned>(&self, place: &str) -> Result<T, Failure> {
        let request = Request::get(place).header("host", "postern").body(Full::default())?;
        let asked = async { timeout(PATIENCE, exchange(&self.api, request)).await };
        let answer = self.runtime.block_on(asked).map_err(|_| "the daemon does not answer")??;
        if !answer.status().is_success() {
            return Err(format!("the daemon answers {}", answer.status()).into());
        }
        Ok(serde_json::from_slice(answer.body())?)
    }
}

/// A session with snmpd.
struct Connection {
    stream: UnixStream,
    /// What has come and is not answered: at most one message, and what was read with it.
    buffer: Vec<u8>,
    /// Since when a message is not whole.
    since: Option<Instant>,
    session: u32,
    packet: u32,
}

impl Connection {
    fn open(master: &Path) -> Result<Self, Failure> {
        let stream = UnixStream::connect(master)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        let mut connection = Self { stream, buffer: Vec::new(), since: None, session: 0, packet: 0 };
        let packet = connection.number();
        let opened = connection.exchange(&agentx::open(packet, SNMPD_WAITS, "Postern VPN gateway"))?;
        connection.session = opened.session;
        let packet = connection.number();
        connection.exchange(&agentx::register(connection.session, packet, POSTERN))?;
        Ok(connection)
    }

    fn number(&mut self) -> u32 {
        self.packet = self.packet.wrapping_add(1);
        self.packet
    }

    /// Sends what snmpd must accept.
    fn exchange(&mut self, message: &[u8]) -> Result<Header, Failure> {
        self.stream.write_all(message)?;
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            match self.receive()? {
                Some((header, Message::Response(0))) => return Ok(header),
                Some((_, Message::Response(error))) => {
                    return Err(format!("it refuses: error {error}").into());
                }
                Some((_, other)) => return Err(format!("no response, but {other:?}").into()),
                None => {}
            }
        }
        Err("it does not answer".into())
    }

    /// The next message; none if there is none within a tick.
    fn receive(&mut self) -> Result<Option<(Header, Message)>, Failure> {
        if let Some(message) = self.take()? {
            return Ok(Some(message));
        }
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err("it has closed the connection".into()),
            Ok(read) => self.buffer.extend(&bytes[..read]),
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        let message = self.take()?;
        let is_partial = message.is_none() && !self.buffer.is_empty();
        self.since = is_partial.then(|| self.since.unwrap_or_else(Instant::now));
        if self.since.is_some_and(|since| since.elapsed() > DEADLINE) || self.buffer.len() > 2 * LONGEST {
            return Err("a message does not end".into());
        }
        Ok(message)
    }

    /// A message that has come whole.
    fn take(&mut self) -> Result<Option<(Header, Message)>, Failure> {
        let Some(header) = Header::parse(&self.buffer)? else { return Ok(None) };
        let end = HEADER + header.length;
        let Some(payload) = self.buffer.get(HEADER..end) else { return Ok(None) };
        let message = header.message(payload)?;
        self.buffer.drain(..end);
        Ok(Some((header, message)))
    }

    /// Answers until the connection ends.
    fn serve(&mut self, source: &mut Source) -> Outcome {
        loop {
            let received = self.receive()?;
            let is_asked = received.is_some();
            let traps = source.refresh(if is_asked { FRESH } else { LOOK });
            if let Some((header, message)) = received {
                match answer(&header, &message, &source.mib) {
                    Next::Send(bytes) => self.stream.write_all(&bytes)?,
                    Next::Nothing => {}
                    Next::End => return Err("it has ended the session".into()),
                }
            }
            for (event, binds) in traps {
                let packet = self.number();
                self.stream.write_all(&agentx::notify(self.session, packet, &event, &binds))?;
            }
        }
    }
}

/// Whether nothing has come within the time of a read.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
