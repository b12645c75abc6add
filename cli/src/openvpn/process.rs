//! What the directives ask of the process: user, group, pid file, priority, memory.

use crate::privilege::{self, Needs};
use crate::service_user::{self, User};
use crate::{Failure, Outcome};
use config::openvpn::Remark;
use config::openvpn::settings::Process;
use disk::Wanted;
use gateway::openvpn::scripts::{Hook, Programs};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The user that the directives name.
fn user(process: &Process) -> Result<Option<User>, Failure> {
    service_user::named(process.user.as_deref(), process.group.as_deref())
}

fn is_named(process: &Process) -> bool {
    process.user.is_some() || process.group.is_some()
}

/// The user that the process becomes: the one that the directives name, else the user of the daemon.
pub(super) fn next_user(process: &Process) -> Result<Option<User>, Failure> {
    if is_named(process) { user(process) } else { service_user::wanted(None) }
}

/// Whether the user and the group exist.
pub(super) fn check(process: &Process) -> Outcome {
    user(process).map(drop)
}

/// Programs run as the user that the directives name, as in OpenVPN; `up`, which OpenVPN runs before, keeps the rights.
pub(super) fn give_programs(process: &Process, programs: &mut Programs) -> Outcome {
    if let Some(user) = user(process)? {
        for (_, program) in programs.by_hook.iter_mut().filter(|(hook, _)| **hook != Hook::Up) {
            program.owner = Some((user.uid(), user.gid()));
        }
    }
    Ok(())
}

/// Logs directives without an effect, and warnings.
pub(super) fn report(remarks: &[Remark]) {
    for remark in remarks {
        if remark.is_warning {
            tracing::warn!("{remark}");
        } else {
            tracing::info!("{remark}");
        }
    }
}

/// What needs the rights of the caller: the pid file, the priority, locked memory.
pub(super) fn prepare(process: &Process) -> Result<Option<PidFile>, Failure> {
    check(process)?;
    if let Some(nice) = process.nice {
        rustix::process::setpriority_process(None, nice.into())
            .map_err(|error| format!("nice {nice}: {error}\n  fix: start it as root, or delete the line"))?;
    }
    if process.lock_memory {
        privilege::lock_memory().map_err(|error| {
            format!("mlock: {error}\n  fix: LimitMEMLOCK=infinity in the unit, or delete the line")
        })?;
    }
    process.pid_file.clone().map(PidFile::write).transpose()
}

/// Becomes the user that the directives name, else the user of the daemon; keeps the rights to configure networks.
/// `files`: what is read again.
pub(super) fn become_modest(process: &Process, files: &BTreeSet<PathBuf>) -> Outcome {
    let (user, is_named) = (next_user(process)?, is_named(process));
    if user.is_some() || !is_named {
        service_user::report(user.as_ref());
    }
    privilege::drop_unneeded(Needs {
        user: user.as_ref(),
        is_guest: is_named,
        files: Some(files),
        keys: true,
        ..Needs::default()
    })
}

/// The file of the process id, removed at the end as far as the user of the process may.
pub(super) struct PidFile(PathBuf);

impl PidFile {
    fn write(path: PathBuf) -> Result<Self, Failure> {
        let text = format!("{}\n", std::process::id());
        let wanted = Wanted { bytes: text.as_bytes(), mode: 0o644, owner: (None, None) };
        disk::write(&path, &wanted).map_err(|error| {
            format!(
                "writepid {}: {error}\n  fix: make the folder, or name a file that can be written",
                path.display()
            )
        })?;
        Ok(Self(path))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
