//! The process that changes settings of the machine for a daemon: how it is started, and what it is allowed.

use crate::service_user::User;
use crate::{Failure, Outcome, child, log};
use caps::CapSet;
use clap::Args;
use gateway::machine::Connection;
use gateway::machine::helper::{Helper, Place, Rules};
use gateway::machine::request::Owner;
use gateway::snmp::MASTER;
use rustix::process::geteuid;
use std::path::{Path, PathBuf};

/// Where systemd listens for a daemon that root does not start: `examples/systemd/postern-machine.socket`.
const SOCKET: &str = "/run/postern-machine.sock";
/// Where VyOS keeps the programs of tasks.
pub(crate) const SCRIPTS: &str = "/config/scripts";
const ROOT: &str = "/";

/// What the administrator allows.
#[derive(Args, Clone)]
pub(crate) struct Allowed {
    /// Folders with the programs that tasks and alerts may run; root must own them, and all in them
    #[arg(long, value_name = "DIR", default_value = SCRIPTS)]
    scripts: Vec<PathBuf>,
    /// Run no tasks, and no programs of alerts
    #[arg(long)]
    no_tasks: bool,
    /// Run only the tasks of this file of `set` lines, which root alone may write
    #[arg(long, value_name = "FILE")]
    tasks_from: Option<PathBuf>,
    /// The folder that holds the files of the machine, for tests
    #[arg(long, value_name = "DIR", default_value = ROOT, hide = true)]
    machine_root: PathBuf,
}

impl Default for Allowed {
    fn default() -> Self {
        Self { scripts: vec![SCRIPTS.into()], no_tasks: false, tasks_from: None, machine_root: ROOT.into() }
    }
}

impl Allowed {
    /// The socket of snmpd for the sub-agent.
    pub(crate) fn master(&self) -> PathBuf {
        self.machine_root.join(MASTER.trim_start_matches('/'))
    }

    /// The folder that stands for the machine.
    pub(crate) fn root(&self) -> &Path {
        &self.machine_root
    }

    /// The folders with programs that a commit may name.
    pub(crate) fn programs(&self) -> &[PathBuf] {
        if self.no_tasks { &[] } else { &self.scripts }
    }
}

/// How the helper is started.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    allowed: Allowed,
    /// The configuration file of the daemon that is served: files of other daemons are not touched
    #[arg(long, value_name = "FILE", default_value = crate::place::CONFIG)]
    owner: PathBuf,
    /// The group of the daemon, if it becomes another user than the one that has connected
    #[arg(long, value_name = "GID")]
    group: Option<u32>,
}

/// Starts the helper for the daemon of a configuration file, which becomes `user`, if this is root's to do; must be called before
/// rights are given up.
pub(crate) fn helper(allowed: &Allowed, file: &Path, user: Option<&User>) -> Result<Connection, Failure> {
    if !geteuid().is_root() {
        return Ok(Connection::Listens(SOCKET.into()));
    }
    let owner = Owner::of(file)
        .map_err(|error| format!("{error}\n  fix: rename it, or start the daemon with --no-machine"))?;
    let mut command = child::command("machine-helper");
    command.arg("--owner").arg(owner.as_str());
    command.arg("--machine-root").arg(&allowed.machine_root);
    if let Some(user) = user {
        command.arg("--group").arg(user.gid().to_string());
    }
    for folder in &allowed.scripts {
        command.arg("--scripts").arg(folder);
    }
    if allowed.no_tasks {
        command.arg("--no-tasks");
    }
    if let Some(file) = &allowed.tasks_from {
        // The helper has another folder.
        command.arg("--tasks-from").arg(std::path::absolute(file)?);
    }
    Ok(Connection::Inherited(child::start(&mut command, "changes settings of the machine")?))
}

/// Serves a daemon until it ends.
pub(crate) fn serve(Arguments { allowed, owner, group }: Arguments) -> Outcome {
    log::start()?;
    let owner = Owner::of(&owner)?;
    let socket = child::socket()?;
    drop_capabilities()?;
    let Allowed { scripts, no_tasks, tasks_from, machine_root } = allowed;
    let group = match group {
        Some(group) => group,
        None => rustix::net::sockopt::socket_peercred(&socket)?.gid.as_raw(),
    };
    let rules = Rules { scripts: if no_tasks { Vec::new() } else { scripts }, tasks_from, group };
    Ok(Helper::new(Place::new(machine_root), rules, owner).serve(&socket, &socket)?)
}

/// Owning the files is enough where systemd starts the services; otherwise those would have no more capabilities than this.
fn drop_capabilities() -> Outcome {
    if Path::new("/run/systemd/system").exists() {
        for set in
            [CapSet::Bounding, CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted]
        {
            caps::clear(None, set)?;
        }
        rustix::thread::set_no_new_privs(true)?;
    }
    Ok(())
}
