//! `postern show system acceleration qat`: Intel QuickAssist devices, in the layout of VyOS's guide.
//!
//! A number is from a file of the kernel or from the daemon's counters, and `flows detail` names it. Where nothing has the
//! number, `n/a` stands in its place.

mod flows;

pub(crate) use flows::{flows, flows_detail};

use crate::answer::Answer;
use crate::request::Request;
use crate::{Failure, host};
use crypto::machine::qat::{Qat, Sourced, devices};
use crypto::machine::{Capability, Machine};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What is shown of a value that no file has.
const UNKNOWN: &str = "n/a";

/// The names of the devices.
pub(crate) fn names() -> Vec<String> {
    devices(&host::root()).iter().map(Qat::name).collect()
}

pub(crate) fn overview() -> Answer {
    let root = host::root();
    let (devices, has_aes) = (devices(&root), Machine::read(&root).processor.has(Capability::Aes));
    let value = json!({
        "detected": !devices.is_empty(),
        "available": devices.iter().any(Qat::is_up),
        "devices": devices.iter().map(value).collect::<Vec<_>>(),
        "aes_instructions": has_aes,
    });
    Answer::new(value, move |_| overview_text(&devices, has_aes))
}

fn overview_text(devices: &[Qat], has_aes: bool) -> String {
    let Some(first) = devices.first() else {
        let aes = if has_aes {
            "Available (fallback to software crypto with hardware AES)"
        } else {
            "Not available"
        };
        return format!(
            "Intel QuickAssist Technology not detected\nNo QAT devices found on this system.\n\
             AES-NI CPU instructions: {aes}\n"
        );
    };
    let mut text = String::from("Intel QuickAssist Technology acceleration detected\nDevices:\n");
    for device in devices {
        let ready = if device.is_up() { "Ready" } else { device.state.name() };
        let _ = writeln!(text, "  {}: {ready}", device.name());
    }
    let status = if devices.iter().any(Qat::is_up) { "Available" } else { "Not available" };
    let _ = write!(
        text,
        "Status: {status}\nDriver Version: {}\nFirmware Version: {}\n",
        shown(first.driver_version.as_ref()),
        firmware(first)
    );
    text
}

pub(crate) fn status() -> Answer {
    let devices = devices(&host::root());
    let value = json!({
        "devices": devices.iter().map(value).collect::<Vec<_>>(),
        "total": devices.len(),
        "active": devices.iter().filter(|device| device.is_up()).count(),
    });
    Answer::new(value, move |_| status_text(&devices))
}

fn status_text(devices: &[Qat]) -> String {
    let mut text = String::from("QAT Device Status:\n");
    for device in devices {
        let instances = match (&device.instances, &device.ring_pairs) {
            (Some(known), _) => known.value.to_string(),
            (None, Some(pairs)) => format!("{UNKNOWN} ({} ring pairs)", pairs.value),
            (None, None) => UNKNOWN.to_owned(),
        };
        let lines = [
            ("State", device.state.name().to_owned()),
            ("Node Id", device.node.clone().unwrap_or_else(|| UNKNOWN.to_owned())),
            ("Device Type", device.kind.clone().unwrap_or_else(|| UNKNOWN.to_owned())),
            ("Model", device.model.clone()),
            ("PCI Address", device.address.clone()),
            ("Driver", device.driver.clone().unwrap_or_else(|| "none".to_owned())),
            ("Services", services(device)),
            ("Instances", instances),
            ("Firmware", firmware(device)),
        ];
        let _ = writeln!(text, "Device {}:", device.name());
        for (name, value) in lines {
            let _ = writeln!(text, "  {name}: {value}");
        }
    }
    let active = devices.iter().filter(|device| device.is_up()).count();
    text + &format!("Total Devices: {}\nActive Devices: {active}\n", devices.len())
}

/// The services in the driver's words, with what they mean.
fn services(device: &Qat) -> String {
    let Some(known) = &device.services else { return UNKNOWN.to_owned() };
    let has = |names: &[&str]| known.value.split([';', ',']).any(|word| names.contains(&word.trim()));
    let crypto = has(&["sym", "asym", "cy", "crypto", "cy0", "cy1"]).then_some("Crypto");
    let compression = has(&["dc", "dcc", "decomp"]).then_some("Compression");
    let means: Vec<&str> = crypto.into_iter().chain(compression).collect();
    if means.is_empty() { known.value.clone() } else { format!("{} ({})", known.value, means.join(" and ")) }
}

fn shown(known: Option<&Sourced<String>>) -> String {
    known.map_or_else(|| UNKNOWN.to_owned(), |known| known.value.clone())
}

/// The version of the firmware, which only Intel's own drivers tell.
fn firmware(device: &Qat) -> String {
    match (&device.firmware, &device.driver) {
        (Some(known), _) => known.value.clone(),
        (None, Some(_)) if !device.is_out_of_tree => format!("{UNKNOWN} (in-tree driver)"),
        (None, _) => UNKNOWN.to_owned(),
    }
}

/// A device as JSON.
fn value(device: &Qat) -> Value {
    let text = |known: &Option<Sourced<String>>| known.as_ref().map(|known| known.value.clone());
    json!({
        "name": device.name(),
        "address": device.address,
        "model": device.model,
        "type": device.kind,
        "driver": device.driver,
        "driver_version": text(&device.driver_version),
        "firmware": text(&device.firmware),
        "state": device.state.name(),
        "node": device.node,
        "services": text(&device.services),
        "instances": device.instances.as_ref().map(|known| known.value),
        "ring_pairs": device.ring_pairs.as_ref().map(|known| known.value),
    })
}

/// The device that the request names, by its name or its PCI address.
fn named(request: &Request) -> Result<Qat, Failure> {
    let name = request.value("DEVICE").unwrap_or_default();
    let devices = devices(&host::root());
    let known: Vec<String> = devices.iter().map(Qat::name).collect();
    let found = devices.into_iter().find(|device| device.name() == name || device.address == name);
    found.ok_or_else(|| {
        let fix = match &known[..] {
            [] => "postern doctor crypto: this machine has no QAT device".to_owned(),
            known => format!("one of {}", known.join(", ")),
        };
        format!("there is no QAT device {name}\n  fix: {fix}").into()
    })
}

pub(crate) fn configuration(request: &Request) -> Result<Answer, Failure> {
    let device = named(request)?;
    let Some(known) = device.configuration.clone() else {
        let fix = "ask as root, with debugfs mounted: mount -t debugfs none /sys/kernel/debug";
        return Err(format!(
            "{}: its driver shows no configuration: /sys/kernel/debug/qat_*_{}/dev_cfg\n  fix: {fix}",
            device.name(),
            device.address
        )
        .into());
    };
    let value = json!({ "device": device.name(), "source": known.source, "text": known.value });
    Ok(Answer::new(value, move |_| format!("{}\n", known.value)))
}

pub(crate) fn interrupts() -> Answer {
    let lines = crypto::machine::qat::interrupts(&host::root());
    Answer::new(json!({ "source": "/proc/interrupts", "lines": lines }), move |_| match &lines[..] {
        [] => "no interrupt of a QAT device in /proc/interrupts\n".to_owned(),
        lines => lines.iter().map(|line| format!("{line}\n")).collect(),
    })
}
