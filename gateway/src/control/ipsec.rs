//! One IPsec interface: its ports and its workers. Who speaks IKE drives it through [`Ipsec`], and is told by
//! [`Events`] what the workers saw.
//!
//! ```text
//! inside ──> policies ──> SA of the peer ──> UDP port 4500, or raw ESP
//! inside <── selectors <── SA by its SPI <── UDP port 4500 (IKE messages: Events), and raw ESP
//! ```

use super::interface::{Drops, InterfaceError, Removed, Rights, prepare};
use crate::clock::Clock;
use crate::datapath::Notice;
use crate::datapath::punt::{Datagram, Punt};
use crate::tables::{Peer, Protocol, Tables};
use crate::worker::{Egress, Inbound, Outbound, Shared};
use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, unbounded};
use port::raw::{self, EspTransmit, RawReceive};
use port::tun::{self, TunDevice, TunTransmit};
use port::udp::{self, SocketSlot, UdpReceive, UdpSockets, UdpTransmit};
use port::{Offloads, Receive, Wake};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use tokio::sync::mpsc;
use tunnel::esp::{Policies, Policy};

/// How to make an interface.
#[derive(Clone, Debug)]
pub struct Options {
    /// The UDP port of ESP and IKE.
    pub port: u16,
    /// The mark of outer packets, or 0.
    pub fwmark: u32,
    /// Whether ESP is also received and sent without UDP; needs CAP_NET_RAW.
    pub raw: bool,
    /// Offloads not to be used, by name.
    pub without: Vec<String>,
    /// The largest inner packet, until the link says otherwise.
    pub mtu: usize,
}

impl Default for Options {
    fn default() -> Self {
        let port = packet::header::esp::UDP_PORT;
        Self { port, fwmark: 0, raw: true, without: Vec::new(), mtu: 1400 }
    }
}

/// What the workers saw, for who speaks IKE.
pub struct Events {
    /// Packets wait for a key, or an SA is old or was used for the first time.
    pub notices: Receiver<Notice>,
    /// IKE messages that came on the port of ESP, without their marker.
    pub datagrams: Receiver<Datagram>,
}

/// A running interface. Dropping it ends everything and removes the interface.
pub struct Ipsec {
    device: Arc<TunDevice>,
    shared: Shared,
    offloads: Arc<Offloads>,
    udp: SocketSlot,
    raw: SocketSlot,
    drops: Drops,
    stop: Arc<AtomicBool>,
    wakes: Vec<Arc<Wake>>,
    threads: Vec<JoinHandle<()>>,
}

impl Ipsec {
    /// Makes the interface `name`, down, without policies and SAs. Its end is told to `removed`.
    pub fn create(
        name: &str,
        options: &Options,
        removed: mpsc::UnboundedSender<Removed>,
    ) -> Result<(Self, Events), InterfaceError> {
        let (device, offloads) = prepare(name, &options.without)?;
        let resources = |error| InterfaceError::Resources(name.to_owned(), error);
        let udp = UdpSockets::bind(options.port, options.fwmark, &offloads);
        let raw = if options.raw { raw::open(options.fwmark).map(Some) } else { Ok(None) };
        let slot = |sockets: Option<UdpSockets>| Arc::new(ArcSwapOption::from(sockets.map(Arc::new)));
        let (notices, notices_out) = unbounded();
        let (punt, datagrams) = Punt::for_ike();
        let tables = Arc::new(Tables::new(Protocol::Ipsec, options.mtu));
        let mut ipsec = Self {
            device,
            shared: Shared { tables, notices, clock: Clock },
            offloads,
            udp: slot(Some(udp.map_err(|error| resources(error.into()))?)),
            raw: slot(raw.map_err(|error| resources(error.into()))?),
            drops: Drops::default(),
            stop: Arc::default(),
            wakes: Vec::new(),
            threads: Vec::new(),
        };
        ipsec.start(punt, removed).map_err(resources)?;
        Ok((ipsec, Events { notices: notices_out, datagrams }))
    }

    fn start(&mut self, punt: Punt, removed: mpsc::UnboundedSender<Removed>) -> io::Result<()> {
        let (inside, answers) = tun::halves(Arc::clone(&self.device), Arc::clone(&self.offloads));
        let egress = self.egress_counting(Arc::clone(&self.drops.outbound));
        let mut worker = Outbound::new(self.shared.clone(), inside, answers, egress, tun::BATCH_BYTES);
        let name = self.device.name().to_owned();
        self.spawn("out", move |stop, wake| {
            if let Err(error) = worker.serve(stop, wake) {
                tracing::info!("interface {name} is gone: {error}");
                // Nobody waits for the event any more when the daemon is about to end.
                let _ = removed.send(Removed(name));
            }
        })?;
        let in_udp = UdpReceive::new(Arc::clone(&self.udp), Arc::clone(&self.offloads));
        self.receive_from("in", in_udp, punt.clone())?;
        if self.raw.load().is_some() {
            self.receive_from("raw", RawReceive::new(Arc::clone(&self.raw)), punt)?;
        }
        Ok(())
    }

    fn receive_from(&mut self, role: &str, outside: impl Receive + 'static, punt: Punt) -> io::Result<()> {
        let inside = TunTransmit::new(Arc::clone(&self.device), Arc::clone(&self.offloads));
        let drops = Arc::clone(&self.drops.inbound);
        let mut worker = Inbound::new(self.shared.clone(), outside, inside, punt, drops, udp::BATCH_BYTES);
        let name = self.device.name().to_owned();
        self.spawn(role, move |stop, wake| {
            if let Err(error) = worker.serve(stop, wake) {
                tracing::error!("interface {name} receives nothing more from outside: {error}");
            }
        })
    }

    fn spawn(
        &mut self,
        role: &str,
        body: impl FnOnce(&AtomicBool, &Wake) + Send + 'static,
    ) -> io::Result<()> {
        let (stop, wake) = (Arc::clone(&self.stop), Arc::new(Wake::new()?));
        self.wakes.push(Arc::clone(&wake));
        let thread = thread::Builder::new().name(format!("{} {role}", self.device.name()));
        self.threads.push(thread.spawn(move || {
            if let Err(error) = Rights::None.keep() {
                tracing::warn!("a thread keeps more rights than it needs: {error}");
            }
            body(&stop, &wake);
        })?);
        Ok(())
    }

    fn egress_counting(&self, drops: Arc<packet::DropCounters>) -> Egress<EspTransmit> {
        let in_udp = UdpTransmit::new(Arc::clone(&self.udp), Arc::clone(&self.offloads));
        Egress::new(self.shared.clone(), EspTransmit::new(in_udp, Arc::clone(&self.raw)), drops)
    }

    /// A way outside for who speaks IKE: its own messages as they are, packets that waited for a key, dummies.
    pub fn egress(&self) -> Egress<EspTransmit> {
        self.egress_counting(Arc::clone(&self.drops.lane))
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// What the workers look up.
    pub fn tables(&self) -> &Arc<Tables> {
        &self.shared.tables
    }

    /// Its drop counters.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Its offloads.
    pub fn offloads(&self) -> &Offloads {
        &self.offloads
    }

    /// The UDP port it has.
    pub fn port(&self) -> u16 {
        self.udp.load().as_ref().map_or(0, |sockets| sockets.port())
    }

    /// Replaces all policies in one step; the first that matches a packet decides.
    pub fn set_policies(&self, policies: Vec<Policy<Arc<Peer>>>) {
        self.shared.tables.policies.store(Arc::new(Policies::new(policies)));
    }
}

impl Drop for Ipsec {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for wake in &self.wakes {
            wake.ring();
        }
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
    }
}
