//! What to run, from a file and a command line; what is not served yet is refused with a sentence.

use super::files::{self, Files};
use super::lcores::{self, Queues};
use super::reassembly::table::Limits;
use crate::ipsec::ciphers;
use config::secgw::settings::{Direction, Mode, Policy, Route, Sa, Settings};
use config::secgw::{Application, CommandLine, Device, Driver, Finding, Severity};
use config::settings::ipsec::Peer;
use crypto::choice::Subject;
use packet::header::ethernet::EthernetHeader;
use packet::header::ip::MAXIMUM;
use port::xdp;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tunnel::esp::{Layout, Transform};
use tunnel::replay::LARGEST;

/// The longest IP packet that a buffer of DPDK holds, with what drivers add to it.
pub(super) const LONGEST_OF_DPDK: usize = 1792 - EthernetHeader::LENGTH;

/// The most packets of which fragments are kept.
const MOST_REASSEMBLED: u32 = 65_536;

/// The longest IV of an SA with headers of IPv6 and UDP: the room before a frame ends there.
const ROOM_FOR_IV: usize = 8;

/// The Ethernet addresses behind ports 0 to 3 that have no `neigh` line.
const NEIGHBOURS: [[u8; 6]; 4] = [
    [0x00, 0x16, 0x3e, 0x7e, 0x94, 0x9a],
    [0x00, 0x16, 0x3e, 0x22, 0xa1, 0xd9],
    [0x00, 0x16, 0x3e, 0x08, 0x69, 0x26],
    [0x00, 0x16, 0x3e, 0x49, 0x9e, 0xdd],
];

/// What a gateway runs.
pub struct Plan {
    /// The lcores, by number: a worker for each.
    pub lcores: Vec<u32>,
    /// The ports of `-p`, by number.
    pub ports: Vec<PortPlan>,
    /// The policies of both directions.
    pub policies: Vec<Policy>,
    /// The SAs that are installed.
    pub sas: Vec<Arc<Sa>>,
    /// The routes.
    pub routes: Vec<Route>,
    /// The replay window in packets; 0 for none.
    pub window: u64,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
    /// The SPI of the SA that all outbound packets take.
    pub single_sa: Option<u32>,
    /// The longest IP packet that leaves.
    pub mtu: usize,
    /// Bounds of the fragments that are kept, if they are put together.
    pub reassembly: Option<Limits>,
    /// Seconds between two prints of statistics; 0 for none.
    pub statistics_seconds: u32,
    /// The names of the peers of IKE, as policies count them.
    pub ike_peers: Vec<String>,
    /// What a configuration says of them: [`set_ike`](Self::set_ike).
    pub ike: Vec<(String, Arc<Peer>)>,
    /// Sentences for the log at the start.
    pub remarks: Vec<String>,
}

/// A port.
#[derive(Clone, Debug)]
pub struct PortPlan {
    /// Its number.
    pub number: u16,
    /// The driver.
    pub driver: Driver,
    /// The network interface.
    pub interface: String,
    /// The device of a port of DPDK, if the configuration names it. Otherwise the number of the port is that of DPDK.
    pub device: Option<String>,
    /// The Ethernet address that the interface gets.
    pub address: Option<[u8; 6]>,
    /// Whether it is protected: its packets are in clear.
    pub is_protected: bool,
    /// Whether it takes frames for other stations.
    pub is_promiscuous: bool,
    /// The IP addresses that it answers ARP and neighbour discovery for.
    pub own: Vec<IpAddr>,
    /// Whether the kernel takes received frames some at a time.
    pub defers_napi: bool,
    /// The files of a port of `net_pcap`.
    pub files: Files,
    /// Its queues, with the lcores that receive from them.
    pub queues: Queues,
    /// The Ethernet address of the station behind it.
    pub neighbour: [u8; 6],
    /// The longest IP packet that leaves.
    pub mtu: u16,
}

impl PortPlan {
    /// The length of the longest frame that leaves.
    pub fn frame(&self) -> usize {
        EthernetHeader::LENGTH + usize::from(self.mtu)
    }

    /// Whether frames are received from it.
    pub fn is_received(&self) -> bool {
        !self.queues.receivers.is_empty()
    }
}

impl Plan {
    /// The plan, or all that is not served.
    pub fn new(settings: Settings, command_line: &CommandLine) -> Result<Self, Vec<Finding>> {
        let mut refused = Vec::new();
        words(command_line, &mut refused);
        for sa in &settings.sas {
            refused.extend(sentence(sa).map(|(text, fix)| refuse(Some(sa.line), text, fix)));
        }
        let lcores = lcores::numbers(command_line.application.queues.as_deref().unwrap_or_default());
        let ports = ports(&settings, command_line, &lcores, &mut refused);
        if !refused.is_empty() {
            return Err(refused);
        }
        let application = &command_line.application;
        let single_sa = application.single_sa.and_then(|index| single_sa(&settings, index));
        let mut plan = Self {
            lcores,
            ports,
            remarks: remarks(&settings, command_line, single_sa),
            single_sa,
            policies: settings.policies,
            sas: Vec::new(),
            routes: settings.routes,
            ike_peers: settings.ike_peers,
            ike: Vec::new(),
            window: application.window.into(),
            extended_sequence: application.extended_sequence,
            mtu: application.mtu as usize,
            reassembly: (application.reassembly_entries > 0).then(|| Limits {
                packets: application.reassembly_entries as usize,
                lifetime: Duration::from_nanos(application.fragment_nanoseconds),
            }),
            statistics_seconds: application.statistics_seconds,
        };
        for sa in settings.sas {
            // As in ipsec-secgw, the first of several SAs with one SPI counts.
            if plan.sas.iter().any(|other| other.direction == sa.direction && other.spi == sa.spi) {
                let text = format!("line {}: SPI {} is taken: this SA is not installed", sa.line, sa.spi);
                plan.remarks.push(text);
            } else {
                plan.sas.push(Arc::new(sa));
            }
        }
        Ok(plan)
    }

    /// The ciphers and MACs that crypto engines are to be measured for.
    pub fn subjects(&self) -> Vec<Subject> {
        let negotiated = self.ike.iter().flat_map(|(_, peer)| peer.tunnels.values());
        let mut subjects: Vec<Subject> = Vec::new();
        for subject in negotiated.flat_map(|tunnel| &tunnel.esp.proposals).flat_map(ciphers) {
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        let transforms = self.sas.iter().filter_map(|sa| sa.protection.transform());
        for transform in transforms {
            let subject: Subject = match transform {
                Transform::Aead(cipher, _) | Transform::Gmac(cipher) => cipher.into(),
                Transform::Pair(pair) => pair.into(),
                Transform::Null => continue,
            };
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        subjects
    }
}

/// Options of the command line that are not served yet.
fn words(command_line: &CommandLine, refused: &mut Vec<Finding>) {
    let application = &command_line.application;
    let mut not_yet = |text: String, fix: &str| refused.push(refuse(None, text, fix));
    if application.reassembly_entries > MOST_REASSEMBLED {
        let text = format!("--reassemble {} is more than is served", application.reassembly_entries);
        not_yet(text, &format!("write --reassemble with a number of packets up to {MOST_REASSEMBLED}"));
    }
}

/// The longest IP packet in a frame of AF_XDP.
pub(super) const fn longest_of_af_xdp() -> usize {
    xdp::LONGEST - EthernetHeader::LENGTH
}

/// Why the frames of a device do not hold packets of so many bytes, and what to do.
fn holds(device: &Device, mtu: u32) -> Result<(), (String, String)> {
    let (most, reason) = match device.driver {
        Driver::AfXdp => (longest_of_af_xdp(), "AF_XDP has a frame in one page of memory"),
        Driver::Dpdk => (LONGEST_OF_DPDK, "a buffer of DPDK holds one frame"),
        _ => (MAXIMUM - EthernetHeader::LENGTH, "no interface has a longer MTU"),
    };
    if mtu as usize <= most {
        return Ok(());
    }
    let other = if device.driver == Driver::AfXdp { ", or use net_af_packet for the port" } else { "" };
    Err((
        format!("--mtu {mtu}: {} carries packets of at most {most} bytes: {reason}", device.name),
        format!("write --mtu {most} or less{other}"),
    ))
}

/// Why an SA is not served, and what to do.
fn sentence(sa: &Sa) -> Option<(String, &'static str)> {
    if sa.protection.transform().is_none() {
        let text = format!("{} is not served: it does not protect packets", sa.protection.name());
        return Some((text, "choose a cipher other than DES, and a MAC or an AEAD algorithm"));
    }
    if sa.udp_encapsulation && sa.mode == Mode::Transport {
        let text = "udp-encap with mode transport is not served: a NAT breaks the checksums of its packets";
        return Some((text.to_owned(), "write mode ipv4-tunnel or ipv6-tunnel"));
    }
    let layout = Layout::of(sa.protection.transform()?);
    let is_v6 = matches!(sa.mode, Mode::Tunnel { source: IpAddr::V6(_), .. });
    if sa.udp_encapsulation && is_v6 && layout.iv > ROOM_FOR_IV {
        let text = format!("udp-encap with {} in an IPv6 tunnel is not served", sa.protection.name());
        return Some((text, "choose an AEAD algorithm: its headers are shorter"));
    }
    let text = "reassembly_en needs hardware that reassembles, which Postern does not have";
    sa.reassembly.then(|| (text.to_owned(), "delete it, and write --reassemble N on the command line"))
}

/// The SPI of the outbound SA with this index, in the order of SPIs.
fn single_sa(settings: &Settings, index: u32) -> Option<u32> {
    let outbound = settings.sas.iter().filter(|sa| sa.direction == Direction::Outbound);
    let mut spis: Vec<u32> = outbound.map(|sa| sa.spi).collect();
    spis.sort_unstable();
    spis.get(index as usize).copied()
}

fn ports(
    settings: &Settings,
    command_line: &CommandLine,
    lcores: &[u32],
    refused: &mut Vec<Finding>,
) -> Vec<PortPlan> {
    let application = &command_line.application;
    let entries = application.queues.as_deref().unwrap_or_default();
    let (mut interfaces, mut fixed, mut captures) = (BTreeMap::new(), b'0', 0);
    let mut ports = Vec::new();
    for (number, device) in (0u16..).zip(&devices(command_line)) {
        // Ports that are not of `-p` count too.
        let address = address(device, &mut fixed, &mut captures);
        if u32::from(number) >= u32::BITS || application.ports >> number & 1 == 0 {
            continue;
        }
        let queues = Queues::of(number, device, entries, lcores).unwrap_or_else(|(text, fix)| {
            refused.push(refuse(None, text, fix));
            Queues::default()
        });
        if let Err((text, fix)) = holds(device, application.mtu) {
            refused.push(refuse(None, text, fix));
        }
        if let Some((text, fix)) = answers(number, device, settings, application) {
            refused.push(refuse(None, text, fix));
        }
        let files = Files::of(device, queues.receivers.len()).unwrap_or_else(|(text, fix)| {
            refused.push(refuse(None, text, fix));
            Files::default()
        });
        match interface(device).and_then(|name| Ok((name, address?))) {
            Err((text, fix)) => refused.push(refuse(None, text, fix)),
            Ok((interface, address)) => {
                if let Some(other) = interfaces.insert(interface.clone(), number) {
                    let text = format!("ports {other} and {number} are one interface, {interface}");
                    refused.push(refuse(None, text, "give each port an interface of its own"));
                }
                let usual = NEIGHBOURS.get(usize::from(number)).copied().unwrap_or_default();
                let neighbour = settings.neighbours.get(&number).map_or(usual, |line| line.address);
                ports.push(PortPlan {
                    number,
                    driver: device.driver,
                    interface,
                    device: None,
                    address,
                    is_protected: application.unprotected >> number & 1 == 0,
                    // What was captured went to any station.
                    is_promiscuous: application.promiscuous || device.driver == Driver::Pcap,
                    own: own(number, application),
                    defers_napi: lcores::has(device, "defer_napi"),
                    files,
                    queues,
                    neighbour,
                    mtu: application.mtu as u16,
                });
            }
        }
    }
    ports
}

/// The addresses of `--address` for a port.
fn own(number: u16, application: &Application) -> Vec<IpAddr> {
    application.addresses.iter().filter(|(port, _)| *port == number).map(|&(_, address)| address).collect()
}

/// Why a port cannot answer for addresses of its own, and what to do.
fn answers(
    number: u16,
    device: &Device,
    settings: &Settings,
    application: &Application,
) -> Option<(String, String)> {
    let address = *own(number, application).first()?;
    // A peer may need the kernel's ARP at any port: messages of IKE leave by the kernel.
    let takes_all = device.driver == Driver::AfXdp && !settings.ike_peers.is_empty();
    takes_all.then(|| {
        let text = format!(
            "--address ({number},{address}) would take ARP of port {number} from the kernel, which needs it for IKE"
        );
        (text, format!("give the interface the address, and the kernel answers: ip address add {address} dev NAME"))
    })
}

/// The devices that are ports. With `--dpdk` only DPDK knows them, by their numbers.
fn devices(command_line: &CommandLine) -> Vec<Device> {
    if command_line.eal.dpdk.is_none() {
        return command_line.eal.ports().cloned().collect();
    }
    let device = |number| Device {
        name: format!("port {number} of DPDK"),
        driver: Driver::Dpdk,
        arguments: Vec::new(),
    };
    (0..u32::BITS).map(device).collect()
}

/// Arguments that choose how DPDK talks to the kernel.
const OF_THE_KERNEL: [&str; 8] =
    ["force_copy", "busy_budget", "blocksz", "framesz", "framecnt", "qdisc_bypass", "speed", "phy_mac"];

/// The Ethernet address that a TAP interface, or a port of `net_pcap`, gets. `fixed` is the last byte of the next address of `mac=fixed`, and
/// `captures` that of the next of `net_pcap`.
fn address(
    device: &Device,
    fixed: &mut u8,
    captures: &mut u8,
) -> Result<Option<[u8; 6]>, (String, &'static str)> {
    if device.driver == Driver::Pcap {
        let own = files::address(*captures);
        *captures = captures.wrapping_add(1);
        return Ok(Some(own));
    }
    let Some((_, value)) = device.arguments.iter().find(|(key, _)| key == "mac") else { return Ok(None) };
    if value == "fixed" {
        let last = *fixed;
        *fixed = fixed.wrapping_add(1);
        return Ok(Some([0x02, b'd', b't', b'a', b'p', last]));
    }
    let bytes: Option<Vec<u8>> = value.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok()).filter(|bytes| bytes[0] & 1 == 0);
    let Some(bytes) = bytes else {
        let text = format!("--vdev {}: mac={value} is no Ethernet address of a station", device.name);
        return Err((text, "write mac=fixed, or an address such as mac=02:00:00:00:00:01"));
    };
    Ok(Some(bytes))
}

/// The network interface of a device, or why it is not served.
fn interface(device: &Device) -> Result<String, (String, &'static str)> {
    let Device { name, driver, arguments } = device;
    // The words of capture files are read with them.
    if matches!(driver, Driver::Dpdk | Driver::Pcap) {
        return Ok(name.clone());
    }
    for (key, value) in arguments {
        let is_served = match key.as_str() {
            "mac" => *driver == Driver::Tap,
            "defer_napi" => {
                matches!(driver, Driver::AfXdp | Driver::AfPacket) && matches!(value.as_str(), "0" | "1")
            }
            "shared_umem" => *driver == Driver::AfXdp && matches!(value.as_str(), "0" | "1"),
            name => name == "iface" || OF_THE_KERNEL.contains(&name) || lcores::is_word(name, *driver),
        };
        if !is_served {
            return Err((format!("--vdev {name}: {key}={value} is not served yet"), "delete it"));
        }
    }
    let interface = arguments.iter().find(|(key, _)| key == "iface").map(|(_, name)| name.clone());
    // As DPDK names them.
    Ok(interface.unwrap_or_else(|| format!("dtap{}", name.trim_start_matches("net_tap"))))
}

/// What the log says at the start.
fn remarks(settings: &Settings, command_line: &CommandLine, single_sa: Option<u32>) -> Vec<String> {
    let mut remarks = Vec::new();
    for sa in settings.sas.iter().filter(|sa| sa.protection.transform() == Some(Transform::Null)) {
        let text = "packets are neither encrypted nor authenticated, which is for tests only";
        remarks.push(format!("line {}: SA {} {}: {text}", sa.line, sa.direction.word(), sa.spi));
    }
    if u64::from(command_line.application.window) > LARGEST {
        remarks.push(format!("-w {}: the window has {LARGEST} packets", command_line.application.window));
    }
    if let Some(spi) = single_sa {
        let text = "has all outbound packets, and policies have no effect: packets of all inbound SAs pass";
        remarks.push(format!("--single-sa: the SA with SPI {spi} {text}, as in ipsec-secgw"));
        return remarks;
    }
    for family in config::secgw::settings::Family::ALL {
        for (direction, from) in [(Direction::Outbound, "protected"), (Direction::Inbound, "unprotected")] {
            if settings.policies_of(family, direction).next().is_none() {
                remarks.push(format!(
                    "no line sp {} {}: every {} packet from {from} ports passes as it is, as in ipsec-secgw",
                    family.word(),
                    direction.word(),
                    family.name()
                ));
            }
        }
    }
    if !settings.flows.is_empty() {
        remarks.push("flow lines have no effect: they are rules for network cards".to_owned());
    }
    remarks
}

pub(super) fn refuse(line: Option<u32>, text: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { line, severity: Severity::Error, rule: "not-served", text: text.into(), fix: fix.into() }
}
