//! Commands from options, a file or a pipe.

use super::console::{Console, Flow, is_told};
use crate::Failure;
use config::Text;
use std::io::{self, BufRead, Write, stdin, stdout};
use std::path::Path;

/// Where commands come from.
pub(super) struct Source {
    /// What errors call it.
    name: String,
    lines: Box<dyn Iterator<Item = io::Result<String>>>,
}

impl Source {
    pub(super) fn commands(commands: &[String]) -> Self {
        let lines = commands.to_vec();
        Self { name: "-c".to_owned(), lines: Box::new(lines.into_iter().map(Ok)) }
    }

    pub(super) fn file(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = Text::read(path).map_err(|error| format!("{name}: {error}"))?;
        let text = text.as_str().map_err(|error| format!("{name}: {error}"))?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        Ok(Self { name, lines: Box::new(lines.into_iter().map(Ok)) })
    }

    pub(super) fn input() -> Self {
        Self { name: "standard input".to_owned(), lines: Box::new(stdin().lock().lines()) }
    }
}

/// An output whose reader may close it early, as `head` does: later commands still run, and their output is discarded.
struct Patient<W>(W);

impl<W: Write> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            outcome => outcome,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            outcome => outcome,
        }
    }
}

/// Carries out all commands, or those before the first that fails. Whether none failed.
pub(super) fn run(console: &mut Console, source: Source, keeps_going: bool) -> bool {
    let (mut out, mut is_done) = (Patient(stdout()), true);
    for (index, line) in source.lines.enumerate() {
        let outcome = line.map_err(Into::into).and_then(|line| console.execute(&line, &mut out));
        // Errors stand behind what was printed before them.
        let _ = out.flush();
        match outcome {
            Ok(Flow::End) => return is_done,
            Ok(Flow::Next | Flow::More) => {}
            Err(error) => {
                is_done = false;
                if !is_told(&error) {
                    eprintln!("{}:{}: {}", source.name, index + 1, error.to_string().trim_start());
                }
                if !keeps_going {
                    return false;
                }
            }
        }
    }
    if let Err(error) = console.end() {
        eprintln!("{}: {error}", source.name);
        return false;
    }
    is_done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nothing reads, or what is full.
    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_goes_is_no_failure_and_a_full_disk_is_one() {
        let write = |kind| {
            let mut out = Patient(Broken(kind));
            out.write_all(b"a").and_then(|()| out.flush()).is_ok()
        };
        assert!(write(io::ErrorKind::BrokenPipe) && !write(io::ErrorKind::StorageFull));
    }
}
