//! `/configure-section`: a branch as JSON, which is added, or takes the place of what is there.

use super::changes::{About, commit, edit};
use super::only::unknown;
use crate::app::App;
use crate::daemon::Refused;
use crate::gate::Client;
use crate::request::{Operation, Operations};
use config::{Tree, edits};
use serde_json::Value;

/// Words of a path: deeper than the grammar.
const DEEPEST: usize = 32;

pub(super) async fn configure(app: &App, asked: Operations, client: &Client) -> Result<Value, Refused> {
    let Operations { operations, confirm_minutes, comment } = asked;
    for operation in &operations {
        if !matches!(operation.op(), "set" | "load") {
            return Err(unknown(operation.op(), "set or load"));
        }
        if operation.section.is_none() {
            let why = if operation.config.is_some() {
                "a tree with a mask is not read\n  fix: send path and section"
            } else {
                "Malformed command: missing 'section' or 'config' field"
            };
            return Err(Refused::bad(why));
        }
        operation.words().map_err(|error| Refused::bad(error.error))?;
    }
    commit(app, client, About { confirm_minutes, comment }, move |tree| all(tree, &operations)).await
}

fn all(tree: &mut Tree, operations: &[Operation]) -> Result<(), String> {
    let wrong: Vec<String> = operations.iter().flat_map(|operation| one(tree, operation)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n\n")) }
}

/// The errors of an operation.
fn one(tree: &mut Tree, operation: &Operation) -> Vec<String> {
    let mut path = operation.words().unwrap_or_default();
    let mut wrong = Vec::new();
    if operation.op() == "load" && !path.is_empty() {
        // That nothing is there yet is right.
        wrong.extend(edit(tree, &edits::line("delete", &path, None), false).err());
    }
    if let Some(section) = &operation.section {
        set(tree, &mut path, section, &mut wrong);
    }
    wrong
}

/// Sets all of a value at a path: words lead on, texts are values, nothing is only set.
fn set<'a>(tree: &mut Tree, path: &mut Vec<&'a str>, value: &'a Value, wrong: &mut Vec<String>) {
    if path.len() > DEEPEST {
        wrong.push("Malformed command: the section is too deep".to_owned());
        return;
    }
    let number;
    let text = match value {
        Value::Object(below) if !below.is_empty() => {
            for (word, value) in below {
                path.push(word);
                set(tree, path, value, wrong);
                path.pop();
            }
            return;
        }
        Value::Array(values) => {
            for value in values.iter().filter(|value| !value.is_array() && !value.is_object()) {
                set(tree, path, value, wrong);
            }
            return;
        }
        Value::String(text) => Some(text.as_str()),
        Value::Number(_) | Value::Bool(_) => {
            number = value.to_string();
            Some(number.as_str())
        }
        Value::Object(_) | Value::Null => None,
    };
    if path.iter().copied().chain(text).any(|word| word.contains(char::is_control)) {
        wrong.push("Malformed command: a word has a line end or another control character".to_owned());
        return;
    }
    wrong.extend(edit(tree, &edits::line("set", path, text), true).err());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::operations;
    use config::print;
    use serde_json::json;

    fn changed(op: &str, path: &[&str], section: &Value) -> Result<String, String> {
        let mut tree = config::parse("set interfaces wireguard wg0 mtu 1400\n").expect("right");
        let data = json!({ "op": op, "path": path, "section": section }).to_string();
        all(&mut tree, &operations(&data).expect("right").operations)?;
        Ok(print::commands(&tree, true))
    }

    #[test]
    fn a_section_is_added_or_takes_the_place_of_another() {
        let section = json!({ "port": 51820, "peer": { "a": { "disable": {}, "allowed-ips": ["10.1.0.0/24", "10.2.0.0/24"] } } });
        let added = changed("set", &["interfaces", "wireguard", "wg0"], &section).expect("right");
        assert_eq!(added.lines().count(), 5, "{added}");
        assert!(
            added.contains("wg0 mtu 1400")
                && added.contains("wg0 port 51820")
                && added.contains("peer a disable")
        );
        let loaded = changed("load", &["interfaces", "wireguard", "wg0"], &section).expect("right");
        assert!(!loaded.contains("mtu") && loaded.contains("allowed-ips 10.2.0.0/24"), "{loaded}");
    }

    #[test]
    fn all_that_is_wrong_with_a_section_is_named() {
        let section = json!({ "mtu": "1", "frob": { "a": "b" }, "description": "a\nb" });
        let error = changed("set", &["interfaces", "wireguard", "wg0"], &section).expect_err("wrong");
        for part in ["wg0 mtu 1]", "frob", "control character"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
