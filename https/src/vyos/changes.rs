//! `/configure`: operations that are one commit.

use crate::app::App;
use crate::daemon::{Outcome, Refused};
use crate::gate::Client;
use crate::request::{Operation, Operations};
use axum::http::StatusCode;
use config::parse::NOTHING_TO_DELETE;
use config::{ConfigError, Tree, edits};
use gateway::api::model::{Commit, Committed, SecretText, Via};
use serde_json::Value;

/// How often a commit is made again on what others have committed meanwhile.
const TRIES: usize = 5;
/// Minutes until a commit must be confirmed.
const LONGEST_MINUTES: u32 = 65_535;

pub(super) async fn configure(app: &App, asked: Operations, client: &Client) -> Result<Value, Refused> {
    if let [only] = &asked.operations[..]
        && only.op() == "confirm"
    {
        return confirm(app).await;
    }
    let strict = app.serving().is_strict;
    let Operations { operations, confirm_minutes, comment } = asked;
    let about = About { confirm_minutes, comment };
    commit(app, client, about, move |tree| change(tree, &operations, strict)).await
}

/// Keeps a commit that must be confirmed.
pub(super) async fn confirm(app: &App) -> Result<Value, Refused> {
    app.daemon.confirm().await?;
    Ok("The last change stays in force\n".into())
}

/// The fields of a commit besides its edits.
#[derive(Clone, Default)]
pub(super) struct About {
    pub(super) confirm_minutes: u32,
    pub(super) comment: Option<String>,
}

/// Changes what is in force. If others commit the same places meanwhile, it is done again on theirs, as if it had come later.
pub(super) async fn commit<F>(app: &App, client: &Client, about: About, change: F) -> Result<Value, Refused>
where
    F: Fn(&mut Tree) -> Result<(), String> + Clone + Send + 'static,
{
    if about.confirm_minutes > LONGEST_MINUTES {
        return Err(Refused::bad(format!("confirm_time is a number of minutes from 1 to {LONGEST_MINUTES}")));
    }
    let _one = app.commits.lock().await;
    for _ in 0..TRIES {
        let in_force = app.daemon.in_force().await?;
        let (base, text, change) = (in_force.revision, in_force.text, change.clone());
        // A configuration of thousands of peers takes a while.
        let edits = apart(move || changed_lines(text.as_str(), &change)).await??;
        if edits.is_empty() {
            return Ok(Value::Null);
        }
        let confirm = (about.confirm_minutes > 0).then_some(about.confirm_minutes);
        let commit = Commit {
            base,
            edits,
            comment: about.comment.clone(),
            user: client.id.clone(),
            via: Via::Api,
            confirm_minutes: confirm,
            check_only: false,
        };
        if let Outcome::Committed(committed) = app.daemon.commit(&commit).await? {
            return Ok(said(&committed, confirm));
        }
    }
    Err(Refused::new(StatusCode::CONFLICT, "others change the same places all the time\n  fix: try again"))
}

/// Does what takes a while beside the connections.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
    let failed = |_| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed: see its log");
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

/// The lines that make a changed configuration of the one in force.
fn changed_lines(
    text: &str,
    change: &impl Fn(&mut Tree) -> Result<(), String>,
) -> Result<Vec<SecretText>, Refused> {
    let base = parse(text)?;
    let mut candidate = base.clone();
    change(&mut candidate).map_err(Refused::bad)?;
    let lines = edits::between(&base, &candidate);
    Ok(lines.iter().map(|line| SecretText::from(line.as_str())).collect())
}

/// Reads what the daemon says.
pub(super) fn parse(text: &str) -> Result<Tree, Refused> {
    config::parse(text).map_err(|_| {
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "the daemon has another version than this server")
    })
}

/// The text that VyOS would print: warnings, and that a commit must be confirmed; null if there is none.
fn said(committed: &Committed, confirm: Option<u32>) -> Value {
    let mut lines: Vec<String> =
        committed.warnings.iter().map(|warning| format!("Warning: {warning}")).collect();
    if let Some(minutes) = confirm {
        lines.push(format!("This change will be undone in {minutes} minutes unless it is confirmed"));
    }
    if lines.is_empty() { Value::Null } else { (lines.join("\n") + "\n").into() }
}

/// Carries out operations, all or none; an error names each that is wrong.
fn change(tree: &mut Tree, operations: &[Operation], strict: bool) -> Result<(), String> {
    let wrong: Vec<String> =
        operations.iter().filter_map(|operation| one(tree, operation, strict).err()).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n\n")) }
}

fn one(tree: &mut Tree, operation: &Operation, strict: bool) -> Result<(), String> {
    let verb = operation.op();
    match verb {
        "set" | "delete" | "comment" => {}
        _ => return Err(format!("'{verb}' is not a valid operation\n  fix: set, delete or comment")),
    }
    let words = operation.words().map_err(|error| error.error)?;
    if words.is_empty() {
        return Err("Malformed command: 'path' list must be non-empty".to_owned());
    }
    let value = operation.value.as_ref().map(SecretText::as_str).filter(|value| !value.is_empty());
    // An empty comment removes the one that is there.
    let value = value.or((verb == "comment").then_some(""));
    edit(tree, &edits::line(verb, &words, value), strict)
}

/// Carries out a line. As in VyOS, it is no error that what is to be deleted is not there, unless that is configured.
pub(super) fn edit(tree: &mut Tree, line: &str, strict: bool) -> Result<(), String> {
    let Err(errors) = edits::carry_out([line], tree) else { return Ok(()) };
    let errors = errors.iter().filter(|error| strict || error.reason != NOTHING_TO_DELETE);
    let texts: Vec<String> = errors.map(|error| explained(line, error)).collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("\n")) }
}

/// The error with its place, as VyOS has it; secrets are hidden.
fn explained(line: &str, error: &ConfigError) -> String {
    let masked = error.masked(line);
    let (verb, place) = masked.split_once(' ').unwrap_or((&masked, ""));
    let failed = if verb == "delete" { "Delete failed" } else { "Set failed" };
    format!("Configuration path: [{place}]\n  {}\n{failed}", error.to_string().replace('\n', "\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::operations;
    use config::print;

    const TEXT: &str = "set interfaces wireguard wg0 mtu 1400\n";

    fn changed(data: &str, strict: bool) -> Result<String, String> {
        let mut tree = config::parse(TEXT).expect("right");
        change(&mut tree, &operations(data).expect(data).operations, strict)?;
        Ok(print::commands(&tree, true))
    }

    #[test]
    fn values_stand_in_the_path_or_beside_it_and_may_have_quotes() {
        for data in [
            r#"{"op": "set", "path": ["interfaces", "wireguard", "wg0", "description", "a 'b' c"]}"#,
            r#"{"op": "set", "path": ["interfaces", "wireguard", "wg0", "description"], "value": "a 'b' c"}"#,
        ] {
            let text = changed(data, false).expect(data);
            assert!(text.contains(&format!("wg0 description {}\n", print::quoted("a 'b' c"))), "{text}");
        }
    }

    #[test]
    fn what_is_not_there_is_deleted_unless_that_is_refused() {
        let gone = r#"{"op": "delete", "path": ["interfaces", "wireguard", "wg7"]}"#;
        assert_eq!(changed(gone, false).as_deref(), Ok(TEXT));
        let error = changed(gone, true).expect_err("strict");
        assert!(error.starts_with("Configuration path: [interfaces wireguard wg7]\n"), "{error}");
        let wrong = r#"{"op": "delete", "path": ["interfaces", "bonding", "bond7"]}"#;
        assert!(changed(wrong, false).is_err());
        let whole = r#"{"op": "delete", "path": ["interfaces", "wireguard", "wg0", "mtu", "1400"]}"#;
        assert_eq!(changed(whole, true).as_deref(), Ok("set interfaces wireguard wg0\n"));
    }

    #[test]
    fn every_wrong_operation_is_named_and_secrets_are_not() {
        let data = r#"[{"op": "set", "path": ["interfaces", "wireguard", "wg0", "mtu", "1"]},
            {"op": "set", "path": ["interfaces", "wireguard", "wg0", "mtu", "1300"]},
            {"op": "set", "path": ["vpn", "ipsec", "authentication", "psk", "a", "secrett", "OpenSesame"]},
            {"op": "rename", "path": ["a"]}, {"op": "set", "path": []}]"#;
        let error = changed(data, false).expect_err("wrong");
        for part in [
            "wg0 mtu 1]",
            "fix: write 68 or more",
            "psk a secrett",
            "Set failed",
            "'rename' is not a valid operation",
            "non-empty",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("Sesame") && !error.contains("1300"), "{error}");
    }
}
