//! The addresses of the tester's ports, of its streams, and of the routers next to it.

use super::frame::{Path, Protocol};
use super::neighbour::Neighbour;
use super::streams::{Family, Stream, Streams};
use std::net::IpAddr;
use std::sync::Arc;

/// The addresses of the tester's ports and of the routers next to them.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The streams of the frames that leave by each port, all of one family.
    pub streams: [Vec<Stream>; 2],
    /// The tester's ends of tunnels at each port.
    pub outer: [Vec<IpAddr>; 2],
    /// The IP addresses of routers, if the device routes.
    pub routers: Option<[IpAddr; 2]>,
}

impl Addresses {
    /// One stream in each direction between these addresses.
    pub fn between(ports: [IpAddr; 2]) -> Self {
        Self::spread(ports, 1)
    }

    /// So many streams in each direction, between networks next to these addresses.
    pub fn spread([first, second]: [IpAddr; 2], count: usize) -> Self {
        let streams = [Stream::spread(first, second, count), Stream::spread(second, first, count)];
        Self { streams, outer: [Vec::new(), Vec::new()], routers: None }
    }

    /// The family of the test frames.
    pub fn family(&self) -> Family {
        Family::of(self.streams[0][0].source)
    }

    /// A hardware address of a port; locally administered, and of no interface, so that the kernel ignores test frames.
    pub(crate) fn mac(port: usize) -> [u8; 6] {
        [0x02, 0x25, 0x44, 0, 0, port as u8 + 1]
    }

    /// All addresses of a port: first its ends of tunnels, which ask for the router.
    pub(super) fn own(&self, port: usize) -> Vec<IpAddr> {
        let sources = self.streams[port].iter().map(|stream| stream.source);
        let destinations = self.streams[1 - port].iter().map(|stream| stream.destination);
        self.outer[port].iter().copied().chain(sources).chain(destinations).collect()
    }

    /// What answers ARP and neighbour discovery at a port.
    pub(super) fn neighbour(&self, port: usize) -> Neighbour {
        Neighbour::new(Self::mac(port), &self.own(port), self.routers.map(|routers| routers[port]))
    }

    /// The path from a port to the other, by the router's hardware address if there is one.
    pub(super) fn path(&self, from: usize, router: Option<[u8; 6]>, protocol: Protocol) -> Path {
        Path {
            source_mac: Self::mac(from),
            destination_mac: router.unwrap_or(Self::mac(1 - from)),
            streams: Arc::new(Streams::new(protocol, &self.streams[from])),
        }
    }
}
