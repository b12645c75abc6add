//! Sealing: frames of the templates become data messages.

use super::NO_MTU;
use super::peer::{WireGuardPeer, time};
use crate::rfc2544::outer::{OuterAddresses, finish_udp, prepend_ether, prepend_udp};
use packet::Batch;
use packet::header::ethernet::EthernetHeader;
use packet::header::ip::UDP;
use std::io;
use std::net::SocketAddr;
use tunnel::{OutboundSa, Time};

/// Why nothing was sealed.
pub(super) enum Unsealed {
    /// The key is too old.
    NoKey,
    /// The engine failed.
    Engine,
}

impl WireGuardPeer {
    /// Seals all frames of a batch. Without a key none is sealed, and a key is asked for: the frames have to wait.
    pub fn seal(&mut self, batch: &mut Batch, now: u64) -> io::Result<bool> {
        let Some((sa, _)) = self.sending.clone() else {
            self.wants_key(now);
            return Ok(false);
        };
        for index in 0..batch.len() {
            let inner = batch.packet(index).len() - EthernetHeader::LENGTH;
            batch.shrink(index, EthernetHeader::LENGTH, inner);
        }
        match seal(&sa, batch, time(now)) {
            Ok(()) => {}
            Err(Unsealed::NoKey) => {
                self.wants_key(now);
                return Ok(false);
            }
            Err(Unsealed::Engine) => return Err(io::Error::other("the crypto engine failed")),
        }
        for index in 0..batch.len() {
            wrap(batch, index, [self.own, self.remote], self.macs);
        }
        if sa.wants_renewal(time(now)) {
            self.wants_key(now);
        }
        if self.activity.sent_data(time(now)) {
            self.note_activity(now);
        }
        Ok(true)
    }
}

/// Seals all packets of a batch.
pub(super) fn seal(sa: &OutboundSa, batch: &mut Batch, now: Time) -> Result<(), Unsealed> {
    let all = 0..batch.len();
    let first = sa.assign(all.len(), now).map_err(|_| Unsealed::NoKey)?.start;
    sa.protection.lay_out(batch, all.clone(), sa.receiver, first, NO_MTU);
    sa.protection.seal(batch, all, sa.receiver, first).map_err(|_| Unsealed::Engine)
}

/// Puts UDP, IP and Ethernet around a message.
pub(super) fn wrap(batch: &mut Batch, index: usize, [own, remote]: [SocketAddr; 2], macs: [u8; 12]) {
    prepend_udp(batch, index, own.port(), remote.port());
    let addresses = OuterAddresses { source: own.ip(), destination: remote.ip() };
    addresses.prepend(batch, index, UDP, 0);
    finish_udp(batch.packet_mut(index));
    prepend_ether(batch, index, macs);
}
