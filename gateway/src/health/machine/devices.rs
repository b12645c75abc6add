//! QuickAssist devices, with what explains why one does not work.

use super::counters::advanced_errors;
use crypto::machine::qat::{self, Qat, State};
use crypto::machine::{Files, Identity, Known, Machine as Means};

/// A device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// What its driver says of it.
    pub qat: Qat,
    /// The module that drives it.
    pub module: &'static str,
    /// Whether it is a virtual function, which was given to this virtual machine or is given to another.
    pub is_virtual: bool,
    /// Whether the kernel has a module for it, if that is known.
    pub has_module: Option<bool>,
    /// Files of its firmware that are not there; none if that is not known.
    pub missing_firmware: Vec<&'static str>,
    /// Errors that could not be corrected, with the file that counts them.
    pub errors: Vec<(String, u64)>,
    /// Whether a file counts errors at all.
    pub counts_errors: bool,
    /// Why its state in debugfs is not known.
    pub debug: Known<()>,
}

/// Where modules and firmware are: `/lib` is a link on most machines, which a copy may not have.
const LIBRARIES: [&str; 2] = ["lib", "usr/lib"];
/// Bytes of the aliases of a kernel's modules: they have one or two million.
const ALIASES: u64 = 16 << 20;

pub(super) fn read(files: Files<'_>, means: &Means) -> Known<Vec<Device>> {
    files.names("sys/bus/pci/devices")?;
    let found = qat::devices_of(files, means);
    // It has a megabyte or two: it is read once, and where it explains something.
    let is_asked = found.iter().any(|qat| qat.state == State::NoDriver);
    let aliases = if is_asked { aliases(files) } else { Vec::new() };
    let one = |qat: Qat| {
        let device = means.accelerators.iter().find(|it| it.device.address == qat.address);
        let identity = device.and_then(|it| it.device.identity());
        read_one(files, qat, identity, &aliases)
    };
    Ok(found.into_iter().map(one).collect())
}

fn read_one(files: Files<'_>, qat: Qat, identity: Option<&'static Identity>, aliases: &[String]) -> Device {
    let folder = format!("sys/bus/pci/devices/{}", qat.address);
    let of_driver = qat.errors.iter().filter(|(name, _)| matches!(*name, "fatal" | "nonfatal"));
    let of_driver = of_driver.map(|(_, known)| (known.source.clone(), known.value));
    let of_bus = ["aer_dev_fatal", "aer_dev_nonfatal"].into_iter().filter_map(|name| {
        let path = format!("{folder}/{name}");
        let count = advanced_errors(&files.text(&path).ok()?)?;
        Some((format!("/{path}"), count))
    });
    let mut errors: Vec<(String, u64)> = of_driver.chain(of_bus).collect();
    let counts_errors = !errors.is_empty();
    errors.retain(|(_, count)| *count > 0);
    Device {
        module: identity.map_or("intel_qat", |identity| identity.module),
        is_virtual: identity.is_some_and(Identity::is_virtual),
        has_module: identity.and_then(|identity| has_module(aliases, identity)),
        missing_firmware: identity.map(|identity| missing(files, identity)).unwrap_or_default(),
        errors,
        counts_errors,
        debug: debug(files, &qat),
        qat,
    }
}

/// What the modules of the kernel that runs are for; of all kernels if it is not known which one runs.
fn aliases(files: Files<'_>) -> Vec<String> {
    let running = files.text("proc/sys/kernel/osrelease").ok();
    let mut texts = Vec::new();
    for library in LIBRARIES {
        let modules = format!("{library}/modules");
        let versions = files.names(&modules).unwrap_or_default();
        let is_running = |it: &&String| running.as_ref().is_none_or(|running| running == *it);
        for version in versions.iter().filter(is_running) {
            texts.extend(files.text_of(&format!("{modules}/{version}/modules.alias"), ALIASES));
        }
    }
    texts
}

/// Whether a module says that it drives the device: `alias pci:v00008086d00004940sv*... qat_4xxx`. Nothing if no file says anything.
fn has_module(aliases: &[String], identity: &Identity) -> Option<bool> {
    let alias = format!("alias pci:v{:08X}d{:08X}sv", identity.vendor, identity.device);
    (!aliases.is_empty()).then(|| aliases.iter().any(|text| text.contains(&alias)))
}

/// The files of the firmware that no folder has, as they are or compressed.
fn missing(files: Files<'_>, identity: &Identity) -> Vec<&'static str> {
    let folders = LIBRARIES.map(|library| format!("{library}/firmware"));
    let custom = files.text("sys/module/firmware_class/parameters/path").unwrap_or_default();
    let custom = custom.trim_start_matches('/').to_owned();
    if !folders.iter().any(|folder| files.has(folder)) {
        return Vec::new();
    }
    let is_there = |name: &&'static str| {
        let of = |folder: &String| {
            ["", ".xz", ".zst"].iter().any(|end| files.has(&format!("{folder}/{name}{end}")))
                || ["updates", "intel", "intel/qat"]
                    .iter()
                    .any(|sub| files.has(&format!("{folder}/{sub}/{name}")))
        };
        folders.iter().any(of) || !custom.is_empty() && of(&custom)
    };
    identity.firmware().iter().copied().filter(|name| !is_there(name)).collect()
}

/// Whether debugfs has the heartbeat of the device.
fn debug(files: Files<'_>, qat: &Qat) -> Known<()> {
    let Some(folder) = &qat.debug_folder else {
        let is_empty = files.names("sys/kernel/debug")?.is_empty();
        return Err(if is_empty {
            "/sys/kernel/debug is empty: mount -t debugfs none /sys/kernel/debug".to_owned()
        } else {
            format!("/sys/kernel/debug has no folder of {}", qat.address)
        });
    };
    let heartbeat = format!("{folder}/heartbeat");
    if !files.has(&heartbeat) {
        return Err(format!("/{heartbeat} is not there: the driver has it from Linux 6.6 on"));
    }
    // Of the kernel's drivers it is a folder, of Intel's a file.
    let status = format!("{heartbeat}/status");
    if files.has(&status) || files.has_folder(&heartbeat) {
        return files.text(&status).map(|_| ());
    }
    files.text(&heartbeat).map(|_| ())
}
