//! Files of a daemon's server that are read again when they change: the revocation list, and the hashes of passwords. `postern openvpn`
//! has a process for that, as it gives up its rights; a daemon reads the files with its own.

use super::scripts::{Answer, Outcome};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How often the file is looked at.
pub(super) const LOOKED_AT: Duration = Duration::from_secs(2);

/// Reads a file, if it is not as it was.
pub(super) type Read = fn(&Path, &str) -> io::Result<Answer>;

/// Looks at a file for ever, and hands each new content to `tell`; each failure once.
pub(super) async fn watch(path: PathBuf, read_file: Read, every: Duration, tell: impl Fn(Answer)) {
    let (mut signature, mut last) = (String::new(), None);
    let mut times = interval(every);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        let (file, before) = (path.clone(), signature.clone());
        let read = tokio::task::spawn_blocking(move || read_file(&file, &before)).await;
        let answer = match read {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => failed(format!("{}: {error}", path.display())),
            // The runtime ends.
            Err(_) => return,
        };
        match &answer.outcome {
            Outcome::Ended(0) => signature = answer.text(1),
            // The same file may be readable again.
            Outcome::Failed(_) => signature.clear(),
            _ => continue,
        }
        if last.as_ref() != Some(&answer.outcome) || answer.is_success() {
            last = Some(answer.outcome.clone());
            tell(answer);
        }
    }
}

fn failed(reason: String) -> Answer {
    Answer { outcome: Outcome::Failed(reason), files: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::super::scripts::served::revocations;
    use super::*;
    use lab::files::Files;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    const LONG: Duration = Duration::from_secs(20);
    const OFTEN: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn each_change_of_the_list_is_told_once_and_a_missing_file_too() {
        let files = Files::default();
        files.write("crl.pem", "first", 0o644);
        let (tell, mut told) = mpsc::unbounded_channel();
        let task =
            tokio::spawn(watch(files.at("crl.pem"), revocations, OFTEN, move |answer| _ = tell.send(answer)));
        let mut next = async || timeout(LONG, told.recv()).await.expect("in time").expect("it runs");
        assert_eq!(next().await.text(0), "first");
        files.write("crl.pem", "the second", 0o644);
        let mut text = next().await.text(0);
        if text.is_empty() {
            // It was read between truncating and writing.
            text = next().await.text(0);
        }
        assert_eq!(text, "the second");
        std::fs::remove_file(files.at("crl.pem")).expect("it is there");
        assert!(matches!(next().await.outcome, Outcome::Failed(_)));
        tokio::time::sleep(OFTEN * 10).await;
        files.write("new", "third", 0o644);
        std::fs::rename(files.at("new"), files.at("crl.pem")).expect("one folder");
        assert_eq!(next().await.text(0), "third", "the failure is told once");
        task.abort();
    }
}
