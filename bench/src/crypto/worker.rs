//! A child process of this program, started with another capability variable. Libraries read the variable when they are
//! loaded, so only another process can measure without CPU features that this one uses.
//!
//! It measures cell by cell, in turn with this process, so that other load on the machine affects both.

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

/// Reads requests from standard input, one per line, and writes the results to standard output, until the input ends.
pub fn serve() -> Outcome<()> {
    let mut meter = Meter::default();
    for line in std::io::stdin().lines() {
        let question: Question = serde_json::from_str(&line?)?;
        let rate = meter.rate(&question.cell, Duration::try_from_secs_f64(question.seconds)?);
        println!("{}", serde_json::to_string(&rate)?);
    }
    Ok(())
}

/// The child process.
pub struct Worker {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts `program` with `variable` set to a value, or removed from the environment.
    pub fn start(program: &Path, variable: &str, value: Option<&str>) -> Outcome<Self> {
        let mut command = Command::new(program);
        command.args(["bench", "crypto-worker"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
        let mut child = command.spawn()?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("the worker has no standard output")?);
        Ok(Self { child, questions, answers })
    }

    /// As [`Meter::rate`], in the child process.
    pub fn rate(&mut self, cell: &Cell, time: Duration) -> Outcome<Option<f64>> {
        let question = Question { cell: cell.clone(), seconds: time.as_secs_f64() };
        let questions = self.questions.as_mut().ok_or("the worker has ended")?;
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
