//! UDP port 500: IKE before it knows whether addresses are translated. No ESP is received here.

use crate::datapath::punt::Punt;
use crate::tunnel_interface::binding;
use crate::wireguard::update::UpdateError;
use arc_swap::ArcSwapOption;
use packet::{Batch, DropCounters};
use port::udp::{BATCH_BYTES, SocketSlot, UdpBinding, UdpReceive, UdpTransmit};
use port::{Offloads, Receive, SocketOptions, Wake};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The port, and what its thread needs.
pub struct IkePort {
    slot: SocketSlot,
    offloads: Arc<Offloads>,
    stop: Arc<AtomicBool>,
    wake: Arc<Wake>,
}

impl IkePort {
    /// Binds it.
    pub fn bind(port: u16, mark: u32) -> Result<Self, UpdateError> {
        let offloads = Arc::new(Offloads::default());
        let options = SocketOptions { fwmark: mark, ..SocketOptions::default() };
        let at = UdpBinding { options, ..UdpBinding::default() };
        let sockets = binding::bind(port, &at, &offloads)?;
        let wake = Wake::new().map_err(|error| {
            let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            UpdateError::Socket { port, error }
        })?;
        let slot = Arc::new(ArcSwapOption::from_pointee(sockets));
        Ok(Self { slot, offloads, stop: Arc::default(), wake: Arc::new(wake) })
    }

    /// Where its sockets are.
    pub fn sockets(&self) -> SocketSlot {
        Arc::clone(&self.slot)
    }

    /// Sends from it.
    pub fn transmit(&self) -> UdpTransmit {
        UdpTransmit::new(Arc::clone(&self.slot), Arc::clone(&self.offloads))
    }

    /// What ends [`receive`](Self::receive).
    pub fn stopper(&self) -> impl Fn() + Send + Sync + use<> {
        let (stop, wake) = (Arc::clone(&self.stop), Arc::clone(&self.wake));
        move || {
            stop.store(true, Ordering::Relaxed);
            wake.notify();
        }
    }

    /// Hands over received messages until it is stopped.
    pub fn receive(self, punt: &Punt, drops: &DropCounters) -> io::Result<()> {
        let mut receive = UdpReceive::new(Arc::clone(&self.slot), Arc::clone(&self.offloads));
        let mut batch = Batch::new(BATCH_BYTES);
        while !self.stop.load(Ordering::Relaxed) {
            batch.clear();
            if receive.receive(&mut batch, drops)? == 0 {
                receive.wait(&self.wake)?;
                continue;
            }
            for train in batch.trains() {
                let Some(endpoint) = train.endpoint else { continue };
                for index in train.packets.clone() {
                    let _ = punt.punt(endpoint, batch.packet(index), drops);
                }
            }
        }
        Ok(())
    }
}
