//! Logging: lines with time and level, JSON on request, or the journal's own protocol where it reads standard error. The last lines are kept for
//! the API.
//!
//! ```text
//! event ──> gate (level, trace, bound) ──> text, JSON or journal
//!                                     └──> memory, for the API
//! ```

mod event;
mod gate;
mod journald;
mod json;
mod kept;

pub(crate) use event::MessageOnly;
pub(crate) use kept::Kept;

use crate::Outcome;
use clap::ValueEnum;
use event::Fields;
use gate::Gate;
use gateway::log::{Subsystem, is_on, set_usual};
use journald::Journald;
use json::Json;
use rustix::fs::fstat;
use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// The environment variable with the log level.
const VARIABLE: &str = "LOG_LEVEL";
/// The one with the format: the daemon sets it for the processes that it starts.
const FORMAT: &str = "LOG_FORMAT";

/// How lines are written to standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Time, level and text; where the journal reads them, entries of the journal with fields
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Whether lines are JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Chooses the format, before [`start`].
pub(crate) fn choose(format: Format) {
    IS_JSON.store(format == Format::Json, Ordering::Relaxed);
}

/// What the processes that this one starts are told.
pub(crate) fn environment() -> Option<(&'static str, &'static str)> {
    IS_JSON.load(Ordering::Relaxed).then_some((FORMAT, "json"))
}

/// Logs to standard error at the level of `LOG_LEVEL`, a variable that other WireGuard daemons use too.
pub(crate) fn start() -> Outcome {
    let level = match asked()? {
        Asked::Nothing => Level::INFO,
        Asked::Level(level) => level,
        Asked::Silence => return Ok(()),
    };
    set_usual(level);
    if std::env::var_os(FORMAT).is_some_and(|format| format == "json") {
        choose(Format::Json);
    }
    let log = tracing_subscriber::registry().with(Gate::default()).with(Kept);
    let on = || dynamic_filter_fn(|metadata, _| is_on(metadata));
    if IS_JSON.load(Ordering::Relaxed) {
        log.with(Json).init();
    } else if is_journal() {
        match Journald::connect() {
            Ok(journal) => log.with(journal).init(),
            // It reads priorities at the start of a line, too.
            Err(_) => log.with(plain().with_writer(stderr).event_format(journal()).with_filter(on())).init(),
        }
    } else {
        log.with(plain().with_writer(stderr).with_ansi(stderr().is_terminal()).with_filter(on())).init();
    }
    Ok(())
}

/// What `LOG_LEVEL` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is not set.
    Nothing,
    /// Lines of this level and above.
    Level(Level),
    /// No line.
    Silence,
}

/// Reads `LOG_LEVEL`.
pub(crate) fn asked() -> Result<Asked, String> {
    let asked = std::env::var_os(VARIABLE).unwrap_or_default();
    if asked.is_empty() {
        return Ok(Asked::Nothing);
    }
    Ok(level(&asked.to_string_lossy())?.map_or(Asked::Silence, Asked::Level))
}

/// A line for each event, without colours.
pub(crate) fn plain<S>() -> fmt::Layer<S, MessageOnly> {
    fmt::Layer::default().with_ansi(false).with_target(false).fmt_fields(MessageOnly)
}

/// The level that a word names; `None` for `silent`.
fn level(word: &str) -> Result<Option<Level>, String> {
    match word.to_ascii_lowercase().as_str() {
        "silent" => Ok(None),
        "error" => Ok(Some(Level::ERROR)),
        "warn" | "warning" => Ok(Some(Level::WARN)),
        "" | "info" => Ok(Some(Level::INFO)),
        "debug" | "verbose" => Ok(Some(Level::DEBUG)),
        _ => Err(format!(
            "{VARIABLE}={word:?} is not a log level\n  fix: {VARIABLE}=error, warn, info or debug; or silent"
        )),
    }
}

/// Prints why a command has failed.
pub(crate) fn failure(error: &dyn Display) {
    let text = format!("postern: {error}");
    if IS_JSON.load(Ordering::Relaxed) {
        let fields = Fields { message: error.to_string(), ..Fields::default() };
        let _ = stderr().write_all(json::object(Level::ERROR, Subsystem::Daemon, fields).as_bytes());
    } else if is_journal() {
        eprint!("{}", prioritized(Level::ERROR, &text));
    } else {
        eprintln!("{text}");
    }
}

/// Whether standard error goes to the journal: `JOURNAL_STREAM` names its device and inode (systemd.exec(5)), which differ if
/// it has been redirected.
pub(crate) fn is_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    fstat(stderr()).is_ok_and(|file| names(&stream, file.st_dev, file.st_ino))
}

fn names(stream: &str, device: u64, inode: u64) -> bool {
    stream
        .split_once(':')
        .is_some_and(|(first, second)| first.parse() == Ok(device) && second.parse() == Ok(inode))
}

/// Formats each line of a message from its priority and its text.
pub(crate) struct EachLine<F>(pub(crate) F);

/// Formats lines for the journal, which adds the time and reads a priority at the start of each line (sd-daemon(3)).
pub(crate) fn journal() -> EachLine<impl Fn(u8, &str) -> String + 'static> {
    EachLine(|priority, line: &str| prioritized_line(priority, line))
}

impl<F, S, N> FormatEvent<S, N> for EachLine<F>
where
    F: Fn(u8, &str) -> String + 'static,
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let priority = priority(*event.metadata().level());
        text.lines().try_for_each(|line| writer.write_str(&(self.0)(priority, line)))
    }
}

/// The priority of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Puts a priority before each line of a text.
fn prioritized(level: Level, text: &str) -> String {
    text.lines().map(|line| prioritized_line(priority(level), line)).collect()
}

fn prioritized_line(priority: u8, line: &str) -> String {
    format!("<{priority}>{line}\n")
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
        let error = level("loud").expect_err("not a level");
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
