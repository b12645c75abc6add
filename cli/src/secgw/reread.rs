//! A file that is read again while packets are forwarded: at SIGHUP, and for `postern reload secgw`.

use super::{WORDS, ike, load};
use config::secgw::settings::Settings;
use config::secgw::{self, CommandLine, Finding};
use gateway::api::model::{ReloadOutcome, Reloaded};
use gateway::rights::Rights;
use gateway::secgw::{Control, Peers, Plan, check_ike};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tokio::sync::oneshot;

/// Where a plan comes from.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) file: String,
    pub(super) command_line: CommandLine,
    pub(super) strict: bool,
    /// The configuration with the peers of IKE.
    pub(super) ike: Option<String>,
}

impl Source {
    /// The files that are read again.
    pub(super) fn files(&self) -> BTreeSet<PathBuf> {
        [&self.file].into_iter().chain(&self.ike).map(PathBuf::from).collect()
    }

    /// What is wrong with the peers of IKE that policies name.
    pub(super) fn check_ike(&self, settings: &Settings, peers: &Peers) -> Vec<Finding> {
        check_ike(settings, peers, self.ike.as_deref().unwrap_or("--ike FILE, which is not given,"))
    }

    /// A finding with the place that it is about.
    pub(super) fn place(&self, finding: &Finding) -> String {
        let place = if finding.rule == "command-line" { WORDS } else { &self.file };
        finding.in_file(place).to_string()
    }

    /// The plan of the file as it is now, or what is wrong with it.
    fn plan(&self) -> Result<Plan, Vec<String>> {
        let said = |findings: Vec<Finding>| findings.iter().map(|finding| self.place(finding)).collect();
        let loaded = load(&self.file, Some(&self.command_line), self.strict)
            .map_err(|error| vec![error.to_string()])?;
        let mut findings = secgw::check(&loaded, &self.command_line, self.strict);
        let peers = ike::peers(self.ike.as_deref()).map_err(|error| vec![error.to_string()])?;
        findings.extend(self.check_ike(&loaded.settings, &peers));
        if secgw::is_refused(&findings) {
            return Err(said(findings));
        }
        let mut plan = Plan::new(loaded.settings, &self.command_line).map_err(said)?;
        plan.set_ike(&peers);
        Ok(plan)
    }

    /// Reads the file again and puts it in force, in a thread of its own: 10,000 rules take a moment.
    pub(super) async fn read_again(&self, control: &Control) -> Reloaded {
        let (give, take) = oneshot::channel();
        let (source, control) = (self.clone(), control.clone());
        let thread = std::thread::Builder::new().name("configuration".to_owned()).spawn(move || {
            Rights::Files.keep();
            let outcome = source.plan().and_then(|plan| {
                let changes = control.replace(&plan).map_err(|error| vec![error.in_file(&source.file)])?;
                Ok((changes, plan.remarks))
            });
            // The receiver is gone only when the process is about to end.
            let _ = give.send(outcome);
        });
        let outcome = match thread {
            Ok(_) => {
                take.await.unwrap_or_else(|_| Err(vec!["the thread that reads the file has ended".into()]))
            }
            Err(error) => Err(vec![format!("a thread that reads the file: {error}")]),
        };
        match outcome {
            Ok((changes, remarks)) => {
                for remark in &remarks {
                    tracing::warn!("{remark}");
                }
                let changed =
                    if changes.is_empty() { "nothing has changed".into() } else { changes.join("; ") };
                tracing::info!("{}: read again: {changed}", self.file);
                Reloaded::new(ReloadOutcome::InForce, changes, Vec::new())
            }
            Err(errors) => {
                for error in &errors {
                    tracing::error!("{error}");
                }
                tracing::error!("{}: not in force: all goes on as before", self.file);
                Reloaded::new(ReloadOutcome::Refused, Vec::new(), errors)
            }
        }
    }
}
