//! Which revisions each location still lacks, when it is tried again, and what is shown of it.

use super::transfer::{self, Problem};
use config::Text;
use config::schema::Location;
use config::settings::CommitArchive;
use gateway::daemon::archive::revision::{self, Header};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
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

/// What is to be said of the copies of a daemon.
pub(crate) fn shown(api: &Path) -> String {
    let text = fs::read(status_of(api)).unwrap_or_default();
    let all: Vec<Shown> = serde_json::from_slice(&text).unwrap_or_default();
    let mut said = String::new();
    for Shown { location, copied, waiting, why, fix } in all {
        let _ = match (waiting, why) {
            (0, _) => writeln!(said, "archive {location}: up to date, with revision {copied}"),
            (_, None) => writeln!(said, "archive {location}: {}", counted(waiting)),
            (_, Some(why)) => writeln!(said, "archive {location}: {}: {why}", counted(waiting)),
        };
        if let Some(fix) = fix.filter(|fix| !fix.is_empty() && waiting > 0) {
            let _ = writeln!(said, "  fix: {fix}");
        }
    }
    said
}

fn counted(waiting: usize) -> String {
    if waiting == 1 { "1 copy waiting".to_owned() } else { format!("{waiting} copies waiting") }
}

impl Copies {
    /// What was copied until now.
    pub(super) fn open(state: PathBuf, status: PathBuf) -> Self {
        let kept = state.join("commit-archive.json");
        let text = fs::read(&kept).ok().filter(|text| text.len() as u64 <= LARGEST).unwrap_or_default();
        let copied = serde_json::from_slice(&text).unwrap_or_default();
        let archive = state.join("archive");
        let (failures, wanted) = (BTreeMap::new(), CommitArchive::default());
        Self { archive, kept, status, copied, failures, newest: 0, wanted }
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
        let entries = fs::read_dir(&self.archive).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
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
        let Some(tree) = self.read(newest).and_then(|(_, lines)| config::parse(lines.as_str().ok()?).ok())
        else {
            return;
        };
        self.newest = newest;
        self.wanted = CommitArchive::new(&tree);
        let names: Vec<String> = self.wanted.locations.iter().map(ToString::to_string).collect();
        self.copied.retain(|name, _| names.contains(name));
        self.failures.retain(|name, _| names.contains(name));
        for name in names {
            // A new location gets the newest first. One of another machine's past has numbers that are not ours.
            let copied = self.copied.entry(name).or_insert(newest - 1);
            *copied = (*copied).min(newest);
        }
    }

    fn read(&self, number: u64) -> Option<(Header, Text)> {
        let path = self.archive.join(format!("{number:08}.conf"));
        revision::parse(Text::read(&path).ok()?).ok()
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
        let source = self.wanted.source_address;
        let sent = match self.copy_of(number) {
            // It was removed as the oldest, or is damaged, which the daemon says.
            None => Ok(()),
            Some((file, text)) => transfer::send(location, source, &file, &text, ended),
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
    fn copy_of(&self, number: u64) -> Option<(String, Text)> {
        let (header, lines) = self.read(number)?;
        let tree = config::parse(lines.as_str().ok()?).ok()?;
        let mut text = Text::default();
        let _ = text.write_str(&Zeroizing::new(config::print::braces(&tree, true)));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let host: String = host.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let mut name = format!("config.boot-{host}.{}", crate::backup::compact(&header.time));
        // Two commits of one second.
        if self.read(number - 1).is_some_and(|(before, _)| before.time == header.time) {
            let _ = write!(name, "_{number}");
        }
        Some((name, text))
    }

    fn keep(&self) {
        if let Err(error) =
            serde_json::to_vec(&self.copied).map_err(Into::into).and_then(|text| write(&self.kept, &text))
        {
            tracing::warn!("{}: {error}: after a restart, copies may be made again", self.kept.display());
        }
    }

    /// Nobody copies any more.
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
        let is_there = fs::read(&self.status).is_ok_and(|before| before == text);
        if !is_there && let Err(error) = write(&self.status, &text) {
            tracing::debug!("{}: {error}", self.status.display());
        }
    }
}

/// Writes a file in one step.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    fs::rename(&new, path)
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
            Copies::open(folder.path().to_owned(), folder.path().join("status.json"))
        }

        fn commit(&self, number: u64, second: u64, more: &str) {
            let location = self.folder.path().join("copies");
            let lines = format!(
                "set system config-management commit-archive location {}\n{more}",
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
        assert!(shown(&api).ends_with("copies: up to date, with revision 2\n"), "{}", shown(&api));
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
