//! The daemon's end of the socket to the sub-agent of snmpd. Nothing here waits for it.
//!
//! ```text
//! service snmp ──> on, off: one byte ══ socket ══> supervisor ──> sub-agent: cli/src/agentx/
//! GET /v1/service/snmp <── the latest report, a line of JSON ══════════┘
//! ```

use super::model::{Snmp, SubAgent as Report};
use crate::helper::Connection;
use crate::machine::model::Finding;
use axum::Json;
use axum::extract::State;
use std::io::{self, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;

/// The order that the sub-agent is to run. It is one byte, so that the last one that was read is the one that counts.
pub const ON: u8 = b'1';
/// The order that it is to end.
pub const OFF: u8 = b'0';
/// How often the sub-agent reports at least, if snmpd answers.
pub const REPORTED: Duration = Duration::from_secs(5);
/// How old the latest report of a sub-agent that runs may be: it waits for an snmpd that hangs.
const FRESH: Duration = Duration::from_secs(15);
/// Bytes of a report.
const LONGEST: u64 = 16 << 10;

/// The sub-agent, as the daemon sees it.
#[derive(Default)]
pub struct SubAgent {
    ordered: Mutex<Ordered>,
    reported: Arc<Mutex<Reported>>,
}

/// What the sub-agent is to do.
#[derive(Default)]
struct Ordered {
    connection: Connection,
    is_wanted: bool,
    /// Whether reports are read.
    is_read: bool,
    findings: Vec<Finding>,
}

/// What it has reported.
#[derive(Default)]
struct Reported {
    latest: Option<(Instant, Report)>,
    /// Whether its supervisor has ended: nothing starts it again.
    has_ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SubAgent {
    /// Has the process at the other end of a connection be the sub-agent.
    pub fn connect(&self, connection: Connection) {
        lock(&self.ordered).connection = connection;
    }

    /// Has the sub-agent run, or end. `findings` is what does not work of snmpd's own settings.
    pub(crate) fn order(&self, is_wanted: bool, findings: Vec<Finding>) {
        let mut ordered = lock(&self.ordered);
        ordered.findings = findings;
        if ordered.is_wanted == is_wanted {
            return;
        }
        ordered.is_wanted = is_wanted;
        if let Err(error) = ordered.send(&self.reported) {
            // One that did not hear that it is to end must not go on.
            ordered.give_up();
            lock(&self.reported).has_ended = true;
            tracing::error!("the sub-agent of snmpd cannot be reached: {error}\n  fix: restart the daemon");
        }
    }

    /// What is known now.
    pub(crate) fn show(&self) -> Snmp {
        let ordered = lock(&self.ordered);
        let reported = lock(&self.reported);
        let mut findings = ordered.findings.clone();
        if ordered.is_wanted && reported.has_ended {
            findings.push(Finding {
                path: "service snmp".to_owned(),
                why: "the processes of the sub-agent have ended".to_owned(),
                fix: "restart the daemon".to_owned(),
                is_refused: false,
            });
        }
        let latest = reported.latest.as_ref().filter(|_| ordered.is_wanted);
        Snmp {
            is_configured: ordered.is_wanted,
            is_running: latest.is_some_and(|(at, _)| at.elapsed() < FRESH) && !reported.has_ended,
            agent: latest.map(|(_, report)| report.clone()),
            findings,
        }
    }
}

impl Ordered {
    /// Sends the order. A few bytes always fit, unless nobody has read for very long.
    fn send(&mut self, reported: &Arc<Mutex<Reported>>) -> io::Result<()> {
        let Connection::Inherited(stream) = &self.connection else { return Ok(()) };
        if self.is_wanted && !self.is_read {
            let stream = UnixStream::from_std(stream.try_clone()?)?;
            tokio::spawn(read(stream, Arc::clone(reported)));
            self.is_read = true;
        }
        lock(reported).latest = None;
        let mut stream = stream;
        stream.write_all(&[if self.is_wanted { ON } else { OFF }])
    }

    fn give_up(&self) {
        if let Connection::Inherited(stream) = &self.connection {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Takes reports, until the sub-agent and its supervisor have ended.
async fn read(stream: UnixStream, reported: Arc<Mutex<Reported>>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LONGEST).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|bytes| bytes > 0) {
            lock(&reported).has_ended = true;
            return;
        }
        match serde_json::from_slice(&line) {
            Ok(report) => lock(&reported).latest = Some((Instant::now(), report)),
            // One that was started again may send the rest of a line.
            Err(error) => tracing::debug!("a report of the sub-agent cannot be read: {error}"),
        }
    }
}

/// `GET /v1/service/snmp`
pub(crate) async fn snmp(State(shown): State<crate::api::Shown>) -> Json<Snmp> {
    Json(shown.snmp().show())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream as StdStream;

    async fn until(is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it does not come");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn connected() -> (SubAgent, StdStream) {
        let (ours, theirs) = StdStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("ours");
        let agent = SubAgent::default();
        agent.connect(Connection::Inherited(ours));
        (agent, theirs)
    }

    #[tokio::test]
    async fn orders_arrive_once_and_the_latest_report_is_shown() {
        let (agent, mut theirs) = connected();
        agent.order(false, Vec::new());
        agent.order(true, Vec::new());
        agent.order(true, vec![Finding { why: "it is not installed".to_owned(), ..Finding::default() }]);
        let shown = agent.show();
        assert!(shown.is_configured && !shown.is_running && shown.findings.len() == 1);
        let report = Report { requests: 3, ..Report::default() };
        let line = serde_json::to_string(&report).expect("JSON");
        theirs.write_all(format!("half a line\n{line}\n").as_bytes()).expect("sent");
        until(|| agent.show().agent == Some(report.clone())).await;
        assert!(agent.show().is_running);
        agent.order(false, Vec::new());
        let mut orders = [0; 8];
        assert_eq!(theirs.read(&mut orders).expect("read"), 2);
        assert_eq!(orders[..2], [ON, OFF]);
        assert_eq!(agent.show(), Snmp::default(), "nothing is left of it");
    }

    #[tokio::test]
    async fn the_end_of_the_processes_is_shown_with_what_to_do() {
        let (agent, theirs) = connected();
        agent.order(true, Vec::new());
        drop(theirs);
        until(|| !agent.show().findings.is_empty()).await;
        let shown = agent.show();
        assert!(!shown.is_running && shown.findings[0].fix == "restart the daemon");
        agent.order(false, Vec::new());
        assert!(agent.show().findings.is_empty());
    }

    #[tokio::test]
    async fn a_sub_agent_that_never_reads_delays_nobody_and_is_given_up() {
        let (agent, mut theirs) = connected();
        for number in 0..10_000 {
            agent.order(number % 2 == 0, Vec::new());
        }
        let mut orders = Vec::new();
        theirs.read_to_end(&mut orders).expect("its end comes");
        assert!(orders.len() < 10_000);
        agent.order(true, Vec::new());
        assert!(!agent.show().findings.is_empty());
    }
}
