//! The configuration that a daemon starts with: its file, or the newest revision that was committed in this boot after the file was
//! loaded or saved. So neither a crash nor a restart loses a commit, while a reboot or a new file takes the file.
//!
//! If the newest revision cannot be read, its deadline is unknown too: the revision before it is taken.

use super::archive::revision::Deadline;
use super::archive::{Archive, Entry};
use super::file::{ConfigFile, Read};
use super::ledger::Ledger;
use super::provisional::Provisional;
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
    /// A revision, and until when it must be confirmed.
    Revision(u64, Option<Deadline>),
    /// A revision before one that was not confirmed in time.
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
    let loaded = Running::new(&tree);
    let found = match &archive {
        Ok(archive) => Found::newest(archive, &boot, (&hash, &loaded)).await,
        Err(_) => Found::default(),
    };
    let Found { content, revision, recorded, provisional } = found;
    let (running, settings, warnings) = match content {
        Some((tree, settings, warnings)) => (Running::new(&tree), settings, warnings),
        None => (loaded.clone(), settings, warnings),
    };
    let path = file.path().to_owned();
    let in_force = (revision, provisional);
    let ledger = Arc::new(Ledger::new(path, archive, running, in_force, (hash, loaded.text())));
    let transactions = Transactions::new(ledger, boot, warnings.clone());
    Beginning { transactions, settings, warnings, recorded }
}

/// What is in the archive for this start.
struct Found {
    /// None for the file.
    content: Option<Content>,
    /// The revision that it is; 0 if it has none yet.
    revision: u64,
    recorded: Option<Via>,
    provisional: Option<Provisional>,
}

impl Default for Found {
    /// The file.
    fn default() -> Self {
        Self { content: None, revision: 0, recorded: Some(Via::Start), provisional: None }
    }
}

impl Found {
    /// The first that can be read, of all that may be in force.
    async fn newest(archive: &Arc<Archive>, boot: &str, (hash, file): (&str, &Running)) -> Self {
        let entries = archive.list();
        let mut origins = origins(&entries, boot, hash, since_boot()).into_iter();
        let Some((origin, content)) = first(archive, &mut origins).await else {
            return Self::default();
        };
        let is_newest = |number| entries.first().is_some_and(|(newest, _)| *newest == number);
        match origin {
            Origin::Revision(number, confirm) if is_newest(number) => {
                tracing::info!("revision {number} is loaded: it was committed since the file was read");
                let provisional = match confirm {
                    Some(confirm) => Some(comes_back(archive, origins, (number, confirm), file).await),
                    None => None,
                };
                Self { content: Some(content), revision: number, recorded: None, provisional }
            }
            Origin::Before(number)
                if entries.first().is_some_and(|(_, newest)| must_be_confirmed(newest)) =>
            {
                tracing::warn!("the last commit was not confirmed in time: revision {number} is loaded");
                Self { content: Some(content), recorded: Some(Via::Confirm), ..Self::default() }
            }
            Origin::Before(number) | Origin::Revision(number, _) => {
                tracing::error!("the newest revision cannot be read: revision {number} before it is loaded");
                Self { content: Some(content), recorded: Some(Via::Recovery), ..Self::default() }
            }
            Origin::File => Self::default(),
        }
    }
}

/// The first revision that can be read.
async fn first(
    archive: &Arc<Archive>,
    origins: &mut impl Iterator<Item = Origin>,
) -> Option<(Origin, Content)> {
    for origin in origins {
        let (Origin::Revision(number, _) | Origin::Before(number)) = origin else { return None };
        if let Some(content) = of_revision(archive, number).await {
            return Some((origin, content));
        }
    }
    None
}

/// A commit that must still be confirmed, and what comes back otherwise: if the revision before it cannot be read, an older one, or
/// the file.
async fn comes_back(
    archive: &Arc<Archive>,
    mut origins: impl Iterator<Item = Origin>,
    (number, confirm): (u64, Deadline),
    file: &Running,
) -> Provisional {
    let (back_to, before) = match first(archive, &mut origins).await {
        Some((Origin::Revision(back_to, _) | Origin::Before(back_to), (tree, ..))) => {
            (back_to, Running::new(&tree))
        }
        _ => (0, file.clone()),
    };
    if back_to != confirm.back_to {
        let instead = if back_to == 0 { "the file".to_owned() } else { format!("revision {back_to}") };
        tracing::error!(
            "revision {} cannot be read: if revision {number} is not confirmed, {instead} comes back",
            confirm.back_to
        );
    }
    Provisional::new(number, Deadline { back_to, ..confirm }, before)
}

fn must_be_confirmed(entry: &Entry) -> bool {
    matches!(entry, Entry::Whole { header, is_confirmed: false, .. } if header.confirm.is_some())
}

/// A configuration with what it means, and what a person should know about it.
type Content = (Tree, Settings, Vec<String>);

/// The configuration of a revision, if it can be in force.
async fn of_revision(archive: &Arc<Archive>, revision: u64) -> Option<Content> {
    let found = transactions::read(archive, revision).await;
    found.inspect_err(|error| tracing::error!("{error}")).ok().and_then(checked)
}

/// What may be in force, the best first. `entries` are the newest first; `now` is in seconds since the machine booted.
fn origins(entries: &[(u64, Entry)], boot: &str, file: &str, now: u64) -> Vec<Origin> {
    let (mut found, mut last) = (Vec::new(), u64::MAX);
    for (index, (number, entry)) in entries.iter().enumerate() {
        let Entry::Whole { header, is_confirmed, is_replaced } = entry else { continue };
        if *number > last {
            continue;
        }
        // The file has all that was loaded from it, and what was refused of it too.
        let is_of_file = matches!(header.via, Via::Start | Via::Reload) || *is_replaced;
        if is_of_file || header.boot != boot || boot.is_empty() || header.file != file {
            break;
        }
        let Some(confirm) = header.confirm.filter(|_| !is_confirmed) else {
            found.push(Origin::Revision(*number, None));
            continue;
        };
        // Something came after an older one: it was undone.
        if index == 0 && confirm.deadline > now {
            found.push(Origin::Revision(*number, Some(confirm)));
        }
        found.push(Origin::Before(confirm.back_to));
        last = confirm.back_to.saturating_sub(1);
    }
    found.push(Origin::File);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::archive::revision::Header;

    fn entry(revision: u64, change: impl FnOnce(&mut Header)) -> (u64, Entry) {
        let (boot, file) = ("this".to_owned(), "hash".to_owned());
        let mut header = Header { revision, via: Via::Cli, boot, file, ..Header::default() };
        change(&mut header);
        (revision, Entry::Whole { header, is_confirmed: false, is_replaced: false })
    }

    fn corrupt(revision: u64) -> (u64, Entry) {
        (revision, Entry::Corrupt(PathBuf::from("a")))
    }

    fn until(deadline: u64) -> Deadline {
        Deadline { minutes: 1, deadline, back_to: 6 }
    }

    fn of(entries: &[(u64, Entry)]) -> Vec<Origin> {
        origins(entries, "this", "hash", 100)
    }

    fn first_of(entry: (u64, Entry)) -> Origin {
        of(&[entry])[0]
    }

    #[test]
    fn a_commit_of_this_boot_is_in_force_again_unless_the_file_was_changed() {
        assert_eq!(first_of(entry(7, |_| ())), Origin::Revision(7, None));
        assert_eq!(first_of(entry(7, |it| it.boot = "before".to_owned())), Origin::File);
        assert_eq!(first_of(entry(7, |it| it.file = "other".to_owned())), Origin::File);
        assert_eq!(first_of(entry(7, |it| it.via = Via::Reload)), Origin::File);
        assert_eq!(first_of(corrupt(7)), Origin::File);
        assert_eq!(of(&[]), [Origin::File]);
        let nowhere = [entry(7, |it| it.boot.clear())];
        assert_eq!(origins(&nowhere, "", "hash", 100), [Origin::File]);
    }

    #[test]
    fn a_commit_after_which_the_file_was_loaded_does_not_come_back() {
        let (number, Entry::Whole { header, is_confirmed, .. }) = entry(7, |_| ()) else {
            unreachable!("it is whole")
        };
        let replaced = (number, Entry::Whole { header, is_confirmed, is_replaced: true });
        assert_eq!(of(&[replaced, entry(6, |_| ())]), [Origin::File]);
    }

    #[test]
    fn a_commit_that_was_not_confirmed_in_time_is_not() {
        let late = entry(7, |it| it.confirm = Some(until(100)));
        let in_time = entry(7, |it| it.confirm = Some(until(101)));
        let older = [entry(6, |_| ()), entry(5, |_| ())];
        let with = |newest: (u64, Entry)| of(&[&[newest][..], &older].concat());
        let rest = [Origin::Before(6), Origin::Revision(5, None), Origin::File];
        assert_eq!(with(late.clone()), rest);
        assert_eq!(with(in_time), [&[Origin::Revision(7, Some(until(101)))][..], &rest].concat());
        let (_, Entry::Whole { header, is_replaced, .. }) = late else { unreachable!("it is whole") };
        let confirmed = (7, Entry::Whole { header, is_confirmed: true, is_replaced });
        assert_eq!(with(confirmed)[0], Origin::Revision(7, None));
    }

    #[test]
    fn a_revision_that_cannot_be_read_may_have_waited_to_be_confirmed() {
        assert_eq!(of(&[corrupt(8), entry(7, |_| ())])[0], Origin::Revision(7, None));
        // What came after one that waits was what undid it, or it was confirmed.
        let waits = entry(7, |it| it.confirm = Some(until(1000)));
        assert_eq!(of(&[corrupt(8), waits])[0], Origin::Before(6));
        assert_eq!(of(&[corrupt(8), entry(7, |it| it.via = Via::Start), entry(6, |_| ())]), [Origin::File]);
    }
}
