//! Which revisions each location still lacks, when it is tried again, and what is shown of it.

use super::transfer::{Copy, Problem, Routes};
use config::Text;
use config::schema::Location;
use config::settings::CommitArchive;
use disk::{Folder, Wanted};
use gateway::api::model::Revision;
use gateway::daemon::archive::revision::{self, Header};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The time after the first failure, which doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(900);
/// Copies that wait for one location; older ones are left out.
const MOST: usize = 100;
/// Bytes of a state file.
const LARGEST: u64 = 1 << 20;
/// Bytes of a revision: the daemon's user, who writes them, must not exhaust the memory of root.
const LARGEST_REVISION: u64 = 128 << 20;

/// What each location has.
pub(super) struct Copies {
    archive: PathBuf,
    /// The file that survives a restart.
    kept: PathBuf,
    status: PathBuf,
    /// The newest revision at each location.
    copied: BTreeMap<String, u64>,
    failures: BTreeMap<String, Failed>,
    /// The newest revision, and what it says about copies.
    newest: u64,
    wanted: CommitArchive,
    /// The folders of this machine that may have copies.
    allowed: Vec<PathBuf>,
}

/// A location that could not be reached.
struct Failed {
    problem: Problem,
    pause: Duration,
    again: Instant,
}

/// A location, as it is shown.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shown {
    location: String,
    /// The newest revision that is there.
    copied: u64,
    /// How many copies wait.
    waiting: usize,
    why: Option<String>,
    fix: Option<String>,
}

/// Where what was copied is written for a daemon with this API socket.
pub(crate) fn status_of(api: &Path) -> PathBuf {
    api.with_extension("archive.json")
}

/// The state of the copies of a daemon, which has these revisions and wants these copies. The process that copies may have ended
/// since it wrote its file.
pub(crate) fn shown(api: &Path, revisions: &[Revision], wanted: &CommitArchive) -> String {
    let text = disk::read(&status_of(api), LARGEST).map(|(text, _)| text);
    let all: Vec<Shown> = text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let mut said = String::new();
    for location in wanted.locations.iter().map(ToString::to_string) {
        let Some(known) = all.iter().find(|shown| shown.location == location) else {
            let _ = writeln!(
                said,
                "archive {location}: not copied yet\n  fix: if that stays, start postern as root, or: systemctl enable --now \
                 postern-archiver"
            );
            continue;
        };
        let is_lacking = |it: &&Revision| it.revision > known.copied && it.corrupt.is_none();
        let lacking = revisions.iter().filter(is_lacking).count();
        let waiting = known.waiting.max(lacking.min(MOST));
        let _ = match (waiting, &known.why) {
            (0, _) => writeln!(said, "archive {location}: up to date, with revision {}", known.copied),
            (_, None) => writeln!(said, "archive {location}: {}", counted(waiting)),
            (_, Some(why)) => writeln!(said, "archive {location}: {}: {}", counted(waiting), printed(why)),
        };
        if let Some(fix) = known.fix.as_ref().filter(|fix| !fix.is_empty() && waiting > 0) {
            let _ = writeln!(said, "  fix: {}", printed(fix));
        }
    }
    said
}

/// Text of another program without what a terminal would obey.
fn printed(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn counted(waiting: usize) -> String {
    if waiting == 1 { "1 copy waiting".to_owned() } else { format!("{waiting} copies waiting") }
}

impl Copies {
    /// What was copied until now.
    pub(super) fn open(state: PathBuf, status: PathBuf, allowed: Vec<PathBuf>) -> Self {
        let kept = state.join("commit-archive.json");
        let text = disk::read(&kept, LARGEST).map(|(text, _)| text);
        let copied = text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let archive = state.join("archive");
        let (failures, wanted) = (BTreeMap::new(), CommitArchive::default());
        Self { archive, kept, status, copied, failures, newest: 0, wanted, allowed }
    }

    /// Makes all copies that are due; when to look again, if one waits.
    pub(super) fn work(&mut self, ended: &dyn Fn() -> bool) -> Option<Duration> {
        let revisions = self.revisions();
        self.look(&revisions);
        for location in self.wanted.locations.clone() {
            let name = location.to_string();
            while !ended() && self.is_due(&name) {
                let Some(next) = self.waiting(&name, &revisions).first().copied() else { break };
                self.copy(&location, &name, next, ended);
                self.keep();
                self.show(&revisions);
            }
        }
        self.show(&revisions);
        let now = Instant::now();
        self.failures.values().map(|failed| failed.again.saturating_duration_since(now)).min()
    }

    /// The numbers of all revisions.
    fn revisions(&self) -> Vec<u64> {
        let names = Folder::open(&self.archive).and_then(|archive| archive.names()).unwrap_or_default();
        let names = names.into_iter().filter_map(|name| name.into_string().ok());
        let mut numbers: Vec<u64> =
            names.filter_map(|name| name.strip_suffix(".conf")?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Takes the locations from the newest revision, if there is another than before.
    fn look(&mut self, revisions: &[u64]) {
        let Some(&newest) = revisions.last() else { return };
        if newest == self.newest {
            return;
        }
        let Ok(Some((_, lines))) = self.read(newest) else { return };
        let Some(tree) = lines.as_str().ok().and_then(|lines| config::parse(lines).ok()) else {
            return;
        };
        self.newest = newest;
        self.wanted = CommitArchive::new(&tree);
        // A machine that does not answer takes minutes: folders do not wait for it.
        self.wanted.locations.sort_by_key(|location| !matches!(location, Location::Folder(_)));
        let names: Vec<String> = self.wanted.locations.iter().map(ToString::to_string).collect();
        self.copied.retain(|name, _| names.contains(name));
        self.failures.retain(|name, _| names.contains(name));
        for name in names {
            // A new location gets the newest first. One of another machine's past has numbers that are not ours.
            let copied = self.copied.entry(name).or_insert(newest - 1);
            *copied = (*copied).min(newest);
        }
    }

    /// A revision; none if it was removed or is damaged. The daemon's user may have put a link or a pipe in its place.
    fn read(&self, number: u64) -> io::Result<Option<(Header, Text)>> {
        let name = format!("{number:08}.conf");
        let file = match Folder::open(&self.archive).and_then(|archive| archive.file(OsStr::new(&name))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        if file.metadata()?.len() > LARGEST_REVISION {
            return Ok(None);
        }
        Ok(revision::parse(Text::read_from(file.take(LARGEST_REVISION))?).ok())
    }

    /// The revisions that a location lacks, the oldest first.
    fn waiting(&self, name: &str, revisions: &[u64]) -> Vec<u64> {
        let copied = self.copied.get(name).copied().unwrap_or(self.newest);
        let lacking: Vec<u64> =
            revisions.iter().copied().filter(|number| *number > copied && *number <= self.newest).collect();
        lacking[lacking.len().saturating_sub(MOST)..].to_vec()
    }

    fn is_due(&self, name: &str) -> bool {
        self.failures.get(name).is_none_or(|failed| failed.again <= Instant::now())
    }

    fn copy(&mut self, location: &Location, name: &str, number: u64, ended: &dyn Fn() -> bool) {
        let routes = Routes { allowed: &self.allowed, source: self.wanted.source_address, ended };
        let sent = match self.copy_of(number) {
            // It was removed as the oldest, or is damaged, which the daemon says.
            Ok(None) => Ok(()),
            Ok(Some((name, text))) => routes.send(location, &Copy { name: &name, text: &text }),
            Err(error) => Err(Problem::new(format!("revision {number}: {error}"), "")),
        };
        match sent {
            Ok(()) => {
                self.copied.insert(name.to_owned(), number);
                if self.failures.remove(name).is_some() {
                    tracing::info!("commit-archive {name}: revision {number} is copied");
                }
            }
            Err(_) if ended() => {}
            Err(problem) => self.fail(name, problem),
        }
    }

    fn fail(&mut self, name: &str, problem: Problem) {
        let before = self.failures.get(name);
        if before.is_none_or(|before| before.problem != problem) {
            let Problem { why, fix } = &problem;
            tracing::warn!("commit-archive {name}: {why}; it is tried again\n  fix: {fix}");
        }
        let pause = before.map_or(FIRST_PAUSE, |before| (2 * before.pause).min(LONGEST_PAUSE));
        self.failures.insert(name.to_owned(), Failed { problem, pause, again: Instant::now() + pause });
    }

    /// The name and the text of a copy, as VyOS names and writes it.
    fn copy_of(&self, number: u64) -> io::Result<Option<(String, Text)>> {
        let Some((header, lines)) = self.read(number)? else { return Ok(None) };
        let Some(tree) = lines.as_str().ok().and_then(|lines| config::parse(lines).ok()) else {
            return Ok(None);
        };
        let mut text = Text::default();
        let _ = text.write_str(&Zeroizing::new(config::print::braces(&tree, true)));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let host: String = host.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let mut name = format!("config.boot-{host}.{}", crate::backup::compact(&header.time));
        // Two commits of one second.
        if self.read(number - 1)?.is_some_and(|(before, _)| before.time == header.time) {
            let _ = write!(name, "_{number}");
        }
        Ok(Some((name, text)))
    }

    fn keep(&self) {
        let text = serde_json::to_vec(&self.copied).unwrap_or_default();
        if let Err(error) = disk::write(&self.kept, &Wanted::private(&text)) {
            tracing::warn!("{}: {error}: after a restart, copies may be made again", self.kept.display());
        }
    }

    /// Removes the status when the process ends.
    pub(super) fn forget_status(&self) {
        let _ = fs::remove_file(&self.status);
    }

    fn show(&self, revisions: &[u64]) {
        let shown = self.wanted.locations.iter().map(|location| {
            let name = location.to_string();
            let problem = self.failures.get(&name).map(|failed| failed.problem.clone());
            let (why, fix) = problem.map(|problem| (problem.why, problem.fix)).unzip();
            let copied = self.copied.get(&name).copied().unwrap_or_default();
            Shown { waiting: self.waiting(&name, revisions).len(), location: name, copied, why, fix }
        });
        let shown: Vec<Shown> = shown.collect();
        let text = serde_json::to_vec(&shown).unwrap_or_default();
        let is_there = disk::read(&self.status, LARGEST).is_ok_and(|(before, _)| *before == text);
        // The group of the daemon's user, which may use its API, may read it.
        let wanted = Wanted { mode: 0o640, ..Wanted::private(&text) };
        if !is_there && let Err(error) = disk::write(&self.status, &wanted) {
            tracing::debug!("{}: {error}", self.status.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    struct Machine {
        folder: TempDir,
        copies: Copies,
    }

    impl Machine {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            for inside in ["archive", "copies"] {
                fs::create_dir(folder.path().join(inside)).expect("ours");
            }
            let copies = Self::open(&folder);
            Self { folder, copies }
        }

        fn open(folder: &TempDir) -> Copies {
            let allowed = vec![folder.path().join("copies")];
            Copies::open(folder.path().to_owned(), folder.path().join("status.json"), allowed)
        }

        fn commit(&self, number: u64, second: u64, more: &str) {
            let location = self.folder.path().join("copies");
            let lines = format!(
                "{more}set system config-management commit-archive location {}\n",
                location.display()
            );
            let header = Header {
                revision: number,
                time: format!("2026-11-23T05:00:{second:02}Z"),
                text: revision::digest(lines.as_bytes()),
                ..Header::default()
            };
            let mut text = Text::default();
            text.write_str(&lines).expect("it grows");
            let path = self.folder.path().join(format!("archive/{number:08}.conf"));
            fs::write(path, revision::print(&header, &text).bytes()).expect("ours");
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.folder.path().join("copies")).into_iter().flatten().flatten();
            let mut names: Vec<String> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        }

        fn status(&self) -> String {
            let text = fs::read_to_string(self.folder.path().join("status.json")).unwrap_or_default();
            text.replace(&self.folder.path().display().to_string(), "")
        }
    }

    #[test]
    fn each_revision_is_copied_once_and_a_restart_forgets_none() {
        let mut machine = Machine::new();
        assert_eq!(machine.copies.work(&|| false), None);
        for number in 1..=3 {
            machine.commit(number, number, "");
        }
        assert_eq!(machine.copies.work(&|| false), None);
        assert_eq!(machine.names().len(), 1, "a new location gets the newest");
        machine.commit(4, 4, "");
        machine.copies = Machine::open(&machine.folder);
        machine.commit(5, 5, "set system allow-empty\n");
        machine.commit(6, 5, "");
        assert_eq!(machine.copies.work(&|| false), None);
        let names = machine.names();
        let host = names[0]
            .strip_prefix("config.boot-")
            .and_then(|rest| rest.split_once(".2026"))
            .expect("a name")
            .0;
        let ends = ["20261123_050003", "20261123_050004", "20261123_050005", "20261123_050005_6"];
        assert_eq!(names, ends.map(|end| format!("config.boot-{host}.{end}")));
        let path = machine.folder.path().join("copies").join(&names[2]);
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(text.contains("commit-archive {\n") && config::parse(&text).is_ok(), "{text}");
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::metadata(path).expect("it is there").mode() & 0o777, 0o600);
        assert!(
            machine.status().contains(r#""location":"/copies","copied":6,"waiting":0"#),
            "{}",
            machine.status()
        );
    }

    #[test]
    fn what_cannot_be_copied_waits_and_says_why() {
        let mut machine = Machine::new();
        machine.commit(1, 1, "");
        fs::remove_dir(machine.folder.path().join("copies")).expect("ours");
        let next = machine.copies.work(&|| false).expect("it is tried again");
        assert!(next <= FIRST_PAUSE && next > Duration::ZERO);
        assert!(
            machine.status().contains(r#""waiting":1"#) && machine.status().contains("mkdir -p /copies"),
            "{}",
            machine.status()
        );
        machine.commit(2, 2, "");
        fs::create_dir(machine.folder.path().join("copies")).expect("ours");
        machine.copies.work(&|| false);
        assert_eq!(machine.names(), [""; 0], "its time has not come");
        for failed in machine.copies.failures.values_mut() {
            failed.again = Instant::now();
        }
        assert_eq!(machine.copies.work(&|| false), None);
        assert_eq!(machine.names().len(), 2, "in their order");
        let api = machine.folder.path().join("a.sock");
        fs::copy(machine.folder.path().join("status.json"), status_of(&api)).expect("ours");
        let revisions = |newest| -> Vec<Revision> {
            (1..=newest).rev().map(|revision| Revision { revision, ..Revision::default() }).collect()
        };
        let shown = |newest| shown(&api, &revisions(newest), &machine.copies.wanted);
        assert!(shown(2).ends_with("copies: up to date, with revision 2\n"), "{}", shown(2));
        assert!(shown(4).ends_with("copies: 2 copies waiting\n"), "the process has ended: {}", shown(4));
        fs::remove_file(status_of(&api)).expect("ours");
        assert!(shown(2).contains("copies: not copied yet\n  fix: "), "{}", shown(2));
    }

    #[test]
    fn what_the_user_of_the_daemon_puts_into_the_archive_is_not_followed() {
        let mut machine = Machine::new();
        machine.commit(1, 1, "");
        machine.copies.work(&|| false);
        let archive = machine.folder.path().join("archive");
        machine.commit(2, 2, "");
        fs::rename(archive.join("00000002.conf"), machine.folder.path().join("elsewhere")).expect("ours");
        std::os::unix::fs::symlink("../elsewhere", archive.join("00000002.conf")).expect("ours");
        assert!(machine.copies.read(2).is_err());
        let pipe = archive.join("00000003.conf");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("ours");
        assert!(machine.copies.read(3).is_err(), "and it does not wait for a writer");
        fs::File::create(archive.join("00000004.conf"))
            .and_then(|file| file.set_len(LARGEST_REVISION + 1))
            .expect("ours");
        assert!(matches!(machine.copies.read(4), Ok(None)), "too large");
        machine.copies.work(&|| false);
        assert_eq!(machine.names().len(), 1);
    }

    #[test]
    fn folders_do_not_wait_for_other_machines() {
        let mut machine = Machine::new();
        machine.commit(1, 1, "set system config-management commit-archive location scp://192.0.2.1/a\n");
        let revisions = machine.copies.revisions();
        machine.copies.look(&revisions);
        let is_folder = |location: &Location| matches!(location, Location::Folder(_));
        let order: Vec<bool> = machine.copies.wanted.locations.iter().map(is_folder).collect();
        assert_eq!(order, [true, false]);
    }

    #[test]
    fn pauses_grow_to_an_end() {
        let mut machine = Machine::new();
        let problem = Problem { why: "no".to_owned(), fix: String::new() };
        let pauses: Vec<u64> = (0..10)
            .map(|_| {
                machine.copies.fail("a", problem.clone());
                machine.copies.failures["a"].pause.as_secs()
            })
            .collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]);
    }
}
