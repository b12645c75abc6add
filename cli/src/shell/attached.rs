//! The session of a script: one process keeps it, reads its commands from a pipe, and answers by another one.
//!
//! ```text
//! ask:     count, folder, command, its words ...
//! answer:  done, failed, end or other; what goes to the standard output; what goes to the standard error
//! ```
//! Each part ends with a NUL. The session ends with `exit`, or when the last writer of `ask` is gone: with the script.

use super::session::{Form, Session};
use super::{files, signals};
use crate::{Failure, operational};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write, stdout};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a script may take to open its pipes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the process of a session says once it may be asked.
const READY: &[u8] = b"ready\n";

/// Starts the process of a session, and prints the folder with its pipes.
pub(super) fn begin(api: Option<&Path>) -> Result<ExitCode, Failure> {
    let folder = files::private_folder()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["configure", "--serve"]).arg(&folder);
    if let Some(api) = api {
        command.arg("--api").arg(api);
    }
    let begun = ["ask", "answer"]
        .into_iter()
        .try_for_each(|name| mkfifoat(CWD, folder.join(name), Mode::RUSR | Mode::WUSR))
        .map_err(io::Error::from)
        .and_then(|()| command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn());
    let mut said = Vec::new();
    let mut child = begun.inspect_err(|_| signals::remove(&folder))?;
    child.stdout.take().expect("it is piped").read_to_end(&mut said)?;
    if said == READY {
        println!("{}", folder.display());
        return Ok(ExitCode::SUCCESS);
    }
    // The child has told why.
    signals::remove(&folder);
    Ok(ExitCode::from(child.wait()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Keeps a session until its script ends.
pub(super) fn serve(session: Session, folder: &Path) -> Result<ExitCode, Failure> {
    signals::note(folder);
    // The script may go on after an interrupt: if not, its pipe tells.
    signals::watch(false)?;
    let outcome = answer_all(session, folder);
    signals::remove(folder);
    outcome.map(|()| ExitCode::SUCCESS)
}

fn answer_all(mut session: Session, folder: &Path) -> Result<(), Failure> {
    // For reading, too: opening does not wait then for the script.
    let mut answer = OpenOptions::new().read(true).write(true).open(folder.join("answer"))?;
    stdout().write_all(READY)?;
    stdout().flush()?;
    let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    let mut ask = BufReader::new(opened(folder)?);
    while let Some(words) = words(&mut ask)? {
        let (outcome, output, errors) = answered(&mut session, &words);
        let text = Zeroizing::new(format!("{outcome}\0{}\0{}\0", output.as_str(), errors.as_str()));
        answer.write_all(text.as_bytes())?;
        if outcome == "end" {
            break;
        }
    }
    Ok(())
}

/// The pipe with the commands, once the script has it.
fn opened(folder: &Path) -> io::Result<File> {
    let is_open = Arc::new(AtomicBool::new(false));
    let (known, place) = (Arc::clone(&is_open), folder.to_owned());
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        if !known.load(Ordering::Relaxed) {
            signals::remove(&place);
            std::process::exit(1);
        }
    });
    let ask = File::open(folder.join("ask"))?;
    is_open.store(true, Ordering::Relaxed);
    Ok(ask)
}

/// The parts of the next command; none at the end.
fn words(ask: &mut impl BufRead) -> Result<Option<Vec<Zeroizing<String>>>, Failure> {
    let Some(count) = word(ask)? else { return Ok(None) };
    let count: usize = count.parse()?;
    // The folder stands before the command.
    (0..=count).map(|_| word(ask)).collect::<Result<_, _>>()
}

fn word(ask: &mut impl BufRead) -> Result<Option<Zeroizing<String>>, Failure> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(1024));
    ask.read_until(0, &mut bytes)?;
    if bytes.pop() != Some(0) {
        return Ok(None);
    }
    Ok(Some(Zeroizing::new(str::from_utf8(&bytes)?.to_owned())))
}

/// What became of a command, what it prints, and why it failed.
fn answered(
    session: &mut Session,
    words: &[Zeroizing<String>],
) -> (&'static str, Zeroizing<String>, Zeroizing<String>) {
    let (folder, words) =
        words.split_first().map_or(("/", &[][..]), |(folder, words)| (folder.as_str(), words));
    // Names of files are relative to where the script is.
    let _ = std::env::set_current_dir(folder);
    let quoted: Vec<String> = words.iter().map(|word| config::print::quoted(word)).collect();
    let line = Zeroizing::new(quoted.join(" "));
    let text = |text: String| Zeroizing::new(text.replace('\0', ""));
    match session.execute(&line, Form::default()) {
        Ok(reply) => (if reply.is_end { "end" } else { "done" }, text(reply.text), text(String::new())),
        Err(_) if line.starts_with("show ") && operational::is_command(&line) => {
            ("other", text(String::new()), text(String::new()))
        }
        Err(error) => {
            ("failed", text(String::new()), text(format!("\n  {}\n\n", error.to_string().trim_start())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_to_the_end_and_a_half_command_is_none() {
        let read = |bytes: &[u8]| {
            let words = words(&mut &*bytes).expect("text")?;
            Some(words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(
            read(b"3\0/tmp\0set\0a b\0\0"),
            Some(["/tmp", "set", "a b", ""].map(str::to_owned).into())
        );
        assert_eq!(read(b"2\0/tmp\0set\0inter"), None);
        assert_eq!(read(b""), None);
        assert!(words(&mut &b"x\0"[..]).is_err());
    }
}
