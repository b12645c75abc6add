//! The words before `--`, which are those of DPDK's environment abstraction layer (EAL).

use super::cores::{self, Cores};
use super::finding::Finding;
use super::getopt::{self, Given, Spec, Takes};
use super::number;

/// The words of EAL.
#[derive(Clone, Debug, Default)]
pub struct Eal {
    /// The lcores with their processors; none leaves it to the machine.
    pub cores: Option<Cores>,
    /// The lcore that is not a worker, if it is not the first one.
    pub main_core: Option<u32>,
    /// `--vdev`: ports and crypto devices, in the order of their ports.
    pub devices: Vec<Device>,
    /// `-a`: network cards and crypto cards; only with `--dpdk`.
    pub allowed: Vec<String>,
    /// The memory of all sockets in MiB.
    pub memory_megabytes: Option<u64>,
    /// `--file-prefix`: the name that tells two gateways of one machine apart.
    pub file_prefix: Option<String>,
    /// Whether no PCI device is taken.
    pub no_pci: bool,
    /// Whether no huge pages are used.
    pub no_huge: bool,
    /// Whether no file is shared.
    pub in_memory: bool,
    /// `--dpdk`: the words for the EAL of DPDK, which opens all devices in place of Postern. Those about lcores are not among them.
    pub dpdk: Option<Vec<String>>,
}

/// A device of `--vdev`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name: the driver and a number.
    pub name: String,
    /// Its driver.
    pub driver: Driver,
    /// Its arguments.
    pub arguments: Vec<(String, String)>,
}

/// The driver of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// A network interface by AF_XDP.
    AfXdp,
    /// A network interface by AF_PACKET.
    AfPacket,
    /// A TAP interface that the port makes.
    Tap,
    /// Capture files.
    Pcap,
    /// A crypto device; Postern chooses its engine by measurement.
    Crypto,
    /// With `--dpdk`: a device of DPDK's own.
    Dpdk,
}

/// Drivers of ports, and the argument that one of them needs.
const PORTS: [(&str, Driver, Option<&str>); 4] = [
    ("net_af_xdp", Driver::AfXdp, Some("iface")),
    ("net_af_packet", Driver::AfPacket, Some("iface")),
    ("net_tap", Driver::Tap, None),
    ("net_pcap", Driver::Pcap, None),
];

/// What an option is.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    Mask,
    List,
    Map,
    MainCore,
    Allow,
    Block,
    Device,
    Memory,
    SocketMemory,
    Channels,
    Ranks,
    FilePrefix,
    ProcessType,
    NoPci,
    NoHuge,
    InMemory,
    /// Lcores that have no effect here.
    Services,
    /// Ours.
    Dpdk,
    /// It has no effect here.
    Nothing,
}

type Row = (Option<char>, Option<&'static str>, Takes, Is);

const ROWS: &[Row] = &[
    (Some('a'), Some("allow"), Takes::Argument, Is::Allow),
    (Some('b'), Some("block"), Takes::Argument, Is::Block),
    (Some('c'), None, Takes::Argument, Is::Mask),
    (Some('l'), None, Takes::Argument, Is::List),
    (None, Some("lcores"), Takes::Argument, Is::Map),
    (None, Some("main-lcore"), Takes::Argument, Is::MainCore),
    (None, Some("vdev"), Takes::Argument, Is::Device),
    (Some('m'), None, Takes::Argument, Is::Memory),
    (None, Some("socket-mem"), Takes::Argument, Is::SocketMemory),
    (Some('n'), None, Takes::Argument, Is::Channels),
    (Some('r'), None, Takes::Argument, Is::Ranks),
    (None, Some("file-prefix"), Takes::Argument, Is::FilePrefix),
    (None, Some("proc-type"), Takes::Argument, Is::ProcessType),
    (None, Some("no-pci"), Takes::Nothing, Is::NoPci),
    (None, Some("no-huge"), Takes::Nothing, Is::NoHuge),
    (None, Some("in-memory"), Takes::Nothing, Is::InMemory),
    (None, Some("dpdk"), Takes::Nothing, Is::Dpdk),
    (Some('d'), None, Takes::Argument, Is::Nothing),
    (Some('s'), None, Takes::Argument, Is::Services),
    (Some('S'), None, Takes::Argument, Is::Services),
    (Some('v'), None, Takes::Nothing, Is::Nothing),
    (None, Some("base-virtaddr"), Takes::Argument, Is::Nothing),
    (None, Some("create-uio-dev"), Takes::Nothing, Is::Nothing),
    (None, Some("force-max-simd-bitwidth"), Takes::Argument, Is::Nothing),
    (None, Some("huge-dir"), Takes::Argument, Is::Nothing),
    (None, Some("huge-unlink"), Takes::Optional, Is::Nothing),
    (None, Some("huge-worker-stack"), Takes::Optional, Is::Nothing),
    (None, Some("iova-mode"), Takes::Argument, Is::Nothing),
    (None, Some("legacy-mem"), Takes::Nothing, Is::Nothing),
    (None, Some("log-level"), Takes::Argument, Is::Nothing),
    (None, Some("match-allocations"), Takes::Nothing, Is::Nothing),
    (None, Some("mbuf-pool-ops-name"), Takes::Argument, Is::Nothing),
    (None, Some("no-hpet"), Takes::Nothing, Is::Nothing),
    (None, Some("no-shconf"), Takes::Nothing, Is::Nothing),
    (None, Some("no-telemetry"), Takes::Nothing, Is::Nothing),
    (None, Some("single-file-segments"), Takes::Nothing, Is::Nothing),
    (None, Some("socket-limit"), Takes::Argument, Is::Nothing),
    (None, Some("syslog"), Takes::Argument, Is::Nothing),
    (None, Some("telemetry"), Takes::Nothing, Is::Nothing),
    (None, Some("trace"), Takes::Argument, Is::Nothing),
    (None, Some("trace-bufsz"), Takes::Argument, Is::Nothing),
    (None, Some("trace-dir"), Takes::Argument, Is::Nothing),
    (None, Some("trace-mode"), Takes::Argument, Is::Nothing),
    (None, Some("vfio-intr"), Takes::Argument, Is::Nothing),
    (None, Some("vfio-vf-token"), Takes::Argument, Is::Nothing),
    (None, Some("vmware-tsc-map"), Takes::Nothing, Is::Nothing),
];

/// Reads the words, and notes those that have no effect.
pub(super) fn read(words: &[String], notes: &mut Vec<Finding>) -> Result<Eal, Finding> {
    let table: Vec<Spec> =
        ROWS.iter().map(|&(letter, name, argument, _)| Spec { letter, name, argument }).collect();
    let parsed = getopt::parse(words, &table).map_err(|reason| {
        refuse(
            format!("Invalid EAL parameters: {reason}"),
            "the options of ipsec-secgw itself stand behind --",
        )
    })?;
    if let Some(word) = parsed.others.first() {
        notes.push(note(format!("{word} is no option, and is ignored"), "delete it"));
    }
    let mut draft = Draft::default();
    if parsed.options.iter().any(|option| ROWS[option.row].3 == Is::Dpdk) {
        draft.eal.dpdk = Some(parsed.options.iter().flat_map(handed_over).collect());
    }
    for option in &parsed.options {
        apply(&mut draft, option, notes)?;
    }
    draft.finish()
}

/// An option as DPDK's EAL gets it: not if it is about lcores, which are Postern's.
fn handed_over(option: &Given<'_>) -> Vec<String> {
    let (_, _, argument, is) = ROWS[option.row];
    let word = option.word.clone();
    match (is, argument) {
        (Is::Mask | Is::List | Is::Map | Is::MainCore | Is::Services | Is::Dpdk, _) => Vec::new(),
        (_, Takes::Argument) => vec![word, option.argument.to_owned()],
        (_, Takes::Optional) if !option.argument.is_empty() => vec![format!("{word}={}", option.argument)],
        _ => vec![word],
    }
}

/// The words that were read, and what decides whether they go together.
#[derive(Default)]
struct Draft {
    eal: Eal,
    cores_by: Option<String>,
    has_socket_memory: bool,
}

fn apply(draft: &mut Draft, option: &Given<'_>, notes: &mut Vec<Finding>) -> Result<(), Finding> {
    let (word, argument, eal) = (option.word.as_str(), option.argument, &mut draft.eal);
    match ROWS[option.row].3 {
        is @ (Is::Mask | Is::List | Is::Map) => {
            if let Some(other) = draft.cores_by.replace(word.to_owned()) {
                let message = format!("Option {word} is ignored, because ({other}) is set!");
                return Err(refuse(message, "give the lcores once"));
            }
            eal.cores = Some(lcores(is, word, argument)?);
        }
        Is::MainCore => {
            let core = argument
                .parse()
                .map_err(|_| refuse("invalid parameter for --main-lcore", "name an lcore"))?;
            eal.main_core = Some(core);
        }
        Is::Allow => eal.allowed.push(argument.split(',').next().unwrap_or_default().to_owned()),
        Is::Block if !eal.allowed.is_empty() => {
            let message = "Options allow (-a) and block (-b) can't be used at the same time";
            return Err(refuse(message, "delete one of them"));
        }
        Is::Device if eal.dpdk.is_some() => eal.devices.push(device_of_dpdk(argument)),
        Is::Device => eal.devices.push(device(argument, notes)?),
        Is::Memory => eal.memory_megabytes = Some(number::int(argument).max(0) as u64),
        Is::SocketMemory => {
            draft.has_socket_memory = true;
            eal.memory_megabytes = Some(socket_memory(argument)?);
        }
        Is::Channels if number::int(argument) == 0 => {
            return Err(refuse("invalid channel number", "-n takes the number of memory channels"));
        }
        Is::Ranks if !(1..=16).contains(&number::int(argument)) => {
            return Err(refuse("invalid rank number", "-r takes a number from 1 to 16"));
        }
        Is::FilePrefix if argument.is_empty() || argument.contains('%') => {
            return Err(refuse("Invalid length of --file-prefix option", "give a name without %"));
        }
        Is::FilePrefix => eal.file_prefix = Some(argument.to_owned()),
        Is::ProcessType => process_type(argument)?,
        Is::NoPci => eal.no_pci = true,
        Is::NoHuge => eal.no_huge = true,
        Is::InMemory => eal.in_memory = true,
        Is::Services | Is::Block | Is::Channels | Is::Ranks | Is::Nothing => {
            if eal.dpdk.is_none() || ROWS[option.row].3 == Is::Services {
                notes.push(note(format!("{word} has no effect: it is about DPDK"), ""));
            }
        }
        Is::Dpdk => {}
    }
    Ok(())
}

/// MiB for each socket, added up.
fn socket_memory(argument: &str) -> Result<u64, Finding> {
    let parts: Option<Vec<u32>> = argument.split(',').map(|part| part.trim().parse().ok()).collect();
    let fix = "give MiB for each socket, with commas between";
    let parts = parts.ok_or_else(|| refuse("invalid parameters for --socket-mem", fix))?;
    Ok(parts.into_iter().map(u64::from).sum())
}

fn lcores(is: Is, word: &str, argument: &str) -> Result<Cores, Finding> {
    let (cores, message) = match is {
        Is::Mask => (cores::mask(argument), "invalid coremask syntax"),
        Is::List => (cores::list(argument), "invalid core list syntax"),
        _ => (cores::map(argument), "invalid parameter for --lcores"),
    };
    let fix = format!(
        "{word} takes lcores from 0 to {}, such as -c 0x3, -l 0-1 or --lcores 0@2,1@3",
        cores::MOST - 1
    );
    cores.ok_or_else(|| refuse(message, fix))
}

/// The name of a device and its arguments.
fn parts(text: &str) -> (String, Vec<(String, String)>) {
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default().to_owned();
    let arguments = parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    (name, arguments.collect())
}

/// With `--dpdk`, DPDK knows its drivers and their arguments.
fn device_of_dpdk(text: &str) -> Device {
    let (name, arguments) = parts(text);
    let driver = if name.starts_with("crypto_") { Driver::Crypto } else { Driver::Dpdk };
    Device { name, driver, arguments }
}

fn device(text: &str, notes: &mut Vec<Finding>) -> Result<Device, Finding> {
    let (name, arguments) = parts(text);
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if let Some((_, driver, needed)) = PORTS.iter().find(|(driver, ..)| *driver == base) {
        if let Some(needed) = needed.filter(|needed| !arguments.iter().any(|(key, _)| key == needed)) {
            let fix = format!("write --vdev {name},{needed}=NAME with the name of a network interface");
            return Err(refuse(format!("--vdev {name} has no {needed}"), fix));
        }
        // A network interface by libpcap, which has its frames from packet sockets too.
        let by_interface = arguments.iter().any(|(key, _)| key == "iface");
        let driver = if *driver == Driver::Pcap && by_interface { Driver::AfPacket } else { *driver };
        return Ok(Device { name, driver, arguments });
    }
    if name.starts_with("crypto_") {
        notes.push(note(
            format!("--vdev {name} has no effect: Postern chooses its crypto engine by measurement"),
            "",
        ));
        return Ok(Device { name, driver: Driver::Crypto, arguments });
    }
    let drivers: Vec<&str> = PORTS.iter().map(|(driver, ..)| *driver).collect();
    let message = format!("--vdev {name} needs a driver of DPDK that Postern does not have");
    let fix = format!(
        "the drivers of ports are {}; --dpdk before it has DPDK open all devices",
        drivers.join(", ")
    );
    Err(refuse(message, fix))
}

fn process_type(argument: &str) -> Result<(), Finding> {
    match argument {
        "primary" | "auto" => Ok(()),
        "secondary" => Err(refuse("Postern has no secondary process", "delete --proc-type")),
        _ => Err(refuse("Invalid process type specified", "--proc-type takes primary or auto")),
    }
}

impl Draft {
    /// The words, if they go together.
    fn finish(self) -> Result<Eal, Finding> {
        let Self { eal, has_socket_memory, .. } = self;
        if has_socket_memory && eal.no_huge {
            let message = "Option --socket-mem cannot be specified together with --no-huge";
            return Err(refuse(message, "write -m in place of --socket-mem"));
        }
        if let (Some(main), Some(cores)) = (eal.main_core, &eal.cores)
            && !cores.contains_key(&main)
        {
            return Err(refuse("Main lcore is not enabled for DPDK", "name an lcore of -l, -c or --lcores"));
        }
        if !eal.allowed.is_empty() && eal.dpdk.is_none() {
            let message = "-a needs a PCI device under a driver of DPDK, which Postern does not have";
            let fix = "give the network interface in place of it: --vdev net_af_xdp0,iface=NAME; or write --dpdk before it, and DPDK opens all devices";
            return Err(refuse(message, fix));
        }
        Ok(eal)
    }
}

impl Eal {
    /// The devices that are ports, in the order of their numbers.
    pub fn ports(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| device.driver != Driver::Crypto)
    }
}

fn refuse(message: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding::error(None, "command-line", message, fix)
}

fn note(text: String, fix: &str) -> Finding {
    Finding::note(None, "command-line", text, fix)
}
