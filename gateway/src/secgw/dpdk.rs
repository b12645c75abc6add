//! Ports of DPDK, for a command line with `--dpdk`: EAL starts once, in a thread that keeps what drivers need, and opens all devices.

use super::plan::{Plan, PortPlan};
use super::ports::{Opened, PortError, Queue};
use crate::rights::Rights;
use config::Settings;
use config::secgw::CommandLine;
use config::settings::secgw::is_pci_address;
use dpdk::port::PortOptions;
use dpdk::{DeviceError, Eal, Library, StartError, completed};
use port::Transmit;
use std::io;

pub use dpdk::enter_thread;

/// Why there are no ports of DPDK.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// EAL does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// EAL goes on without a device.
    #[error(
        "DPDK has no device {0}; its own messages are above\n  fix: correct the words of the device, or delete it: the ports behind it would have other numbers"
    )]
    Missing(String),
}

/// Starts EAL, if the command line wants it, and takes from a plan the ports of `-p` that are not there and that nothing is received from.
/// The process must not have given up its rights.
///
/// # Errors
/// DPDK is not installed, does not start with these words, or does not have one of the devices.
pub fn start(command_line: &CommandLine, plan: &mut Plan) -> Result<(), DpdkError> {
    let Some(words) = &command_line.eal.dpdk else { return Ok(()) };
    let library = Library::find().map_err(StartError::from)?;
    let lcore = plan.lcores.first().and_then(|lcore| command_line.cores.get(lcore)?.first().copied());
    let words = completed(words, lcore.unwrap_or_default());
    tracing::info!("{}: EAL starts with {}", library.version(), words.join(" "));
    let rights = rights(command_line);
    let eal = Eal::start(library, &words, move || rights.keep())?;
    let ports = eal.ports();
    let there = ports.iter().map(|port| &port.name);
    let names: Vec<String> =
        there.cloned().chain(eal.devices().into_iter().map(|device| device.name)).collect();
    if let Some(missing) = missing(command_line, &names) {
        return Err(DpdkError::Missing(missing));
    }
    plan.ports.retain(|port| port.is_received() || ports.iter().any(|there| there.number == port.number));
    Ok(())
}

/// Starts EAL for the daemon, if a configuration has ports of DPDK: with its network cards, or without any bus. Virtual devices are added when
/// their ports are opened. `prepare` is done first by the thread of EAL. The process must not have given up its rights.
///
/// # Errors
/// DPDK is not installed, or does not start.
pub fn start_configured(
    settings: &Settings,
    prepare: impl FnOnce() + Send + 'static,
) -> Result<(), DpdkError> {
    let devices: Vec<&str> = settings
        .secgw
        .values()
        .flat_map(|gateway| gateway.ports.values())
        .filter_map(|port| port.device.as_deref())
        .collect();
    if devices.is_empty() {
        return Ok(());
    }
    let library = Library::find().map_err(StartError::from)?;
    let words = completed(&words_for(&devices), 0);
    tracing::info!("{}: EAL starts with {}", library.version(), words.join(" "));
    let is_physical = |device: &&str| is_card(device) || device.starts_with("net_af_xdp");
    let rights = if devices.iter().any(is_physical) { Rights::Devices } else { Rights::VirtualDevices };
    Eal::start(library, &words, move || {
        prepare();
        rights.keep();
    })?;
    Ok(())
}

/// The words of EAL that say which cards it may take.
fn words_for(devices: &[&str]) -> Vec<String> {
    let mut cards = devices.iter().filter(|device| is_card(device)).peekable();
    if cards.peek().is_none() {
        return vec!["--no-pci".to_owned()];
    }
    cards.flat_map(|&card| ["-a".to_owned(), card.to_owned()]).collect()
}

/// Whether a device is a network card, by its place on the bus.
fn is_card(device: &str) -> bool {
    is_pci_address(device.split(',').next().unwrap_or_default())
}

/// The number that DPDK has for the device of a port, which is added if need be.
fn number_of(eal: &'static Eal, port: u16, device: &str) -> Result<u16, PortError> {
    let (name, arguments) = device.split_once(',').unwrap_or((device, ""));
    let error = |error| PortError::Dpdk(port, error);
    eal.add_device(name, arguments).map_err(error)?;
    let refused = io::Error::other("DPDK made no port of it");
    let made = eal.ports().into_iter().find(|there| there.name == name).map(|there| there.number);
    made.ok_or_else(|| error(DeviceError::Refused { name: name.to_owned(), error: refused }))
}

/// Whether DPDK runs, and has crypto devices.
pub fn has_crypto_devices() -> bool {
    Eal::running().is_some_and(|eal| !eal.devices().is_empty())
}

/// What the threads of DPDK keep.
fn rights(command_line: &CommandLine) -> Rights {
    let mut names = command_line.eal.devices.iter().map(|device| device.name.as_str());
    if command_line.eal.no_pci && !names.any(|name| name.starts_with("net_af_xdp")) {
        Rights::VirtualDevices
    } else {
        Rights::Devices
    }
}

/// A device of the words that DPDK did not make. It goes on without, and gives the numbers of ports to others.
fn missing(command_line: &CommandLine, names: &[String]) -> Option<String> {
    let mut devices = command_line.eal.devices.iter().map(|device| &device.name);
    devices.find(|device| !names.contains(device)).cloned().or_else(|| {
        // A card may have several ports, whose names begin with its place: `01:00.0`, or with a domain before it.
        let mut cards =
            command_line.eal.allowed.iter().filter(|card| card.contains(':') && card.contains('.'));
        cards.find(|card| !names.iter().any(|name| name.contains(card.as_str()))).cloned()
    })
}

/// Opens a port.
pub(super) fn open(plan: &PortPlan, workers: usize) -> Result<Opened, PortError> {
    let eal = Eal::running().ok_or(PortError::NoDpdk(plan.number))?;
    let number = match &plan.device {
        Some(device) => number_of(eal, plan.number, device)?,
        None => plan.number,
    };
    let options = PortOptions {
        receive_queues: plan.queues.receivers.len() as u16,
        transmit_queues: workers as u16,
        mtu: plan.mtu,
        is_promiscuous: plan.is_promiscuous,
    };
    let opened = port::dpdk::open(eal, number, &options);
    let opened = opened.map_err(|error| PortError::Dpdk(plan.number, error))?;
    Ok(Opened {
        name: opened.facts.name,
        address: opened.facts.address,
        queues: opened.receive.into_iter().map(Queue::new).collect(),
        transmits: opened.transmit.into_iter().map(|half| Box::new(half) as Box<dyn Transmit>).collect(),
        link: Some(opened.link),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn command_line(text: &str) -> CommandLine {
        CommandLine::read(&words(&format!("--dpdk {text} -- -p 1 -f x")), 2).expect("it is accepted")
    }

    #[test]
    fn eal_may_take_the_cards_of_a_configuration_and_no_others() {
        let words = |devices: &[&str]| words_for(devices).join(" ");
        assert_eq!(words(&["net_memif0,role=server", "net_tap1"]), "--no-pci");
        assert_eq!(
            words(&["net_tap1", "0000:01:00.0,x=1", "0000:01:00.1"]),
            "-a 0000:01:00.0,x=1 -a 0000:01:00.1"
        );
    }

    #[test]
    fn a_device_that_dpdk_did_not_make_is_found() {
        let names = words("0000:01:00.0 0000:01:00.1 net_memif0 crypto_openssl0");
        for (given, expected) in [
            ("-a 0000:01:00.0 -a 01:00.1 --vdev net_memif0,role=server --vdev crypto_openssl0", None),
            ("--vdev net_memif0 --vdev net_memif1", Some("net_memif1")),
            ("-a 02:00.0,x=1", Some("02:00.0")),
            ("-a auxiliary:mlx5_core", None),
        ] {
            assert_eq!(missing(&command_line(given), &names).as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn network_cards_and_af_xdp_need_more_rights() {
        assert_eq!(rights(&command_line("--no-pci --vdev net_memif0")), Rights::VirtualDevices);
        assert_eq!(rights(&command_line("--no-pci --vdev net_af_xdp0,iface=x")), Rights::Devices);
        assert_eq!(rights(&command_line("--vdev net_memif0")), Rights::Devices);
    }
}
