//! Intel QuickAssist devices, as their drivers show them in sysfs, debugfs and `/proc/interrupts`.
//!
//! ```text
//! /sys/bus/pci/devices/BDF/       qat/{state,cfg_services,num_rps}, qat_ras/errors_*, numa_node, msi_irqs/
//! /sys/kernel/debug/qat_TYPE_BDF/ fw_counters, dev_cfg, heartbeat/, telemetry/, version/
//! ```
//! No driver has all of these: those in the kernel's tree differ by generation (Documentation/ABI/testing/sysfs-driver-qat*,
//! debugfs-driver-qat*), and those that Intel ships have other files. What no file says is `None`, and never computed from
//! something else. debugfs can be read by root only.

use super::Machine;
use super::bus::{Accelerator, FOLDER, Family};
use super::files::Files;
use std::path::Path;

/// Bytes of `/proc/interrupts`.
const INTERRUPTS: u64 = 16 << 20;

/// A value and the file that it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The path of the file, from the root.
    pub source: String,
}

/// A QuickAssist device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Qat {
    /// Its number in the driver, or in the order of the PCI addresses if no interrupt has its name.
    pub number: u32,
    /// Its PCI address.
    pub address: String,
    /// The model.
    pub model: String,
    /// The name of its type in the driver, such as `c6xx`.
    pub kind: Option<String>,
    /// The driver that is bound.
    pub driver: Option<String>,
    /// Its state.
    pub state: State,
    /// The memory node that it is at.
    pub node: Option<String>,
    /// The services that it is set up for.
    pub services: Option<Sourced<String>>,
    /// How many instances its configuration has.
    pub instances: Option<Sourced<u64>>,
    /// How many ring pairs it has.
    pub ring_pairs: Option<Sourced<u64>>,
    /// Its folder in debugfs, from the root, if there is one and it can be listed.
    pub debug_folder: Option<String>,
    /// The version of its driver.
    pub driver_version: Option<Sourced<String>>,
    /// The version of its firmware.
    pub firmware: Option<Sourced<String>>,
    /// Whether the driver is one of Intel's, and not of the kernel's tree.
    pub is_out_of_tree: bool,
    /// Requests to its firmware and responses, of all engines.
    pub requests: Option<Sourced<(u64, u64)>>,
    /// Errors by name.
    pub errors: Vec<(&'static str, Sourced<u64>)>,
    /// Its measurements, if they are switched on: names and current values.
    pub telemetry: Vec<(String, Sourced<u64>)>,
    /// The text of its configuration.
    pub configuration: Option<Sourced<String>>,
}

/// Whether a device works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It works.
    Up,
    /// It was stopped.
    Down,
    /// Its firmware does not answer.
    NotResponding,
    /// Nothing drives it.
    #[default]
    NoDriver,
    /// It was given to a program, or to a virtual machine.
    Lent,
    /// Its driver is there, and nothing says whether it works.
    Unknown,
}

impl State {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::NotResponding => "not responding",
            Self::NoDriver => "no driver",
            Self::Lent => "lent to a program",
            Self::Unknown => "unknown",
        }
    }
}

impl Qat {
    /// Its name: `qat_dev0`.
    pub fn name(&self) -> String {
        format!("qat_dev{}", self.number)
    }

    /// Whether it works.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// One of its measurements.
    pub fn measured(&self, name: &str) -> Option<&Sourced<u64>> {
        self.telemetry.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }
}

/// The devices under `root`, by their numbers.
pub fn devices(root: &Path) -> Vec<Qat> {
    devices_of(Files { root }, &Machine::read(root))
}

/// The same, of a machine that was read before.
pub fn devices_of(files: Files<'_>, machine: &Machine) -> Vec<Qat> {
    let mut found: Vec<(Option<u32>, Qat)> = machine
        .accelerators
        .iter()
        .filter(|it| it.device.family() == Family::Qat)
        .map(|it| (number_of(files, &it.device.address), read(files, it)))
        .collect();
    let taken: Vec<u32> = found.iter().filter_map(|(number, _)| *number).collect();
    let mut free = (0..).filter(|number| !taken.contains(number));
    for (number, device) in &mut found {
        device.number = number.or_else(|| free.next()).unwrap_or_default();
    }
    let mut devices: Vec<Qat> = found.into_iter().map(|(_, device)| device).collect();
    devices.sort_by_key(|device| device.number);
    devices
}

/// The lines of `/proc/interrupts` for the devices, with the line that names the processors; empty if there is none.
pub fn interrupts(root: &Path) -> Vec<String> {
    interrupts_of(Files { root })
}

fn interrupts_of(files: Files<'_>) -> Vec<String> {
    // A line has ten bytes a processor.
    let text = files.text_of("proc/interrupts", INTERRUPTS).unwrap_or_default();
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default().to_owned();
    let ours: Vec<String> =
        lines.filter(|line| name_of_interrupt(line).is_some()).map(str::to_owned).collect();
    if ours.is_empty() { ours } else { [vec![head], ours].concat() }
}

/// The number of the device in the name of an interrupt: 3 of `qat3-bundle0`, or of `qat_3-bundle0`.
fn name_of_interrupt(line: &str) -> Option<u32> {
    let name = line.split_whitespace().last()?.strip_prefix("qat")?;
    let (number, _) = name.trim_start_matches('_').split_once('-')?;
    number.parse().ok()
}

/// The driver's number of a device: the interrupts that belong to the device have it in their names.
fn number_of(files: Files<'_>, address: &str) -> Option<u32> {
    let own = files.names(&format!("{FOLDER}/{address}/msi_irqs")).ok()?;
    interrupts_of(files).iter().skip(1).find_map(|line| {
        let (number, _) = line.split_once(':')?;
        own.iter().any(|own| own == number.trim()).then(|| name_of_interrupt(line)).flatten()
    })
}

/// Reads files of one device, and notes which file a value is from.
struct Own<'a> {
    files: Files<'a>,
    pci: String,
    /// [`Qat::debug_folder`].
    debug: Option<String>,
}

impl Own<'_> {
    fn text(&self, path: &str) -> Option<Sourced<String>> {
        let value = self.files.text(path).ok()?;
        (!value.is_empty()).then(|| Sourced { value, source: format!("/{path}") })
    }

    fn pci(&self, name: &str) -> Option<Sourced<String>> {
        self.text(&format!("{}/{name}", self.pci))
    }

    fn debug(&self, name: &str) -> Option<Sourced<String>> {
        self.text(&format!("{}/{name}", self.debug.as_ref()?))
    }
}

impl Sourced<String> {
    fn number(&self) -> Option<Sourced<u64>> {
        let value = self.value.parse().ok()?;
        Some(Sourced { value, source: self.source.clone() })
    }
}

fn read(files: Files<'_>, accelerator: &Accelerator) -> Qat {
    let device = &accelerator.device;
    let pci = format!("{FOLDER}/{}", device.address);
    let files = Own { files, pci, debug: debug_folder(files, &device.address) };
    let kind = files.debug.as_ref().and_then(|path| {
        let name = path.rsplit('/').next()?.strip_prefix("qat_")?;
        Some(name.rsplit_once('_')?.0.to_owned())
    });
    let configuration = files.debug("dev_cfg");
    let module = device.identity().map_or("intel_qat", |identity| identity.module);
    let version = |module: &str| files.text(&format!("sys/module/{module}/version"));
    let enabled = |known: &Sourced<String>| {
        let value = setting(&known.value, "ServicesEnabled")?.to_owned();
        Some(Sourced { value, source: known.source.clone() })
    };
    Qat {
        number: 0,
        address: device.address.clone(),
        model: device.identity().map_or_else(String::new, |identity| identity.model.to_owned()),
        kind: kind.or_else(|| device.driver.clone().filter(|_| !device.is_lent_to_a_program())),
        driver: device.driver.clone(),
        state: state(accelerator, &files),
        node: files.pci("numa_node").map(|known| known.value),
        services: files.pci("qat/cfg_services").or_else(|| configuration.as_ref().and_then(enabled)),
        instances: configuration.as_ref().and_then(instances),
        ring_pairs: files.pci("qat/num_rps").and_then(|known| known.number()),
        driver_version: version(module).or_else(|| version("intel_qat")),
        firmware: files.debug("version/fw"),
        is_out_of_tree: files.debug("version/fw").is_some()
            || files.debug("heartbeat").is_some()
            || files.debug("fw_counters").is_some_and(|known| known.value.starts_with('+')),
        requests: files.debug("fw_counters").and_then(|known| firmware_requests(&known)),
        errors: errors(&files),
        telemetry: telemetry(&files),
        debug_folder: files.debug,
        configuration,
    }
}

/// Drivers name the directory by type and address; old ones leave the PCI domain out.
fn debug_folder(files: Files<'_>, address: &str) -> Option<String> {
    let short = address.strip_prefix("0000:").unwrap_or(address);
    let ends = [format!("_{address}"), format!("_{short}")];
    let is_its = |name: &String| name.starts_with("qat_") && ends.iter().any(|end| name.ends_with(end));
    let name = files.names("sys/kernel/debug").ok()?.into_iter().find(is_its)?;
    Some(format!("sys/kernel/debug/{name}"))
}

/// The state that the driver reports, or else what the device's other files imply.
fn state(accelerator: &Accelerator, files: &Own<'_>) -> State {
    let device = &accelerator.device;
    if device.driver.is_none() {
        return State::NoDriver;
    }
    if device.is_lent_to_a_program() {
        return State::Lent;
    }
    let heartbeat = files.debug("heartbeat/status").or_else(|| files.debug("heartbeat"));
    if heartbeat.is_some_and(|known| known.value == "-1") {
        return State::NotResponding;
    }
    match device.state.as_deref() {
        Some("up") => return State::Up,
        Some(_) => return State::Down,
        None => {}
    }
    // Without that file: the counters of a device can be read while it is started, and its ciphers are registered then.
    let counters = files.debug.as_ref().map(|folder| format!("{folder}/fw_counters"));
    match counters.filter(|path| files.files.has(path)) {
        Some(path) if files.files.text(&path).is_ok() => State::Up,
        Some(_) => State::Down,
        None if !accelerator.algorithms.is_empty() => State::Up,
        None => State::Unknown,
    }
}

/// The value of a key in the text of a configuration.
fn setting<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.trim(), value.trim()))
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}

/// All instances of all sections.
fn instances(configuration: &Sourced<String>) -> Option<Sourced<u64>> {
    let counts =
        configuration.value.lines().filter_map(|line| line.split_once('=')).filter_map(|(key, value)| {
            let is_count = matches!(key.trim(), "NumberCyInstances" | "NumberDcInstances");
            is_count.then(|| value.trim().parse::<u64>().ok()).flatten()
        });
    let counts: Vec<u64> = counts.collect();
    (!counts.is_empty()).then(|| Sourced { value: counts.iter().sum(), source: configuration.source.clone() })
}

/// The sums of both formats: `12:   100   100` of drivers in the kernel's tree, and
/// `| Firmware Requests [AE  0]:   100 |` of Intel's.
fn firmware_requests(known: &Sourced<String>) -> Option<Sourced<(u64, u64)>> {
    let (mut requests, mut responses, mut engines) = (0, 0, 0);
    for line in known.value.lines() {
        let Some((before, after)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> = after.split_whitespace().map_while(|number| number.parse().ok()).collect();
        match (before.trim(), &numbers[..]) {
            (engine, [sent, received]) if engine.parse::<u32>().is_ok() => {
                requests += sent;
                responses += received;
                engines += 1;
            }
            (name, [number]) if name.contains("Firmware Requests") => {
                requests += number;
                engines += 1;
            }
            (name, [number]) if name.contains("Firmware Responses") => responses += number,
            _ => {}
        }
    }
    (engines > 0).then(|| Sourced { value: (requests, responses), source: known.source.clone() })
}

/// What the device or its firmware did wrong: the counters that there are.
fn errors(files: &Own<'_>) -> Vec<(&'static str, Sourced<u64>)> {
    let ras = [
        ("correctable", "qat_ras/errors_correctable"),
        ("nonfatal", "qat_ras/errors_nonfatal"),
        ("fatal", "qat_ras/errors_fatal"),
    ];
    let ras = ras.into_iter().filter_map(|(name, file)| Some((name, files.pci(file)?.number()?)));
    let missed = files.debug("heartbeat/queries_failed").or_else(|| files.debug("heartbeat_failed"));
    let missed = missed.and_then(|known| known.number()).map(|known| ("heartbeat", known));
    ras.chain(missed).collect()
}

/// The current values; columns after them are of earlier samples.
fn telemetry(files: &Own<'_>) -> Vec<(String, Sourced<u64>)> {
    let is_on = files.debug("telemetry/control").is_some_and(|known| known.value != "0");
    let Some(data) = files.debug("telemetry/device_data").filter(|_| is_on) else { return Vec::new() };
    let lines = data.value.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, value) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        Some((name, Sourced { value, source: data.source.clone() }))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &str) -> Sourced<String> {
        Sourced { value: text.to_owned(), source: String::new() }
    }

    #[test]
    fn both_formats_of_firmware_counters_are_summed() {
        let sum = |text: &str| firmware_requests(&known(text)).map(|known| known.value);
        let tree = "AE          Requests        Responses\n 0:              300              299\n12:                1                1";
        assert_eq!(sum(tree), Some((301, 300)));
        let intel = "+------+\n| FW Statistics for Qat Device |\n+------+\n| Firmware Requests [AE  0]:  260640 |\n\
            | Firmware Responses[AE  0]:  260639 |\n| RAS Events        [AE  0]:       0 |\n";
        assert_eq!(sum(intel), Some((260_640, 260_639)));
        assert_eq!((sum(""), sum("AE Requests Responses")), (None, None));
    }

    #[test]
    fn all_instances_are_counted() {
        let text = "[KERNEL]\nNumberCyInstances = 1\nNumberDcInstances = 0\n[SSL]\nNumberCyInstances = 1\nNumberDcInstances = 1";
        assert_eq!(instances(&known(text)).map(|known| known.value), Some(3));
        assert_eq!(instances(&known("[GENERAL]\nServicesEnabled = sym")), None);
    }

    #[test]
    fn an_interrupt_names_its_device() {
        let of = |name: &str| name_of_interrupt(&format!(" 45:  0  1 PCI-MSIX-0000:3d:00.0 0-edge {name}"));
        assert_eq!(
            (of("qat3-bundle0"), of("qat12-ae-cluster"), of("eth0-rx"), of("qatar-1")),
            (Some(3), Some(12), None, None)
        );
    }
}
