//! The log of `postern openvpn`: to standard output as that of OpenVPN, a file or the system log, at the level of `verb`, with `mute`.

use crate::log::{Asked, EachLine};
use crate::{Failure, log};
use config::openvpn::settings::Log;
use gateway::log::{is_on, set_usual};
use gateway::openvpn::management::Board;
use std::fs::File;
use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The socket of the system log.
const SYSLOG: &str = "/dev/log";
/// The facility `daemon` of syslog(3).
const DAEMON: u8 = 3 << 3;

/// The level of `verb`, from 0 to 15.
static VERBOSITY: AtomicU8 = AtomicU8::new(1);
/// `mute`: equal lines in a row; 0 for no limit.
static MUTE: AtomicU32 = AtomicU32::new(0);
static ROW: Mutex<Row> = Mutex::new(Row { last: None, count: 0 });

/// Starts the log. Returns the standard error of the caller, if a file takes its place.
pub(super) fn start(log: &Log, board: &Arc<Board>) -> Result<Option<File>, Failure> {
    let asked = log::asked()?;
    set_verbosity(log.verbosity);
    // The environment has precedence: units and tests set it without a change of the file.
    if let Asked::Level(level) = asked {
        set_usual(level);
    }
    set_mute(log.mute);
    let is_silent = asked == Asked::Silence;
    let before = match &log.file {
        Some((path, appends)) => Some(redirect(path, *appends)?),
        None => None,
    };
    let syslog = log.syslog.as_ref().filter(|_| log.file.is_none());
    let shown = match syslog.map(|name| (name, Syslog::connect())) {
        _ if is_silent => None,
        Some((name, Ok(socket))) => {
            let socket = Mutex::new(socket);
            Some(log::plain().event_format(tagged(name.clone())).with_writer(socket).boxed())
        }
        Some((_, Err(error))) => {
            eprintln!("postern: the log goes to standard error: {SYSLOG}: {error}");
            Some(log::plain().with_writer(stderr).boxed())
        }
        None if log::is_journal() => {
            Some(log::plain().with_writer(stderr).event_format(log::journal()).boxed())
        }
        None => {
            // Scripts read it there.
            let lines = log::plain().with_writer(stdout).with_ansi(stdout().is_terminal());
            Some(if log.without_time { lines.without_time().boxed() } else { lines.boxed() })
        }
    };
    tracing_subscriber::registry()
        .with(Chosen)
        .with(log::Kept)
        .with(Noted(Arc::clone(board)))
        .with(shown)
        .init();
    Ok(before)
}

/// Standard output and standard error go to a file from now on; those of scripts too.
fn redirect(path: &Path, appends: bool) -> Result<File, Failure> {
    // Still root: another user must not lead it elsewhere by a link.
    let file = disk::output(path, appends).map_err(|error| {
        format!("log {}: {error}\n  fix: make the folder, or name a file that can be written", path.display())
    })?;
    let before = File::from(stderr().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(&file)?;
    rustix::stdio::dup2_stderr(&file)?;
    Ok(before)
}

/// Logs at this level of `verb` from now on.
pub(super) fn set_verbosity(verbosity: u8) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    set_usual(level(verbosity));
}

/// Leaves out lines after so many equal ones from now on.
pub(super) fn set_mute(lines: u32) {
    MUTE.store(lines, Ordering::Relaxed);
}

/// The level of `verb`.
pub(super) fn verbosity() -> u8 {
    VERBOSITY.load(Ordering::Relaxed)
}

/// The limit of equal lines.
pub(super) fn mute() -> u32 {
    MUTE.load(Ordering::Relaxed)
}

/// The level that `verb N` stands for: 3 is that of the examples, from 5 on OpenVPN logs for debugging.
fn level(verbosity: u8) -> Level {
    match verbosity {
        0 => Level::ERROR,
        1..=4 => Level::INFO,
        _ => Level::DEBUG,
    }
}

/// Lines of one place in the program.
struct Row {
    last: Option<Identifier>,
    count: u32,
}

impl Row {
    /// Whether the next line is logged, and how many lines were left out before.
    fn take(&mut self, place: Identifier, limit: u32) -> (bool, u32) {
        if self.last.as_ref() == Some(&place) {
            self.count = self.count.saturating_add(1);
            return (limit == 0 || self.count <= limit, 0);
        }
        let left_out = if limit == 0 || self.last.is_none() { 0 } else { self.count.saturating_sub(limit) };
        self.last = Some(place);
        self.count = 1;
        (true, left_out)
    }
}

/// Chooses what is logged. The level can change at any time.
struct Chosen;

impl<S: Subscriber> Layer<S> for Chosen {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        is_on(metadata)
    }

    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let limit = mute();
        let take = || row().take(event.metadata().callsite(), limit);
        let (is_taken, left_out) = take();
        if left_out > 0 {
            tracing::info!("{left_out} variation(s) on previous {limit} message(s) suppressed by --mute");
            take();
        }
        is_taken
    }
}

fn row() -> std::sync::MutexGuard<'static, Row> {
    ROW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lines for the management interface.
struct Noted(Arc<Board>);

impl<S: Subscriber> Layer<S> for Noted {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let flag = match *event.metadata().level() {
            Level::ERROR => 'N',
            Level::WARN => 'W',
            Level::INFO => 'I',
            Level::DEBUG | Level::TRACE => 'D',
        };
        self.0.log(flag, &message.0);
    }
}

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// The connection with the system log.
struct Syslog(UnixDatagram);

impl Syslog {
    fn connect() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SYSLOG)?;
        // A system log that hangs must not stop packets.
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }
}

impl Write for Syslog {
    /// One datagram for each line.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if self.0.send(line).is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
                // The system log was started again. A line that is lost cannot be logged.
                let _ = self.0.connect(SYSLOG).and_then(|()| self.0.send(line));
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats lines for the system log: priority, name and process id (RFC 3164, without the time, which its daemon adds).
fn tagged(name: String) -> EachLine<impl Fn(u8, &str) -> String + 'static> {
    EachLine(move |priority, line: &str| {
        format!("<{}>{name}[{}]: {line}\n", DAEMON | priority, std::process::id())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two places in the program.
    fn places() -> [Identifier; 2] {
        use tracing::Callsite;
        use tracing::metadata::Kind;
        [
            tracing::callsite!(name: "one", kind: Kind::EVENT, fields: ).metadata().callsite(),
            tracing::callsite!(name: "other", kind: Kind::EVENT, fields: ).metadata().callsite(),
        ]
    }

    #[test]
    fn the_levels_of_verb_are_those_of_the_log() {
        use Level as L;
        let expected = [L::ERROR, L::INFO, L::INFO, L::INFO, L::DEBUG, L::DEBUG];
        assert_eq!([0, 1, 3, 4, 5, 11].map(level), expected);
    }

    #[test]
    fn more_equal_lines_in_a_row_than_mute_says_are_left_out_and_counted() {
        let [one, other] = places();
        let mut row = Row { last: None, count: 0 };
        let taken: Vec<bool> = (0..5).map(|_| row.take(one.clone(), 2).0).collect();
        assert_eq!(taken, [true, true, false, false, false]);
        assert_eq!(row.take(other.clone(), 2), (true, 3));
        assert_eq!(row.take(one.clone(), 2), (true, 0));
        assert!((0..9).all(|_| row.take(one.clone(), 0) == (true, 0)), "without a limit");
    }
}
