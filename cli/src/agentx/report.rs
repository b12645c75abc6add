//! What the daemon hears of its sub-agent, once a second at most.

use crate::output::now;
use gateway::snmp::REPORTED;
use gateway::snmp::model::{Problem, SubAgent};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the same is not sent twice.
const OFTEN: Duration = Duration::from_secs(1);

/// Reports the state of the sub-agent to the daemon.
pub(super) struct Reporter {
    /// None for a sub-agent that was started by hand.
    daemon: Option<UnixStream>,
    report: SubAgent,
    sent: Option<(Instant, SubAgent)>,
}

impl Reporter {
    pub(super) fn new(daemon: Option<UnixStream>, master: &Path) -> Self {
        let report = SubAgent { socket: master.display().to_string(), started: now(), ..SubAgent::default() };
        Self { daemon, report, sent: None }
    }

    pub(super) fn is_connected(&mut self) {
        self.report.connected = Some(now());
        self.report();
    }

    /// There is no connection, or none any more.
    pub(super) fn has_failed(&mut self, why: String, fix: &str) {
        self.report.connected = None;
        self.report.problem = Some(Problem { at: now(), why, fix: fix.to_owned() });
        self.report();
    }

    pub(super) fn has_answered(&mut self) {
        self.report.requests += 1;
    }

    pub(super) fn has_told(&mut self) {
        self.report.traps += 1;
    }

    /// Sends what has changed, or that the sub-agent still runs.
    pub(super) fn report(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        let is_due = self.sent.as_ref().is_none_or(|(at, sent)| {
            let has_changed = sent.connected != self.report.connected;
            let waits = if *sent == self.report { REPORTED } else { OFTEN };
            has_changed || at.elapsed() >= waits
        });
        if is_due && let Ok(line) = serde_json::to_string(&self.report) {
            // The next one comes; a daemon that has ended ends this process, too.
            let _ = daemon.write_all(format!("{line}\n").as_bytes());
            self.sent = Some((Instant::now(), self.report.clone()));
        }
    }
}
