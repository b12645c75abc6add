//! This program once more, started with other capability words: libraries read them when they are loaded, so that only
//! another process can measure without an instruction what this one measures with it.
//!
//! It is asked cell by cell, in turn with this process, so that what the machine does meanwhile slows both.

use super::meter::{Cell, Meter};
use crate::Outcome;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Question {
    cell: Cell,
    seconds: f64,
}

/// Answers on standard output what it is asked on standard input, a line each, until that ends.
pub fn serve() -> Outcome<()> {
    let mut meter = Meter::default();
    for line in std::io::stdin().lines() {
        let question: Question = serde_json::from_str(&line?)?;
        let rate = meter.rate(&question.cell, Duration::try_from_secs_f64(question.seconds)?);
        println!("{}", serde_json::to_string(&rate)?);
    }
    Ok(())
}

/// The other process.
pub struct Worker {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts `program`, with `variable` set to a value, or taken out of its environment.
    pub fn start(program: &Path, variable: &str, value: Option<&str>) -> Outcome<Self> {
        let mut command = Command::new(program);
        command.args(["bench", "crypto-worker"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
        let mut child = command.spawn()?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("a child without its output")?);
        Ok(Self { child, questions, answers })
    }

    /// As [`Meter::rate`].
    pub fn rate(&mut self, cell: &Cell, time: Duration) -> Outcome<Option<f64>> {
        let question = Question { cell: cell.clone(), seconds: time.as_secs_f64() };
        let questions = self.questions.as_mut().ok_or("the other process has gone")?;
        writeln!(questions, "{}", serde_json::to_string(&question)?)?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("the measuring process ended at {} of {}", cell.subject, cell.engine).into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.questions = None;
        let _ = self.child.wait();
    }
}
