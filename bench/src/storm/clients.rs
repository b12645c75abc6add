//! Many OpenVPN clients in one thread, each with an address of its own. They connect, and send no data.

use super::scene::Credentials;
use crate::Outcome;
use arc_swap::ArcSwapOption;
use crypto::cipher::Integrity;
use crypto::engine::aws_lc::AwsLc;
use crypto::random::System;
use gateway::clock::Clock;
use packet::{Batch, DropCounters, Endpoint};
use port::udp::{BATCH_BYTES, SocketSlot, UdpReceive, UdpSockets, UdpTransmit};
use port::{Offloads, Receive, Transmit, Wake};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::data::Header;
use tunnel::openvpn::keepalive::Keepalive;
use tunnel::openvpn::key_method;
use tunnel::openvpn::limits::{CONTROL_PACKET, LONGEST_PACKET};
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::peer::Timing;
use tunnel::openvpn::peer_info::OURS;
use tunnel::openvpn::verify::{self, Identity, PeerCheck};
use tunnel::openvpn::wrap::{Role, WrapKeys};
use tunnel::openvpn::{Action, Client, ClientConfiguration, Outbox};

/// Datagrams per send call.
const AT_ONCE: usize = 64;
/// The address of the first client.
const FIRST: u32 = 0x0a40_0001;

struct Member {
    core: Client,
    is_connected: bool,
}

/// The clients.
pub(super) struct Clients {
    members: Vec<Member>,
    server: SocketAddr,
    receive: UdpReceive,
    wake: Wake,
    transmit: UdpTransmit,
    batch: Batch,
    outgoing: Batch,
    drops: DropCounters,
}

fn client(credentials: &Credentials) -> Outcome<Client> {
    let mut check = PeerCheck::new(Role::Server);
    check.add_fingerprint(credentials.server);
    let identity = Identity { chain: vec![credentials.certificate.clone()], key: credentials.key() };
    let configuration = ClientConfiguration {
        tls: verify::client_config(Some(identity), check)?,
        wrap: ClientWrap::Shared(WrapKeys::tls_crypt(credentials.wrap.clone(), Role::Client)),
        ciphers: DataCipher::DEFAULT.to_vec(),
        fallback: None,
        auth: Integrity::HmacSha1,
        framing: None,
        credentials: key_method::Credentials::default(),
        peer_info: Vec::new(),
        mtu: 1500,
        features: OURS,
        keepalive: Keepalive::default(),
        timing: Timing::default(),
        control_packet: CONTROL_PACKET,
        pulls: true,
    };
    Ok(Client::new(configuration, Arc::new(AwsLc), Box::new(System::default())))
}

impl Clients {
    /// Clients of the server at this address. Call it in the namespace to which 10.64.0.0/10 is local.
    pub(super) fn new(count: usize, server: SocketAddr, credentials: &Credentials) -> Outcome<Self> {
        let offloads = Arc::new(Offloads::default());
        let slot: SocketSlot = Arc::new(ArcSwapOption::from_pointee(UdpSockets::bind(5000, 0, &offloads)?));
        let member = |_| Ok(Member { core: client(credentials)?, is_connected: false });
        Ok(Self {
            members: (0..count).map(member).collect::<Outcome<_>>()?,
            server,
            receive: UdpReceive::new(Arc::clone(&slot), Arc::clone(&offloads)),
            wake: Wake::new()?,
            transmit: UdpTransmit::new(slot, offloads),
            batch: Batch::new(BATCH_BYTES),
            outgoing: Batch::new(AT_ONCE * Batch::footprint(LONGEST_PACKET)),
            drops: DropCounters::default(),
        })
    }

    /// All connect at once, and retry until they are connected.
    pub(super) fn connect(&mut self, patience: Duration) -> Outcome<Duration> {
        let started = Instant::now();
        for number in 0..self.members.len() {
            let server = self.server;
            self.call(number, |core, out| core.connect(Clock.now(), server, out))?;
            // The first ones are answered while the others call.
            if number % AT_ONCE == 0 {
                self.handle_packets()?;
            }
        }
        self.flush();
        while let Some(missing) = self.missing() {
            if started.elapsed() > patience {
                return Err(format!("{missing} of {} clients do not connect", self.members.len()).into());
            }
            if !self.handle_packets()? {
                self.handle_timeouts()?;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(started.elapsed())
    }

    fn missing(&self) -> Option<usize> {
        Some(self.members.iter().filter(|member| !member.is_connected).count()).filter(|missing| *missing > 0)
    }

    /// All exit.
    pub(super) fn stop(&mut self) {
        for number in 0..self.members.len() {
            // That they have ended is no error here.
            let _ = self.call(number, |core, out| core.stop(Clock.now(), out));
        }
        self.flush();
    }

    fn call(&mut self, number: usize, act: impl FnOnce(&mut Client, &mut Outbox)) -> Outcome<()> {
        let mut out = Outbox::new();
        act(&mut self.members[number].core, &mut out);
        for action in out {
            match action {
                Action::Transmit { packet, .. } => self.send(number, &packet),
                Action::Connected { .. } => self.members[number].is_connected = true,
                Action::Closed { cause, .. } => return Err(format!("client {number}: {cause}").into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles received datagrams; returns false if there were none.
    fn handle_packets(&mut self) -> Outcome<bool> {
        self.batch.clear();
        // With the event signalled, the wait returns at once.
        self.wake.notify();
        self.receive.wait(&self.wake)?;
        if self.receive.receive(&mut self.batch, &self.drops)? == 0 {
            return Ok(false);
        }
        let mut received = Vec::new();
        for train in self.batch.trains() {
            let Some(Endpoint { remote, local: Some(IpAddr::V4(local)), .. }) = train.endpoint else {
                continue;
            };
            let number = u32::from(local).wrapping_sub(FIRST) as usize;
            for index in train.packets.clone() {
                let datagram = self.batch.packet(index);
                if number < self.members.len() && Header::parse(datagram).is_none() {
                    received.push((number, remote, datagram.to_vec()));
                }
            }
        }
        for (number, remote, datagram) in received {
            // Late copies are refused.
            self.call(number, |core, out| _ = core.handle_packet(Clock.now(), remote, &datagram, out))?;
        }
        self.flush();
        Ok(true)
    }

    fn handle_timeouts(&mut self) -> Outcome<()> {
        let now = Clock.now();
        for number in 0..self.members.len() {
            if self.members[number].core.next_timeout().is_some_and(|at| at <= now.monotonic) {
                self.call(number, |core, out| core.handle_timeout(now, out))?;
            }
        }
        self.flush();
        Ok(())
    }

    fn send(&mut self, number: usize, packet: &[u8]) {
        if self.outgoing.len() == AT_ONCE {
            self.flush();
        }
        let first = self.outgoing.len();
        self.outgoing.append(packet.len()).expect("it was flushed").copy_from_slice(packet);
        let local = Some(Ipv4Addr::from(FIRST + number as u32).into());
        self.outgoing.close_train(first, Some(Endpoint { local, ..Endpoint::new(self.server) }), 0);
    }

    fn flush(&mut self) {
        self.transmit.transmit(&mut self.outgoing, &self.drops);
        self.outgoing.clear();
    }
}
