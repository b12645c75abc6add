//! IKE for policies that name a peer (`sp ... ike PEER`, or `policy N ike PEER`) in place of an SPI.
//!
//! ```text
//! postern.conf ── peers of `vpn ipsec` ──> IKE thread ──> SAs and policies in the tables of the worker
//! frames for UDP 500 and 4500 ── worker ──> queue ──┘ └──> UDP sockets of the kernel ──> peer
//! a packet without an SA ── worker: dropped, and asked for ──┘
//! ```
//! The thread is that of `vpn ipsec`: it keeps its rules for rekeying, dead peers and deletion, and installs SAs in the tables that
//! the stages of the data path read without locks. The kernel has our addresses: it answers ARP, and routes the messages that the
//! thread sends. What arrives is taken from the frames, whatever the driver of the port is, so that nothing is read twice.
//! The sockets are bound to send, and so that the kernel does not answer for closed ports; they are not read.

use super::plan::{Plan, refuse};
use super::stopper::Stopper;
use super::tables::SecgwTables;
use super::worker::Worker;
use crate::clock::Clock;
use crate::datapath::protocol::Protocol;
use crate::datapath::punt::Punt;
use crate::datapath::worker::Shared;
use crate::host::networks::MARK;
use crate::ipsec::connections::{check, is_same, plan};
use crate::ipsec::handle::IkeHandle;
use crate::ipsec::ike_thread::{IkeThread, Inbox, Parts};
use crate::ipsec::peer_error::PeerError;
use crate::ipsec::{IkePort, connections, needs_revocations};
use crate::rights::Rights;
use crate::wireguard::update::UpdateError;
use config::secgw::Finding;
use config::secgw::settings::{Action, Settings};
use config::settings::ipsec::{Encryption, Peer, Remote};
use crossbeam_channel::unbounded;
use crypto::{Engine, random};
use port::schedule::yield_to_packets;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tunnel::esp::Mode;
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};

/// Peers of a configuration, by name.
pub type Peers = BTreeMap<String, Arc<Peer>>;

/// Why IKE could not be started.
#[derive(Debug, thiserror::Error)]
pub enum IkeError {
    /// A port could not be bound.
    #[error("ike: {0}")]
    Port(UpdateError),
    /// The settings of a peer cannot be used now.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// No thread could be started.
    #[error("ike: {0}")]
    Thread(#[from] io::Error),
}

/// What is wrong with the peers that policies name. `file` is where they were read from.
pub fn check_ike(settings: &Settings, peers: &Peers, file: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, name) in (0..).zip(&settings.ike_peers) {
        let policy = settings.policies.iter().find(|policy| policy.action == Action::Ike(number));
        let wrong = match peers.get(name) {
            None => Some((
                format!("ike {name}: {file} has no such peer"),
                format!("set vpn ipsec site-to-site peer {name} ... in {file}, or correct the name"),
            )),
            Some(peer) => why_not(name, peer),
        };
        findings.extend(wrong.map(|(text, fix)| refuse(policy.map(|policy| policy.line), text, fix)));
    }
    findings
}

/// Why a peer is not served between ports, and what to do.
pub(super) fn why_not(name: &str, peer: &Peer) -> Option<(String, String)> {
    let path = format!("vpn ipsec site-to-site peer {name}");
    if let Err(error) = check(name, peer) {
        return Some((error.to_string(), format!("correct {path}")));
    }
    let Some(local) = peer.local_address else {
        let fix = format!("set {path} local-address ADDRESS: that of the interface of the unprotected port");
        return Some((format!("peer {name} has no local-address, which frames for IKE are known by"), fix));
    };
    if remote(peer).is_none() {
        let fix = format!("set {path} remote-address ADDRESS, once");
        return Some((format!("peer {name} must have one remote-address, and no domain name"), fix));
    }
    if needs_revocations(peer) {
        let fix = "delete revocation and crl of its authorities, or use a secret".to_owned();
        return Some((format!("peer {name} checks revocation, which ike does not serve"), fix));
    }
    let tunnels = || peer.tunnels.values();
    if tunnels().any(|tunnel| tunnel.esp.mode == Mode::Transport) {
        let fix = "set mode tunnel in its esp-group".to_owned();
        return Some((format!("peer {name} is for transport mode, which ike does not serve"), fix));
    }
    // The room before a frame that arrives is short of 8 bytes for IPv6, UDP and an IV of 16 bytes.
    let has_long_iv = |encryption| matches!(encryption, Encryption::Plain(_));
    let mut proposals = tunnels().flat_map(|tunnel| &tunnel.esp.proposals);
    if local.is_ipv6() && proposals.any(|proposal| has_long_iv(proposal.encryption)) {
        let fix = "choose aes128gcm128 or aes256gcm128 in its esp-group".to_owned();
        return Some((format!("peer {name}: over IPv6, ike serves ciphers with authentication only"), fix));
    }
    None
}

/// The only address of a peer.
fn remote(peer: &Peer) -> Option<IpAddr> {
    match peer.remote_addresses[..] {
        [Remote::Address(address)] => Some(address),
        _ => None,
    }
}

impl Plan {
    /// Takes the peers that policies name, which [`check_ike`] has accepted.
    pub fn set_ike(&mut self, peers: &Peers) {
        let found =
            self.ike_peers.iter().filter_map(|name| Some((name.clone(), Arc::clone(peers.get(name)?))));
        self.ike = found.collect();
    }
}

/// A change of the peers that IKE serves.
pub(super) struct PeerChange {
    gone: Vec<String>,
    is_new: Vec<bool>,
    plans: Vec<connections::Plan>,
}

impl PeerChange {
    /// From the peers of before to those of `after`. A peer that is as before is left alone, and one that authenticates as before keeps its IKE SA.
    pub(super) fn between(before: &[(String, Arc<Peer>)], after: &SecgwTables) -> Result<Self, PeerError> {
        let find = |peers: &[(String, Arc<Peer>)], name: &str| {
            peers.iter().find(|(other, _)| other == name).map(|(_, peer)| Arc::clone(peer))
        };
        let mut change = Self { gone: Vec::new(), is_new: Vec::new(), plans: Vec::new() };
        for (name, peer) in &after.ike {
            let old = find(before, name);
            if old.as_ref() == Some(peer) {
                continue;
            }
            let mut planned = plan(name, peer, remote(peer), None)?;
            // 0 stands for none.
            let number = (1..).zip(&after.ike_peers).find(|(_, other)| *other == name).map_or(0, |it| it.0);
            planned.children.iter_mut().for_each(|child| child.ike_peer = number);
            planned.keeps = old.as_ref().is_some_and(|old| is_same(old, peer));
            change.plans.push(planned);
            change.is_new.push(old.is_none());
        }
        let gone = before.iter().filter(|(name, _)| find(&after.ike, name).is_none());
        change.gone = gone.map(|(name, _)| name.clone()).collect();
        Ok(change)
    }

    /// What is different, in sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        let gone = self.gone.iter().map(|name| format!("- ike {name}: its SAs are deleted"));
        let changed = self.plans.iter().zip(&self.is_new).map(|(plan, is_new)| {
            let name = &plan.connection.name;
            match (is_new, plan.keeps) {
                (true, _) => format!("+ ike {name}"),
                (false, true) => format!("ike {name}: changed, its IKE SA stays"),
                (false, false) => format!("ike {name}: changed, its SAs are deleted"),
            }
        });
        gone.chain(changed).collect()
    }

    /// Has IKE serve the peers of after, and waits until it does.
    pub(super) fn carry_out(self, ike: &IkeHandle) {
        if self.gone.is_empty() && self.plans.is_empty() {
            return;
        }
        ike.remove(self.gone);
        ike.add(self.plans);
        ike.settle_here();
    }
}

/// The ports of IKE. Binding them takes rights that its thread does not have.
pub struct IkeSockets {
    initial: IkePort,
    floated: IkePort,
}

impl IkeSockets {
    /// Binds both.
    ///
    /// # Errors
    /// Another program has a port, or a right is missing.
    pub fn bind() -> Result<Self, IkeError> {
        let bind = |port| IkePort::bind(port, MARK).map_err(IkeError::Port);
        Ok(Self { initial: bind(IKE_PORT)?, floated: bind(NAT_PORT)? })
    }
}

/// The running thread of IKE. Dropping it deletes the SAs with all peers, while the workers still run.
pub struct Ike {
    handle: IkeHandle,
    thread: Option<JoinHandle<()>>,
}

impl Ike {
    /// Starts IKE with the peers of a plan, for workers that `stopper` wakes.
    ///
    /// # Errors
    /// The settings of a peer cannot be used, or there is no thread.
    pub fn start(
        sockets: &IkeSockets,
        plan: &Plan,
        workers: Vec<Worker>,
        engine: Arc<dyn Engine>,
        stopper: &Stopper,
    ) -> Result<(Self, Vec<Worker>), IkeError> {
        // All have the same tables. The first one carries packets that came before their SA.
        let first = &workers[0];
        let change = PeerChange::between(&[], &first.tables())?;
        let (datapath_events, datapath_events_out) = unbounded();
        let (handle, commands_out) = IkeHandle::new();
        let (floated_in, floated) = Punt::new(Protocol::Ipsec);
        let (initial_in, initial) = Punt::new(Protocol::Ipsec);
        let shared =
            Shared { tables: first.sessions(), datapath_events: datapath_events.clone(), clock: Clock };
        let parts = Parts {
            engine,
            random: [Box::new(random::System::default()), Box::new(random::System::default())],
            shared,
            outside: Box::new(sockets.floated.transmit()),
            initial: sockets.initial.transmit(),
            inbound_wakes: vec![stopper.waker(0)],
            outbound_wake: stopper.waker(0),
            has_raw: true,
            drops: first.drops(),
            inbox: Inbox {
                commands: commands_out,
                datapath_events: datapath_events_out,
                floated,
                initial,
                punts: [floated_in.clone(), initial_in.clone()],
            },
        };
        handle.add(change.plans);
        handle.link(true, plan.mtu);
        let thread = std::thread::Builder::new().name("secgw ike".to_owned()).spawn(move || {
            // On the lcores of the workers, packets come first.
            let _ = yield_to_packets();
            Rights::None.keep();
            IkeThread::new(parts).run();
        })?;
        let with_ike =
            |worker: Worker| worker.with_ike(datapath_events.clone(), initial_in.clone(), floated_in.clone());
        let workers = workers.into_iter().map(with_ike).collect();
        Ok((Self { handle, thread: Some(thread) }, workers))
    }

    /// What asks the thread.
    pub fn handle(&self) -> IkeHandle {
        self.handle.clone()
    }
}

impl Drop for Ike {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
