//! The outside port of ESP over IP (RFC 4303), without UDP. Each call handles one packet, as the kernel has no GRO
//! and GSO for such packets.
//!
//! Port 0 in an endpoint means ESP over IP.
//!
//! With several receiving threads, each has sockets of its own, and takes the SPIs whose first byte leads to it.

use crate::offload::State;
use crate::udp::{SocketSlot, Steering, UdpReceive, UdpSockets, UdpTransmit};
use crate::{Offloads, Receive, Transmit, Wake};
use packet::header::esp::{ESP, NON_ESP_MARKER};
use packet::header::ip::Ipv4Header;
use packet::{Batch, DropCounters, DropReason, Endpoint, Train};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// Opens the sockets, of several receiving threads with `steering`; needs CAP_NET_RAW.
pub fn open(fwmark: u32, steering: Option<Steering>) -> Result<UdpSockets, Errno> {
    UdpSockets::raw(ESP, fwmark, steering)
}

/// The offloads of these sockets: none.
fn without_offloads() -> Arc<Offloads> {
    let offloads = Offloads::default();
    offloads.udp_gso.set(State::SwitchedOff);
    offloads.udp_gro.set(State::SwitchedOff);
    Arc::new(offloads)
}

/// Receives ESP packets.
pub struct RawReceive(UdpReceive);

impl RawReceive {
    /// Receives on the sockets in `slot`.
    pub fn new(slot: SocketSlot) -> Self {
        Self(UdpReceive::new(slot, without_offloads()))
    }

    /// Receives on the sockets of this thread: 0 is the first.
    #[must_use]
    pub fn of_thread(self, thread: usize) -> Self {
        Self(self.0.of_thread(thread))
    }
}

impl Receive for RawReceive {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let (first, first_train) = (batch.len(), batch.trains().len());
        self.0.receive(batch, drops)?;
        for train in first_train..batch.trains().len() {
            let Train { packets, endpoint, .. } = batch.trains()[train].clone();
            let has_header = endpoint.is_some_and(|endpoint| endpoint.remote.is_ipv4());
            for index in packets {
                if let Err(reason) = strip(batch, index, has_header) {
                    batch.drop_packet(index, reason, drops);
                }
            }
        }
        Ok(batch.len() - first)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        self.0.wait(wake)
    }
}

/// Removes the IPv4 header, and drops packets that could be taken for an IKE message in UDP.
fn strip(batch: &mut Batch, index: usize, has_header: bool) -> Result<(), DropReason> {
    let packet = batch.packet(index);
    let header = if has_header { usize::from(packet.first().map_or(0, |byte| byte & 0x0f)) * 4 } else { 0 };
    if has_header && header < Ipv4Header::LENGTH {
        return Err(DropReason::TooShort);
    }
    let esp =
        packet.get(header..).filter(|esp| esp.len() > NON_ESP_MARKER.len()).ok_or(DropReason::TooShort)?;
    if esp.starts_with(&NON_ESP_MARKER) {
        return Err(DropReason::NotOurs);
    }
    let length = esp.len();
    batch.shrink(index, header, length);
    Ok(())
}

/// Sends ESP packets in UDP, or over IP to endpoints with port 0.
pub struct EspTransmit {
    in_udp: UdpTransmit,
    raw: UdpTransmit,
}

impl EspTransmit {
    /// Sends through one of both ports, by endpoint.
    pub fn new(in_udp: UdpTransmit, raw: SocketSlot) -> Self {
        Self { in_udp, raw: UdpTransmit::new(raw, without_offloads()) }
    }
}

fn is_raw(train: &Train) -> bool {
    train.endpoint.is_some_and(|endpoint| endpoint.remote.port() == 0)
}

impl Transmit for EspTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        let raw = batch.trains().iter().filter(|train| is_raw(train)).count();
        if raw == 0 {
            return self.in_udp.transmit(batch, drops);
        }
        if raw == batch.trains().len() {
            return self.raw.transmit(batch, drops);
        }
        // The trains keep their positions: the caller relies on them.
        let mut trains = batch.trains().to_vec();
        for (kind, port) in [(false, &mut self.in_udp), (true, &mut self.raw)] {
            let of_kind = |train: &Train| {
                let packets = if is_raw(train) == kind { train.packets.clone() } else { 0..0 };
                Train { packets, ..train.clone() }
            };
            batch.set_trains(trains.iter().map(of_kind).collect::<Vec<_>>());
            port.transmit(batch, drops);
            for (train, sent) in
                trains.iter_mut().zip(batch.trains()).filter(|(train, _)| is_raw(train) == kind)
            {
                train.endpoint = sent.endpoint;
            }
        }
        batch.set_trains(trains);
    }

    fn is_full(&self, endpoint: &Endpoint) -> bool {
        if endpoint.remote.port() == 0 { self.raw.is_full(endpoint) } else { self.in_udp.is_full(endpoint) }
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        let in_udp = self.in_udp.take_refusal();
        self.raw.take_refusal().or(in_udp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::Spread;
    use arc_swap::ArcSwapOption;
    use packet::Endpoint;
    use std::io::Write;
    use std::net::SocketAddr;

    fn esp(spi: u32, length: usize) -> Vec<u8> {
        [&spi.to_be_bytes()[..], &vec![7; length]].concat()
    }

    /// Raw sockets; none without root.
    fn opened(steering: Option<Steering>) -> Option<SocketSlot> {
        match open(0, steering) {
            Ok(sockets) => Some(Arc::new(ArcSwapOption::from_pointee(sockets))),
            Err(error) if error == Errno::PERM => {
                assert!(std::env::var_os("NO_SKIP").is_none(), "NO_SKIP is set, and raw sockets need root");
                // Written directly, as the test harness would capture it.
                let _ = io::stderr().write_all(b"SKIPPED: raw sockets need root\n");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn each_thread_receives_the_packets_whose_spi_leads_to_it_once() {
        const THREADS: u8 = 3;
        let steering = Steering { sockets: THREADS, spread: Spread::NotBeginning(NON_ESP_MARKER), byte: 0 };
        let Some(raw) = opened(Some(steering)) else { return };
        let udp: SocketSlot = Arc::default();
        let mut sender = EspTransmit::new(UdpTransmit::new(udp, Arc::default()), Arc::clone(&raw));
        let (mut batch, drops) = (Batch::new(1 << 20), DropCounters::default());
        let ours = std::process::id() & 0xff_ffff;
        let loopbacks = ["127.0.0.1", "::1"];
        for (to, length) in loopbacks.iter().zip([100, 101]) {
            let first = batch.len();
            for steers in 1..=90 {
                let packet = esp(steers << 24 | ours, length);
                batch.append(packet.len()).expect("it fits").copy_from_slice(&packet);
            }
            let remote = SocketAddr::new(to.parse().expect("literal"), 0);
            batch.close_train(first, Some(Endpoint::new(remote)), 0);
        }
        sender.transmit(&mut batch, &drops);
        let mut threads: Vec<RawReceive> = (0..usize::from(THREADS))
            .map(|thread| RawReceive::new(Arc::clone(&raw)).of_thread(thread))
            .collect();
        let mut received = vec![Vec::new(); threads.len()];
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while received.iter().map(Vec::len).sum::<usize>() < 2 * 90 && std::time::Instant::now() < end {
            for (thread, received) in threads.iter_mut().zip(&mut received) {
                batch.clear();
                thread.receive(&mut batch, &drops).expect("sockets work");
                let packets = batch.live(0..batch.len()).map(|index| batch.packet(index));
                let ours = packets.filter(|it| it[0] <= 90 && it[1..4] == ours.to_be_bytes()[1..]);
                received.extend(ours.map(|packet| (packet.len(), packet[0])));
            }
        }
        for (thread, mut received) in (0..).zip(received) {
            received.sort_unstable();
            let steers = (1..=90).filter(|steers| steers % THREADS == thread);
            let expected = [104, 105].map(|length| steers.clone().map(move |steers| (length, steers)));
            assert_eq!(received, expected.into_iter().flatten().collect::<Vec<_>>(), "{thread}");
        }
        let sockets = raw.load_full().expect("they are open");
        assert_eq!(sockets.receive_drops(), [Some(0); 2], "what another thread takes is no loss");
    }

    #[test]
    fn esp_is_sent_in_udp_and_over_ip_with_both_ip_versions() {
        let Some(raw) = opened(None) else { return };
        let offloads = Arc::new(Offloads::default());
        let udp = UdpSockets::bind(0, 0, &offloads).expect("a free port");
        let port = udp.port();
        let udp: SocketSlot = Arc::new(ArcSwapOption::from(Some(Arc::new(udp))));
        let mut sender =
            EspTransmit::new(UdpTransmit::new(Arc::clone(&udp), Arc::clone(&offloads)), Arc::clone(&raw));
        let (mut batch, drops) = (Batch::new(1 << 20), DropCounters::default());
        // Raw sockets of other processes on this machine receive these packets too: the SPI tells them apart.
        let spi = 0xe500_0000 | std::process::id() & 0xffff;
        let ports = [0, port, 0, port];
        for (number, to) in ["127.0.0.1", "127.0.0.1", "::1", "::1"].iter().enumerate() {
            let first = batch.len();
            for packet in [esp(spi, 100 + number), esp(spi, 1400), esp(spi, 1400)] {
                batch.append(packet.len()).expect("it fits").copy_from_slice(&packet);
            }
            let remote = SocketAddr::new(to.parse().expect("literal"), ports[number]);
            batch.close_train(first, Some(Endpoint::new(remote)), 0);
        }
        sender.transmit(&mut batch, &drops);
        assert_eq!((batch.trains().len(), drops.read(DropReason::SendFailed)), (4, 0));
        let receivers: [Box<dyn Receive>; 2] =
            [Box::new(RawReceive::new(raw)), Box::new(UdpReceive::new(udp, offloads))];
        for (mut receiver, lengths) in receivers.into_iter().zip([[104, 106], [105, 107]]) {
            let mut received = Vec::new();
            let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
            while received.len() < 6 && std::time::Instant::now() < end {
                batch.clear();
                receiver.receive(&mut batch, &drops).expect("sockets work");
                let packets = batch.live(0..batch.len()).map(|index| batch.packet(index).to_vec());
                received.extend(packets.filter(|packet| packet.starts_with(&spi.to_be_bytes())));
            }
            received.sort_by_key(Vec::len);
            let found: Vec<usize> = received.iter().map(Vec::len).collect();
            assert_eq!(found, [&lengths[..], &[1404; 4]].concat());
        }
    }

    #[test]
    fn packets_that_are_not_esp_are_dropped() {
        let mut batch = Batch::new(4096);
        let ip = [0x45; 20];
        for (packet, verdict) in [
            ([&ip[..], &[1, 2, 3, 4, 5]].concat(), Ok(())),
            ([&ip[..], &[0, 0, 0, 0, 5]].concat(), Err(DropReason::NotOurs)),
            ([&ip[..], &[1, 2, 3, 4]].concat(), Err(DropReason::TooShort)),
            (vec![0x44; 40], Err(DropReason::TooShort)),
            (vec![0x4f; 40], Err(DropReason::TooShort)),
        ] {
            batch.clear();
            batch.append(packet.len()).expect("it fits").copy_from_slice(&packet);
            assert_eq!(strip(&mut batch, 0, true), verdict, "{packet:?}");
        }
    }
}
