//! Questions to the user of the terminal that a command was started from, whatever its input and output are.

use crate::Failure;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use zeroize::Zeroizing;

/// Bytes of an answer, with its line break.
const LONGEST: usize = 1026;
/// What Ctrl-C is on a terminal that makes no signal of it.
const INTERRUPT: u8 = 3;

/// Whether an answer is shown while it is typed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    On,
    Off,
}

/// A terminal. It shows what is typed again when this is dropped.
pub(crate) struct Terminal {
    file: File,
    before: Termios,
}

impl Terminal {
    /// The controlling terminal. Without one, the error names what would have been asked for and what to do.
    pub(crate) fn open(what: &str, fix: &str) -> Result<Self, Failure> {
        let missing =
            |error: io::Error| format!("there is no terminal to ask for {what}: {error}\n  fix: {fix}");
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(missing)?;
        let before = tcgetattr(&file)?;
        Ok(Self { file, before })
    }

    /// Asks, and returns the line without its end.
    pub(crate) fn ask(&mut self, prompt: &str, echo: Echo) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let mut modes = self.before.clone();
        modes.local_modes.remove(LocalModes::ISIG);
        modes.local_modes.set(LocalModes::ECHO, echo == Echo::On);
        modes.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON);
        // Without a signal, which would leave the terminal silent, Ctrl-C ends the line.
        modes.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(&self.file, OptionalActions::Flush, &modes)?;
        self.file.write_all(prompt.as_bytes())?;
        let mut bytes = Zeroizing::new([0; LONGEST]);
        // A terminal gives a line at a time.
        let length = self.file.read(&mut bytes[..])?;
        let line = &bytes[..length];
        if length == 0 || line.contains(&INTERRUPT) {
            return Err("interrupted".into());
        }
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        Ok(Zeroizing::new(line.to_vec()))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.file, OptionalActions::Flush, &self.before);
    }
}
