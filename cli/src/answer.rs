//! The answer of an operational command: one value, which prints as text or as JSON.

use crate::{Failure, Outcome};
use serde::Serialize;
use std::io::{self, Write};

/// The result of a command, and its exit status.
pub(crate) struct Answer {
    document: Box<dyn Document>,
    pub(crate) status: u8,
}

/// A value with its two forms. Only the one that is printed is made: the answer of ten thousand peers is long.
trait Document {
    fn text(&self) -> String;
    fn write_json(&self, out: &mut dyn Write) -> serde_json::Result<()>;
}

struct Printed<T, F> {
    value: T,
    text: F,
}

impl<T: Serialize, F: Fn(&T) -> String> Document for Printed<T, F> {
    fn text(&self) -> String {
        (self.text)(&self.value)
    }

    fn write_json(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        serde_json::to_writer_pretty(out, &self.value)
    }
}

impl Answer {
    /// A successful answer: the value for programs, and its text for people.
    pub(crate) fn new<T: Serialize + 'static>(value: T, text: impl Fn(&T) -> String + 'static) -> Self {
        Self { document: Box::new(Printed { value, text }), status: 0 }
    }

    /// The same with an exit status.
    pub(crate) fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    /// Writes it, as JSON or as text.
    pub(crate) fn write(&self, out: &mut dyn Write, json: bool) -> Result<(), Failure> {
        if json {
            self.document.write_json(out)?;
            writeln!(out)?;
        } else {
            out.write_all(self.document.text().as_bytes())?;
        }
        Ok(())
    }
}

/// Prints an answer, as JSON or as text.
pub(crate) fn print(answer: &Answer, json: bool) -> Outcome {
    let mut out = io::BufWriter::new(io::stdout().lock());
    answer.write(&mut out, json)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_prints_as_text_or_as_json() {
        let answer = Answer::new(vec![1, 2], |numbers| format!("{} numbers\n", numbers.len())).with_status(3);
        let written = |json| {
            let mut out = Vec::new();
            answer.write(&mut out, json).expect("memory");
            String::from_utf8(out).expect("UTF-8")
        };
        assert_eq!(
            (written(false), written(true), answer.status),
            ("2 numbers\n".into(), "[\n  1,\n  2\n]\n".into(), 3)
        );
    }
}
