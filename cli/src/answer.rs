//! The answer of an operational command: one value, which prints as text or as JSON, or lines that come as long as it runs.

use crate::{Failure, Outcome};
use serde::Serialize;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// The result of a command, and its exit status.
pub(crate) struct Answer {
    document: Box<dyn Document>,
    pub(crate) status: u8,
}

/// How an answer is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// As JSON instead of text. What goes on is one JSON value a line.
    pub(crate) json: bool,
    /// Onto a terminal, which can be overwritten.
    pub(crate) terminal: bool,
}

/// What can be written in each form.
trait Document {
    fn write(&self, out: &mut dyn Write, form: Form) -> Outcome;
}

/// A value with its text. Only the form that is printed is made: the answer of ten thousand peers is long.
struct Printed<T, F> {
    value: T,
    text: F,
}

impl<T: Serialize, F: Fn(&T) -> String> Document for Printed<T, F> {
    fn write(&self, out: &mut dyn Write, form: Form) -> Outcome {
        if form.json {
            serde_json::to_writer_pretty(&mut *out, &self.value)?;
            writeln!(out)?;
        } else {
            out.write_all((self.text)(&self.value).as_bytes())?;
        }
        Ok(())
    }
}

/// What writes by itself, and may go on until it is interrupted.
struct Going<F>(F);

impl<F: Fn(&mut dyn Write, Form) -> Outcome> Document for Going<F> {
    fn write(&self, out: &mut dyn Write, form: Form) -> Outcome {
        (self.0)(out, form)
    }
}

impl Answer {
    /// A successful answer: the value for programs, and its text for people.
    pub(crate) fn new<T: Serialize + 'static>(value: T, text: impl Fn(&T) -> String + 'static) -> Self {
        Self { document: Box::new(Printed { value, text }), status: 0 }
    }

    /// An answer that is written while it is found, such as a log that is followed.
    pub(crate) fn going(write: impl Fn(&mut dyn Write, Form) -> Outcome + 'static) -> Self {
        Self { document: Box::new(Going(write)), status: 0 }
    }

    /// The same with an exit status.
    pub(crate) fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    /// Writes it.
    pub(crate) fn write(&self, out: &mut dyn Write, form: Form) -> Outcome {
        self.document.write(out, form)
    }
}

/// Prints an answer, as JSON or as text. That the reader has gone, as `head` does, is no failure.
pub(crate) fn print(answer: &Answer, json: bool) -> Outcome {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let form = Form { json, terminal: io::stdout().is_terminal() };
    match answer.write(&mut out, form).and_then(|()| Ok(out.flush()?)) {
        Err(error) if is_reader_gone(&error) => {
            // What is left has no reader: it is not to be written at the end.
            drop(out.into_parts());
            Ok(())
        }
        outcome => outcome,
    }
}

/// Whether writing failed as nothing reads the pipe.
fn is_reader_gone(error: &Failure) -> bool {
    let json = error.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
    json.or(error.downcast_ref::<io::Error>().map(io::Error::kind)) == Some(ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(answer: &Answer, form: Form) -> String {
        let mut out = Vec::new();
        answer.write(&mut out, form).expect("memory");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn an_answer_prints_as_text_or_as_json() {
        let answer = Answer::new(vec![1, 2], |numbers| format!("{} numbers\n", numbers.len())).with_status(3);
        let json = Form { json: true, terminal: false };
        assert_eq!(
            (written(&answer, Form::default()), written(&answer, json), answer.status),
            ("2 numbers\n".into(), "[\n  1,\n  2\n]\n".into(), 3)
        );
    }

    #[test]
    fn an_answer_that_goes_on_knows_where_it_is_written() {
        let answer = Answer::going(|out, form| Ok(writeln!(out, "{}", form.terminal)?));
        let terminal = Form { json: false, terminal: true };
        assert_eq!(
            (written(&answer, Form::default()), written(&answer, terminal)),
            ("false\n".into(), "true\n".into())
        );
    }

    #[test]
    fn a_reader_that_has_gone_is_told_from_a_failure() {
        let gone = || io::Error::from(ErrorKind::BrokenPipe);
        assert!(is_reader_gone(&gone().into()) && is_reader_gone(&serde_json::Error::io(gone()).into()));
        assert!(
            !is_reader_gone(&io::Error::from(ErrorKind::StorageFull).into()) && !is_reader_gone(&"it".into())
        );
    }
}
