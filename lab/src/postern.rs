//! `postern run` in a lab: its configuration file, its API socket and its log.

use crate::{Lab, Outcome, Process, directory, wait_until};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A gateway with a configuration file. Its files go with it; its process ends with the lab.
pub struct Postern {
    /// The configuration file.
    pub file: PathBuf,
    /// The socket of its API.
    pub socket: PathBuf,
    /// The folder of its revisions.
    pub state: PathBuf,
    /// What it logs, of all its starts.
    pub log: PathBuf,
    /// The process that was started last.
    pub process: Option<Process>,
    namespace: String,
    program: PathBuf,
    folder: TempDir,
}

impl Postern {
    /// A gateway that will run in a namespace.
    pub fn new(lab: &Lab, namespace: &str, program: impl Into<PathBuf>) -> Outcome<Self> {
        let folder = directory(lab, namespace)?;
        let (file, log) = (folder.path().join("conf"), folder.path().join("log"));
        let state = folder.path().join("state");
        File::create(&log)?;
        Ok(Self {
            socket: format!("/run/postern/{}.sock", lab.interface(namespace)).into(),
            namespace: namespace.to_owned(),
            program: program.into(),
            process: None,
            file,
            log,
            state,
            folder,
        })
    }

    /// Writes its configuration.
    pub fn write(&self, text: &str) {
        std::fs::write(&self.file, text).expect("its folder is there");
    }

    /// `postern run` with its file and its socket.
    pub fn command(&self, lab: &Lab) -> Command {
        self.command_of(lab, &["run"])
    }

    /// The same with other words in place of `run`, or more of them.
    pub fn command_of(&self, lab: &Lab, verb: &[&str]) -> Command {
        let mut command = lab.command(&self.namespace, &self.program);
        command.args(verb).arg("--config").arg(&self.file).arg("--api").arg(&self.socket);
        // A daemon that measures what encryption costs keeps no revisions.
        if verb.first() == Some(&"run") {
            command.arg("--state").arg(&self.state);
        }
        command
    }

    /// Starts a command, with this level of its log.
    pub fn spawn(&mut self, lab: &mut Lab, mut command: Command, level: &str) -> Outcome<Process> {
        let log = File::options().append(true).open(&self.log)?;
        let process = lab.start(command.env("LOG_LEVEL", level).stderr(log).stdout(Stdio::null()))?;
        self.process = Some(process);
        Ok(process)
    }

    /// Starts it, and waits until its API is there.
    pub fn start(&mut self, lab: &mut Lab, level: &str, patience: Duration) -> Outcome<Process> {
        self.start_with(lab, &["run"], level, patience)
    }

    /// The same with other words in place of `run`.
    pub fn start_with(
        &mut self,
        lab: &mut Lab,
        verb: &[&str],
        level: &str,
        patience: Duration,
    ) -> Outcome<Process> {
        // One that was killed has left its socket behind.
        let made = |socket: &Path| std::fs::metadata(socket).and_then(|it| it.modified()).ok();
        let left = made(&self.socket);
        let command = self.command_of(lab, verb);
        let process = self.spawn(lab, command, level)?;
        let is_new = || made(&self.socket).is_some_and(|time| Some(time) != left);
        // A socket is a file before it listens.
        let listens = || UnixStream::connect(&self.socket).is_ok();
        wait_until(patience, || is_new() && listens() && lab.ended(process).is_none())
            .map_err(|error| format!("postern {}: {error}: {}", verb.join(" "), self.logged()))?;
        Ok(process)
    }

    /// All that it has logged.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.expect("it was started").signal(signal);
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}
