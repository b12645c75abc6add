//! Takes lines, and carries each out where it belongs: in the session of configuration, as an operational command, or as a
//! program.

use super::api::Socket;
use super::complete::Context;
use super::line::{has_shell_words, parts};
use super::pipe::{Pipes, Told};
use super::programs::Programs;
use super::session::{Form, Session};
use super::verbs::Unknown;
use super::{changing, outside, refusal, verbs};
use crate::{Failure, operational};
use std::io::Write;
use std::path::PathBuf;

/// A command line.
pub(crate) struct Console {
    api: Option<PathBuf>,
    user: String,
    session: Option<Session>,
    /// Whether operational commands follow when a session ends.
    is_shell: bool,
    /// Lines of a program that is not complete.
    unfinished: String,
    /// Where programs find the operational commands.
    programs: Option<Programs>,
}

/// What follows a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    /// The rest of what this line began.
    More,
    End,
}

impl Console {
    /// A command line that begins with a session of configuration, and ends with it.
    pub(crate) fn configuring(api: Option<PathBuf>, session: Session, user: String) -> Self {
        Self { api, user, session: Some(session), is_shell: false, unfinished: String::new(), programs: None }
    }

    /// A command line for operational commands, from which a session may begin.
    pub(crate) fn operational(api: Option<PathBuf>, user: String) -> Self {
        Self { api, user, session: None, is_shell: true, unfinished: String::new(), programs: None }
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    /// What completion depends on.
    pub(crate) fn context(&self) -> Context {
        let session = self.session.as_ref().map(|it| (it.candidate.clone(), it.level.clone()));
        Context { api: self.api.clone(), session }
    }

    /// Carries out one line.
    pub(crate) fn execute(&mut self, line: &str, out: &mut dyn Write) -> Result<Flow, Failure> {
        if self.unfinished.is_empty() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                return Ok(Flow::Next);
            }
            if self.session.is_some() {
                return self.configure(line, out);
            }
        }
        self.operate(line, out)
    }

    /// Drops what is not complete.
    pub(crate) fn forget(&mut self) {
        self.unfinished.clear();
    }

    /// What is missing at the end, if a program is not complete.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        if self.unfinished.is_empty() { Ok(()) } else { Err("the last command is not complete".into()) }
    }

    /// A line within a session.
    fn configure(&mut self, line: &str, out: &mut dyn Write) -> Result<Flow, Failure> {
        let verb = verbs::find(first_word(line)).map(|verb| verb.name);
        // A bar may be part of a value.
        let parts = if matches!(verb, Ok("set" | "delete" | "comment")) { vec![line] } else { parts(line) };
        let (command, behind) = parts.split_first().map_or(("", &[][..]), |(first, behind)| (*first, behind));
        if verb == Ok("run") {
            let rest = line.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim());
            if !rest.is_empty() {
                return self.operate(rest, out);
            }
        }
        let pipes = Pipes::read(behind)?;
        let expanded = match verb {
            Ok("save" | "load" | "merge") => outside::expand(command)?,
            _ => None,
        };
        let Some(session) = self.session.as_mut() else { return Ok(Flow::Next) };
        match session.execute(expanded.as_deref().unwrap_or(command), pipes.form) {
            Ok(reply) => {
                pipes.write(reply.text, out)?;
                if !reply.is_end {
                    return Ok(Flow::Next);
                }
                self.session = None;
                Ok(if self.is_shell { Flow::Next } else { Flow::End })
            }
            // What is no command of a session needs no `run`.
            Err(error) if error.is::<Unknown>() && self.is_for_others(line) => self.operate(line, out),
            Err(_) if verb == Ok("show") && operational::is_command(command) => self.operate(line, out),
            Err(error) => refusal::image(line).and(Err(error)),
        }
    }

    /// Whether a line that is no command of a session begins with an operational command, or with a program.
    fn is_for_others(&self, line: &str) -> bool {
        let first = first_word(line);
        let is_meant = || verbs::find(first).is_err_and(|several| several.is_empty());
        operational::is_verb(first)
            || self.is_shell && is_meant() && (outside::is_program(first) || outside::is_assignment(first))
    }

    /// A line of an operational command or of a program.
    fn operate(&mut self, line: &str, out: &mut dyn Write) -> Result<Flow, Failure> {
        if !self.unfinished.is_empty() {
            self.unfinished.push_str(line);
            self.unfinished.push('\n');
            return self.program(out);
        }
        let first = first_word(line);
        match first {
            "configure" | "conf" | "config" if self.session.is_none() => {
                let router = Box::new(Socket::new(self.api.clone()));
                self.session = Some(Session::begin(router, self.user.clone())?);
                return Ok(Flow::Next);
            }
            "exit" | "logout" if self.session.is_none() => return Ok(Flow::End),
            "save" if self.session.is_none() => return self.save(line, out),
            "cd" => return outside::change_folder(line).map(|()| Flow::Next),
            "run" => {
                let rest = line.trim_start_matches("run").trim();
                return if rest.is_empty() {
                    Err(changing::which_command())
                } else {
                    self.operate(rest, out)
                };
            }
            _ => {}
        }
        refusal::misplaced(line, self.session.is_some())?;
        let parts = parts(line);
        let (command, behind) = parts.split_first().map_or(("", &[][..]), |(first, behind)| (*first, behind));
        let is_ours = outside::is_ours(first) && !has_shell_words(line);
        let pipes = if is_ours { Pipes::read(behind)? } else { Pipes::default() };
        if !is_ours {
            refusal::unknown(line)?;
            self.unfinished = format!("{line}\n");
            return self.program(out);
        }
        self.ours(command, behind, &pipes, out)
    }

    /// A command of this program.
    fn ours(
        &mut self,
        command: &str,
        behind: &[&str],
        pipes: &Pipes,
        out: &mut dyn Write,
    ) -> Result<Flow, Failure> {
        let words = config::words(command).map_err(|error| error.to_string())?;
        let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
        let mut words = operational::expand(&words)?;
        match pipes.form {
            Form::Braces => {}
            Form::Json => words.push("--json".to_owned()),
            Form::Commands if words == ["show", "configuration"] => words.push("commands".to_owned()),
            Form::Commands => {
                return Err(
                    "only a configuration can be shown as commands\n  fix: show configuration | commands"
                        .into(),
                );
            }
        }
        out.flush()?;
        // Programs read what is printed as it comes.
        if !pipes.is_empty() && pipes.is_for_programs() && operational::is_verb(&words[0]) {
            let words: Vec<String> = words.iter().map(|word| config::print::quoted(word)).collect();
            return self.bash(&format!("{} | {}\n", words.join(" "), behind.join(" | ")));
        }
        if pipes.is_empty() {
            outside::run_ours(&words, self.api.as_deref())?;
        } else {
            pipes.write(outside::output_of_ours(&words, self.api.as_deref())?, out)?;
        }
        Ok(Flow::Next)
    }

    /// Runs the lines of a program, if they are complete.
    fn program(&mut self, out: &mut dyn Write) -> Result<Flow, Failure> {
        if !outside::is_complete(&self.unfinished)? {
            return Ok(Flow::More);
        }
        let text = std::mem::take(&mut self.unfinished);
        out.flush()?;
        self.bash(&text)
    }

    /// Runs lines of bash, which finds the operational commands as programs.
    fn bash(&mut self, text: &str) -> Result<Flow, Failure> {
        let programs = match self.programs.take() {
            Some(programs) => programs,
            None => Programs::temporary()?,
        };
        let outcome = outside::run_program(text, programs.folder(), self.api.as_deref());
        self.programs = Some(programs);
        outcome.map(|()| Flow::Next)
    }

    /// `save` without a session: what is in force.
    fn save(&self, line: &str, out: &mut dyn Write) -> Result<Flow, Failure> {
        let router = Box::new(Socket::new(self.api.clone()));
        let mut session = Session::begin(router, self.user.clone())?;
        let expanded = outside::expand(line)?;
        let reply = session.execute(expanded.as_deref().unwrap_or(line), Form::default())?;
        out.write_all(reply.text.as_bytes())?;
        Ok(Flow::Next)
    }
}

/// Whether the user was told of a failure already.
pub(crate) fn is_told(error: &Failure) -> bool {
    error.is::<Told>()
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}
