//! The words behind `--`, which are those of `ipsec-secgw` itself.

use super::finding::Finding;
use super::getopt::{self, Given, Spec, Takes};
use super::number;
use std::net::IpAddr;

/// The smallest buffer, which is the usual one.
const BUFFER: i64 = 2176;
/// What a buffer holds beside a packet: the room before it, the Ethernet header and the checksum of the frame.
const BESIDE_PACKET: u32 = 128 + 14 + 4;
/// How many entries `--config` has at most, and the largest port, queue and lcore that it takes.
const MOST_ASSIGNMENTS: usize = 1024;
const MOST_IN_ASSIGNMENT: [u64; 3] = [32, 1024, 128];
/// How many addresses `--address` has at most: each question is compared with all of its port.
const MOST_ADDRESSES: usize = 64;
const LONGEST_FRAGMENT_NANOSECONDS: i64 = 10_000_000_000;

/// The options of ipsec-secgw.
#[derive(Clone, Debug)]
pub struct Application {
    /// `-p`: a bit for each port that is used.
    pub ports: u32,
    /// `-u`: a bit for each unprotected port.
    pub unprotected: u32,
    /// `-P`: whether ports take all frames.
    pub promiscuous: bool,
    /// `-f`: the file.
    pub file: String,
    /// `-j`: the size of a buffer in bytes.
    pub buffer: u16,
    /// `-l`, or what implies it.
    pub library: bool,
    /// `-w`: the replay window in packets; 0 for none.
    pub window: u32,
    /// `-e`: whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
    /// `-t`: seconds between two prints of statistics; 0 for none.
    pub statistics_seconds: u32,
    /// `--config`: which lcore takes which queue of which port.
    pub queues: Option<Vec<QueueAssignment>>,
    /// `--single-sa`: the outbound SA that all packets take, as its index in the order of SPIs.
    pub single_sa: Option<u32>,
    /// `--reassemble`: the packets of which fragments are kept; 0 if fragments are not put together.
    pub reassembly_entries: u32,
    /// `--mtu` of all ports.
    pub mtu: u32,
    /// `--frag-ttl`: how long fragments are kept.
    pub fragment_nanoseconds: u64,
    /// `--address`: the addresses that ports answer ARP and neighbour discovery for. Not of ipsec-secgw.
    pub addresses: Vec<(u16, IpAddr)>,
}

/// An entry of `--config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAssignment {
    /// The port.
    pub port: u16,
    /// Its queue.
    pub queue: u16,
    /// The lcore.
    pub core: u32,
}

impl Default for Application {
    fn default() -> Self {
        Self {
            ports: 0,
            unprotected: 0,
            promiscuous: false,
            file: String::new(),
            buffer: BUFFER as u16,
            library: false,
            window: 0,
            extended_sequence: false,
            statistics_seconds: 0,
            queues: None,
            single_sa: None,
            reassembly_entries: 0,
            mtu: 1500,
            fragment_nanoseconds: LONGEST_FRAGMENT_NANOSECONDS as u64,
            addresses: Vec::new(),
        }
    }
}

const fn letter(letter: char, argument: Takes) -> Spec {
    Spec { letter: Some(letter), name: None, argument }
}

const fn name(name: &'static str, argument: Takes) -> Spec {
    Spec { letter: None, name: Some(name), argument }
}

const TABLE: &[Spec] = &[
    letter('a', Takes::Nothing),
    letter('e', Takes::Nothing),
    letter('l', Takes::Nothing),
    letter('P', Takes::Nothing),
    letter('p', Takes::Argument),
    letter('u', Takes::Argument),
    letter('f', Takes::Argument),
    letter('j', Takes::Argument),
    letter('w', Takes::Argument),
    letter('c', Takes::Argument),
    letter('t', Takes::Argument),
    letter('s', Takes::Argument),
    name("config", Takes::Argument),
    name("single-sa", Takes::Argument),
    name("cryptodev_mask", Takes::Argument),
    name("transfer-mode", Takes::Argument),
    name("event-schedule-type", Takes::Argument),
    name("rxoffload", Takes::Argument),
    name("txoffload", Takes::Argument),
    name("reassemble", Takes::Argument),
    name("mtu", Takes::Argument),
    name("frag-ttl", Takes::Argument),
    name("event-vector", Takes::Nothing),
    name("vector-size", Takes::Argument),
    name("vector-tmo", Takes::Argument),
    name("vector-pool-sz", Takes::Argument),
    name("per-port-pool", Takes::Nothing),
    name("desc-nb", Takes::Argument),
    name("address", Takes::Argument),
];

/// Reads the words, and notes those that have no effect or another one than they seem to have.
pub(super) fn read(words: &[String], notes: &mut Vec<Finding>) -> Result<Application, Finding> {
    let fix = "the options of EAL stand before --, those of ipsec-secgw behind it";
    let parsed = getopt::parse(words, TABLE).map_err(|reason| refuse(reason, fix))?;
    if let Some(word) = parsed.others.first() {
        notes.push(warning(format!("{word} is no option, and is ignored"), "delete it"));
    }
    let mut application = Application::default();
    let mut file = None;
    for option in &parsed.options {
        let spec = &TABLE[option.row];
        if spec.letter == Some('f') && file.replace(option.argument).is_some() {
            return Err(refuse("\"-f\" option present more than once!", "give one file"));
        }
        match spec.name {
            Some(name) => long(&mut application, name, option, notes)?,
            None => short(&mut application, option, notes)?,
        }
    }
    let Some(file) = file else {
        return Err(refuse("Mandatory option \"-f\" not present", "write -f FILE behind --"));
    };
    file.clone_into(&mut application.file);
    if application.mtu + BESIDE_PACKET > u32::from(application.buffer) || application.reassembly_entries != 0
    {
        application.library = true;
    }
    Ok(application)
}

fn short(application: &mut Application, option: &Given<'_>, notes: &mut Vec<Finding>) -> Result<(), Finding> {
    let text = option.argument;
    match option.word.as_str() {
        "-p" => application.ports = ports(option, "invalid portmask", notes)?,
        "-u" => application.unprotected = ports(option, "invalid unprotected portmask", notes)?,
        "-P" => application.promiscuous = true,
        "-j" => {
            let size = decimal(text).filter(|size| (BUFFER..=i64::from(u16::MAX)).contains(size));
            let message = format!("Invalid frame buffer size value: {text}");
            application.buffer = size.ok_or_else(|| refuse(message, "-j takes 2176 to 65535 bytes"))? as u16;
        }
        // -a, sequence numbers that several cores share, is how Postern always takes them.
        "-l" | "-a" => application.library = true,
        "-e" => application.extended_sequence = true,
        "-w" => {
            if decimal(text).is_none() {
                let window = format!("-w {text} is no number, and is read as 4294967295");
                notes.push(warning(window, "-w takes the replay window in packets, in decimal digits"));
            }
            application.window = decimal(text).unwrap_or(-1) as u32;
        }
        "-t" => {
            let seconds = decimal(text)
                .ok_or_else(|| refuse(format!("Invalid interval value: {text}"), "-t takes seconds"))?;
            application.statistics_seconds = seconds as u32;
        }
        "-c" => {
            decimal(text)
                .ok_or_else(|| refuse(format!("Invalid SA cache size: {text}"), "-c takes a number"))?;
            notes.push(no_effect(option, "the table of SAs needs no cache"));
        }
        "-s" => {
            let message = format!("Invalid number of buffers in a pool: {text}");
            decimal(text).ok_or_else(|| refuse(message, "-s takes a number"))?;
            notes.push(no_effect(option, "there are no pools of buffers"));
        }
        _ => {}
    }
    Ok(())
}

fn long(
    application: &mut Application,
    name: &str,
    option: &Given<'_>,
    notes: &mut Vec<Finding>,
) -> Result<(), Finding> {
    let text = option.argument;
    let invalid = |fix: &str| refuse(format!("Invalid argument for '{name}': {text}"), fix);
    match name {
        "config" => application.queues = Some(assignments(text)?),
        "single-sa" => {
            let index = decimal(text).and_then(|index| u32::try_from(index).ok());
            let fix = "--single-sa takes the index of an outbound SA";
            application.single_sa = Some(index.ok_or_else(|| refuse("Invalid argument[sa_idx]", fix))?);
        }
        "cryptodev_mask" => {
            let mask = mask(text).filter(|&mask| mask != u32::MAX);
            mask.ok_or_else(|| {
                refuse("Invalid argument[portmask]", "--cryptodev_mask takes a mask in hexadecimal")
            })?;
            notes.push(no_effect(option, "Postern chooses its crypto engine by measurement"));
        }
        "transfer-mode" => transfer_mode(text)?,
        "event-schedule-type" => {
            if !matches!(text, "ordered" | "atomic" | "parallel") {
                return Err(refuse("Invalid queue schedule type", "it is ordered, atomic or parallel"));
            }
            let message = "error: option --event-schedule-type applies only to event mode";
            return Err(refuse(message, "delete it: Postern has no event device"));
        }
        "rxoffload" | "txoffload" => {
            let read = number::unsigned(text, 0).filter(|(_, rest)| rest.is_empty());
            read.ok_or_else(|| invalid("it takes a mask of 64 bits"))?;
            notes.push(no_effect(option, "each port uses the offloads that it has"));
        }
        "reassemble" => {
            let entries = decimal(text).and_then(|entries| u32::try_from(entries).ok());
            application.reassembly_entries =
                entries.ok_or_else(|| invalid("it takes a number of packets"))?;
        }
        "mtu" => {
            let mtu = decimal(text).filter(|mtu| *mtu <= i64::from(u16::MAX));
            application.mtu = mtu.ok_or_else(|| invalid("it takes at most 65535 bytes"))? as u32;
        }
        "frag-ttl" => {
            // The message of ipsec-secgw names the option before.
            let message = format!("Invalid argument for 'mtu': {text}");
            let time = decimal(text).filter(|time| *time <= LONGEST_FRAGMENT_NANOSECONDS);
            application.fragment_nanoseconds =
                time.ok_or_else(|| refuse(message, "--frag-ttl takes at most 10000000000 ns"))? as u64;
        }
        "address" => application.addresses.extend(addresses(text)?),
        "vector-size" if decimal(text).is_some_and(|size| size > 256) => {
            return Err(invalid("it is at most 256"));
        }
        "event-vector" | "vector-size" | "vector-tmo" | "vector-pool-sz" => {
            notes.push(no_effect(option, "it applies only to event mode"));
        }
        _ => notes.push(no_effect(option, "it is about the pools and queues of DPDK")),
    }
    Ok(())
}

fn transfer_mode(text: &str) -> Result<(), Finding> {
    match text {
        "poll" => Ok(()),
        "event" => {
            let message = "--transfer-mode event needs an event device, which Postern does not have";
            Err(refuse(message, "delete it, and assign queues to lcores by --config"))
        }
        _ => Err(refuse("Unsupported packet transfer mode", "it is poll")),
    }
}

/// A mask of ports in hexadecimal. ipsec-secgw takes what is no number for all ports.
fn ports(option: &Given<'_>, message: &str, notes: &mut Vec<Finding>) -> Result<u32, Finding> {
    let (word, text) = (&option.word, option.argument);
    let fix = format!("{word} takes a mask in hexadecimal, with bit 0 for port 0, such as 0x3");
    let Some(ports) = mask(text) else {
        notes.push(warning(format!("{word} {text} is no mask, and is read as 0xffffffff"), &fix));
        return Ok(u32::MAX);
    };
    if ports == 0 {
        return Err(refuse(message, fix));
    }
    if text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let sentence = format!("{word} {text} is hexadecimal: {ports:#x}");
        notes.push(Finding::note(None, "command-line", sentence, format!("write {word} {ports:#x}")));
    }
    Ok(ports)
}

fn mask(text: &str) -> Option<u32> {
    let read = number::unsigned(text, 16).filter(|(_, rest)| !text.is_empty() && rest.is_empty());
    read.map(|(value, _)| value as u32)
}

fn decimal(text: &str) -> Option<i64> {
    let (value, rest) = number::unsigned(text, 10)?;
    (!text.is_empty() && rest.is_empty()).then(|| i64::try_from(value).ok()).flatten()
}

/// `(port,queue,lcore)`, any number of times; what stands between is ignored.
fn assignments(text: &str) -> Result<Vec<QueueAssignment>, Finding> {
    let wrong =
        || refuse("Invalid config", "--config takes (port,queue,lcore) for each queue, with commas between");
    let mut all = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('(') {
        let (inner, next) = behind.split_once(')').ok_or_else(wrong)?;
        let parts: Vec<&str> = inner.splitn(3, ',').collect();
        let mut fields = [0_u64; 3];
        if inner.len() >= 256 || parts.len() != fields.len() || all.len() >= MOST_ASSIGNMENTS {
            return Err(wrong());
        }
        for ((field, part), most) in fields.iter_mut().zip(parts).zip(MOST_IN_ASSIGNMENT) {
            let read =
                number::unsigned(part, 0).filter(|(value, rest)| rest.len() < part.len() && *value <= most);
            *field = read.ok_or_else(wrong)?.0;
        }
        let [port, queue, core] = fields;
        all.push(QueueAssignment { port: port as u16, queue: queue as u16, core: core as u32 });
        rest = next;
    }
    Ok(all)
}

/// `(port,address)`, any number of times, with commas between.
fn addresses(text: &str) -> Result<Vec<(u16, IpAddr)>, Finding> {
    let wrong = || {
        let message = format!("Invalid argument for 'address': {text}");
        refuse(
            message,
            "--address takes (port,address) for each address of a port, such as (0,192.0.2.1),(1,2001:db8::1)",
        )
    };
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or_else(wrong)?;
    let one = |pair: &str| -> Option<(u16, IpAddr)> {
        let (port, address) = pair.split_once(',')?;
        let address: IpAddr = address.parse().ok()?;
        let port = port.parse().ok().filter(|&port: &u16| u32::from(port) < u32::BITS)?;
        (!address.is_multicast() && !address.is_unspecified()).then_some((port, address))
    };
    let all: Vec<_> = inner.split("),(").map(one).collect::<Option<_>>().ok_or_else(wrong)?;
    if all.len() <= MOST_ADDRESSES { Ok(all) } else { Err(wrong()) }
}

fn refuse(message: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding::error(None, "command-line", message, fix)
}

fn warning(text: String, fix: &str) -> Finding {
    Finding::warning(None, "command-line", text, fix)
}

fn no_effect(option: &Given<'_>, why: &str) -> Finding {
    Finding::note(None, "command-line", format!("{} has no effect: {why}", option.word), "")
}
