//! Packets of a policy that names an IKE peer: the SA that they leave under. Without one they are dropped, and IKE is asked for it.

use crate::datapath::DataPathEvent;
use crate::datapath::tables::{Peer, Tables};
use crossbeam_channel::Sender;
use packet::DropReason;
use packet::header::flow::Flow;
use packet::header::ip::IpPacket;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tunnel::esp::Processing;
use tunnel::{OutboundSa, PeerId, Time};

/// How long IKE is not asked again for the SA of one tunnel: it knows that there are packets, and whether it may call again.
const PAUSE: Duration = Duration::from_secs(1);

/// The tunnels that IKE was asked for.
pub struct Acquire {
    events: Sender<DataPathEvent>,
    asked: HashMap<PeerId, Time>,
}

impl Acquire {
    /// Asks the thread that reads the other end of `events`.
    pub fn new(events: Sender<DataPathEvent>) -> Self {
        Self { events, asked: HashMap::new() }
    }

    /// The SA for a packet of a policy for IKE peer `number`, counted from 0.
    ///
    /// # Errors
    /// `denied` if no tunnel of this peer is for the packet, `no-key` if the tunnel has no SA now.
    pub fn sa_for(
        &mut self,
        packet: &IpPacket<'_>,
        number: u16,
        tables: &Tables,
        now: Time,
    ) -> Result<(Arc<Peer>, Arc<OutboundSa>), DropReason> {
        let policies = tables.policies.load();
        let Some(Processing::Protect(peer)) = policies.outbound(&Flow::of(packet)) else {
            return Err(DropReason::Denied);
        };
        if peer.tunnel().is_none_or(|tunnel| tunnel.ike_peer != number + 1) {
            return Err(DropReason::Denied);
        }
        let sa = peer.sending.load_full().filter(|sa| sa.is_usable(now));
        if sa.is_none() {
            self.ask(peer.id, now);
        }
        sa.map(|sa| (Arc::clone(peer), sa)).ok_or(DropReason::NoKey)
    }

    #[cold]
    fn ask(&mut self, peer: PeerId, now: Time) {
        let is_new = self.asked.get(&peer).is_none_or(|&last| now >= last + PAUSE);
        if is_new {
            self.asked.insert(peer, now);
            // Without a thread of IKE no policy leads here.
            let _ = self.events.send(DataPathEvent::NoKey(peer));
        }
    }
}
