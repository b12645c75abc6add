//! The passphrase of a backup: from a file or a descriptor, from the environment, or asked for at the terminal.

use crate::Failure;
use crate::terminal::{Echo, Terminal};
use clap::Args;
use crypto::SecretBytes;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The environment variable with the passphrase, for scripts.
const VARIABLE: &str = "POSTERN_PASSPHRASE";
/// Bytes of a passphrase.
const LONGEST: usize = 1024;

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
        let mut terminal = open()?;
        let first = ask(&mut terminal, "Passphrase: ")?;
        if ask(&mut terminal, "The same again: ")?.expose() != first.expose() {
            return Err("the passphrases differ\n  fix: give the command again".into());
        }
        Ok(first)
    }

    /// The passphrase of a file that is there.
    pub(crate) fn of_old(&self) -> Result<SecretBytes, Failure> {
        match self.given()? {
            Some(given) => Ok(given),
            None => ask(&mut open()?, "Passphrase: "),
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

fn open() -> Result<Terminal, Failure> {
    Terminal::open("the passphrase", &format!("--passphrase-file FILE, or {VARIABLE} in the environment"))
}

fn ask(terminal: &mut Terminal, prompt: &str) -> Result<SecretBytes, Failure> {
    let answer = terminal.ask(prompt, Echo::Off)?;
    line_of(&mut answer.to_vec(), "the passphrase")
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
