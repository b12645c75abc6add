//! A client or a server with the plainest data path there can be.

use crypto::Random;
use packet::{Batch, DropCounters, DropReason};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use tunnel::openvpn::action::{Report, Request};
use tunnel::openvpn::activity::Activity;
use tunnel::openvpn::channel::PacketError;
use tunnel::openvpn::data::Header;
use tunnel::openvpn::{Action, Cause, Client, Outbox, Server, Verdict};
use tunnel::{InboundSa, Now, OutboundSa, Protection, Time};

/// A seeded source of randomness.
pub struct Seeded(ChaCha8Rng);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }
}

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

pub enum Core {
    Client(Box<Client>),
    Server(Box<Server>),
}

pub struct Host {
    pub core: Core,
    pub address: SocketAddr,
    /// Packets to send.
    pub outgoing: Vec<(SocketAddr, Vec<u8>)>,
    /// Inner packets that were received, by session.
    pub received: Vec<(u32, Vec<u8>)>,
    pub refused: Vec<PacketError>,
    pub drops: DropCounters,
    pub requests: Vec<Request>,
    /// How the server answers requests; `None` leaves them to the test.
    pub verdict: Option<Verdict>,
    /// Session and key.
    pub unanswered: Vec<(u32, u8)>,
    pub options: Vec<String>,
    /// Peers that have proved who they are.
    pub found: Vec<SocketAddr>,
    pub connected: BTreeMap<u32, SocketAddr>,
    pub closed: Vec<Cause>,
    pub commands: Vec<String>,
    pub reports: Vec<Report>,
    /// Installed keys, by index.
    pub inbound: HashMap<u32, (u32, Arc<InboundSa>)>,
    pub outbound: HashMap<u32, Arc<OutboundSa>>,
    activity: HashMap<u32, Arc<Activity>>,
    batch: Batch,
}

const MTU: usize = 1500;

impl Host {
    pub fn new(core: Core, address: &str) -> Self {
        Self {
            core,
            address: address.parse().expect("literal"),
            outgoing: Vec::new(),
            received: Vec::new(),
            refused: Vec::new(),
            drops: DropCounters::default(),
            requests: Vec::new(),
            verdict: Some(Verdict::Accept { push: Vec::new() }),
            unanswered: Vec::new(),
            options: Vec::new(),
            found: Vec::new(),
            connected: BTreeMap::new(),
            closed: Vec::new(),
            commands: Vec::new(),
            reports: Vec::new(),
            inbound: HashMap::new(),
            outbound: HashMap::new(),
            activity: HashMap::new(),
            batch: Batch::new(16_384),
        }
    }

    pub fn connect(&mut self, now: Now, server: SocketAddr) {
        self.call(now, |core, out| match core {
            Core::Client(client) => client.connect(now, server, out),
            Core::Server(_) => panic!("a server does not connect"),
        });
    }

    /// Calls the core, and does what it asks.
    pub fn call<R>(&mut self, now: Now, act: impl FnOnce(&mut Core, &mut Outbox) -> R) -> R {
        let mut out = Outbox::new();
        let result = act(&mut self.core, &mut out);
        self.carry_out(now, out);
        result
    }

    pub fn next_timeout(&self) -> Option<Time> {
        match &self.core {
            Core::Client(client) => client.next_timeout(),
            Core::Server(server) => server.next_timeout(),
        }
    }

    pub fn handle_timeout(&mut self, now: Now) {
        self.call(now, |core, out| match core {
            Core::Client(client) => client.handle_timeout(now, out),
            Core::Server(server) => server.handle_timeout(now, out),
        });
    }

    pub fn handle(&mut self, now: Now, from: SocketAddr, bytes: &[u8]) {
        if let Some(header) = Header::parse(bytes) {
            if let Err(reason) = self.open(now, from, header, bytes) {
                self.drops.count(reason, 1);
            }
            return;
        }
        let result = self.call(now, |core, out| match core {
            Core::Client(client) => client.handle_packet(now, from, bytes, out),
            Core::Server(server) => server.handle_packet(now, from, bytes, out),
        });
        self.refused.extend(result.err());
    }

    fn carry_out(&mut self, now: Now, out: Outbox) {
        let mut asked = Vec::new();
        for action in out {
            match action {
                Action::Transmit { to, packet, .. } => self.outgoing.push((to.socket, packet)),
                Action::Authenticate { session, request } => {
                    asked.push((session, request.key_id));
                    self.requests.push(*request);
                }
                Action::Found { address, .. } => self.found.push(address),
                Action::Configure { options } => self.options = options,
                Action::Connected { session, address, activity, .. } => {
                    self.connected.insert(session, address.socket);
                    self.activity.insert(session, activity);
                }
                Action::Install { session, sa } => {
                    assert!(self.connected.contains_key(&session), "an SA needs the entry of its session");
                    self.inbound.insert(sa.index, (session, sa));
                }
                Action::Use { session, sa } => drop(self.outbound.insert(session, sa)),
                Action::Retire { index } => drop(self.inbound.remove(&index)),
                Action::SendInner { session, inner } => self.send(now, session, &inner),
                Action::Command { command, .. } => self.commands.push(command),
                Action::Report { report, .. } => self.reports.push(report),
                Action::Closed { session, cause, .. } => {
                    self.connected.remove(&session);
                    self.outbound.remove(&session);
                    self.closed.push(cause);
                }
            }
        }
        // After all packets, which must not be overtaken.
        for (session, key_id) in asked {
            self.answer(now, session, key_id);
        }
    }

    fn answer(&mut self, now: Now, session: u32, key_id: u8) {
        let Some(verdict) = self.verdict.clone() else { return self.unanswered.push((session, key_id)) };
        self.call(now, |core, out| match core {
            Core::Server(server) => server.admit(now, session, key_id, verdict, out),
            Core::Client(_) => panic!("a client is not asked"),
        });
    }

    /// Sends an inner packet.
    pub fn send(&mut self, now: Now, session: u32, inner: &[u8]) {
        let (Some(sa), Some(&to)) = (self.outbound.get(&session).cloned(), self.connected.get(&session))
        else {
            return;
        };
        let Ok(sequences) = sa.assign(1, now.monotonic) else { return };
        self.batch.clear();
        self.batch.append(inner.len()).expect("it fits").copy_from_slice(inner);
        sa.protection.lay_out(&mut self.batch, 0..1, sa.receiver, sequences.start, MTU);
        sa.protection.seal(&mut self.batch, 0..1, sa.receiver, sequences.start).expect("works");
        self.outgoing.push((to, self.batch.packet(0).to_vec()));
        self.activity[&session].sent(now.monotonic);
        if sa.wants_renewal(now.monotonic) {
            self.call(now, |core, out| match core {
                Core::Client(client) => client.handle_renewal(now, out),
                Core::Server(server) => server.handle_renewal(now, session, out),
            });
        }
    }

    fn open(&mut self, now: Now, from: SocketAddr, header: Header, bytes: &[u8]) -> Result<(), DropReason> {
        let header = match header {
            Header::V2 { .. } => header,
            Header::V1 { key_id, .. } => {
                let session = self.connected.iter().find(|(_, address)| **address == from);
                let peer_id = *session.ok_or(DropReason::UnknownSa)?.0;
                let of_server = Header::V1 { key_id, peer_id };
                // The only peer of a server of TLS is looked up like the server of a client.
                let is_known = self.inbound.contains_key(&of_server.word());
                if is_known { of_server } else { Header::V1 { key_id, peer_id: 0 } }
            }
        };
        let (session, sa) = self.inbound.get(&header.word()).cloned().ok_or(DropReason::UnknownSa)?;
        let Protection::OpenVpn(data) = &sa.protection else { panic!("a session of ours") };
        self.batch.clear();
        self.batch.append(bytes.len()).expect("it fits").copy_from_slice(bytes);
        let (batch, drops) = (&mut self.batch, &self.drops);
        sa.protection.check(batch, 0..1, sa.window(), sa.end_sequence(), &mut Vec::new(), drops);
        sa.protection.open(batch, 0..1, &[], drops);
        sa.protection.accept(batch, 0..1, &mut sa.moving_window(), &[], drops);
        if !batch.is_live(0) {
            return Ok(());
        }
        data.strip(batch, 0..1, drops);
        let is_exit = sa.protection.take_exit();
        if batch.is_live(0) {
            self.received.push((session, batch.packet(0).to_vec()));
        }
        self.accepted(now, from, session, &sa, is_exit);
        Ok(())
    }

    /// What an authentic packet causes.
    fn accepted(&mut self, now: Now, from: SocketAddr, session: u32, sa: &InboundSa, is_exit: bool) {
        self.activity[&session].received(now.monotonic);
        let moved = self.connected.get(&session) != Some(&from);
        let may_move = match &mut self.core {
            Core::Server(server) if moved => server.handle_move(session, from),
            _ => moved,
        };
        if may_move {
            self.connected.insert(session, from);
        }
        let confirmed = sa.confirm();
        self.call(now, |core, out| match core {
            Core::Client(client) => {
                if confirmed {
                    client.handle_confirmed(now, sa.index, out);
                }
                if is_exit {
                    client.handle_exit(now, out);
                }
            }
            Core::Server(server) => {
                if confirmed {
                    server.handle_confirmed(now, session, sa.index, out);
                }
                if is_exit {
                    server.handle_exit(now, session, out);
                }
            }
        });
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.read(reason)
    }
}
