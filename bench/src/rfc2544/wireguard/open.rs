//! Opening: data messages are decrypted and verified, and those of handshakes handled.

use super::peer::{WireGuardPeer, time};
use crate::rfc2544::end::{Fate, Opened};
use crate::rfc2544::outer::Arrived;
use crate::rfc2544::streams::Family;
use packet::header::ethernet::EthernetHeader;
use packet::header::ip::{ICMPV6, TCP, UDP};
use packet::header::udp::UdpHeader;
use packet::header::wireguard::{DATA_OVERHEAD, DataHeader, Message};
use packet::{Batch, DropCounters};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use tunnel::{InboundSa, Protection};
use zerocopy::FromBytes;

/// What opening leaves for the next batch: its memory.
#[derive(Default)]
pub(super) struct Opening {
    /// By packet.
    fates: Vec<Fate>,
    /// Messages of handshakes, and where they came from.
    messages: Vec<(SocketAddr, Vec<u8>)>,
    drops: DropCounters,
}

/// A frame with WireGuard.
enum Found {
    /// A data message of a session with this index, here.
    Data(u32, Range<usize>),
    /// Another message.
    Handshake(SocketAddr, Range<usize>),
}

impl WireGuardPeer {
    /// Opens what is WireGuard in a batch, and handles handshakes. Opened packets are left without anything around them.
    pub fn open(&mut self, batch: &mut Batch, now: u64) -> Opened<'_> {
        let mut opening = std::mem::take(&mut self.opening);
        opening.fates.clear();
        for index in 0..batch.len() {
            let frame = batch.packet(index);
            let fate = match self.find(frame) {
                Ok(Found::Data(receiver, message)) => {
                    batch.shrink(index, message.start, message.len());
                    Fate::Sealed(receiver)
                }
                Ok(Found::Handshake(source, message)) => {
                    opening.messages.push((source, frame[message].to_vec()));
                    Fate::Nothing
                }
                Err(fate) => fate,
            };
            opening.fates.push(fate);
        }
        let mut first = 0;
        while first < opening.fates.len() {
            let fate = opening.fates[first];
            let count = opening.fates[first..].iter().take_while(|it| **it == fate).count();
            if let Fate::Sealed(receiver) = fate {
                self.open_run(batch, first..first + count, receiver, &mut opening, now);
            }
            first += count;
        }
        for (source, message) in opening.messages.drain(..) {
            self.handle(source, &message, now);
        }
        self.opening = opening;
        Opened { fates: &self.opening.fates, expected: &[] }
    }

    /// Opens messages of one session.
    fn open_run(
        &mut self,
        batch: &mut Batch,
        messages: Range<usize>,
        receiver: u32,
        opening: &mut Opening,
        now: u64,
    ) {
        let Some(sa) = self.receiving.get(&receiver).map(|session| Arc::clone(&session.sa)) else {
            opening.fates[messages].fill(Fate::Corrupt);
            return;
        };
        sa.protection.open(batch, messages.clone(), &[], &opening.drops);
        let is_authentic = batch.live(messages.clone()).next().is_some();
        let mut with_data = false;
        for index in messages {
            opening.fates[index] = accept(&sa, batch, index, &opening.drops);
            if let Fate::Opened { .. } = opening.fates[index] {
                self.counts.opened += 1;
                with_data = true;
            }
        }
        if !is_authentic {
            return;
        }
        if sa.confirm() {
            self.confirmed(receiver, now);
        }
        if sa.wants_renewal(time(now)) {
            self.wants_key(now);
        }
        if self.activity.received(time(now), with_data) {
            self.note_activity(now);
        }
    }

    /// Where a message is in a frame.
    fn find(&self, frame: &[u8]) -> Result<Found, Fate> {
        if frame.is_empty() {
            return Err(Fate::Nothing);
        }
        let is_damaged = || if self.resembles(frame) { Fate::Corrupt } else { Fate::Frame };
        let arrived = Arrived::read(frame).ok_or_else(is_damaged)?;
        let to_us = arrived
            .datagram()
            .filter(|ports| SocketAddr::new(arrived.addresses.destination, ports[1]) == self.own);
        let Some([source, _]) = to_us else {
            return Err(match arrived.protocol {
                // Over IPv6, nothing else tells whether the next header was UDP.
                UDP | TCP | ICMPV6 if arrived.has_valid_checksum() => Fate::Frame,
                UDP => is_damaged(),
                _ if arrived.addresses.source.is_ipv4() => Fate::Frame,
                _ => is_damaged(),
            });
        };
        let source = SocketAddr::new(arrived.addresses.source, source);
        let start = arrived.start + arrived.header + UdpHeader::LENGTH;
        let message = start..arrived.start + arrived.packet.len();
        match Message::parse(&frame[message.clone()]) {
            Some(Message::Data(header, _)) if source == self.remote => {
                Ok(Found::Data(header.receiver.get(), message))
            }
            Some(Message::Data(..)) | None => Err(Fate::Corrupt),
            Some(_) => Ok(Found::Handshake(source, message)),
        }
    }

    /// Whether a frame without a session was WireGuard of ours: it has the outer addresses, or the index of a session.
    fn resembles(&self, frame: &[u8]) -> bool {
        let packet = frame.get(EthernetHeader::LENGTH..).unwrap_or_default();
        let (remote, own) = (octets(self.remote.ip()), octets(self.own.ip()));
        let addresses = [remote, own].concat();
        let family = Family::of(self.own.ip());
        let index = family.header() + UdpHeader::LENGTH + 4;
        let index = packet.get(index..index + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        packet.get(family.addresses()) == Some(&addresses[..])
            || index.is_some_and(|bytes| self.receiving.contains_key(&u32::from_le_bytes(bytes)))
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Notes the counter of a message that was opened, and strips it to its packet.
fn accept(sa: &InboundSa, batch: &mut Batch, index: usize, drops: &DropCounters) -> Fate {
    let Ok((header, _)) = DataHeader::ref_from_prefix(batch.packet(index)) else { return Fate::Corrupt };
    let counter = header.counter.get();
    // A counter behind the window counts as seen: it is thousands of messages late.
    let is_repeated = sa.moving_window().accept(counter).is_err();
    if batch.packet(index).len() == DATA_OVERHEAD {
        return Fate::Nothing;
    }
    let Protection::WireGuard(data) = &sa.protection else { return Fate::Corrupt };
    data.strip(batch, index..index + 1, drops);
    if batch.is_live(index) { Fate::Opened { is_repeated, sa: 0 } } else { Fate::Corrupt }
}
