//! The log of alerts: a file for each day, in UTC, of a bounded size, and the oldest days are removed.

use crate::output::timestamp;
use gateway::health::wire::{Line, Log};
use rustix::fs::OFlags;
use std::cell::Cell;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

/// What the last line of a file that is full says.
const FULL: &str = "the file is full: further lines of this day are lost";

/// A folder of files.
pub(super) struct Journal {
    folder: PathBuf,
    log: Log,
    /// The day whose file is full.
    full: Cell<Option<u64>>,
}

impl Journal {
    pub(super) fn new(folder: PathBuf, log: Log) -> Self {
        Self { folder, log, full: Cell::new(None) }
    }

    /// Adds a line; a disk that is full loses it.
    pub(super) fn write(&self, line: &Line) {
        if let Err(error) = self.try_write(line) {
            tracing::warn!("{}: {error}", self.folder.display());
        }
    }

    fn try_write(&self, Line { at, text }: &Line) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let (time, day) = (timestamp(*at), at / 86_400);
        let name = format!("{}.log", time.get(..10).unwrap_or_default());
        let path = self.folder.join(name);
        let is_new = !path.exists();
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let mut file =
            OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
        let text = text.replace(char::is_control, " ");
        let (size, most) = (file.metadata()?.len(), u64::from(self.log.kilobytes) << 10);
        // There is room for it after every other line.
        let full = format!("{time} {FULL}\n");
        let line = format!("{time} {text}\n");
        let is_full = self.full.get() == Some(day);
        if !is_full && size + (line.len() + full.len()) as u64 <= most {
            file.write_all(line.as_bytes())?;
        } else if self.full.replace(Some(day)) != Some(day) && size + (full.len() as u64) <= most {
            file.write_all(full.as_bytes())?;
        }
        if is_new {
            self.remove_old()?;
        }
        Ok(())
    }

    fn remove_old(&self) -> io::Result<()> {
        let names =
            fs::read_dir(&self.folder)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut days: Vec<String> = names.filter(|name| is_day(name)).collect();
        days.sort();
        let old = days.len().saturating_sub(self.log.days as usize);
        days[..old].iter().try_for_each(|name| fs::remove_file(self.folder.join(name)))
    }
}

/// Whether a file is one of ours: 2026-11-23.log
fn is_day(name: &str) -> bool {
    let form = b"0000-00-00.log";
    let fits = |(byte, form): (u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form };
    name.len() == form.len() && name.bytes().zip(form).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn line(at: u64, text: &str) -> Line {
        Line { at, text: text.to_owned() }
    }

    #[test]
    fn each_day_has_a_file_and_old_ones_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("health");
        let journal = Journal::new(folder.clone(), Log { days: 2, kilobytes: 16 });
        journal.write(&line(0, "first\nline"));
        fs::write(folder.join("notes.txt"), "").expect("ours");
        journal.write(&line(DAY - 1, "second"));
        let text = fs::read_to_string(folder.join("1970-01-01.log")).expect("a file");
        assert_eq!(text, "1970-01-01T00:00:00Z first line\n1970-01-01T23:59:59Z second\n");
        journal.write(&line(DAY, "third"));
        journal.write(&line(2 * DAY, "fourth"));
        let mut names: Vec<_> =
            fs::read_dir(&folder).expect("ours").flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["1970-01-02.log", "1970-01-03.log", "notes.txt"]);
    }

    #[test]
    fn a_file_that_is_full_says_so_once_and_grows_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::new(folder.path().to_owned(), Log { days: 2, kilobytes: 16 });
        (0..2000).for_each(|number| journal.write(&line(number, "an alert that comes and goes all day")));
        let text = fs::read_to_string(folder.path().join("1970-01-01.log")).expect("a file");
        assert!(text.len() <= 16 << 10, "{}", text.len());
        assert_eq!(text.matches(FULL).count(), 1);
    }

    #[test]
    fn a_link_in_place_of_a_file_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        fs::write(&victim, "").expect("ours");
        std::os::unix::fs::symlink(&victim, folder.path().join("1970-01-01.log")).expect("ours");
        Journal::new(folder.path().to_owned(), Log { days: 2, kilobytes: 16 }).write(&line(0, "a"));
        assert_eq!(fs::read_to_string(victim).expect("ours"), "");
    }
}
