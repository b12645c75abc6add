//! Requests in VyOS's shapes: fields of a form, or JSON; then operations.
//!
//! ```text
//! body ── fields ──> key (checked), data ── JSON ──> operations
//! ```

mod form;

pub use form::{Fields, fields};

use gateway::api::model::SecretText;
use serde::Deserialize;
use serde_json::Value;

/// Why a request cannot be read: the status of the answer, and the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The status, as VyOS has it.
    pub status: u16,
    /// The error.
    pub error: String,
}

impl Unreadable {
    fn new(status: u16, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }
}

/// One operation.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
pub struct Operation {
    /// The operation, such as `set`.
    #[serde(default)]
    pub op: Option<String>,
    /// The words of the place; a value may be among them, which may be secret.
    #[serde(default)]
    pub path: Option<Vec<SecretText>>,
    /// A value.
    #[serde(default)]
    pub value: Option<SecretText>,
    /// The branch to set, of `/configure-section`.
    #[serde(default)]
    pub section: Option<Value>,
    /// The same from the root.
    #[serde(default)]
    pub config: Option<Value>,
    /// A file, of `/config-file`.
    #[serde(default)]
    pub file: Option<String>,
    /// A configuration, of `/config-file`.
    #[serde(default)]
    pub string: Option<SecretText>,
    /// The form of what is shown, of `/retrieve`.
    #[serde(default, rename = "configFormat")]
    pub config_format: Option<String>,
}

/// All of a request: its operations, which are one commit.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Operations {
    /// In their order; there is at least one.
    pub operations: Vec<Operation>,
    /// Minutes after which the commit is undone unless it is confirmed; 0 for never.
    pub confirm_minutes: u32,
    /// The comment of the commit.
    pub comment: Option<String>,
}

/// The fields of a request that apply to all its operations.
#[derive(Deserialize)]
struct Whole {
    #[serde(default)]
    commands: Option<Vec<Operation>>,
    #[serde(default)]
    confirm_time: u32,
    #[serde(default)]
    comment: Option<String>,
}

/// Reads the operations: one, a list, or a list with what belongs to all of it.
pub fn operations(data: &str) -> Result<Operations, Unreadable> {
    let wrong = |error: serde_json::Error| {
        // Not what was found: it may be a secret.
        let (line, column) = (error.line(), error.column());
        Unreadable::new(
            400,
            match error.classify() {
                serde_json::error::Category::Data => {
                    format!(
                        "Malformed command at line {line} column {column}: a field has another type than VyOS gives it"
                    )
                }
                _ => format!("Failed to parse JSON: line {line} column {column}"),
            },
        )
    };
    let read = if data.trim_start().starts_with('[') {
        let operations = serde_json::from_str(data).map_err(wrong)?;
        Operations { operations, ..Operations::default() }
    } else {
        let Whole { commands, confirm_time, comment } = serde_json::from_str(data).map_err(wrong)?;
        let operations = match commands {
            Some(commands) => commands,
            None => vec![serde_json::from_str(data).map_err(wrong)?],
        };
        Operations { operations, confirm_minutes: confirm_time, comment }
    };
    if read.operations.is_empty() {
        return Err(Unreadable::new(400, "Malformed command: there is none"));
    }
    if read.operations.iter().any(|operation| operation.op.is_none()) {
        return Err(Unreadable::new(400, "Malformed command: missing 'op' field"));
    }
    let words = read.operations.iter().flat_map(|it| it.path.iter().flatten().chain(&it.value));
    if words.into_iter().any(|word| word.as_str().contains(char::is_control)) {
        return Err(Unreadable::new(
            400,
            "Malformed command: a word has a line end or another control character",
        ));
    }
    Ok(read)
}

impl Operation {
    /// The operation; an empty text if the request has none.
    pub fn op(&self) -> &str {
        self.op.as_deref().unwrap_or_default()
    }

    /// The words of its place, which must be there.
    pub fn words(&self) -> Result<Vec<&str>, Unreadable> {
        let path = self
            .path
            .as_ref()
            .ok_or_else(|| Unreadable::new(400, "Malformed command: missing 'path' field"))?;
        Ok(path.iter().map(SecretText::as_str).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(data: &str) -> (u16, String) {
        let Unreadable { status, error } = operations(data).expect_err(data);
        (status, error)
    }

    #[test]
    fn one_operation_a_list_and_a_list_with_more_are_read() {
        let one = operations(r#"{"op": "set", "path": ["a", "b"], "value": "c", "confirm_time": 5}"#)
            .expect("right");
        assert_eq!((one.operations.len(), one.confirm_minutes), (1, 5));
        assert_eq!(one.operations[0].words().expect("a path"), ["a", "b"]);
        assert_eq!(one.operations[0].value, Some("c".into()));
        let list =
            operations(r#" [{"op": "set", "path": ["a"]}, {"op": "delete", "path": ["b"]}]"#).expect("right");
        assert_eq!(list.operations[1].op(), "delete");
        let more = r#"{"commands": [{"op": "set", "path": ["a"]}], "confirm_time": 2, "comment": "why", "key": "k"}"#;
        let more = operations(more).expect("right");
        assert_eq!((more.confirm_minutes, more.comment.as_deref()), (2, Some("why")));
        assert!(operations(r#"{"op": "show"}"#).expect("right").operations[0].words().is_err());
    }

    #[test]
    fn what_is_no_operation_is_refused_without_being_repeated() {
        for wrong in [
            "",
            "{",
            "7",
            "null",
            "[]",
            "[[]]",
            "[1]",
            "{}",
            r#"{"path": []}"#,
            r#"{"commands": []}"#,
            r#"{"op": 7}"#,
            r#"{"op": "set", "path": "a b"}"#,
            r#"{"op": "set", "path": [["a"]]}"#,
            r#"{"op": "set", "path": ["OpenSesame\n"]}"#,
            r#"{"op": "set", "path": [], "value": {"OpenSesame": 1}}"#,
            r#"{"op": "set", "path": ["a"], "confirm_time": "OpenSesame"}"#,
        ] {
            let (status, error) = error(wrong);
            assert!(status == 400 && !error.contains("Sesame"), "{wrong}: {error}");
        }
    }

    #[test]
    fn deep_nesting_ends_in_an_error() {
        let deep = format!(r#"{{"op":"set","path":[],"section":{}"#, "[".repeat(100_000));
        assert_eq!(error(&deep).0, 400);
    }
}
