//! `postern reload`: makes the daemon read its configuration again, and prints the result.

use crate::client::Asking;
use crate::output::print;
use crate::{Failure, client};
use clap::Args;
use gateway::api::model::{ReloadOutcome, Reloaded};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "The exit code is 0 if all of the file is in force, 1 if it is not, 2 if no daemon answers."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    asking: Asking,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let socket = arguments.asking.api.unwrap_or_else(|| PathBuf::from(crate::run::API));
    // No timeout: the daemon may be waiting for a name server.
    let reloaded: Reloaded = client::tell(&socket, "/v1/reload", &())?;
    print(arguments.asking.json, &reloaded, &text(&reloaded, &socket))?;
    Ok(if reloaded.outcome == ReloadOutcome::InForce { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(reloaded: &Reloaded, socket: &Path) -> String {
    let mut lines: Vec<&str> = reloaded.changes.iter().chain(&reloaded.errors).map(String::as_str).collect();
    let last = match reloaded.outcome {
        ReloadOutcome::InForce if reloaded.changes.is_empty() => "nothing has changed".to_owned(),
        ReloadOutcome::InForce => "the new configuration is in force".to_owned(),
        ReloadOutcome::PartlyInForce => {
            "the rest is in force\n  fix: see above, then: postern reload".to_owned()
        }
        ReloadOutcome::Refused => format!(
            "the configuration is unchanged\n  fix: see above, then: postern reload{}",
            if socket == Path::new(crate::run::API) {
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
            text(&reloaded, Path::new(crate::run::API))
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
