//! Addresses of ports: the gateway answers ARP (RFC 826) and neighbour discovery (RFC 4861) for them, so that its neighbours need no static
//! entries. It asks nobody: the station behind a port is that of its `neigh` line.

use super::frame::Address;
use packet::header::arp::Message;
use packet::header::ethernet::{ARP, EthernetHeader, IPV6};
use packet::header::ip::{ICMPV6, Ipv6Header};
use packet::header::neighbour::{NeighbourMessage, SOLICITATION};
use packet::{Batch, DropCounters, DropReason};
use std::net::IpAddr;
use zerocopy::FromBytes as _;

/// Room for answers to one burst: some 60 of them.
const ROOM: usize = 16 * 1024;

/// Answers that are to be sent by the port that was asked.
pub struct Answers(Batch);

impl Default for Answers {
    fn default() -> Self {
        Self(Batch::new(ROOM))
    }
}

impl Answers {
    /// Takes the frames out of a batch that ask for one of these addresses, and makes answers to them; whether there are any.
    pub fn take(
        &mut self,
        batch: &mut Batch,
        own: &[IpAddr],
        station: Address,
        drops: &DropCounters,
    ) -> bool {
        self.0.clear();
        for index in 0..batch.len() {
            let Some(answer) = answer(batch.packet(index), own, station) else { continue };
            batch.discard(index);
            match self.0.append(answer.len()) {
                Some(room) => room.copy_from_slice(&answer),
                None => drops.count(DropReason::BurstFull, 1),
            }
        }
        self.0.close_train(0, None, 0);
        !self.0.is_empty()
    }

    /// The answers.
    pub fn batch(&mut self) -> &mut Batch {
        &mut self.0
    }
}

/// The answer to a frame that asks for one of these addresses.
#[inline]
fn answer(frame: &[u8], own: &[IpAddr], station: Address) -> Option<Vec<u8>> {
    let (header, payload) = EthernetHeader::ref_from_prefix(frame).ok()?;
    if header.destination[0] & 1 == 0 && header.destination != station {
        return None;
    }
    match header.ether_type.get() {
        ARP => answer_arp(payload, own, station),
        // Nearly all packets are others.
        IPV6 if payload.get(6) == Some(&ICMPV6) && payload.get(Ipv6Header::LENGTH) == Some(&SOLICITATION) => {
            answer_solicitation(payload, own, header.source, station)
        }
        _ => None,
    }
}

fn answer_arp(payload: &[u8], own: &[IpAddr], station: Address) -> Option<Vec<u8>> {
    let message = Message::parse(payload)?;
    own.contains(&message.target.1.into()).then(|| message.answer(station))?
}

fn answer_solicitation(packet: &[u8], own: &[IpAddr], from: Address, station: Address) -> Option<Vec<u8>> {
    let message = NeighbourMessage::parse(packet).ok()?;
    own.contains(&message.target.into()).then(|| message.answer(from, station))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::header::neighbour::{ALL_NODES, Kind, multicast_link, solicited_node};
    use std::net::Ipv6Addr;

    const STATION: Address = [2, 0, 0, 0, 0, 1];
    const ASKER: Address = [2, 0, 0, 0, 0, 9];

    fn own() -> Vec<IpAddr> {
        ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().expect("literal")).to_vec()
    }

    fn who_has(target: [u8; 4]) -> Vec<u8> {
        let target = ([0; 6], target.into());
        Message { is_request: true, sender: (ASKER, [192, 0, 2, 9].into()), target }.frame([0xff; 6])
    }

    fn solicitation(source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let destination = solicited_node(target);
        let link = (!source.is_unspecified()).then_some(ASKER);
        let message = NeighbourMessage { kind: Kind::Solicitation, source, destination, target, link };
        message.frame(ASKER, multicast_link(destination))
    }

    #[test]
    fn questions_for_an_address_of_the_port_are_answered_in_both_families_and_taken_out() {
        let (own, drops) = (own(), DropCounters::default());
        let target = "2001:db8::1".parse().expect("literal");
        let asker = "2001:db8::9".parse().expect("literal");
        let frames = [
            who_has([192, 0, 2, 1]),
            who_has([192, 0, 2, 2]),
            solicitation(asker, target),
            solicitation(asker, asker),
            solicitation(Ipv6Addr::UNSPECIFIED, target),
        ];
        let mut batch = Batch::new(64 * 1024);
        for frame in &frames {
            batch.append(frame.len()).expect("it fits").copy_from_slice(frame);
        }
        let mut answers = Answers::default();
        assert!(answers.take(&mut batch, &own, STATION, &drops));
        assert_eq!(batch.live(0..5).collect::<Vec<_>>(), [1, 3], "those for others stay");
        let answers = answers.batch();
        assert_eq!(answers.len(), 3);
        let arp = Message::parse(&answers.packet(0)[14..]).expect("an answer");
        assert_eq!((&answers.packet(0)[..6], &answers.packet(0)[6..12]), (&ASKER[..], &STATION[..]));
        assert_eq!((arp.is_request, arp.sender), (false, (STATION, [192, 0, 2, 1].into())));
        for (at, to, solicited) in [(1, ASKER, true), (2, multicast_link(ALL_NODES), false)] {
            let frame = answers.packet(at);
            let message = NeighbourMessage::parse(&frame[14..]).expect("an answer");
            assert_eq!(frame[..6], to);
            assert_eq!(message.kind, Kind::Advertisement { is_solicited: solicited, overrides: true });
            assert_eq!((message.target, message.link), (target, Some(STATION)));
        }
    }

    #[test]
    fn what_is_cut_forged_or_for_another_station_has_no_answer() {
        let own = own();
        let target = "2001:db8::1".parse().expect("literal");
        for frame in [who_has([192, 0, 2, 1]), solicitation("2001:db8::9".parse().expect("literal"), target)]
        {
            assert!(answer(&frame, &own, STATION).is_some());
            let whole = if frame[12..14] == [8, 6] { 42 } else { frame.len() };
            for length in 0..whole {
                assert_eq!(answer(&frame[..length], &own, STATION), None, "{length} bytes");
            }
            let other = [&[2, 0, 0, 0, 0, 7][..], &frame[6..]].concat();
            assert_eq!(answer(&other, &own, STATION), None);
        }
        // A router forwards no neighbour discovery: its hop limit is 255 (section 7.1.1).
        let mut far = solicitation("2001:db8::9".parse().expect("literal"), target);
        far[14 + 7] = 254;
        assert_eq!(answer(&far, &own, STATION), None);
        // An answer to a group would be a flood.
        let mut group = who_has([192, 0, 2, 1]);
        group[14 + 8] = 0xff;
        assert_eq!(answer(&group, &own, STATION), None);
    }

    #[test]
    fn more_questions_than_there_is_room_for_answers_are_counted() {
        let drops = DropCounters::default();
        let mut batch = Batch::new(512 * 1024);
        for _ in 0..500 {
            let frame = who_has([192, 0, 2, 1]);
            batch.append(frame.len()).expect("it fits").copy_from_slice(&frame);
        }
        let mut answers = Answers::default();
        assert!(answers.take(&mut batch, &own(), STATION, &drops));
        assert_eq!(answers.batch().len() as u64 + drops.read(DropReason::BurstFull), 500);
        assert_eq!(batch.live(0..500).count(), 0);
    }
}
