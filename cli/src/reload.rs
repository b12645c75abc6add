//! `postern reload`: makes the daemon read its configuration again, and prints the result.

use crate::answer::Answer;
use crate::request::Request;
use crate::{Failure, client};
use gateway::api::model::{ReloadOutcome, Reloaded};
use std::path::Path;

/// The exit status if not all of the file is in force.
const NOT_IN_FORCE: u8 = 1;

pub(crate) fn run(request: &Request) -> Result<Answer, Failure> {
    let socket = request.api().unwrap_or(Path::new(crate::place::API)).to_owned();
    // No timeout: the daemon may be waiting for a name server.
    let reloaded: Reloaded = client::tell(&socket, "/v1/reload", &())?;
    let status = if reloaded.outcome == ReloadOutcome::InForce { 0 } else { NOT_IN_FORCE };
    Ok(Answer::new(reloaded, move |reloaded| text(reloaded, &socket)).with_status(status))
}

pub(crate) fn text(reloaded: &Reloaded, socket: &Path) -> String {
    let mut lines: Vec<&str> = reloaded.changes.iter().chain(&reloaded.errors).map(String::as_str).collect();
    let last = match reloaded.outcome {
        ReloadOutcome::InForce if reloaded.changes.is_empty() => "nothing has changed".to_owned(),
        ReloadOutcome::InForce => "the new configuration is in force".to_owned(),
        ReloadOutcome::PartlyInForce => {
            "the rest is in force\n  fix: see above, then: postern reload".to_owned()
        }
        ReloadOutcome::Refused => format!(
            "the configuration is unchanged\n  fix: see above, then: postern reload{}",
            if socket == Path::new(crate::place::API) {
                String::new()
            } else {
                format!(" --api {}", socket.display())
            }
        ),
    };
    lines.push(&last);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_told_with_what_changed_and_what_is_wrong() {
        let said = |outcome: ReloadOutcome, changes: &[&str], errors: &[&str]| {
            let owned = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
            let reloaded = Reloaded::new(outcome, owned(changes), owned(errors));
            text(&reloaded, Path::new(crate::place::API))
        };
        let mtu = "+ interfaces wireguard wg0 mtu 1400";
        assert_eq!(
            said(ReloadOutcome::InForce, &[mtu], &[]),
            format!("{mtu}\nthe new configuration is in force\n")
        );
        assert_eq!(said(ReloadOutcome::InForce, &[], &[]), "nothing has changed\n");
        let refused = said(ReloadOutcome::Refused, &[], &["a:1:5: unknown word\n  fix: b"]);
        assert!(
            refused.starts_with("a:1:5: unknown word\n  fix: b\nthe configuration is unchanged"),
            "{refused}"
        );
        assert!(
            said(ReloadOutcome::PartlyInForce, &[mtu], &["no"])
                .contains("\nno\nthe rest is in force\n  fix: ")
        );
    }
}
