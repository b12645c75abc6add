//! What gateways carry: the file of rules and SAs, and Ethernet frames whose packets they match.

use gateway::secgw::bed::STATION;
use packet::header::ethernet::{EthernetHeader, IPV4};
use packet::header::ip::{Ipv4Header, UDP};
use serde::Serialize;
use std::fmt::Write as _;
use zerocopy::IntoBytes;

/// Bits of an address that tell the packets of one rule apart.
const HOST_BITS: usize = 10;
/// 10.0.0.0.
const INSIDE: u32 = 10 << 24;

/// The way of packets through the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From the protected port: encrypted.
    Outbound,
    /// From the unprotected port: decrypted.
    Inbound,
}

impl Way {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Outbound, Self::Inbound];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        }
    }

    /// The words of the application: port 0 receives, port 1 sends.
    pub fn words(self) -> &'static str {
        match self {
            Self::Outbound => "-p 3 -P -u 2 --config (0,0,0),(1,0,0)",
            Self::Inbound => "-p 3 -P -u 1 --config (0,0,0),(1,0,0)",
        }
    }
}

/// How packets meet rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// All packets meet one rule in the middle of the others.
    One,
    /// Each packet meets another rule than the one before it, and so another SA.
    All,
}

/// Rules with an SA each, and packets for them.
#[derive(Clone, Debug)]
pub struct Load {
    /// The name.
    pub name: String,
    /// The sizes of the IP packets, in turn.
    pub sizes: Vec<usize>,
    /// The number of packets, each of another flow.
    pub flows: usize,
    /// The number of rules and of SAs, in each direction.
    pub rules: usize,
    /// How packets meet rules.
    pub spread: Spread,
    /// `--reassemble` of ours; 0 for none.
    pub reassemble: u32,
}

impl Load {
    /// The file: SP and SA of both directions, RT and NEIGH.
    pub fn file(&self) -> String {
        let key = ["a1"; 20].join(":");
        let mut file = String::new();
        for direction in ["out", "in"] {
            for rule in 0..self.rules {
                let network = std::net::Ipv4Addr::from(INSIDE | (rule << HOST_BITS) as u32);
                let (spi, length) = (rule + 5, 32 - HOST_BITS);
                let _ = writeln!(
                    file,
                    "sp ipv4 {direction} esp protect {spi} pri 1 dst {network}/{length} sport 0:65535 dport 0:65535\n\
                     sa {direction} {spi} aead_algo aes-128-gcm aead_key {key} mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5"
                );
            }
        }
        file + "rt ipv4 dst 172.16.2.0/24 port 1\nrt ipv4 dst 10.0.0.0/8 port 1\nneigh port 1 02:00:00:00:00:0f\n"
    }

    /// The frames in clear.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        (0..self.flows).map(|flow| frame(self.destination(flow), flow, self.size(flow))).collect()
    }

    fn size(&self, flow: usize) -> usize {
        self.sizes[flow % self.sizes.len()].max(Ipv4Header::LENGTH)
    }

    /// The destination of a packet: inside the network of its rule.
    fn destination(&self, flow: usize) -> [u8; 4] {
        let (rule, host) = match self.spread {
            Spread::One => (self.rules / 2, flow),
            Spread::All => (flow % self.rules, flow / self.rules),
        };
        (INSIDE | ((rule << HOST_BITS) | (host % (1 << HOST_BITS))) as u32).to_be_bytes()
    }

    /// Mean size of the IP packets.
    pub fn mean_bytes(&self) -> f64 {
        (0..self.flows).map(|flow| self.size(flow)).sum::<usize>() as f64 / self.flows as f64
    }
}

/// A frame with a UDP packet of `size` bytes.
fn frame(destination: [u8; 4], flow: usize, size: usize) -> Vec<u8> {
    let ethernet = EthernetHeader { destination: STATION, source: [2; 6], ether_type: IPV4.into() };
    let mut header = Ipv4Header {
        fragment: Ipv4Header::DONT_FRAGMENT.into(),
        ..Ipv4Header::new(UDP, [192, 168, 1, 2], destination, size as u16)
    };
    header.finish();
    let mut frame = [ethernet.as_bytes(), header.as_bytes()].concat();
    frame.resize(EthernetHeader::LENGTH + size, flow as u8);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn packets_are_of_other_flows_and_meet_the_rules_that_they_shall() {
        for (rules, spread, met) in
            [(1, Spread::All, 1), (100, Spread::All, 100), (1000, Spread::All, 1000), (1000, Spread::One, 1)]
        {
            let load =
                Load { name: String::new(), sizes: vec![64, 90], flows: 1000, rules, spread, reassemble: 0 };
            let destinations: BTreeSet<[u8; 4]> =
                (0..load.flows).map(|flow| load.destination(flow)).collect();
            assert_eq!(destinations.len(), 1000);
            let networks: BTreeSet<u32> =
                destinations.iter().map(|&bytes| u32::from_be_bytes(bytes) >> HOST_BITS).collect();
            assert_eq!(networks.len(), met);
            assert!((load.mean_bytes() - 77.0).abs() < 1e-9);
            assert_eq!(load.file().lines().filter(|line| line.starts_with("sa ")).count(), 2 * rules);
        }
    }
}
