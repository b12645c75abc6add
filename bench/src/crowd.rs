//! Thousands of WireGuard peers in one thread, each with its own address: the load of a gateway with many sites.

use crate::Outcome;
use arc_swap::ArcSwapOption;
use crypto::engine::Engine;
use crypto::engine::aws_lc::AwsLc;
use crypto::{PrivateKey, PublicKey, Secret, random};
use gateway::clock::Clock;
use lab::Lab;
use packet::checksum::Sum;
use packet::header::ip::UDP;
use packet::header::wireguard::{DATA, DATA_HEADER, DataHeader, Initiation, Message, PADDING, TAG};
use packet::{Batch, DropCounters, Endpoint};
use port::udp::{BATCH_BYTES, SocketSlot, UdpReceive, UdpSockets, UdpTransmit};
use port::{Offloads, Receive, Transmit, Wake};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::{Device, DeviceAction, PeerId};
use tunnel::{OutboundSa, Time};
use zerocopy::{FromBytes, IntoBytes};

/// Datagrams per send call.
const AT_ONCE: usize = 64;
/// The largest datagram.
const LARGEST: usize = 1500;

/// One simulated peer.
struct Member {
    device: Device,
    peer: PeerId,
    address: Ipv4Addr,
    inside: Ipv4Addr,
    /// What it sends data with.
    sending: Option<Arc<OutboundSa>>,
    /// The gateway's response, not yet processed.
    response: Option<Vec<u8>>,
}

/// The simulated peers.
pub struct Crowd {
    members: Vec<Member>,
    /// The member of each session index, for responses.
    by_index: HashMap<u32, usize>,
    gateway: SocketAddr,
    clock: Clock,
    receive: UdpReceive,
    wake: Wake,
    transmit: UdpTransmit,
    batch: Batch,
    outgoing: Batch,
    drops: DropCounters,
}

/// Creates namespaces `a` and `b` for gateways, and `c`, which owns the addresses of all members.
pub fn lab() -> Outcome<Lab> {
    let lab = Lab::new(&["a", "b", "c"])?;
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))?;
    lab.connect(("a", "crowd", "192.168.78.1/24"), ("c", "crowd", "192.168.78.2/24"))?;
    lab.ip("c", "route add local 10.64.0.0/10 dev lo")?;
    lab.ip("a", "route add 10.64.0.0/10 via 192.168.78.2")?;
    Ok(lab)
}

/// The private key of a member.
pub fn key(number: usize) -> PrivateKey {
    // X25519 ignores some bits of the first and the last byte.
    let mut bytes = [0x5a; 32];
    bytes[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    PrivateKey::new(Secret::new(bytes))
}

/// The outer address of a member, in 10.64.0.0/10, and the inner one, in 10.128.0.0/9.
pub fn addresses(number: usize) -> (Ipv4Addr, Ipv4Addr) {
    let number = number as u32;
    ((0x0a40_0000 + number + 1).into(), (0x0a80_0000 + number + 1).into())
}

/// A UAPI request that configures the first `count` members as peers of a gateway.
pub fn peers(count: usize) -> String {
    let peer = |number| {
        let public = base16ct::lower::encode_string(&key(number).public().0);
        format!("public_key={public}\nallowed_ip={}/32\n", addresses(number).1)
    };
    (0..count).map(peer).collect()
}

/// Configuration file lines for the first `count` members.
pub fn peer_lines(interface: &str, count: usize) -> String {
    let peer = |number| {
        let path = format!("set interfaces wireguard {interface} peer site{number}");
        format!("{path} public-key {}\n{path} allowed-ips {}/32\n", key(number).public(), addresses(number).1)
    };
    (0..count).map(peer).collect()
}

impl Crowd {
    /// Creates peers of the gateway at this address. Call it in the namespace to which 10.64.0.0/10 is local.
    pub fn new(count: usize, gateway: SocketAddr, public: PublicKey) -> Outcome<Self> {
        Self::with_engine(count, gateway, public, &(Arc::new(AwsLc) as Arc<dyn Engine>))
    }

    /// The same with another engine than AWS-LC, for a gateway that does not encrypt.
    pub fn with_engine(
        count: usize,
        gateway: SocketAddr,
        public: PublicKey,
        engine: &Arc<dyn Engine>,
    ) -> Outcome<Self> {
        let offloads = Arc::new(Offloads::default());
        let sockets = UdpSockets::bind(7000, 0, &offloads)?;
        let slot: SocketSlot = Arc::new(ArcSwapOption::from_pointee(sockets));
        let clock = Clock;
        let now = clock.monotonic();
        let members = (0..count).map(|number| {
            let mut device = Device::new(Arc::clone(engine), Box::new(random::System::default()));
            device.set_private_key(now, Some(key(number).secret().clone()), &mut Outbox::new());
            let (peer, _) = device.add_peer(public);
            device.start(now);
            device.set_reachable(now, peer);
            let (address, inside) = addresses(number);
            Member { device, peer, address, inside, sending: None, response: None }
        });
        Ok(Self {
            members: members.collect(),
            by_index: HashMap::new(),
            gateway,
            clock,
            receive: UdpReceive::new(Arc::clone(&slot), Arc::clone(&offloads)),
            wake: Wake::new()?,
            transmit: UdpTransmit::new(slot, offloads),
            batch: Batch::new(BATCH_BYTES),
            outgoing: Batch::new(AT_ONCE * Batch::footprint(LARGEST)),
            drops: DropCounters::default(),
        })
    }

    fn served(&self) -> usize {
        self.members.iter().filter(|member| member.response.is_some()).count()
    }

    /// All members start a handshake at once, and retry until they get a response. Returns the time that took; the
    /// error says how many were served.
    ///
    /// The members represent other machines, so their own work is kept out of the measured time: the initiations are
    /// created before, and [`establish`](Self::establish) processes the responses after.
    pub fn storm(&mut self, patience: Duration) -> Outcome<Duration> {
        let now = self.clock.now();
        let mut calls = Vec::new();
        for (number, member) in self.members.iter_mut().enumerate() {
            let mut out = Outbox::new();
            member.device.handle_renewal(now, member.peer, &mut out);
            calls.extend(out.into_iter().map(|action| (number, action)));
        }
        let started = Instant::now();
        self.carry_out(calls);
        while self.served() < self.members.len() {
            if started.elapsed() > patience {
                return Err(format!("{} of {} were served", self.served(), self.members.len()).into());
            }
            if !self.answer()? {
                self.retry();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(started.elapsed())
    }

    /// All members process their responses, and confirm the session to the gateway.
    pub fn establish(&mut self) {
        let now = self.clock.now();
        let mut actions = Vec::new();
        for (number, member) in self.members.iter_mut().enumerate() {
            let Some(response) = member.response.take() else { continue };
            let mut out = Outbox::new();
            let _ = member.device.handle_datagram(now, self.gateway, &response, false, &mut out);
            actions.extend(out.into_iter().map(|action| (number, action)));
        }
        self.carry_out(actions);
    }

    /// Handles received datagrams; returns false if there were none.
    fn answer(&mut self) -> Outcome<bool> {
        self.batch.clear();
        // With the event signalled, the wait returns at once.
        self.wake.notify();
        self.receive.wait(&self.wake)?;
        if self.receive.receive(&mut self.batch, &self.drops)? == 0 {
            return Ok(false);
        }
        let now = self.clock.now();
        let mut actions = Vec::new();
        for index in 0..self.batch.len() {
            let datagram = self.batch.packet(index);
            let (receiver, is_response) = match Message::parse(datagram) {
                Some(Message::Response(message)) => (message.receiver.get(), true),
                Some(Message::CookieReply(message)) => (message.receiver.get(), false),
                _ => continue,
            };
            let Some(&number) = self.by_index.get(&receiver) else { continue };
            if is_response {
                self.members[number].response = Some(datagram.to_vec());
                continue;
            }
            let mut out = Outbox::new();
            let _ = self.members[number].device.handle_datagram(now, self.gateway, datagram, false, &mut out);
            actions.extend(out.into_iter().map(|action| (number, action)));
        }
        self.carry_out(actions);
        Ok(true)
    }

    fn retry(&mut self) {
        let now = self.clock.now();
        let mut actions = Vec::new();
        for (number, member) in self.members.iter_mut().enumerate() {
            if member.device.next_timeout().is_some_and(|at| at <= now.monotonic) && member.response.is_none()
            {
                let mut out = Outbox::new();
                member.device.handle_timeout(now, &mut out);
                actions.extend(out.into_iter().map(|action| (number, action)));
            }
        }
        self.carry_out(actions);
    }

    /// All members in turn send a packet, of these sizes one after the other, to an address behind the gateway, for this time.
    pub fn flood(&mut self, sizes: &[usize], to: Ipv4Addr, time: Duration) {
        let (until, mut sizes) = (Instant::now() + time, sizes.iter().cycle());
        loop {
            let now = self.clock.monotonic();
            for number in 0..self.members.len() {
                let (Some(&size), Some(sa)) = (sizes.next(), self.members[number].sending.clone()) else {
                    return;
                };
                let message = sealed(&sa, &udp(self.members[number].inside, to, size), now);
                self.send(number, &message);
            }
            if Instant::now() >= until {
                return self.flush();
            }
        }
    }

    fn carry_out(&mut self, actions: Vec<(usize, DeviceAction)>) {
        let now = self.clock.monotonic();
        for (number, action) in actions {
            match action {
                DeviceAction::Send { message, .. } => {
                    if let Ok((call, _)) = Initiation::ref_from_prefix(&message) {
                        self.by_index.insert(call.sender.get(), number);
                    }
                    self.send(number, &message);
                }
                // The session is established; a keepalive confirms it to the gateway.
                DeviceAction::Use { sa: Some(sa), .. } => {
                    let keepalive = sealed(&sa, &[], now);
                    self.members[number].sending = Some(sa);
                    self.send(number, &keepalive);
                }
                _ => {}
            }
        }
        self.flush();
    }

    fn send(&mut self, number: usize, message: &[u8]) {
        if self.outgoing.len() == AT_ONCE {
            self.flush();
        }
        let first = self.outgoing.len();
        self.outgoing.append(message.len()).expect("it was flushed").copy_from_slice(message);
        let local = Some(self.members[number].address.into());
        self.outgoing.close_train(first, Some(Endpoint { local, ..Endpoint::new(self.gateway) }), 0);
    }

    fn flush(&mut self) {
        self.transmit.transmit(&mut self.outgoing, &self.drops);
        self.outgoing.clear();
    }
}

/// A data message with this packet; an empty one is a keepalive.
fn sealed(sa: &OutboundSa, packet: &[u8], now: Time) -> Vec<u8> {
    let counter = sa.assign(1, now).expect("a new key").start;
    let header = DataHeader { kind: DATA.into(), receiver: sa.receiver.into(), counter: counter.into() };
    let mut message = [header.as_bytes(), packet].concat();
    message.resize(DATA_HEADER + packet.len().next_multiple_of(PADDING), 0);
    let (mut tag, mut nonce) = ([0; TAG], [0; 12]);
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    let text = &mut message[DATA_HEADER..];
    let mut jobs = [crypto::Job { nonce, aad: &[], text, tag: &mut tag, authentic: false }];
    sa.protection.wireguard().expect("a WireGuard peer").seal(&mut jobs).expect("the engine works");
    message.extend(tag);
    message
}

/// A datagram of so many bytes with its headers, to the port `discard`.
fn udp(from: Ipv4Addr, to: Ipv4Addr, size: usize) -> Vec<u8> {
    let mut packet = vec![0; size.max(28)];
    let length = packet.len() as u16;
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, UDP]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    let checksum = Sum::of(&packet[..20]).checksum();
    packet[10..12].copy_from_slice(&checksum);
    // Without a checksum of its own.
    packet[20..26].copy_from_slice(&[0, 9, 0, 9, 0, 0]);
    packet[24..26].copy_from_slice(&(length - 20).to_be_bytes());
    packet
}
