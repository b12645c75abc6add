//! Values of the kernel, with what they were before, which they are again afterwards.

use super::place::{Content, Place, PlaceError};
use crate::machine::model::Setting;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What a value is to be.
#[derive(Clone, Copy)]
pub(super) enum Want {
    Exactly(&'static str),
    /// A larger one is as good.
    AtLeast(u64),
    /// Not more, where 0 stands for no limit and `n/a` for the strictest.
    AtMost(u64),
}

use Want::{AtLeast, AtMost, Exactly};

/// A value that is wanted.
pub(super) struct Value {
    /// What it is called.
    pub(super) name: String,
    /// Its file; none where this machine has no such value.
    pub(super) file: Option<PathBuf>,
    /// What it is to be.
    pub(super) want: Want,
    /// Why it may not be there.
    pub(super) absent: &'static str,
}

impl Want {
    /// What to write in the place of `now`; the same if that is as good.
    fn over(self, now: &str) -> String {
        let number = now.parse::<u64>().ok();
        match self {
            Exactly(value) => value.to_owned(),
            AtLeast(least) if number.is_some_and(|now| now >= least) => now.to_owned(),
            AtLeast(least) => least.to_string(),
            AtMost(_) if now == "n/a" => now.to_owned(),
            AtMost(most) if number.is_some_and(|now| now > 0 && now <= most) => now.to_owned(),
            AtMost(most) => most.to_string(),
        }
    }
}

/// What was written, and what was there before, by the files.
type Changed = BTreeMap<PathBuf, (String, String)>;

/// Sets what is wanted, and puts back all else that was set before; what there is of it then. The file `state` has what was changed
/// since the machine has started.
pub(super) fn apply(
    place: &Place,
    owner: &str,
    state: &str,
    values: Vec<Value>,
) -> Result<Vec<Setting>, PlaceError> {
    let changed = read_state(place, owner, state);
    let is_set = !values.is_empty();
    let mut wanted: Vec<(Option<PathBuf>, Setting)> =
        values.into_iter().map(|value| (value.file.clone(), plan(value, &changed))).collect();
    // Before anything is written: after a crash, what is written here is put back.
    let mut kept: Changed = changed.clone();
    for (file, setting) in &wanted {
        if let (Some(file), Some(before)) = (file, &setting.before)
            && before != &setting.wanted
        {
            kept.insert(file.clone(), (setting.wanted.clone(), before.clone()));
        }
    }
    if kept != changed || is_set {
        write_state(place, owner, state, &kept, is_set)?;
    }
    let is_wanted = |file: &Path| wanted.iter().any(|(wanted, _)| wanted.as_deref() == Some(file));
    for (file, (written, before)) in changed.iter().filter(|(file, _)| !is_wanted(file)) {
        put_back(file, written, before);
        kept.remove(file);
    }
    for (file, setting) in &mut wanted {
        if let Some(file) = file {
            set(file, setting);
        }
    }
    write_state(place, owner, state, &kept, is_set)?;
    Ok(wanted.into_iter().map(|(_, setting)| setting).collect())
}

fn plan(Value { name, file, want, absent }: Value, changed: &Changed) -> Setting {
    let Some(file) = file else {
        return Setting {
            name,
            wanted: want.over(""),
            problem: Some(absent.to_owned()),
            ..Setting::default()
        };
    };
    match read(&file) {
        Ok(now) => {
            let before = changed.get(&file).map_or(now, |(_, before)| before.clone());
            Setting {
                name,
                file: Some(file.display().to_string()),
                wanted: want.over(&before),
                before: Some(before),
                ..Setting::default()
            }
        }
        Err(error) => {
            let is_absent = error.kind() == ErrorKind::NotFound;
            let problem = if is_absent { absent.to_owned() } else { error.to_string() };
            Setting { name, wanted: want.over(""), problem: Some(problem), ..Setting::default() }
        }
    }
}

fn read(file: &Path) -> std::io::Result<String> {
    fs::read_to_string(file).map(|text| text.trim().to_owned())
}

/// Writes a value, and looks whether the kernel has taken it.
fn set(file: &Path, setting: &mut Setting) {
    if setting.problem.is_some() {
        return;
    }
    if read(file).ok().as_ref() != Some(&setting.wanted) {
        setting.problem = fs::write(file, &setting.wanted).err().map(|error| error.to_string());
    }
    setting.now = read(file).ok();
    if setting.problem.is_none() && setting.now.as_ref() != Some(&setting.wanted) {
        setting.problem = Some("the kernel keeps another value".to_owned());
    }
}

/// Restores a value, unless another program has changed it since.
fn put_back(file: &Path, written: &str, before: &str) {
    if read(file).is_ok_and(|now| now == written)
        && let Err(error) = fs::write(file, before)
    {
        tracing::warn!("{}: {before} cannot be put back: {error}", file.display());
    }
}

/// What was changed, of this owner. A line each: what was written, what was there, the file.
fn read_state(place: &Place, owner: &str, state: &str) -> Changed {
    if !place.is_owned(state, owner) {
        return Changed::new();
    }
    let text = fs::read_to_string(place.at(state)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entries = lines.filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let (written, before) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((place.at(words.next()?), (written, before)))
    });
    entries.collect()
}

/// Writes down what is changed; the file goes when nothing is wanted and nothing is changed any more.
fn write_state(
    place: &Place,
    owner: &str,
    state: &str,
    changed: &Changed,
    is_set: bool,
) -> Result<(), PlaceError> {
    let lines =
        changed.iter().map(|(file, (written, before))| format!("{written} {before} {}\n", place.named(file)));
    let content = Content { path: state.to_owned(), mode: 0o600, text: lines.collect::<String>().into() };
    let wanted = if is_set || !changed.is_empty() { vec![content] } else { Vec::new() };
    place.replace(owner, &wanted, &[state.to_owned()]).map(drop)
}
