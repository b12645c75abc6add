//! What the machine says of itself that changes slowly: accelerators, processors, memory, counters of the kernel. It is read each half
//! minute, from files below a root, which may be a copy of another machine's `/proc` and `/sys`.

mod counters;
mod devices;
mod governor;
mod heat;
mod links;
mod log;
mod topics;

pub use counters::{advanced_errors, hides_aes, huge_pages, softnet, udp, udp6};
pub use log::parse as parse_log;

pub(super) use counters::Lossy;
pub(super) use devices::Device;
pub(super) use governor::Governor;
pub(super) use heat::Heat;
pub(super) use links::Links;
pub(super) use log::{Log, Said, heat, unresolved};
pub(super) use topics::Topic;

use crypto::machine::{Files, Known, Machine as Means, Processor};
use std::collections::BTreeMap;
use std::path::Path;

/// What a machine says of itself.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) processor: Known<Processor>,
    /// QuickAssist devices.
    pub(super) devices: Known<Vec<Device>>,
    /// What the kernel has said of them.
    pub(super) log: Known<Vec<Said>>,
    pub(super) heat: Known<Heat>,
    /// How many processors have each governor of the frequency.
    pub(super) governors: Known<BTreeMap<Governor, usize>>,
    /// Packets that wait for a processor.
    pub(super) backlog: Known<Lossy>,
    /// UDP datagrams that wait for a program.
    pub(super) datagrams: Known<Lossy>,
    /// How many huge pages there are.
    pub(super) huge_pages: Known<u64>,
    pub(super) links: Known<Links>,
    /// Seconds since the machine has started.
    pub(super) uptime: Known<f64>,
    /// Where `OPENSSL_ia32cap` is set to a value that hides AES.
    pub(super) masks: Vec<String>,
    /// Whether the clock is synchronised.
    pub(super) clock: Known<bool>,
}

/// Whether this is the folder of a processor: `cpu0`.
fn is_processor(name: &str) -> bool {
    name.strip_prefix("cpu")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Machine {
    /// Reads this machine, and what has been added to the log of its kernel.
    pub(super) fn here(log: &mut Log) -> Self {
        let mut machine = Self::read_files(Files { root: Path::new("/") }, log);
        machine.clock = port::clock::is_synchronised().map_err(|error| format!("adjtimex: {error}"));
        // Files say what is set for a daemon; this one has what is set for it.
        machine.masks = std::env::var("OPENSSL_ia32cap")
            .ok()
            .filter(|value| hides_aes(value))
            .map(|_| "the environment of the daemon".to_owned())
            .into_iter()
            .collect();
        machine
    }

    /// Reads the machine whose `/proc`, `/sys`, `/dev`, `/lib` and `/etc` are below this root.
    pub(super) fn read(root: &Path) -> Self {
        Self::read_files(Files { root }, &mut Log::default())
    }

    fn read_files(files: Files<'_>, log: &mut Log) -> Self {
        let means = Means::read(files.root);
        let text = |path: &str, parsed: fn(&str) -> Option<Lossy>| {
            let odd = || format!("/{path} has not the form that is known");
            files.text(path).and_then(|text| parsed(&text).ok_or_else(odd))
        };
        let processor = match means.processor.count {
            0 => files.text("proc/cpuinfo").map(|_| means.processor.clone()),
            _ => Ok(means.processor.clone()),
        };
        Self {
            devices: devices::read(files, &means),
            log: log.read(files),
            heat: heat::read(files),
            governors: governor::read(files),
            backlog: text("proc/net/softnet_stat", softnet),
            datagrams: datagrams(text("proc/net/snmp", udp), text("proc/net/snmp6", udp6)),
            huge_pages: pages(files),
            links: links::read(files),
            uptime: uptime(files),
            masks: masks(files),
            clock: Err("files do not say it: ask on the machine".to_owned()),
            processor,
        }
    }
}

/// Huge pages of all sizes; `/proc/meminfo` has those of one size only.
fn pages(files: Files<'_>) -> Known<u64> {
    let sizes = files.names("sys/kernel/mm/hugepages").unwrap_or_default();
    let count =
        |size: &String| files.number::<u64>(&format!("sys/kernel/mm/hugepages/{size}/nr_hugepages")).ok();
    if let Some(all) = sizes.iter().filter_map(count).reduce(u64::saturating_add) {
        return Ok(all);
    }
    let text = files.text("proc/meminfo")?;
    huge_pages(&text).ok_or_else(|| "/proc/meminfo has no HugePages_Total".to_owned())
}

fn uptime(files: Files<'_>) -> Known<f64> {
    let text = files.text("proc/uptime")?;
    let seconds = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    let seconds = seconds.filter(|it| it.is_finite() && *it >= 0.0);
    seconds.ok_or_else(|| "/proc/uptime holds no number that is understood".to_owned())
}

/// A kernel without IPv6 has no counters of it.
fn datagrams(four: Known<Lossy>, six: Known<Lossy>) -> Known<Lossy> {
    let (four, six) = (four?, six.unwrap_or_default());
    Ok(Lossy { taken: four.taken.saturating_add(six.taken), lost: four.lost.saturating_add(six.lost) })
}

/// Files that set the environment of the daemon, or of all programs.
fn masks(files: Files<'_>) -> Vec<String> {
    let mut paths = ["etc/environment", "etc/default/postern"].map(str::to_owned).to_vec();
    for folder in ["etc/systemd/system/postern.service.d", "run/systemd/system/postern.service.d"] {
        paths.extend(files.names(folder).unwrap_or_default().iter().map(|name| format!("{folder}/{name}")));
    }
    let hides = |path: &String| {
        let text = files.text(path).unwrap_or_default();
        let values = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        values.filter_map(|line| line.split_once("OPENSSL_ia32cap=")).any(|(_, value)| hides_aes(value))
    };
    paths.into_iter().filter(hides).map(|path| format!("/{path}")).collect()
}
