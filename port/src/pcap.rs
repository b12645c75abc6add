//! Capture files: packets of a port are written to a file, and can be read again.
//!
//! Inside packets are written unchanged (link type "raw IP"), and so are Ethernet frames in a file of their own. Outside datagrams get an IP and a UDP header from their
//! endpoint, and ESP without UDP an IP header, so that other programs can read them; an unknown local address is written as zero.

use crate::{Receive, Transmit, Wake};
use packet::header::esp::ESP;
use packet::header::ip::{Ipv4Header, Ipv6Header, UDP};
use packet::header::udp::UdpHeader;
use packet::{Batch, DropCounters, Endpoint};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, PcapError};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use zerocopy::IntoBytes;

/// Longest packet written in full.
const SNAP_LENGTH: u32 = 262_144;

/// A capture file; several ports may write to it.
#[derive(Clone)]
pub struct Capture(Arc<Mutex<PcapWriter<BufWriter<File>>>>);

impl Capture {
    /// Creates a file that only its owner may read; an existing file keeps its permissions.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_with(path, DataLink::RAW)
    }

    /// As [`create`](Self::create), for ports that carry Ethernet frames.
    pub fn create_for_frames(path: &Path) -> io::Result<Self> {
        Self::create_with(path, DataLink::ETHERNET)
    }

    fn create_with(path: &Path, datalink: DataLink) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let header = PcapHeader { datalink, snaplen: SNAP_LENGTH, ..PcapHeader::default() };
        let writer = PcapWriter::with_header(BufWriter::new(file), header).map_err(to_io)?;
        Ok(Self(Arc::new(Mutex::new(writer))))
    }

    /// Writes one packet; a full disk ends the capture, not the traffic.
    fn write(&self, endpoint: Option<&Endpoint>, inbound: bool, bytes: &[u8]) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header =
            endpoint.map(|endpoint| outer_header(endpoint, 0, inbound, bytes.len())).unwrap_or_default();
        let bytes = [&header, bytes].concat();
        let packet = PcapPacket::new_owned(since_1970, bytes.len() as u32, bytes);
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_packet(&packet);
    }

    fn write_batch(&self, batch: &Batch, first: usize, inbound: bool) {
        for train in batch.trains().iter().filter(|train| train.packets.start >= first) {
            for index in batch.live(train.packets.clone()) {
                self.write(train.endpoint.as_ref(), inbound, batch.packet(index));
            }
        }
    }
}

/// The IP header, and the UDP header, of what an endpoint sent or is sent: a port of the endpoint of zero stands for ESP without UDP.
///
/// The UDP checksum is zero. A packet of a TCP connection gets a UDP header too: it is a message, not a segment.
pub fn outer_header(endpoint: &Endpoint, local_port: u16, inbound: bool, length: usize) -> Vec<u8> {
    let remote = endpoint.remote;
    let unspecified =
        if remote.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let local = SocketAddr::new(endpoint.local.unwrap_or(unspecified), local_port);
    let (source, destination) = if inbound { (remote, local) } else { (local, remote) };
    let udp_length = UdpHeader::LENGTH + length;
    let udp = UdpHeader {
        source: source.port().into(),
        destination: destination.port().into(),
        length: (udp_length as u16).into(),
        checksum: [0; 2],
    };
    let is_esp = remote.port() == 0;
    let (protocol, udp, payload) =
        if is_esp { (ESP, &[][..], length) } else { (UDP, udp.as_bytes(), udp_length) };
    let ip = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = (Ipv4Header::LENGTH + payload) as u16;
            let mut header = Ipv4Header::new(protocol, source.octets(), destination.octets(), total);
            header.finish();
            header.as_bytes().to_vec()
        }
        (source, destination) => {
            let octets = |address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            let header = Ipv6Header::new(protocol, octets(source), octets(destination), payload as u16);
            header.as_bytes().to_vec()
        }
    };
    [&ip, udp].concat()
}

/// Captures the packets of a wrapped half of a port.
pub struct Captured<P> {
    port: P,
    capture: Capture,
}

impl<P> Captured<P> {
    /// Captures the packets of `port` in `capture`.
    pub fn new(port: P, capture: Capture) -> Self {
        Self { port, capture }
    }
}

impl<P: Receive> Receive for Captured<P> {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let first = batch.len();
        let count = self.port.receive(batch, drops)?;
        self.capture.write_batch(batch, first, true);
        Ok(count)
    }

    fn has_ended(&self) -> bool {
        self.port.has_ended()
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        self.port.wait(wake)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.port.counters()
    }
}

impl<P: Transmit> Transmit for Captured<P> {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        self.capture.write_batch(batch, 0, false);
        self.port.transmit(batch, drops);
    }

    fn is_full(&self, endpoint: &Endpoint) -> bool {
        self.port.is_full(endpoint)
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        self.port.take_refusal()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.port.counters()
    }
}

/// Reads the IP packets of a capture file, of link type "raw IP" or "Ethernet".
pub fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut reader = PcapReader::new(BufReader::new(File::open(path)?)).map_err(to_io)?;
    let skip = match reader.header().datalink {
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => 0,
        DataLink::ETHERNET => 14,
        other => return Err(io::Error::new(io::ErrorKind::Unsupported, format!("link type {other:?}"))),
    };
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        packets.extend(packet.map_err(to_io)?.data.get(skip..).map(<[u8]>::to_vec));
    }
    Ok(packets)
}

/// Writes Ethernet frames to a new capture file.
pub fn write_frames<'a>(path: &Path, frames: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
    let capture = Capture::create_for_frames(path)?;
    for frame in frames {
        capture.write(None, false, frame);
    }
    // It is written out when it is dropped.
    Ok(())
}

pub(crate) fn to_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Link;
    use packet::header::ip::IpPacket;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_owner_can_read_a_capture_file() {
        let path = std::env::temp_dir().join(format!("postern-{}-mode.pcap", std::process::id()));
        Capture::create(&path).expect("a file can be made");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn frames_are_captured_whole_and_read_as_their_packets() {
        let path = std::env::temp_dir().join(format!("postern-{}-frames.pcap", std::process::id()));
        let capture = Capture::create_for_frames(&path).expect("a file can be made");
        let (transmit, mut receive) = crate::memory::ring(4);
        let mut transmit = Captured::new(transmit, capture.clone());
        let (mut batch, drops) = (Batch::new(4096), DropCounters::default());
        let frame: Vec<u8> = (0..60).collect();
        batch.append(60).expect("it fits").copy_from_slice(&frame);
        batch.close_train(0, None, 0);
        transmit.transmit(&mut batch, &drops);
        assert_eq!(receive.receive(&mut batch, &drops).expect("memory does not fail"), 1);
        drop((transmit, capture));
        let (bytes, packets) =
            (std::fs::read(&path).expect("it is there"), read(&path).expect("it is a capture"));
        std::fs::remove_file(&path).expect("it is there");
        assert!(bytes.ends_with(&frame), "the addresses too");
        assert_eq!(packets, [&frame[14..]]);
    }

    #[test]
    fn esp_without_udp_gets_no_udp_header() {
        let endpoint = |text: &str| Endpoint::new(text.parse().expect("literal"));
        let esp = outer_header(&endpoint("192.0.2.1:0"), 4500, true, 100);
        assert_eq!((esp.len(), esp[9], &esp[2..4]), (20, ESP, &120u16.to_be_bytes()[..]));
        let udp = outer_header(&endpoint("192.0.2.1:500"), 4500, false, 100);
        assert_eq!(
            (udp.len(), udp[9], &udp[20..24]),
            (28, UDP, &[4500u16.to_be_bytes(), 500u16.to_be_bytes()].concat()[..])
        );
    }

    #[test]
    fn a_capture_can_be_read_again() {
        let path = std::env::temp_dir().join(format!("postern-{}.pcap", std::process::id()));
        let capture = Capture::create(&path).expect("a file can be made");
        let link = Link::default();
        let endpoint = Endpoint::new("192.0.2.1:51820".parse().expect("literal"));
        link.push([&b"\x04\0\0\0 outside"[..]], Some(endpoint), 0);
        link.push([&b"\x45 inside"[..]], None, 0);
        let mut port = Captured::new(link, capture);
        let mut batch = Batch::new(4096);
        assert_eq!(port.receive(&mut batch, &DropCounters::default()).expect("memory does not fail"), 2);
        drop(port);
        let packets = read(&path).expect("what we wrote can be read");
        std::fs::remove_file(&path).expect("it is there");
        let outside = IpPacket::parse(&packets[0]).expect("an IP packet was made of it");
        assert_eq!(outside.source().to_string(), "192.0.2.1");
        assert_eq!(&packets[0][28..], b"\x04\0\0\0 outside");
        assert_eq!(packets[1], b"\x45 inside");
    }
}
