//! The running gateway, as commands of enrolment see it and change it.

use crate::client;
use crate::host::interfaces;
use crate::shell::api::{Refusal, Router, Socket};
use crate::shell::{files, session, user};
use crate::{Failure, Outcome, place};
use config::Settings;
use config::settings::Enrollment;
use config::settings::enrollment::Branch;
use gateway::api::model::{Advice, Commit, CommitErrors, InForce, Saved, SecretText, Status, Via};
use gateway::api::saving::{self, NotSaved, Saving};
use gateway::daemon::candidate::split;
use ipnet::IpNet;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::thread::sleep;
use zeroize::Zeroizing;

const SAVE: &str = "postern configure -c save";

/// A running gateway and its configuration.
pub(crate) struct Gateway {
    path: PathBuf,
    router: Socket,
    in_force: InForce,
    pub(crate) settings: Settings,
}

impl Gateway {
    /// The gateway at a socket, or at the usual one.
    pub(crate) fn read(api: Option<PathBuf>) -> Result<Self, Failure> {
        let path = client::chosen(api).unwrap_or_else(|| PathBuf::from(place::API));
        let router = Socket::new(Some(path.clone()));
        let in_force = router.in_force()?;
        let settings = settings(&in_force)?;
        Ok(Self { path, router, in_force, settings })
    }

    /// An answer of its API.
    pub(crate) fn ask<T: DeserializeOwned>(&self, question: &str) -> Result<T, Failure> {
        client::ask_running(&self.path, question)
    }

    /// What the machine lacks for what is configured, such as forwarding in the kernel, and what a commit has warned of.
    pub(crate) fn warnings(&self, of_commit: Vec<Advice>) -> Result<Vec<Advice>, Failure> {
        let mut warnings = self.ask::<Status>("/v1/status")?.warnings;
        for warned in of_commit {
            if !warnings.contains(&warned) {
                warnings.push(warned);
            }
        }
        Ok(warnings)
    }

    /// What it says of branches.
    pub(crate) fn enrollment(&self) -> Result<&Enrollment, Failure> {
        self.settings.enrollment.as_ref().ok_or_else(|| {
            "branches cannot join here: service enrollment is not set\n  \
             fix: set service enrollment address ADDRESS, or host-name NAME, where branches reach this gateway; set service \
             enrollment interface wg0; set service enrollment network 10.1.0.0/24, which they may reach"
                .into()
        })
    }

    /// One of its branches.
    pub(crate) fn branch(&self, name: &str) -> Result<&Branch, Failure> {
        self.enrollment()?
            .branches
            .get(name)
            .ok_or_else(|| format!("there is no branch {name}\n  fix: postern enroll list").into())
    }

    /// Whether the branch is a peer of the interface, which may be disabled.
    pub(crate) fn has_peer(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.enrollment()?.peers.contains_key(name))
    }

    /// The lines below a path, without it: what `set` is followed by.
    pub(crate) fn below(&self, path: &str) -> Vec<Zeroizing<String>> {
        let begin = Zeroizing::new(format!("set {path} "));
        let lines = self.in_force.text.as_str().lines();
        lines.filter_map(|line| line.strip_prefix(&**begin)).map(|it| it.to_owned().into()).collect()
    }

    /// What others than the branch have already, with its owner.
    pub(super) fn taken(&self, name: &str) -> Result<Vec<(IpNet, String)>, Failure> {
        let enrollment = self.enrollment()?;
        let here = enrollment.networks.iter().map(|net| (*net, "head office".to_owned()));
        let branches = enrollment.branches.iter().filter(|(other, _)| *other != name);
        let of_branches = branches.flat_map(|(other, branch)| {
            branch.allowed_ips().map(move |net| (net, format!("branch {other}")))
        });
        let peers = enrollment.peers.iter();
        let peers = peers.filter(|(other, _)| *other != name && !enrollment.branches.contains_key(*other));
        let of_peers = peers.flat_map(|(other, peer)| {
            peer.allowed_ips.iter().map(move |net| (*net, format!("peer {other}")))
        });
        let mut taken: Vec<_> = here.chain(of_branches).chain(of_peers).collect();
        for found in interfaces::found(None)?.iter().filter(|it| it.name != enrollment.interface) {
            let networks = found.addresses.iter().filter_map(|it| IpNet::new(it.address, it.prefix).ok());
            taken.extend(
                networks.map(|net| (net.trunc(), format!("interface {} of this machine", found.name))),
            );
        }
        let tunnels = self.other_tunnels(&enrollment.interface);
        taken.extend(tunnels.into_iter().map(|(interface, net)| (net, format!("a tunnel of {interface}"))));
        // A peer for everything has the rest.
        taken.retain(|(net, _)| net.prefix_len() > 0);
        Ok(taken)
    }

    /// What tunnels of other interfaces lead to, with their names.
    pub(crate) fn other_tunnels(&self, interface: &str) -> Vec<(String, IpNet)> {
        gateway::daemon::protected_elsewhere(&self.settings, interface)
    }

    /// Puts edits in force, and saves the configuration; what is warned of.
    pub(crate) fn commit(
        &mut self,
        edits: &[Zeroizing<String>],
        comment: &str,
    ) -> Result<Vec<Advice>, Failure> {
        let warned = self.put_in_force(edits, comment).map_err(refused)?;
        self.save()?;
        Ok(warned)
    }

    /// Saves what is in force, until nothing is left to save: others change it and write the file too.
    pub(super) fn save(&mut self) -> Outcome {
        let mut saving = Saving::new(saving::PATIENCE);
        loop {
            self.reread()?;
            let is_due = saving.is_due(&self.in_force).map_err(|why| {
                let when = if why == NotSaved::Unconfirmed { "when it is confirmed or undone: " } else { "" };
                not_saved(&why.to_string(), &format!("{when}{SAVE}"))
            })?;
            if !is_due {
                return Ok(());
            }
            if saving.note(self.write()?) {
                sleep(saving::PAUSE);
            }
        }
    }

    /// Writes the file; the inner error may be gone soon.
    fn write(&self) -> Result<Result<(), String>, Failure> {
        let InForce { file, revision, .. } = &self.in_force;
        match files::write_in_force(&self.in_force, file) {
            Ok(hash) => {
                let saved = self.router.saved(&Saved { hash, revision: *revision });
                Ok(saved.map_err(|error| error.to_string()))
            }
            Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(Err(format!("{file}: {error}"))),
            Err(error) => Err(not_saved(&format!("{file}: {error}"), SAVE)),
        }
    }

    /// Puts edits in force; what is warned of.
    pub(super) fn put_in_force(
        &mut self,
        edits: &[Zeroizing<String>],
        comment: &str,
    ) -> Result<Vec<Advice>, Refusal> {
        if self.in_force.confirm.is_some() {
            let why = "the last commit is not confirmed, and would be undone together with this one\n  \
                       fix: postern configure -c confirm, or wait until it is undone";
            return Err(Refusal::Other(why.into()));
        }
        let commit = Commit {
            base: self.in_force.revision,
            edits: edits.iter().map(|edit| SecretText::from(&***edit)).collect(),
            comment: Some(comment.to_owned()),
            user: user::name(),
            via: Via::Cli,
            ..Commit::default()
        };
        let committed = self.router.commit(&commit)?;
        self.reread()?;
        Ok(committed.warnings.iter().map(|text| advice(text)).collect())
    }

    /// Asks again what is in force: others change it too.
    pub(super) fn reread(&mut self) -> Outcome {
        self.in_force = self.router.in_force()?;
        self.settings = settings(&self.in_force)?;
        Ok(())
    }
}

/// Prints warnings beside the answer of a command.
pub(crate) fn warn(warnings: &[Advice]) {
    for Advice { what, fix } in warnings {
        eprintln!("Warning: {what}\n  fix: {fix}");
    }
}

/// A warning of a commit, in its two parts.
fn advice(text: &str) -> Advice {
    let (what, fix) = split(text);
    Advice { what, fix: fix.unwrap_or_default() }
}

fn settings(in_force: &InForce) -> Result<Settings, Failure> {
    let tree = session::read(in_force.text.as_str())?;
    let read = Settings::new(&tree).map_err(|errors| errors[0].to_string())?;
    Ok(read.0)
}

fn not_saved(why: &str, fix: &str) -> Failure {
    format!("{why}\n  the change is in force, but not saved\n  fix: {fix}").into()
}

/// What a person is told of a commit that is not in force.
pub(super) fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Conflicts(_) => {
            "others have changed the same meanwhile\n  fix: type the same command again".into()
        }
        Refusal::Wrong(CommitErrors { errors }) => {
            let mut text = String::from("the configuration would be wrong");
            for error in errors {
                let _ = write!(text, "\n  {}: {}", error.path, error.why);
                if let Some(fix) = error.fix {
                    let _ = write!(text, "\n  fix: {fix}");
                }
            }
            text.into()
        }
        Refusal::Unanswered => {
            "the daemon ended meanwhile: the change may be in force\n  fix: postern show configuration commands".into()
        }
        Refusal::Other(error) => error,
    }
}
