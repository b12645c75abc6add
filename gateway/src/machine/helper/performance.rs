//! `system option performance`: values of the kernel, with what they were before, which they are again afterwards.

use super::place::{Content, Place, PlaceError};
use crate::machine::model::Setting;
use config::settings::machine::Profile;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What was changed since the machine has started, with what it was.
pub(super) const STATE: &str = "/run/postern-machine/performance";

/// What a value is to be.
#[derive(Clone, Copy)]
enum Want {
    Exactly(&'static str),
    /// A larger one is as good.
    AtLeast(u64),
    /// Not more, where 0 stands for no limit and `n/a` for the strictest.
    AtMost(u64),
}

use Want::{AtLeast, AtMost, Exactly};

/// A value of the kernel.
struct Knob {
    /// What it is called.
    name: &'static str,
    /// Its file; a star stands for each processor.
    file: &'static str,
    throughput: Option<Want>,
    latency: Option<Want>,
    /// Why it may not be there.
    absent: &'static str,
}

const fn sysctl(
    name: &'static str,
    file: &'static str,
    throughput: Option<Want>,
    latency: Option<Want>,
) -> Knob {
    Knob { name, file, throughput, latency, absent: "this kernel does not have it" }
}

/// All that a profile sets.
static KNOBS: &[Knob] = &[
    // The clock of the processor follows the load only after packets have waited.
    Knob {
        name: "scaling_governor",
        file: "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        throughput: Some(Exactly("performance")),
        latency: Some(Exactly("performance")),
        absent: "this machine does not let its processors' clocks be set",
    },
    // Deeper sleep takes longer to end than a packet takes.
    Knob {
        name: "pm_qos_resume_latency_us",
        file: "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us",
        throughput: None,
        latency: Some(AtMost(20)),
        absent: "this kernel does not limit the sleep of processors",
    },
    // Room for what arrives while a worker is busy, in bytes: what programs may ask for, as iperf3.
    sysctl("net.core.rmem_max", "/proc/sys/net/core/rmem_max", Some(AtLeast(16 << 20)), None),
    sysctl("net.core.wmem_max", "/proc/sys/net/core/wmem_max", Some(AtLeast(16 << 20)), None),
    // Packets that wait between the interface and its processor, and that are taken in one round.
    sysctl(
        "net.core.netdev_max_backlog",
        "/proc/sys/net/core/netdev_max_backlog",
        Some(AtLeast(16_384)),
        None,
    ),
    sysctl("net.core.netdev_budget", "/proc/sys/net/core/netdev_budget", Some(AtLeast(600)), None),
    sysctl(
        "net.core.netdev_budget_usecs",
        "/proc/sys/net/core/netdev_budget_usecs",
        Some(AtLeast(8000)),
        None,
    ),
    // Sockets look at the interface for so many microseconds before they sleep.
    sysctl("net.core.busy_read", "/proc/sys/net/core/busy_read", None, Some(Exactly("50"))),
    sysctl("net.core.busy_poll", "/proc/sys/net/core/busy_poll", None, Some(Exactly("50"))),
    // Pages that move between processors stop their threads.
    sysctl("kernel.numa_balancing", "/proc/sys/kernel/numa_balancing", None, Some(Exactly("0"))),
];

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

impl Knob {
    fn want(&self, profile: Profile) -> Option<Want> {
        match profile {
            Profile::Throughput => self.throughput,
            Profile::Latency => self.latency,
        }
    }

    /// Its files below the root, with what each is called.
    fn files(&self, place: &Place) -> Vec<(String, PathBuf)> {
        let Some((folder, rest)) = self.file.split_once('*') else {
            return vec![(self.name.to_owned(), place.at(self.file))];
        };
        let (folder, prefix) = folder.rsplit_once('/').unwrap_or_default();
        let entries = fs::read_dir(place.at(folder)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut processors: Vec<(u32, String)> =
            names.filter_map(|name| Some((name.strip_prefix(prefix)?.parse().ok()?, name))).collect();
        processors.sort();
        let files = processors
            .into_iter()
            .map(|(_, name)| (format!("{name} {}", self.name), place.at(&format!("{folder}/{name}{rest}"))));
        files.filter(|(_, file)| file.exists()).collect()
    }
}

/// What was written, and what was there before, by the files.
type Changed = BTreeMap<PathBuf, (String, String)>;

/// Sets what the profile wants, and puts back all else that was set; what there is of it then.
pub(super) fn apply(
    place: &Place,
    owner: &str,
    profile: Option<Profile>,
) -> Result<Vec<Setting>, PlaceError> {
    let changed = read_state(place, owner);
    let mut wanted = Vec::new();
    if let Some(profile) = profile {
        for knob in KNOBS {
            let Some(want) = knob.want(profile) else { continue };
            let files = knob.files(place);
            if files.is_empty() {
                let setting =
                    Setting { name: knob.name.to_owned(), wanted: want.over(""), ..Setting::default() };
                wanted.push((None, Setting { problem: Some(knob.absent.to_owned()), ..setting }));
            }
            wanted.extend(
                files
                    .into_iter()
                    .map(|(name, file)| (Some(file.clone()), plan(name, file, want, knob, &changed))),
            );
        }
    }
    // Before anything is written: after a crash, what is written here is put back.
    let mut kept: Changed = changed.clone();
    for (file, setting) in &wanted {
        if let (Some(file), Some(before)) = (file, &setting.before)
            && before != &setting.wanted
        {
            kept.insert(file.clone(), (setting.wanted.clone(), before.clone()));
        }
    }
    if kept != changed || profile.is_some() {
        write_state(place, owner, &kept, profile.is_some())?;
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
    write_state(place, owner, &kept, profile.is_some())?;
    Ok(wanted.into_iter().map(|(_, setting)| setting).collect())
}

fn plan(name: String, file: PathBuf, want: Want, knob: &Knob, changed: &Changed) -> Setting {
    let shown = Some(file.display().to_string());
    match read(&file) {
        Ok(now) => {
            let before = changed.get(&file).map_or(now, |(_, before)| before.clone());
            Setting {
                name,
                file: shown,
                wanted: want.over(&before),
                before: Some(before),
                ..Setting::default()
            }
        }
        Err(error) => {
            let absent = error.kind() == ErrorKind::NotFound;
            let problem = if absent { knob.absent.to_owned() } else { error.to_string() };
            Setting { name, file: None, wanted: want.over(""), problem: Some(problem), ..Setting::default() }
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
fn read_state(place: &Place, owner: &str) -> Changed {
    if !place.is_owned(STATE, owner) {
        return Changed::new();
    }
    let text = fs::read_to_string(place.at(STATE)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entries = lines.filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let (written, before) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((place.at(words.next()?), (written, before)))
    });
    entries.collect()
}

/// Writes down what is changed; the file goes with the profile.
fn write_state(place: &Place, owner: &str, changed: &Changed, is_set: bool) -> Result<(), PlaceError> {
    let lines =
        changed.iter().map(|(file, (written, before))| format!("{written} {before} {}\n", place.named(file)));
    let content = Content { path: STATE.to_owned(), mode: 0o600, text: lines.collect() };
    let wanted = if is_set || !changed.is_empty() { vec![content] } else { Vec::new() };
    place.replace(owner, &wanted, &[STATE.to_owned()]).map(drop)
}
