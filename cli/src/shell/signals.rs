//! What is undone when a signal ends the command line: its folders are removed, and the terminal gets its mode back.

use crate::Failure;
use crate::wireguard::ignores_hangup;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs;
use std::io::stdin;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What is there until the program ends.
#[derive(Default)]
struct Undone {
    folders: Vec<PathBuf>,
    terminal: Option<Termios>,
}

static UNDONE: Mutex<Undone> = Mutex::new(Undone { folders: Vec::new(), terminal: None });

fn undone() -> MutexGuard<'static, Undone> {
    UNDONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a folder that a signal must not leave behind.
pub(super) fn note(folder: &Path) {
    undone().folders.push(folder.to_owned());
}

/// Removes a folder that was noted.
pub(super) fn remove(folder: &Path) {
    // Locked to the end: a signal must not end the program, or remove the same, in between.
    let mut undone = undone();
    undone.folders.retain(|noted| noted != folder);
    let _ = fs::remove_dir_all(folder);
}

/// Has signals that end the program clean up first. Ctrl-C may be for the programs that run in it, and not for itself.
pub(super) fn watch(ends_at_interrupt: bool) -> Result<(), Failure> {
    undone().terminal = tcgetattr(stdin()).ok();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    // nohup has it ignored.
    let mut hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    drop(entered);
    let ended = async move {
        loop {
            tokio::select! {
                () = received(&mut hangup) => return SignalKind::hangup(),
                _ = terminate.recv() => return SignalKind::terminate(),
                _ = interrupt.recv() => if ends_at_interrupt { return SignalKind::interrupt() },
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let number = runtime.block_on(ended);
        clean_up();
        // As bash has it for a program that a signal ended.
        std::process::exit(128 + number.as_raw_value());
    })?;
    Ok(())
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

fn clean_up() {
    let mut undone = undone();
    for folder in undone.folders.drain(..) {
        let _ = fs::remove_dir_all(folder);
    }
    if let Some(terminal) = undone.terminal.take() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &terminal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_noted_goes_and_others_stay() {
        let place = tempfile::tempdir().expect("a folder");
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        for folder in [&one, &other] {
            fs::create_dir(folder).expect("made");
            note(folder);
        }
        remove(&one);
        assert!(!one.exists() && other.exists());
        assert!(!undone().folders.contains(&one) && undone().folders.contains(&other));
        remove(&other);
    }
}
