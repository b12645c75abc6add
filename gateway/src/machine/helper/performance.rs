//! `system option performance`: which values of the kernel a profile sets.

use super::place::Place;
use super::values::Want::{AtLeast, AtMost, Exactly};
use super::values::{Value, Want};
use config::settings::machine::Profile;
use std::fs;
use std::path::PathBuf;

/// What was changed since the machine has started, with what it was.
pub(super) const STATE: &str = "/run/postern-machine/performance";

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

/// What a profile wants.
pub(super) fn values(place: &Place, profile: Profile) -> Vec<Value> {
    let of_knob = |knob: &Knob| {
        let Some(want) = knob.want(profile) else { return Vec::new() };
        let value = |name: String, file| Value { name, file, want, absent: knob.absent };
        let files = knob.files(place);
        if files.is_empty() {
            return vec![value(knob.name.to_owned(), None)];
        }
        files.into_iter().map(|(name, file)| value(name, Some(file))).collect()
    };
    KNOBS.iter().flat_map(of_knob).collect()
}
