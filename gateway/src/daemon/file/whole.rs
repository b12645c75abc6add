//! Whether a configuration file is complete: it may be truncated, or a program may still be writing it.

use super::FileError;
use config::Text;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// A file modified more recently than this may still be in the middle of a write.
const SETTLED: Duration = Duration::from_millis(100);
/// How often a file that is being written is checked again.
const TRIES: usize = 50;

/// Reads a file that does not change meanwhile. Waits up to five seconds for a program that is writing it.
pub(super) fn read(path: &Path) -> Result<Text, FileError> {
    let wrong = |error: io::Error| FileError::unreadable(path, error);
    for _ in 0..TRIES {
        let before = std::fs::metadata(path).map_err(wrong)?;
        let text = Text::read(path).map_err(wrong)?;
        // A pipe ends when it is complete; only regular files can be read half-written.
        if !before.is_file() || is_settled(&before, &std::fs::metadata(path).map_err(wrong)?, &text) {
            return Ok(text);
        }
        std::thread::sleep(SETTLED);
    }
    Err(FileError::Changing(path.to_owned(), replace(path)))
}

fn is_settled(before: &Metadata, after: &Metadata, text: &Text) -> bool {
    let of = |file: &Metadata| (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec());
    // If the clock was set back, the file's time is in the future and says nothing: take the file as it is.
    let is_old = after.modified().ok().and_then(|at| at.elapsed().ok()).is_none_or(|age| age >= SETTLED);
    of(before) == of(after) && after.len() == text.bytes().len() as u64 && is_old
}

/// How to replace a file atomically.
fn replace(path: &Path) -> String {
    let path = path.display();
    format!("write the new one beside it, then: mv {path}.new {path}")
}

/// Whether the last line ends with a newline. A truncated file seldom does; some editors leave it out.
pub(super) fn ends_its_last_line(text: &str) -> bool {
    text.is_empty() || text.ends_with('\n')
}

/// The error for a file whose last line has no newline.
pub(super) fn cut_off(path: &Path) -> String {
    format!(
        "the last line has no newline: the file may be truncated\n  fix: if it is complete: echo >> {}; else {}",
        path.display(),
        replace(path)
    )
}

/// The error for a file that configures nothing and does not contain `system allow-empty`.
pub(super) fn empty(path: &Path) -> String {
    format!(
        "{} has no interface and no peer: it may be truncated\n  fix: if that is intended, add the line: set system \
         allow-empty; else {}",
        path.display(),
        replace(path)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("postern-whole-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_file_that_is_being_written_is_read_when_it_is_whole() {
        let path = path("growing");
        let mut file = std::fs::File::create(&path).expect("a file");
        let text = std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    file.write_all(b"a line\n").expect("it is written");
                    std::thread::sleep(SETTLED / 5);
                }
            });
            read(&path)
        });
        std::fs::remove_file(&path).expect("it is there");
        // A writer that pauses for longer than this looks like one that has finished.
        assert_eq!(text.expect("it is read").bytes().len(), 20 * 7);
    }

    #[test]
    fn what_is_not_there_says_how_to_have_it() {
        let error = read(&path("missing")).expect_err("not there").to_string();
        assert!(error.contains("--config FILE"), "{error}");
    }

    #[test]
    fn a_line_without_end_is_noticed() {
        assert!(ends_its_last_line("") && ends_its_last_line("set a\n") && !ends_its_last_line("set a\nse"));
        let said = cut_off(Path::new("/etc/a.conf"));
        assert!(said.contains("\n  fix: ") && said.contains("mv /etc/a.conf.new /etc/a.conf"), "{said}");
        assert!(empty(Path::new("a")).contains("set system allow-empty"));
    }
}
