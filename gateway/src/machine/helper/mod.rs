//! The helper: a process of root that does what the daemon has no right to.
//!
//! ```text
//! socket ──> Request::parse ──> check: what would not work
//!                         └───> apply: files and values ──> verified ──> the program is told; or all goes back
//! ```
//!
//! What a request can name is in the configuration's own types, and each part has its files. A daemon that was taken over can
//! therefore do no more than its configuration can: log to another machine, let SNMP be asked. What runs as root by the task
//! scheduler must be in a folder that the administrator has chosen, and be root's.

mod performance;
mod place;
pub mod render;
mod service;
mod snmp;
mod syslog;
mod tasks;

pub use place::Place;

use super::model::Finding;
use super::request::{Answer, LONGEST, Request, Verb};
use config::settings::machine::Part;
use place::{Change, Content, PlaceError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;

/// What the administrator allows.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The folders in which tasks have their programs; none where no tasks are allowed.
    pub scripts: Vec<PathBuf>,
}

/// The helper.
pub struct Helper {
    place: Place,
    rules: Rules,
}

/// What is to be there for a part, and how it comes into force.
#[derive(Default)]
struct Wanted {
    files: Vec<Content>,
    /// All files that the part may have: what is not wanted goes.
    known: Vec<String>,
    /// What says whether the files are right: a program and its arguments.
    verify: Option<(&'static str, Vec<String>)>,
}

impl Helper {
    /// A helper for a machine.
    pub fn new(place: Place, rules: Rules) -> Self {
        Self { place, rules }
    }

    /// Answers requests until the other end is closed.
    pub fn serve(&self, requests: impl Read, mut answers: impl Write) -> io::Result<()> {
        let mut requests = BufReader::new(requests);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut requests).take(LONGEST as u64 + 1).read_until(b'\n', &mut line)?;
            // An end, or something that is no request of ours.
            if read == 0 || line.last() != Some(&b'\n') {
                return Ok(());
            }
            let mut answer = serde_json::to_vec(&self.answer(&line))?;
            answer.push(b'\n');
            answers.write_all(&answer)?;
        }
    }

    /// Answers one request.
    pub fn answer(&self, line: &[u8]) -> Answer {
        match Request::parse(line) {
            Ok(request) if request.verb == Verb::Check => {
                Answer { findings: self.check(&request), ..Answer::default() }
            }
            Ok(request) => self.apply(&request).unwrap_or_else(|error| Answer {
                refused: Some(error.to_string()),
                files: self.files(&request),
                ..Answer::default()
            }),
            Err(error) => Answer { refused: Some(error.to_string()), ..Answer::default() },
        }
    }

    fn check(&self, request: &Request) -> Vec<Finding> {
        let machine = &request.machine;
        if machine.is_empty() {
            return Vec::new();
        }
        match request.part {
            Part::Performance => Vec::new(),
            Part::Tasks => tasks::check(&self.place, &self.rules, &machine.tasks),
            Part::Syslog => machine.syslog.iter().flat_map(|it| syslog::check(&self.place, it)).collect(),
            Part::Snmp => snmp::check(&self.place),
        }
    }

    fn apply(&self, request: &Request) -> Result<Answer, PlaceError> {
        let (place, machine) = (&self.place, &request.machine);
        if request.part == Part::Performance {
            let settings = performance::apply(place, &request.owner, machine.performance)?;
            return Ok(Answer { settings, files: self.files(request), ..Answer::default() });
        }
        let wanted = match request.part {
            Part::Tasks => tasks::wanted(place, &self.rules, &machine.tasks, &request.owner),
            Part::Syslog => syslog::wanted(place, machine.syslog.as_ref()),
            Part::Snmp | Part::Performance => snmp::wanted(place, machine.snmp.as_ref()),
        };
        // What systemd still runs of what goes is ended while its file is there.
        if request.part == Part::Tasks {
            tasks::end_others(place, &wanted, &request.owner)?;
        }
        let change = place.replace(&request.owner, &wanted.files, &wanted.known)?;
        if !change.is_empty() {
            self.bring_into_force(request.part, &wanted, change)?;
        }
        let findings = self.check(request);
        Ok(Answer { findings, files: self.files(request), ..Answer::default() })
    }

    /// Has the program read its files, if they are right; puts them back if they are not, or if it does not want them.
    fn bring_into_force(&self, part: Part, wanted: &Wanted, change: Change) -> Result<(), PlaceError> {
        let place = &self.place;
        if let Some((program, arguments)) = &wanted.verify {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            if let Err(error) = place.run(program, &arguments) {
                change.undo();
                return Err(error);
            }
        }
        let tell = |wanted: &Wanted| match part {
            Part::Tasks => tasks::tell(place, wanted),
            Part::Syslog => syslog::tell(place, wanted),
            Part::Snmp | Part::Performance => snmp::tell(place, wanted),
        };
        tell(wanted).inspect_err(|_| {
            change.undo();
            if let Err(error) = tell(&Wanted::default()) {
                tracing::error!("going back: {error}");
            }
        })
    }

    /// The files of a part that are there.
    fn files(&self, request: &Request) -> Vec<String> {
        let known = match request.part {
            Part::Performance => vec![performance::STATE.to_owned()],
            Part::Tasks => tasks::known(&self.place, &request.owner),
            Part::Syslog => syslog::known(),
            Part::Snmp => snmp::known(),
        };
        known.into_iter().filter(|path| self.place.is_owned(path, &request.owner)).collect()
    }
}

/// Something of a part is missing on the machine; it is tried again.
fn missing(path: impl ToString, why: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { path: path.to_string(), why: why.into(), fix: fix.into(), is_refused: false }
}

/// Something of a part is not allowed.
fn refused(path: impl ToString, why: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { is_refused: true, ..missing(path, why, fix) }
}

#[cfg(test)]
mod tests;
