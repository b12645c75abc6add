//! The blocks of a pcapng stream, as they come: bytes ──> whole blocks ──> packets and losses.

use crate::Failure;
use pcap_file::PcapError;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgParser};
use std::ops::ControlFlow;
use std::time::Duration;

/// A packet of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packet {
    /// Since 1970.
    pub(super) at: Duration,
    pub(super) is_inbound: bool,
    /// Whether it is one of the outside, with a header that was made.
    pub(super) is_outer: bool,
    pub(super) comment: Option<String>,
    pub(super) length: usize,
    /// Its first bytes.
    pub(super) bytes: Vec<u8>,
}

/// What a block is.
pub(super) enum Item {
    Packet(Packet),
    /// So many packets were lost until now.
    Lost(u64),
    Other,
}

/// Reads blocks; the bytes of one that is not whole yet are kept.
#[derive(Default)]
pub(super) struct Blocks {
    bytes: Vec<u8>,
    parser: Option<PcapNgParser>,
}

impl Blocks {
    /// Adds what has come, and calls `each` with the bytes of each whole block and what it is, until that breaks.
    pub(super) fn add(
        &mut self,
        chunk: &[u8],
        mut each: impl FnMut(&[u8], Item) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<ControlFlow<()>, Failure> {
        self.bytes.extend_from_slice(chunk);
        let mut done = 0;
        let flow = loop {
            let rest = &self.bytes[done..];
            let read = match &mut self.parser {
                Some(parser) => parser.next_block(rest).map(|(rest, block)| (rest.len(), item(&block))),
                None => PcapNgParser::new(rest).map(|(rest, parser)| {
                    self.parser = Some(parser);
                    (rest.len(), Item::Other)
                }),
            };
            match read {
                Ok((left, item)) => {
                    let length = rest.len() - left;
                    done += length;
                    if each(&rest[..length], item)?.is_break() {
                        break ControlFlow::Break(());
                    }
                }
                Err(PcapError::IncompleteBuffer) => break ControlFlow::Continue(()),
                Err(error) => return Err(format!("the daemon sent no pcapng: {error}").into()),
            }
        };
        self.bytes.drain(..done);
        Ok(flow)
    }
}

fn item(block: &Block<'_>) -> Item {
    match block {
        Block::EnhancedPacket(block) => Item::Packet(packet(block)),
        Block::InterfaceStatistics(block) => {
            let lost = block.options.iter().find_map(|option| match option {
                InterfaceStatisticsOption::IsbIfDrop(lost) => Some(*lost),
                _ => None,
            });
            lost.map_or(Item::Other, Item::Lost)
        }
        _ => Item::Other,
    }
}

fn packet(block: &EnhancedPacketBlock<'_>) -> Packet {
    let mut packet = Packet {
        at: block.timestamp,
        is_outer: block.interface_id != 0,
        length: block.original_len as usize,
        bytes: block.data.to_vec(),
        ..Packet::default()
    };
    for option in &block.options {
        match option {
            // The two lowest bits: 1 inbound, 2 outbound.
            EnhancedPacketOption::Flags(flags) => packet.is_inbound = flags & 3 == 1,
            EnhancedPacketOption::Comment(comment) => packet.comment = Some(comment.to_string()),
            _ => {}
        }
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
    use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsBlock;
    use pcap_file::{DataLink, Endianness};

    fn stream(packets: u8) -> Vec<u8> {
        let mut writer = PcapNgWriter::with_endianness(Vec::new(), Endianness::Little).expect("memory");
        let interface =
            InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 100, options: Vec::new() };
        writer.write_pcapng_block(interface).expect("memory");
        for number in 0..packets {
            let block = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(number.into()),
                original_len: 60,
                data: vec![number; 40].into(),
                options: vec![EnhancedPacketOption::Flags(1), EnhancedPacketOption::Comment("berlin".into())],
            };
            writer.write_pcapng_block(block).expect("memory");
        }
        let options = vec![InterfaceStatisticsOption::IsbIfDrop(5)];
        let statistics = InterfaceStatisticsBlock { interface_id: 0, timestamp: 0, options };
        writer.write_pcapng_block(statistics).expect("memory");
        writer.into_inner()
    }

    #[test]
    fn blocks_are_the_same_however_the_stream_is_cut() {
        let stream = stream(3);
        for size in [1, 7, 100, stream.len()] {
            let (mut blocks, mut raw, mut packets, mut lost) = (Blocks::default(), Vec::new(), Vec::new(), 0);
            for chunk in stream.chunks(size) {
                let flow = blocks.add(chunk, |bytes, item| {
                    raw.extend_from_slice(bytes);
                    match item {
                        Item::Packet(packet) => packets.push(packet),
                        Item::Lost(now) => lost = now,
                        Item::Other => {}
                    }
                    Ok(ControlFlow::Continue(()))
                });
                assert!(flow.expect("it is pcapng").is_continue());
            }
            assert_eq!((raw == stream, packets.len(), lost), (true, 3, 5), "{size}");
            assert_eq!(packets[2].comment.as_deref(), Some("berlin"));
            assert!(packets[2].is_inbound && !packets[2].is_outer && packets[2].length == 60);
        }
    }

    #[test]
    fn no_block_after_the_last_that_is_wanted_is_read() {
        let mut count = 0;
        let flow = Blocks::default().add(&stream(9), |_, item| {
            count += u64::from(matches!(item, Item::Packet(_)));
            Ok(if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        assert!(flow.expect("it is pcapng").is_break());
        assert_eq!(count, 2);
    }

    #[test]
    fn what_is_no_pcapng_is_an_error() {
        let mut blocks = Blocks::default();
        let refused = blocks.add(&[0x0a; 64], |_, _| Ok(ControlFlow::Continue(())));
        assert!(refused.expect_err("it is none").to_string().contains("no pcapng"));
    }
}
