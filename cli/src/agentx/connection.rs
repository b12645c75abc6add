//! A session of AgentX with snmpd. Each call to it has a deadline.

use super::report::Reporter;
use super::source::Source;
use crate::{Failure, Outcome};
use gateway::snmp::agentx::{self, HEADER, Header, LONGEST, Message};
use gateway::snmp::mib::POSTERN;
use gateway::snmp::session::{Next, answer};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long objects are the answer.
const FRESH: Duration = Duration::from_secs(1);
/// How often changes are looked for although nobody asks.
const LOOK: Duration = Duration::from_secs(5);
/// How long snmpd waits for an answer, in seconds.
const SNMPD_WAITS: u8 = 5;
/// How long snmpd may take to read, or to send the rest of a message.
const DEADLINE: Duration = Duration::from_secs(5);
/// How often a read or a write returns although nothing has come or gone.
const TICK: Duration = Duration::from_secs(1);

/// snmpd does not want the session, or the objects.
#[derive(Debug)]
pub(super) struct Refused(u16);

impl Refused {
    /// RFC 2741 7.1.4: another session has registered the same objects.
    pub(super) fn is_duplicate(&self) -> bool {
        self.0 == 263
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.is_duplicate() { "another sub-agent has these objects, " } else { "" };
        write!(f, "it refuses: {why}error {}", self.0)
    }
}

impl std::error::Error for Refused {}

/// A session with snmpd.
pub(super) struct Connection {
    stream: UnixStream,
    /// What has come and is not answered: at most one message, and what was read with it.
    buffer: Vec<u8>,
    /// Since when a message is not whole.
    since: Option<Instant>,
    session: u32,
    packet: u32,
}

impl Connection {
    pub(super) fn open(master: &Path) -> Result<Self, Failure> {
        let stream = UnixStream::connect(master)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
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

    /// Sends a message. The deadline is for all of it: an snmpd that reads a few bytes at a time holds nothing up.
    fn send(&mut self, mut message: &[u8]) -> Outcome {
        let begun = Instant::now();
        while !message.is_empty() {
            match self.stream.write(message) {
                Ok(0) => return Err("it has closed the connection".into()),
                Ok(sent) => message = &message[sent..],
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if !message.is_empty() && begun.elapsed() > DEADLINE {
                return Err("it does not read what it is sent".into());
            }
        }
        Ok(())
    }

    /// Sends what snmpd must accept.
    fn exchange(&mut self, message: &[u8]) -> Result<Header, Failure> {
        self.send(message)?;
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            match self.receive()? {
                Some((header, Message::Response(0))) => return Ok(header),
                Some((_, Message::Response(error))) => return Err(Refused(error).into()),
                // Its content is not for the log.
                Some(_) => return Err("it answers with something else than a response".into()),
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
    pub(super) fn serve(&mut self, source: &mut Source, reporter: &mut Reporter) -> Outcome {
        loop {
            let received = self.receive()?;
            let is_asked = received.is_some();
            let traps = source.refresh(if is_asked { FRESH } else { LOOK });
            if let Some((header, message)) = received {
                match answer(&header, &message, source.mib()) {
                    Next::Send(bytes) => {
                        self.send(&bytes)?;
                        reporter.has_answered();
                    }
                    Next::Nothing => {}
                    Next::End => return Err("it has ended the session".into()),
                }
            }
            for (event, binds) in traps {
                let packet = self.number();
                self.send(&agentx::notify(self.session, packet, &event, &binds))?;
                reporter.has_told();
            }
            reporter.report();
        }
    }
}

/// Whether nothing has come within the time of a read.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_snmpd_that_reads_a_little_at_a_time_is_given_up() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_write_timeout(Some(TICK)).expect("a socket");
        ours.set_read_timeout(Some(TICK)).expect("a socket");
        let mut connection =
            Connection { stream: ours, buffer: Vec::new(), since: None, session: 0, packet: 0 };
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let reader = std::thread::spawn(move || {
            let pause = Duration::from_millis(200);
            while stopped.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                theirs.read_exact(&mut [0; 512]).expect("there is more");
            }
        });
        let refused = connection.send(&vec![0; 8 << 20]).expect_err("it takes too long").to_string();
        assert!(refused.contains("does not read"), "{refused}");
        drop(stop);
        reader.join().expect("it ends");
    }
}
