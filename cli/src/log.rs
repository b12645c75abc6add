//! What is logged, and how: lines with time and level, or, where the journal reads them, with its priorities.

use crate::Outcome;
use rustix::fs::fstat;
use std::fmt;
use std::io::{IsTerminal, stderr};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Says how much is logged.
const VARIABLE: &str = "LOG_LEVEL";

/// Logs to the standard error, as much as `LOG_LEVEL` asks for, which other WireGuard daemons read too.
pub(crate) fn start() -> Outcome {
    let asked = std::env::var_os(VARIABLE).unwrap_or_default();
    let Some(level) = level(&asked.to_string_lossy())? else { return Ok(()) };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(stderr);
    if is_journal() {
        log.event_format(Journal).init();
    } else {
        log.with_ansi(stderr().is_terminal()).with_target(false).init();
    }
    Ok(())
}

/// The level that a word asks for; none for silence.
fn level(word: &str) -> Result<Option<Level>, String> {
    match word.to_ascii_lowercase().as_str() {
        "silent" => Ok(None),
        "error" => Ok(Some(Level::ERROR)),
        "warn" | "warning" => Ok(Some(Level::WARN)),
        "" | "info" => Ok(Some(Level::INFO)),
        "debug" | "verbose" => Ok(Some(Level::DEBUG)),
        _ => Err(format!(
            "{VARIABLE}={word:?} is no level\n  fix: {VARIABLE}=error, warn, info or debug; or silent"
        )),
    }
}

/// Tells a person why a verb has failed.
pub(crate) fn failure(error: &dyn fmt::Display) {
    let text = format!("postern: {error}");
    if is_journal() {
        eprint!("{}", prioritized(Level::ERROR, &text));
    } else {
        eprintln!("{text}");
    }
}

/// Whether the standard error leads to the journal: `JOURNAL_STREAM` names its device and inode (systemd.exec(5)). What was
/// led elsewhere since does not.
fn is_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    fstat(stderr()).is_ok_and(|file| names(&stream, file.st_dev, file.st_ino))
}

fn names(stream: &str, device: u64, inode: u64) -> bool {
    stream
        .split_once(':')
        .is_some_and(|(first, second)| first.parse() == Ok(device) && second.parse() == Ok(inode))
}

/// Lines for the journal, which has the time itself, and takes a priority from the start of each line (sd-daemon(3)).
struct Journal;

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        writer.write_str(&prioritized(*event.metadata().level(), &text))
    }
}

/// A text with a priority before each of its lines, by the numbers of syslog(3).
fn prioritized(level: Level, text: &str) -> String {
    let number = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    };
    text.lines().map(|line| format!("<{number}>{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_in_the_words_of_others_too() {
        for (word, expected) in [
            ("", Some(Level::INFO)),
            ("error", Some(Level::ERROR)),
            ("warn", Some(Level::WARN)),
            ("WARNING", Some(Level::WARN)),
            ("verbose", Some(Level::DEBUG)),
            ("silent", None),
        ] {
            assert_eq!(level(word), Ok(expected), "{word}");
        }
        let error = level("loud").expect_err("no level");
        assert!(error.contains("\"loud\"") && error.contains("\n  fix: LOG_LEVEL=error, warn"), "{error}");
    }

    #[test]
    fn each_line_has_its_priority() {
        assert_eq!(prioritized(Level::WARN, "a\n  fix: b"), "<4>a\n<4>  fix: b\n");
        let levels = [Level::ERROR, Level::INFO, Level::DEBUG];
        assert_eq!(levels.map(|level| prioritized(level, "a")), ["<3>a\n", "<6>a\n", "<7>a\n"]);
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        assert!(names("8:4711", 8, 4711));
        assert!(!names("8:4711", 8, 4712) && !names("", 0, 0) && !names("8", 8, 0));
    }
}
