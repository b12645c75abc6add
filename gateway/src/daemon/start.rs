//! What a daemon starts with: its file; or a revision, if the daemon of this boot had committed one since the file was loaded or
//! saved. So neither a crash nor a restart loses a commit, and a reboot or a new file is what it was without an archive.

use super::archive::revision::Header;
use super::archive::{Archive, Entry};
use super::file::{ConfigFile, Read};
use super::ledger::Ledger;
use super::rejected::problem;
use super::running::Running;
use super::transactions::{self, Transactions, apart, checked};
use crate::api::model::Via;
use crate::clock::since_boot;
use config::{Settings, Tree};
use std::path::PathBuf;
use std::sync::Arc;

/// Where the kernel says which boot this is.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Where the configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The file.
    File,
    /// The newest revision.
    Newest(u64),
    /// The revision before the newest, which was not confirmed in time.
    Before(u64),
}

/// What is to be applied first.
pub(super) struct Beginning {
    pub(super) transactions: Transactions,
    pub(super) settings: Settings,
    /// What a person should know about them.
    pub(super) warnings: Vec<String>,
    /// As what it is recorded, unless it is a revision already.
    pub(super) recorded: Option<Via>,
}

/// Opens the archive, and decides.
pub(super) async fn begin(state: Option<PathBuf>, file: &ConfigFile, read: Read) -> Beginning {
    let boot = std::fs::read_to_string(BOOT).unwrap_or_default().trim().to_owned();
    let archive = match state {
        None => Err(problem("this daemon keeps no revisions\n  fix: postern run --state DIR")),
        Some(state) => match apart(move || Archive::open(&state)).await {
            Ok(archive) => Ok(Arc::new(archive)),
            Err(error) => {
                tracing::warn!("nothing can be committed, only reloaded: {error}");
                Err(problem(&error.to_string()))
            }
        },
    };
    let Read { tree, settings, warnings, hash, .. } = read;
    let mut from = (tree, settings, warnings);
    let loaded = Running::new(&from.0);
    let (mut revision, mut recorded) = (0, Some(Via::Start));
    if let Ok(archive) = &archive {
        let newest = archive.entry(archive.newest());
        match origin(newest.as_ref(), &boot, &hash, since_boot()) {
            Origin::File => {}
            Origin::Newest(newest) => {
                if let Some(found) = of_revision(archive, newest).await {
                    let file = file.path().display();
                    tracing::info!("revision {newest} is loaded: it was committed since {file} was read");
                    (from, revision, recorded) = (found, newest, None);
                }
            }
            Origin::Before(back_to) => {
                if let Some(found) = of_revision(archive, back_to).await {
                    tracing::warn!("the last commit was not confirmed in time: revision {back_to} is loaded");
                    (from, recorded) = (found, Some(Via::Confirm));
                }
            }
        }
    }
    let (tree, settings, warnings) = from;
    let running =
        if revision == 0 && recorded == Some(Via::Start) { loaded.clone() } else { Running::new(&tree) };
    let path = file.path().to_owned();
    let ledger = Arc::new(Ledger::new(path, archive, running, revision, (hash, loaded.text())));
    let transactions = Transactions::new(ledger, boot, warnings.clone());
    Beginning { transactions, settings, warnings, recorded }
}

/// The configuration of a revision, if it can be in force.
pub(super) async fn of_revision(
    archive: &Arc<Archive>,
    revision: u64,
) -> Option<(Tree, Settings, Vec<String>)> {
    let found = transactions::read(archive, revision).await;
    found.inspect_err(|error| tracing::error!("{error}")).ok().and_then(checked)
}

fn origin(newest: Option<&Entry>, boot: &str, file: &str, now: u64) -> Origin {
    let Some(Entry::Whole { header, is_confirmed }) = newest else { return Origin::File };
    let Header { revision, via, confirm, .. } = header;
    if header.boot != boot || boot.is_empty() || header.file != file {
        return Origin::File;
    }
    match (via, confirm) {
        (_, Some(confirm)) if !is_confirmed && confirm.deadline <= now => Origin::Before(confirm.back_to),
        // The file has all that was loaded from it, and what was refused of it too.
        (Via::Start | Via::Reload, _) => Origin::File,
        (Via::Cli | Via::Api | Via::Confirm, _) => Origin::Newest(*revision),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::archive::revision::Deadline;

    fn entry(change: impl FnOnce(&mut Header)) -> Entry {
        let (boot, file) = ("this".to_owned(), "hash".to_owned());
        let mut header = Header { revision: 7, via: Via::Cli, boot, file, ..Header::default() };
        change(&mut header);
        Entry::Whole { header, is_confirmed: false }
    }

    fn of(newest: Option<&Entry>) -> Origin {
        origin(newest, "this", "hash", 100)
    }

    #[test]
    fn a_commit_of_this_boot_is_in_force_again_unless_the_file_was_changed() {
        assert_eq!(of(Some(&entry(|_| ()))), Origin::Newest(7));
        assert_eq!(of(Some(&entry(|it| it.boot = "before".to_owned()))), Origin::File);
        assert_eq!(of(Some(&entry(|it| it.file = "other".to_owned()))), Origin::File);
        assert_eq!(of(Some(&entry(|it| it.via = Via::Reload))), Origin::File);
        assert_eq!(of(Some(&Entry::Corrupt(PathBuf::from("a")))), Origin::File);
        assert_eq!(of(None), Origin::File);
        assert_eq!(origin(Some(&entry(|it| it.boot.clear())), "", "hash", 100), Origin::File);
    }

    #[test]
    fn a_commit_that_was_not_confirmed_in_time_is_not() {
        let until = |deadline| entry(|it| it.confirm = Some(Deadline { deadline, back_to: 6 }));
        assert_eq!(of(Some(&until(101))), Origin::Newest(7));
        assert_eq!(of(Some(&until(100))), Origin::Before(6));
        let Entry::Whole { header, .. } = until(100) else { unreachable!("it is whole") };
        assert_eq!(of(Some(&Entry::Whole { header, is_confirmed: true })), Origin::Newest(7));
    }
}
