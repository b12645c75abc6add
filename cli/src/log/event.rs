//! The fields of an event: its message, its interface and its peer.

use gateway::log::Subsystem;
use std::fmt::{Debug, Write};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// The fields of an event that the log knows.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    pub(crate) message: String,
    pub(crate) interface: Option<String>,
    pub(crate) peer: Option<String>,
}

impl Fields {
    pub(crate) fn of(event: &Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields
    }

    /// Whether it is for a trace of its peer.
    pub(crate) fn is_traced(&self, event: &Event<'_>) -> bool {
        let subsystem = Subsystem::of(event.metadata().target());
        self.peer.as_ref().is_some_and(|peer| gateway::log::is_traced(subsystem, peer))
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = || format!("{value:?}");
        match field.name() {
            "message" => self.message = text(),
            "interface" => self.interface = Some(text()),
            "peer" => self.peer = Some(text()),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // Without the quotes of Debug.
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Formats only the message: it names interface and peer in its own words, and the fields are for programs.
pub(crate) struct MessageOnly;

impl<'writer> FormatFields<'writer> for MessageOnly {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> std::fmt::Result {
        let mut found = Fields::default();
        fields.record(&mut found);
        writer.write_str(&found.message)
    }
}

/// The name of a level in the configuration and in JSON.
pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG | Level::TRACE => "debug",
    }
}

/// Now, to the microsecond (RFC 3339).
pub(crate) fn time() -> String {
    crate::output::timestamp_micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// An event as the terminal has it.
pub(crate) fn line(level: Level, message: &str) -> String {
    let mut line = String::new();
    // Writing to memory does not fail.
    let _ = write!(line, "{} {:>5} {message}", time(), level.as_str());
    line
}
