//! Rules about QuickAssist devices: whether they are there, work, and are used.

use super::super::machine::{Device, Machine, Said, Topic, unresolved};
use super::super::sight::{Seen, Span};
use super::configured::configured;
use super::{Found, Trouble};
use crate::api::model::{CryptoEngine, EngineState};
use config::settings::watched::Suite;
use crypto::machine::qat::{Sourced, State};
use crypto::machine::{Known, Processor, has_qat_in_truth};

/// Requests without a response: more than a device has in its rings while it works. The kernel's drivers have 512 for each instance.
const WAITING: u64 = 512;

fn devices<'a>(seen: &Seen<'a>) -> Result<&'a [Device], String> {
    seen.machine.devices.as_deref().map_err(Clone::clone)
}

/// The devices that there are; none if there is none, and lines of the log are then about nothing that is in use.
fn on_the_bus<'a>(seen: &Seen<'a>) -> Result<Option<&'a [Device]>, String> {
    Ok(Some(devices(seen)?).filter(|devices| !devices.is_empty()))
}

/// The device as it is called in sentences.
fn called(device: &Device) -> String {
    format!("{} ({} at {})", device.qat.name(), device.qat.model, device.qat.address)
}

fn trouble(device: &Device, sentence: String, remedy: impl Into<String>) -> Trouble {
    Trouble::new(device.qat.address.clone(), sentence, remedy)
}

/// What the log of the kernel says, or why it is not known; that matters only where there is a device.
fn said(machine: &Machine, topic: Topic) -> Known<Option<&Said>> {
    match &machine.log {
        Ok(log) => Ok(unresolved(log, topic)),
        Err(why) => Err(why.clone()),
    }
}

/// The trouble that a line of the log tells.
fn told(said: &Said, what: &str, remedy: &str) -> Trouble {
    let subject = said.devices.first().cloned().unwrap_or_else(|| "QuickAssist".to_owned());
    Trouble::new(subject, format!("{what}: the kernel says \"{}\".", said.text), remedy)
}

/// No device, though one is wanted or the processor has one.
pub(super) fn absent(seen: &Seen<'_>, _: u32) -> Found {
    let devices = devices(seen)?;
    if !devices.is_empty() {
        return Ok(Vec::new());
    }
    let processor = seen.machine.processor.as_ref().ok();
    let is_virtual = processor.is_some_and(Processor::is_virtual);
    let has_one = !is_virtual && processor.is_some_and(has_qat_in_truth);
    let wanted = seen.configured.as_ref().map(|watched| watched.accelerators);
    let model = processor.map(|it| it.model.clone()).unwrap_or_default();
    let (sentence, remedy) = match wanted {
        _ if has_one => (
            format!("No QuickAssist device on the PCI bus, and {model} has one: the firmware of the machine hides it."),
            "in the firmware settings (BIOS), under Advanced or Chipset: enable Intel QuickAssist Technology; lspci -nn -d 8086:",
        ),
        Ok(true) if is_virtual => (
            "No QuickAssist device on the PCI bus of this virtual machine, and system acceleration qat is set.".to_owned(),
            "give it a virtual function of the host's device by VFIO, or: delete system acceleration qat",
        ),
        Ok(true) => (
            "No QuickAssist device on the PCI bus, and system acceleration qat is set.".to_owned(),
            "lspci -nn -d 8086: ; enable it in the firmware settings (BIOS), or: delete system acceleration qat",
        ),
        Ok(false) => return Ok(Vec::new()),
        Err(why) => return Err(format!("there is no QuickAssist device, and whether one is wanted is not known: {why}")),
    };
    Ok(vec![Trouble::new("QuickAssist", sentence, remedy)])
}

/// Devices without a driver, and why: no driver exists, the kernel lacks its module, or the module is not loaded.
pub(super) fn without_driver(seen: &Seen<'_>, _: u32) -> Found {
    let one = |device: &Device| {
        if device.qat.state != State::NoDriver {
            return None;
        }
        let module = device.module;
        let is_out_of_tree = matches!(
            module,
            "icp_qa_al"
                | "qat_200xx"
                | "qat_c4xxx"
                | "qat_d15xx"
                | "qat_d15xxvf"
                | "qat_200xxvf"
                | "qat_c4xxxvf"
        );
        let (why, remedy) = if module == "vfio-pci" {
            (
                "the kernel has no driver of ciphers for this virtual function",
                format!(
                    "give it to DPDK: driverctl set-override {} vfio-pci; or the driver of Intel",
                    device.qat.address
                ),
            )
        } else if is_out_of_tree || device.has_module == Some(false) {
            (
                "this kernel has no module for it",
                format!("a kernel with {module}, or the driver of Intel: https://intel.com/quickassist"),
            )
        } else {
            ("its module is not loaded, or refused it", format!("modprobe {module}; dmesg | grep -i qat"))
        };
        let sentence = format!("{} has no driver: {why}.", called(device));
        Some(trouble(device, sentence, remedy))
    };
    Ok(devices(seen)?.iter().filter_map(one).collect())
}

pub(super) fn without_firmware(seen: &Seen<'_>, _: u32) -> Found {
    const REMEDY: &str = "apt-get install firmware-misc-nonfree (Debian 13: firmware-intel-misc); then modprobe -r and modprobe its module";
    let Some(devices) = on_the_bus(seen)? else { return Ok(Vec::new()) };
    let one = |device: &Device| {
        let names = device.missing_firmware.join(", ");
        let is_needed = !device.qat.is_up() && device.qat.state != State::Lent && !names.is_empty();
        is_needed.then(|| {
            trouble(
                device,
                format!("{} has no firmware: /lib/firmware has no {names}.", called(device)),
                REMEDY,
            )
        })
    };
    let mut found: Vec<Trouble> = devices.iter().filter_map(one).collect();
    match said(seen.machine, Topic::Firmware) {
        Ok(said) => {
            let is_new = |said: &&Said| !found.iter().any(|it| said.devices.contains(&it.subject));
            let more = said.filter(is_new).map(|said| told(said, "The firmware was not loaded", REMEDY));
            found.extend(more);
        }
        // A device that works has its firmware.
        Err(why)
            if found.is_empty()
                && devices.iter().any(|it| !it.qat.is_up() && it.qat.state != State::Lent) =>
        {
            return Err(why);
        }
        Err(_) => {}
    }
    Ok(found)
}

/// Devices that have a driver and do not work, with what may have caused that.
pub(super) fn down(seen: &Seen<'_>, _: u32) -> Found {
    let Some(devices) = on_the_bus(seen)? else { return Ok(Vec::new()) };
    let cause = || {
        let said = said(seen.machine, Topic::Down)
            .ok()
            .flatten()
            .or_else(|| said(seen.machine, Topic::Firmware).ok().flatten());
        let heat = seen.machine.heat.as_ref().ok().filter(|it| !it.hot.is_empty());
        let heat =
            heat.map(|it| format!("; {} is at {} C", it.hot[0].name, it.hot[0].celsius)).unwrap_or_default();
        said.map(|said| format!("; the kernel says \"{}\"", said.text)).unwrap_or_default() + &heat
    };
    let mut found = Vec::new();
    let mut unknown = None;
    for device in devices {
        match device.qat.state {
            State::Down => {
                let path = format!("/sys/bus/pci/devices/{}/qat/state", device.qat.address);
                let sentence = format!("{} is down{}.", called(device), cause());
                let remedy =
                    format!("dmesg | grep -i qat; postern show environment sensors; echo up > {path}");
                found.push(trouble(device, sentence, remedy));
            }
            State::Unknown => {
                let why = format!("neither sysfs nor debugfs says whether {} works", called(device));
                unknown = Some(why);
            }
            _ => {}
        }
    }
    if found.is_empty()
        && let Ok(Some(said)) = said(seen.machine, Topic::Down)
        && !devices.iter().any(|it| it.qat.is_up() && is_about(said, it))
    {
        found.push(told(
            said,
            "A QuickAssist device did not start",
            "dmesg | grep -i qat; postern show environment sensors",
        ));
    }
    match unknown {
        Some(why) if found.is_empty() => Err(why),
        _ => Ok(found),
    }
}

fn is_about(said: &Said, device: &Device) -> bool {
    said.devices.is_empty()
        || said.devices.contains(&device.qat.address)
        || said.devices.contains(&device.qat.name())
}

/// Whether devices accelerate the cipher of an `esp-group`.
fn is_offloadable(suite: &Suite) -> bool {
    let cipher = &suite.encryption;
    (cipher.starts_with("aes") || cipher == "3des") && !cipher.contains("gmac")
}

/// Whether a device is set up for ciphers, as far as it says what it is set up for.
fn does_ciphers(device: &Device) -> bool {
    const WORDS: [&str; 5] = ["sym", "cy", "crypto", "cy0", "cy1"];
    let is_one = |word: &str| WORDS.contains(&word.trim());
    device.qat.services.as_ref().is_none_or(|services| services.value.split([';', ',']).any(is_one))
}

/// Devices work, and IPsec does not use them.
pub(super) fn unused(seen: &Seen<'_>, _: u32) -> Found {
    let up: Vec<&Device> = devices(seen)?.iter().filter(|device| device.qat.is_up()).collect();
    let Some(first) = up.first() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    // One that compresses is no trouble beside another that does ciphers.
    if !up.iter().any(|device| does_ciphers(device)) {
        let services = first.qat.services.as_ref().map(|it| it.value.clone()).unwrap_or_default();
        let folder = format!("/sys/bus/pci/devices/{}/qat", first.qat.address);
        let sentence = format!("{} is set up for {services} and not for ciphers.", called(first));
        let remedy =
            format!("cd {folder} && echo down > state && echo 'sym;asym' > cfg_services && echo up > state");
        found.push(trouble(first, sentence, remedy));
    }
    let watched = match configured(seen) {
        Ok(watched) => watched,
        Err(_) if !found.is_empty() => return Ok(found),
        Err(why) => return Err(why),
    };
    if !watched.has_ipsec {
        return Ok(found);
    }
    if !watched.accelerators {
        let sentence = format!("{} works, and system acceleration qat is not set.", called(first));
        found.push(trouble(first, sentence, "set system acceleration qat"));
        return Ok(found);
    }
    for (group, suite) in watched.suites.iter().filter(|(_, suite)| !is_offloadable(suite)) {
        let sentence = format!(
            "esp-group {group} wants {} first, which QuickAssist does not do for IPsec.",
            suite.encryption
        );
        let remedy = format!(
            "set vpn ipsec esp-group {group} proposal 1 encryption aes256gcm128, here and at the peer"
        );
        found.push(Trouble::new(format!("esp-group {group}"), sentence, remedy));
    }
    if let Some(why) = seen.facts.and_then(|facts| not_chosen(&facts.engines)) {
        let sentence = format!("{} works, and no cipher uses it: {why}.", called(first));
        found.push(trouble(first, sentence, "postern show crypto; postern doctor crypto"));
    }
    Ok(found)
}

/// Why no engine of an accelerator is used; none if one is, or has failed, which another rule tells.
fn not_chosen(engines: &[CryptoEngine]) -> Option<String> {
    let mut of_devices = engines.iter().filter(|engine| engine.accelerator).peekable();
    of_devices.peek()?;
    let mut why = "no engine reaches it".to_owned();
    for engine in of_devices {
        match engine.state {
            EngineState::InUse | EngineState::Failed => return None,
            EngineState::NotUsed => why = format!("another engine was measured faster than {}", engine.name),
            EngineState::NotAllowed | EngineState::Absent => {}
        }
    }
    Some(why)
}

fn counted(device: &Device) -> Option<&Sourced<u64>> {
    device.qat.errors.iter().find(|(name, _)| *name == "heartbeat").map(|(_, known)| known)
}

/// Heartbeats that a device has missed since the reading before, and the file that counts them. What it missed before that is over.
fn missed<'a>(seen: &Seen<'_>, device: &'a Device) -> Option<(u64, &'a str)> {
    let Span::Since(before, _) = seen.span else { return None };
    let before = before.devices.as_ref().ok()?.iter().find(|it| it.qat.address == device.qat.address)?;
    let (now, before) = (counted(device)?, counted(before)?);
    let missed = now.value.saturating_sub(before.value);
    (missed > 0).then_some((missed, &*now.source))
}

/// Firmware that does not answer.
pub(super) fn heartbeat(seen: &Seen<'_>, _: u32) -> Found {
    const REMEDY: &str = "echo down > /sys/bus/pci/devices/BDF/qat/state, then up; if it comes back, newer firmware, or a restart of the machine";
    let mut found = Vec::new();
    let mut unknown = None;
    let Some(devices) = on_the_bus(seen)? else { return Ok(Vec::new()) };
    for device in devices {
        let failed = missed(seen, device);
        let remedy = REMEDY.replace("BDF", &device.qat.address);
        match (&device.qat.state, failed, &device.debug) {
            (State::NotResponding, ..) => {
                let sentence =
                    format!("The firmware of {} does not answer: its heartbeat failed.", called(device));
                found.push(trouble(device, sentence, remedy));
            }
            (_, Some((count, source)), _) => {
                let sentence = format!(
                    "The firmware of {} missed {count} heartbeats within the last half minute: {source}.",
                    called(device)
                );
                found.push(trouble(device, sentence, remedy));
            }
            // Without a driver of the kernel, and in a virtual machine, there is no heartbeat to be seen.
            (State::NoDriver | State::Lent, ..) => {}
            _ if device.is_virtual => {}
            (_, _, Err(why)) => unknown = Some(why.clone()),
            _ => {}
        }
    }
    if found.is_empty()
        && let Ok(Some(said)) = said(seen.machine, Topic::Heartbeat)
    {
        found.push(told(
            said,
            "The firmware of a QuickAssist device does not answer",
            &REMEDY.replace("BDF", "ADDRESS"),
        ));
    }
    match unknown {
        Some(why) if found.is_empty() => Err(why),
        _ => Ok(found),
    }
}

/// More requests than the rings have room for.
pub(super) fn overflow(seen: &Seen<'_>, _: u32) -> Found {
    const REMEDY: &str = "more instances or another device: postern show system acceleration qat status; or a part of the tunnels without it: set \
                          system crypto engine CIPHER aws-lc";
    let Some(devices) = on_the_bus(seen)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let mut counts = true;
    for device in devices.iter().filter(|it| !matches!(it.qat.state, State::NoDriver | State::Lent)) {
        match &device.qat.requests {
            Some(known) => {
                let waiting = known.value.0.saturating_sub(known.value.1);
                if waiting >= WAITING {
                    let sentence =
                        format!("{} has not answered {waiting} requests: {}.", called(device), known.source);
                    found.push(trouble(device, sentence, REMEDY));
                }
            }
            // A virtual function has none: the host counts.
            None => counts = counts && device.is_virtual,
        }
    }
    match said(seen.machine, Topic::Overflow) {
        Ok(Some(said)) if found.is_empty() => {
            found.push(told(said, "A QuickAssist device was asked for more than it has room for", REMEDY));
        }
        _ if found.is_empty() && !counts => {
            return Err("no file of the driver in /sys/kernel/debug counts requests".to_owned());
        }
        _ => {}
    }
    Ok(found)
}

/// Errors that cannot be corrected. They stay until the counters are reset.
pub(super) fn error(seen: &Seen<'_>, _: u32) -> Found {
    const REMEDY: &str = "the hardware: dmesg | grep -i -e qat -e aer; if it comes back, have the device replaced; then echo 1 > \
                          /sys/bus/pci/devices/ADDRESS/qat_ras/reset_error_counters";
    let Some(devices) = on_the_bus(seen)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for device in devices {
        if let Some((path, count)) = device.errors.first() {
            let sentence = format!("{} has {count} errors that cannot be corrected: {path}.", called(device));
            found.push(trouble(device, sentence, REMEDY.replace("ADDRESS", &device.qat.address)));
        }
    }
    match said(seen.machine, Topic::Uncorrectable) {
        // A file that counts none has been reset since the line, or knows better.
        Ok(Some(said))
            if found.is_empty() && devices.iter().any(|it| !it.counts_errors && is_about(said, it)) =>
        {
            found.push(told(said, "A QuickAssist device has an error that cannot be corrected", REMEDY));
        }
        Err(why) if found.is_empty() && devices.iter().any(|it| !it.counts_errors) => {
            return Err(format!("no file counts errors, and {why}"));
        }
        _ => {}
    }
    Ok(found)
}

/// No memory for a device, or no huge pages for DPDK, if Postern has it.
pub(super) fn memory(seen: &Seen<'_>, _: u32) -> Found {
    const REMEDY: &str = "free memory, or fewer instances of the device: postern show system acceleration qat device NAME config";
    let Some(devices) = on_the_bus(seen)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let engines = seen.facts.map(|facts| &facts.engines[..]).unwrap_or_default();
    let has_no_memory = |it: &&CryptoEngine| {
        let why = it.why.as_deref().unwrap_or_default().to_lowercase();
        it.accelerator
            && it.state == EngineState::Failed
            && (why.contains("memory") || why.contains("enomem"))
    };
    if let Some(engine) = engines.iter().find(has_no_memory) {
        let sentence = format!(
            "The engine {} got no memory: {}.",
            engine.name,
            engine.why.as_deref().unwrap_or_default()
        );
        found.push(Trouble::new(engine.name.clone(), sentence, REMEDY));
    }
    let log = said(seen.machine, Topic::Memory);
    if let Ok(Some(said)) = &log {
        found.push(told(said, "There was no memory", REMEDY));
    }
    let lent = devices.iter().find(|device| device.qat.state == State::Lent);
    // Another program may need none, or has those that it needs.
    let is_wanted = |it: &CryptoEngine| {
        it.name.starts_with("dpdk") && !matches!(it.state, EngineState::InUse | EngineState::Absent)
    };
    match (lent.filter(|_| engines.iter().any(is_wanted)), &seen.machine.huge_pages) {
        (Some(device), Ok(0)) => found.push(trouble(
            device,
            format!("{} is for DPDK, which needs huge pages, and there are none.", called(device)),
            "sysctl vm.nr_hugepages=1024, and at each start by a file in /etc/sysctl.d",
        )),
        (Some(_), Err(why)) if found.is_empty() => return Err(why.clone()),
        _ => {}
    }
    let has_driver = devices.iter().any(|it| !matches!(it.qat.state, State::NoDriver | State::Lent));
    match log {
        Err(why) if found.is_empty() && has_driver => Err(why),
        _ => Ok(found),
    }
}
