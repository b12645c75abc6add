//! One JSON object a line, for programs that collect logs.

use super::event::{Fields, level_name, time};
use gateway::log::{Subsystem, is_on};
use serde_json::{Map, Value};
use std::io::{Write, stderr};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

pub(crate) struct Json;

impl<S: Subscriber> Layer<S> for Json {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if is_on(metadata) {
            let subsystem = Subsystem::of(metadata.target());
            // A log that cannot be written cannot be reported.
            let _ = stderr().write_all(object(*metadata.level(), subsystem, Fields::of(event)).as_bytes());
        }
    }
}

/// The line of an event.
pub(super) fn object(level: Level, subsystem: Subsystem, fields: Fields) -> String {
    let Fields { message, interface, peer } = fields;
    let mut object = Map::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            object.insert(name.to_owned(), Value::String(value));
        }
    };
    add("time", Some(time()));
    add("level", Some(level_name(level).to_owned()));
    add("subsystem", Some(subsystem.name().to_owned()));
    add("interface", interface);
    add("peer", peer);
    add("message", Some(message));
    // One write: lines of several threads and processes stay whole.
    Value::Object(object).to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_it_says() {
        let fields = Fields {
            message: "a \"b\"\n  fix: c".to_owned(),
            interface: None,
            peer: Some("x\x1b".to_owned()),
        };
        let line = object(Level::WARN, Subsystem::Ipsec, fields);
        assert_eq!(line.matches('\n').count(), 1);
        let read: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&read["level"], &read["subsystem"]), (&"warning".into(), &"ipsec".into()));
        assert_eq!((&read["message"], &read["peer"]), (&"a \"b\"\n  fix: c".into(), &"x\u{1b}".into()));
        assert!(read.get("interface").is_none());
    }
}
