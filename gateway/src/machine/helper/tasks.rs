//! `system task-scheduler`: a file of cron, or where there is none, timers of systemd.

use super::place::{Content, Place, PlaceError};
use super::service::systemctl;
use super::{Rules, Wanted, missing, refused, render};
use crate::machine::model::Finding;
use config::settings::Machine;
use config::settings::machine::{Part, Task, Tasks};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const CRON: [&str; 2] = ["/usr/sbin/cron", "/usr/sbin/crond"];
const CRON_FILE: &str = "/etc/cron.d/postern";
const UNITS: &str = "/etc/systemd/system";
const PREFIX: &str = "postern-task-";
/// cron ignores longer lines.
const LONGEST_LINE: usize = 900;

/// The files of this owner that are there.
pub(super) fn known(place: &Place, owner: &str) -> Vec<String> {
    let mut known = place.owned(UNITS, PREFIX, owner);
    known.push(CRON_FILE.to_owned());
    known
}

fn has_cron(place: &Place) -> bool {
    CRON.iter().any(|program| place.has(program))
}

pub(super) fn check(place: &Place, rules: &Rules, tasks: &Tasks) -> Vec<Finding> {
    let is_run = has_cron(place) || place.has_systemd();
    let nothing =
        (!is_run).then(|| missing(Part::Tasks, "there is neither cron nor systemd", "apt-get install cron"));
    let found = tasks.iter().filter_map(|(name, task)| program(place, rules, name, task).err());
    nothing.into_iter().chain(found).collect()
}

/// The program of a task by its canonical path, if it may be run as root.
fn program(place: &Place, rules: &Rules, name: &str, task: &Task) -> Result<PathBuf, Finding> {
    let path = format!("{} task {name}", Part::Tasks);
    let Task { path: program, arguments, .. } = task;
    if rules.scripts.is_empty() {
        let why = format!("{path}: tasks are switched off on this machine");
        return Err(refused(path, why, "delete it, or start Postern and its helper without --no-tasks"));
    }
    if render::cron_line(program, task).len() > LONGEST_LINE {
        let why = format!("{path}: {} arguments are too long for cron", arguments.len());
        return Err(refused(path, why, "put them into the program"));
    }
    let at = match fs::canonicalize(place.at(program)) {
        Ok(at) => at,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(missing(path, format!("{program} is not there; the task is not run"), "write it"));
        }
        Err(error) => return Err(missing(path, format!("{program}: {error}"), "make it readable for root")),
    };
    let folders = rules
        .scripts
        .iter()
        .filter_map(|folder| fs::canonicalize(place.at(&folder.display().to_string())).ok());
    if !folders.into_iter().any(|folder| at.starts_with(folder)) {
        let allowed: Vec<String> = rules.scripts.iter().map(|folder| folder.display().to_string()).collect();
        let allowed = allowed.join(" and ");
        let why = format!("{path}: tasks run programs in {allowed} only, and {program} is not there");
        return Err(refused(path, why, format!("write a script in {allowed} that calls it")));
    }
    if let Some(open) = open_to_others(place, &at) {
        let open = place.named(&open);
        let why = format!("{path}: others than root can change {open}, and the task is run by root");
        return Err(refused(path, why, format!("chown root {open}; chmod go-w {open}")));
    }
    let is_program = |it: &Metadata| it.is_file() && it.permissions().mode() & 0o100 != 0;
    if !fs::metadata(&at).is_ok_and(|it| is_program(&it)) {
        let why = format!("{program} is no program; the task is not run");
        return Err(missing(path, why, format!("chmod +x {program}")));
    }
    if let Some(file) = &rules.tasks_from {
        let file = file.display();
        listed(place, &file.to_string(), task).map_err(|why| {
            refused(
                &path,
                format!("{path}: {why}"),
                format!("root alone writes the lines of the task to {file}"),
            )
        })?;
    }
    Ok(at)
}

/// Whether a task's program is in the file of allowed tasks, whatever the task is called.
fn listed(place: &Place, file: &str, task: &Task) -> Result<(), String> {
    let at = fs::canonicalize(place.at(file)).map_err(|error| format!("{file}: {error}"))?;
    if let Some(open) = open_to_others(place, &at) {
        return Err(format!("others than root can change {}", place.named(&open)));
    }
    let text = fs::read_to_string(at).map_err(|error| format!("{file}: {error}"))?;
    let allowed = Machine::read(Part::Tasks, &text).map_err(|errors| {
        format!("{file}: {}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })?;
    let is_listed = allowed.tasks.values().any(|allowed| allowed == task);
    if is_listed {
        Ok(())
    } else {
        Err(format!("{file} does not have this task, with these arguments and times"))
    }
}

/// What others than root can change of a file: itself, or a folder above it.
fn open_to_others(place: &Place, at: &Path) -> Option<PathBuf> {
    let root = fs::canonicalize(place.at("")).unwrap_or_default();
    let inside = at.ancestors().take_while(|above| above.starts_with(&root) && *above != root);
    let is_open = |path: &Path| {
        !fs::symlink_metadata(path).is_ok_and(|it| it.uid() == 0 && it.permissions().mode() & 0o022 == 0)
    };
    inside.map(Path::to_owned).find(|path| is_open(path))
}

/// The tasks whose programs may be run now.
fn fit(place: &Place, rules: &Rules, tasks: &Tasks) -> Vec<(String, Task)> {
    let fit = tasks.iter().filter_map(|(name, task)| {
        let path = place.named(&program(place, rules, name, task).ok()?);
        Some((name.clone(), Task { path, ..task.clone() }))
    });
    fit.collect()
}

pub(super) fn wanted(place: &Place, rules: &Rules, tasks: &Tasks, owner: &str) -> Wanted {
    let tasks = fit(place, rules, tasks);
    let mut files = Vec::new();
    // Where there is neither, it is there once cron is installed.
    if has_cron(place) || !place.has_systemd() {
        if !tasks.is_empty() {
            // Arguments may be secrets.
            files.push(Content {
                path: CRON_FILE.to_owned(),
                mode: 0o600,
                text: render::crontab(&tasks).into(),
            });
        }
    } else {
        for (name, task) in &tasks {
            let mut unit = |kind, text: String| {
                let path = format!("{UNITS}/{PREFIX}{name}.{kind}");
                files.push(Content { path, mode: 0o600, text: text.into() });
            };
            unit("service", render::task_service(name, task));
            unit("timer", render::task_timer(name, task));
        }
    }
    Wanted { files, known: known(place, owner), noted: noted(&tasks), ..Wanted::default() }
}

/// What root runs from now on. Arguments may be passwords.
fn noted(tasks: &[(String, Task)]) -> Vec<String> {
    if tasks.is_empty() {
        return vec!["root runs no tasks".to_owned()];
    }
    let of = |(name, Task { path, arguments, times }): &(String, Task)| {
        format!("root runs the task {name}: {path} with {} arguments at {}", arguments.len(), times.crontab)
    };
    tasks.iter().map(of).collect()
}

/// The names of the timers among files.
fn timers<'a>(paths: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
    let names = paths.into_iter().filter_map(|path| path.rsplit('/').next());
    names.filter(|name| name.strip_suffix(".timer").is_some()).collect()
}

/// Ends the timers that are there and are no longer wanted.
pub(super) fn end_others(place: &Place, before: &[String], wanted: &Wanted) -> Result<(), PlaceError> {
    let wanted = wanted.paths();
    let others = timers(before.iter().filter(|path| !wanted.contains(path)));
    others.into_iter().filter(|_| place.has_systemd()).try_for_each(|timer| end(place, timer))
}

/// Ends the timers that were not there before, while their files are there.
pub(super) fn end_new(place: &Place, before: &[String], wanted: &[String]) {
    for timer in timers(wanted.iter().filter(|path| !before.contains(path))) {
        if let Err(error) = end(place, timer) {
            tracing::error!("going back: {error}");
        }
    }
}

fn end(place: &Place, timer: &str) -> Result<(), PlaceError> {
    systemctl(place, &["disable", "--now", timer])
}

/// cron looks at its folder every minute; systemd is told.
pub(super) fn tell(place: &Place, files: &[String]) -> Result<(), PlaceError> {
    if !place.has_systemd() {
        return Ok(());
    }
    let timers = timers(files);
    if timers.is_empty() && has_cron(place) {
        return Ok(());
    }
    systemctl(place, &["daemon-reload"])?;
    for timer in timers {
        systemctl(place, &["enable", timer])?;
        systemctl(place, &["restart", timer])?;
    }
    Ok(())
}
