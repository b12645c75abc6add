//! What the directives ask of the process: user, group, pid file, priority, memory.

use crate::pid_file::PidFile;
use crate::privilege::{self, Needs};
use crate::service_user::{self, User};
use crate::{Failure, Outcome};
use config::openvpn::Remark;
use config::openvpn::settings::Process;
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

/// Programs that OpenVPN runs at the start before it becomes another user. Here they keep the rights when they run again.
const AT_START: [Hook; 3] = [Hook::IpChange, Hook::Up, Hook::RouteUp];

/// The others run as the user that the directives name.
pub(super) fn give_programs(process: &Process, programs: &mut Programs) -> Outcome {
    if let Some(user) = user(process)? {
        give_to((user.uid(), user.gid()), programs);
    }
    Ok(())
}

fn give_to(owner: (u32, u32), programs: &mut Programs) {
    for (_, program) in programs.by_hook.iter_mut().filter(|(hook, _)| !AT_START.contains(hook)) {
        program.owner = Some(owner);
    }
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
    process.pid_file.as_deref().map(PidFile::prepare).transpose()
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

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::openvpn::scripts::Program;

    #[test]
    fn programs_of_the_start_keep_the_rights_and_others_become_the_user() {
        let program = Program { path: "/bin/true".into(), arguments: Vec::new(), owner: None };
        let by_hook = Hook::ALL.map(|hook| (hook, program.clone())).into();
        let mut programs = Programs { by_hook, ..Programs::default() };
        give_to((65_534, 65_534), &mut programs);
        let kept = programs.by_hook.iter().filter(|(_, program)| program.owner.is_none());
        let kept: Vec<&str> = kept.map(|(hook, _)| hook.directive()).collect();
        assert_eq!(kept, ["up", "route-up", "ipchange"]);
        assert_eq!(programs.by_hook[&Hook::Down].owner, Some((65_534, 65_534)));
    }
}
