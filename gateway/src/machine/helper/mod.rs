//! The helper: a process of root that does what the daemon has no right to.
//!
//! ```text
//! socket ──> Request::parse ──> check: what would not work
//!                         └───> apply: lock ──> files and values ──> verified ──> the program is told; or all goes back
//! ```
//!
//! What a request can name is in the configuration's own types, and each part has its files. A daemon that was taken over can
//! therefore do no more than its configuration can: log to another machine, let SNMP be asked. What runs as root by the task
//! scheduler must be in a folder that the administrator has chosen, and be root's.

mod dnsmasq;
mod forwarding;
mod performance;
mod place;
pub mod render;
mod service;
mod snmp;
mod syslog;
mod tasks;
mod values;

pub use place::Place;

use super::model::Finding;
use super::request::{Answer, LONGEST, Owner, Request, RequestError, Verb};
use config::settings::machine::Part;
use place::{Change, Content, PlaceError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use values::Value;

/// What the administrator allows.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The folders in which tasks have their programs; none where no tasks are allowed.
    pub scripts: Vec<PathBuf>,
    /// The file whose tasks alone are run, with the same arguments at the same times; none for any task.
    pub tasks_from: Option<PathBuf>,
    /// The group that the sub-agent of snmpd is in: the daemon's.
    pub group: u32,
}

/// The helper.
pub struct Helper {
    place: Place,
    rules: Rules,
    /// Whose files it writes. It is not taken from a request: a daemon that was taken over would name another one.
    owner: Owner,
}

/// What is to be there for a part, and how it comes into force.
#[derive(Default)]
struct Wanted {
    files: Vec<Content>,
    /// All files that the part may have: what is not wanted goes.
    known: Vec<String>,
    /// What says whether the files are right: a program and its arguments.
    verify: Option<(&'static str, Vec<String>)>,
    /// What the log is to have of it, whatever the daemon logs.
    noted: Vec<String>,
}

impl Wanted {
    fn paths(&self) -> Vec<String> {
        self.files.iter().map(|content| content.path.clone()).collect()
    }
}

impl Helper {
    /// A helper for a machine, and for the daemon of one configuration file.
    pub fn new(place: Place, rules: Rules, owner: Owner) -> Self {
        Self { place, rules, owner }
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
        match Request::parse(line).and_then(|request| self.accept(request)) {
            Ok(request) if request.verb == Verb::Check => {
                Answer { findings: self.check(&request), ..Answer::default() }
            }
            Ok(request) => self.apply(&request).unwrap_or_else(|error| Answer {
                refused: Some(error.to_string()),
                files: self.files(request.part),
                ..Answer::default()
            }),
            Err(error) => Answer { refused: Some(error.to_string()), ..Answer::default() },
        }
    }

    fn accept(&self, request: Request) -> Result<Request, RequestError> {
        if request.owner == self.owner {
            return Ok(request);
        }
        Err(RequestError::OtherOwner { own: self.owner.clone(), asked: request.owner })
    }

    fn check(&self, request: &Request) -> Vec<Finding> {
        let machine = &request.machine;
        if machine.is_empty() {
            return Vec::new();
        }
        match request.part {
            Part::Performance | Part::Ip | Part::Ipv6 => Vec::new(),
            Part::Tasks => tasks::check(&self.place, &self.rules, &machine.tasks),
            Part::Syslog => machine.syslog.iter().flat_map(|it| syslog::check(&self.place, it)).collect(),
            Part::Snmp => snmp::check(&self.place),
            Part::DhcpServer | Part::DnsForwarding => dnsmasq::check(&self.place, request.part),
        }
    }

    fn apply(&self, request: &Request) -> Result<Answer, PlaceError> {
        let (place, machine) = (&self.place, &request.machine);
        let _lock = place.lock()?;
        let wanted = match request.part {
            Part::Performance => {
                let values = machine.performance.map(|profile| performance::values(place, profile));
                return self.set(request.part, performance::STATE, values.unwrap_or_default());
            }
            Part::Ip => {
                let values = forwarding::values(place, false, machine.forwards_v4);
                return self.set(request.part, forwarding::STATE_V4, values);
            }
            Part::Ipv6 => {
                let values = forwarding::values(place, true, machine.forwards_v6);
                return self.set(request.part, forwarding::STATE_V6, values);
            }
            Part::Tasks => tasks::wanted(place, &self.rules, &machine.tasks, self.owner.as_str()),
            Part::Syslog => syslog::wanted(place, machine.syslog.as_ref()),
            Part::Snmp => snmp::wanted(place, machine.snmp.as_deref(), self.rules.group),
            Part::DhcpServer => {
                dnsmasq::wanted(place, request.part, machine.dhcp.as_deref().and_then(render::dhcp))
            }
            Part::DnsForwarding => {
                dnsmasq::wanted(place, request.part, machine.dns.as_deref().map(render::dns))
            }
        };
        place.check_owners(&wanted.files, self.owner.as_str())?;
        self.change(request.part, &wanted)?;
        let findings = self.check(request);
        Ok(Answer { findings, files: self.files(request.part), ..Answer::default() })
    }

    /// Makes values of the kernel what they are to be.
    fn set(&self, part: Part, state: &str, values: Vec<Value>) -> Result<Answer, PlaceError> {
        let settings = values::apply(&self.place, self.owner.as_str(), state, values)?;
        Ok(Answer { settings, files: self.files(part), ..Answer::default() })
    }

    /// Makes the files of a part what they are to be, and has the program read them; or leaves all as it was.
    fn change(&self, part: Part, wanted: &Wanted) -> Result<(), PlaceError> {
        let (place, owner) = (&self.place, self.owner.as_str());
        let before = self.files(part);
        // What systemd still runs of what goes is ended while its file is there.
        let ended = match part {
            Part::Tasks => tasks::end_others(place, &before, wanted),
            Part::DhcpServer | Part::DnsForwarding if wanted.files.is_empty() => dnsmasq::end(place, part),
            _ => Ok(()),
        };
        match ended.and_then(|()| place.replace(owner, &wanted.files, &wanted.known)) {
            Ok(change) if change.is_empty() => Ok(()),
            Ok(change) => {
                self.bring_into_force(part, wanted, change, &before)?;
                wanted.noted.iter().for_each(|what| tracing::info!("{owner}: {what}"));
                Ok(())
            }
            Err(error) => {
                if part == Part::Tasks {
                    self.go_back(part, &before);
                }
                Err(error)
            }
        }
    }

    /// Has the program read its files, if they are right; puts them back if they are not, or if it does not want them.
    fn bring_into_force(
        &self,
        part: Part,
        wanted: &Wanted,
        change: Change,
        before: &[String],
    ) -> Result<(), PlaceError> {
        let place = &self.place;
        if let Some((program, arguments)) = &wanted.verify {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            if let Err(error) = place.run(program, &arguments) {
                change.undo();
                return Err(error);
            }
        }
        let files = wanted.paths();
        self.tell(part, &files, !files.is_empty()).inspect_err(|_| {
            if part == Part::Tasks {
                tasks::end_new(place, before, &files);
            }
            change.undo();
            self.go_back(part, before);
        })
    }

    /// Has the program read its files. One that `is_wanted` is started, too.
    fn tell(&self, part: Part, files: &[String], is_wanted: bool) -> Result<(), PlaceError> {
        match part {
            Part::Tasks => tasks::tell(&self.place, files),
            Part::Syslog => syslog::tell(&self.place, is_wanted),
            Part::Snmp => snmp::tell(&self.place, is_wanted),
            Part::DhcpServer | Part::DnsForwarding => dnsmasq::tell(&self.place, part, is_wanted),
            // No program reads them.
            Part::Performance | Part::Ip | Part::Ipv6 => Ok(()),
        }
    }

    /// Reloads the program with its former files. The refused ones may have ended it.
    fn go_back(&self, part: Part, before: &[String]) {
        if let Err(error) = self.tell(part, before, true) {
            tracing::error!("{part}: going back: {error}");
        }
    }

    /// The files of a part that are there.
    fn files(&self, part: Part) -> Vec<String> {
        let owner = self.owner.as_str();
        let known = match part {
            Part::Performance => vec![performance::STATE.to_owned()],
            Part::Ip => vec![forwarding::STATE_V4.to_owned()],
            Part::Ipv6 => vec![forwarding::STATE_V6.to_owned()],
            Part::Tasks => tasks::known(&self.place, owner),
            Part::Syslog => syslog::known(),
            Part::Snmp => snmp::known(),
            Part::DhcpServer | Part::DnsForwarding => dnsmasq::known(part),
        };
        known.into_iter().filter(|path| self.place.is_owned(path, owner)).collect()
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
