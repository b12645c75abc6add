//! The passphrase of a backup: from a file or a descriptor, from the environment, or asked for at the terminal.

use crate::Failure;
use clap::Args;
use crypto::SecretBytes;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The environment variable with the passphrase, for scripts.
const VARIABLE: &str = "POSTERN_PASSPHRASE";
/// Bytes of a passphrase.
const LONGEST: usize = 1024;
/// What Ctrl-C is on a terminal that makes no signal of it.
const INTERRUPT: u8 = 3;

// Not a doc comment: clap would print that as the help of each verb.
#[derive(Args)]
pub(crate) struct Passphrase {
    /// Take the passphrase from the first line of a file, or of a descriptor: /dev/fd/3
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// The backup is a plain tar file, with all keys for everyone who can read it
    #[arg(long, conflicts_with = "passphrase_file")]
    pub(crate) no_passphrase: bool,
}

impl Passphrase {
    /// The passphrase for a new file; a terminal is asked twice.
    pub(crate) fn for_new(&self) -> Result<SecretBytes, Failure> {
        if let Some(given) = self.given()? {
            return Ok(given);
        }
        let mut terminal = Terminal::open()?;
        let first = terminal.ask("Passphrase: ")?;
        if terminal.ask("The same again: ")?.expose() != first.expose() {
            return Err("the passphrases differ\n  fix: give the command again".into());
        }
        Ok(first)
    }

    /// The passphrase of a file that is there.
    pub(crate) fn of_old(&self) -> Result<SecretBytes, Failure> {
        match self.given()? {
            Some(given) => Ok(given),
            None => Terminal::open()?.ask("Passphrase: "),
        }
    }

    fn given(&self) -> Result<Option<SecretBytes>, Failure> {
        if let Some(path) = &self.passphrase_file {
            return of_file(path).map(Some);
        }
        match std::env::var_os(VARIABLE) {
            Some(given) => {
                let mut bytes = std::os::unix::ffi::OsStringExt::into_vec(given);
                line_of(&mut bytes, VARIABLE).map(Some)
            }
            None => Ok(None),
        }
    }
}

fn of_file(path: &Path) -> Result<SecretBytes, Failure> {
    let named = path.display().to_string();
    let mut bytes = Vec::with_capacity(LONGEST + 2);
    let file = File::open(path).map_err(|error| format!("{named}: {error}"))?;
    let read = file.take(LONGEST as u64 + 2).read_to_end(&mut bytes);
    let line = line_of(&mut bytes, &named);
    read.map_err(|error| format!("{named}: {error}"))?;
    line
}

/// The first line; the bytes are erased.
fn line_of(bytes: &mut Vec<u8>, named: &str) -> Result<SecretBytes, Failure> {
    let bytes = Zeroizing::new(std::mem::take(bytes));
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.len() {
        0 => Err(format!("{named} is empty: the first line must be the passphrase").into()),
        length if length > LONGEST => {
            Err(format!("{named}: more than {LONGEST} bytes are no passphrase").into())
        }
        _ => Ok(SecretBytes::new(line.to_vec())),
    }
}

/// The terminal of this process, whatever its input and output are. It shows what is typed again when it is dropped.
struct Terminal {
    file: File,
    before: Termios,
}

impl Terminal {
    fn open() -> Result<Self, Failure> {
        let missing = |error: io::Error| {
            format!(
                "there is no terminal to ask for the passphrase: {error}\n  fix: --passphrase-file FILE, or {VARIABLE} in the \
                 environment"
            )
        };
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(missing)?;
        let before = tcgetattr(&file)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        silent.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON);
        // Without a signal, which would leave the terminal silent, Ctrl-C ends the line.
        silent.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(&file, OptionalActions::Flush, &silent)?;
        Ok(Self { file, before })
    }

    fn ask(&mut self, prompt: &str) -> Result<SecretBytes, Failure> {
        self.file.write_all(prompt.as_bytes())?;
        let mut bytes = Zeroizing::new([0; LONGEST + 2]);
        // A terminal gives a line at a time.
        let length = self.file.read(&mut bytes[..])?;
        if length == 0 || bytes[..length].contains(&INTERRUPT) {
            return Err("interrupted".into());
        }
        line_of(&mut bytes[..length].to_vec(), "the passphrase")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.file, OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_file_is_the_passphrase() {
        let file = tempfile::NamedTempFile::new().expect("a file").into_temp_path();
        let given = |text: &str| {
            std::fs::write(&file, text).expect("ours");
            let source = Passphrase { passphrase_file: Some(file.to_path_buf()), no_passphrase: false };
            source.of_old().map(|secret| String::from_utf8_lossy(secret.expose()).into_owned())
        };
        assert_eq!(given("a b c\nnot this\n").expect("a line"), "a b c");
        assert_eq!(given("a b c\r\n").expect("a line"), "a b c");
        assert_eq!(given(" a ").expect("a line"), " a ");
        assert!(given("\na\n").is_err() && given("").is_err() && given(&"a".repeat(1025)).is_err());
    }
}
