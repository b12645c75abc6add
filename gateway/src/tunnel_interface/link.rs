//! Follows a TUN interface wherever it goes: up and down, to another MTU, and to another network namespace.
//!
//! Scripts make an interface in one namespace and move it to another, while the sockets stay where they were. So a
//! thread of its own goes after it.

use crate::host::netlink::{Link, LinkChange, Netlink, link_of, messages, subscribe};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use port::Wake;
use port::tun::TunDevice;
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The multicast group of link changes (linux/rtnetlink.h).
const RTNLGRP_LINK: u32 = 1;
/// What a UDP send may carry, and into how many datagrams it may be cut.
const LARGEST_SEND: u32 = 65_507;
const MOST_SEGMENTS: u32 = 64;

/// How many segments a super-packet may have so that one send carries it, `overhead` bytes larger each.
pub fn gso_max_segments(mtu: u32, overhead: usize) -> u32 {
    (LARGEST_SEND / (mtu + overhead as u32)).clamp(1, MOST_SEGMENTS)
}

/// Follows one interface.
pub struct Follower {
    /// The interface.
    pub device: Arc<TunDevice>,
    /// Bytes that the protocol adds to a packet.
    pub overhead: usize,
    /// Is told whether it is up, and its MTU.
    pub tell: Box<dyn Fn(bool, usize) + Send>,
    /// Ends the waiting.
    pub wake: Arc<Wake>,
    /// Ends the following.
    pub stop: Arc<AtomicBool>,
}

impl Follower {
    /// Follows until told to stop, or until the interface is gone.
    pub fn run(self) {
        while !self.stop.load(Ordering::Relaxed) {
            match self.follow() {
                Ok(()) => {}
                Err(error) => {
                    // The interface is on its way to another namespace, or we may not go there.
                    tracing::debug!("following {}: {error}", self.device.name());
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            if self.device.current_name().is_none() {
                return;
            }
        }
    }

    /// Follows the interface as long as it stays in its present namespace.
    fn follow(&self) -> io::Result<()> {
        if let Some(namespace) = self.device.namespace()
            && !is_ours(namespace.as_fd())?
        {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        let socket = subscribe(&[RTNLGRP_LINK])?;
        let name = self.device.current_name().ok_or(Errno::NODEV)?;
        let mut netlink = Netlink::open()?;
        let mut link = netlink.link(&name).map_err(|error| error.error)?;
        self.tell(&mut netlink, link, None);
        while !self.stop.load(Ordering::Relaxed) {
            let [readable] = self.wake.wait([Some(socket.as_fd())])?;
            if !readable {
                continue;
            }
            let (bytes, _) = socket.recv_from_full()?;
            for message in messages(&bytes) {
                match message.payload {
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message))
                        if message.header.index == link.index =>
                    {
                        let before = std::mem::replace(&mut link, link_of(&message));
                        self.tell(&mut netlink, link, Some(before));
                    }
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(message))
                        if message.header.index == link.index =>
                    {
                        return Ok(());
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Reports the new state, and fits the segments of super-packets to a new MTU.
    fn tell(&self, netlink: &mut Netlink, link: Link, before: Option<Link>) {
        if before.is_some_and(|before| (before.up, before.mtu) == (link.up, link.mtu)) {
            return;
        }
        if before.is_none_or(|before| before.mtu != link.mtu) {
            let change = LinkChange {
                gso_max_segments: Some(gso_max_segments(link.mtu, self.overhead)),
                ..LinkChange::default()
            };
            if let Err(error) = netlink.set_link(link.index, change) {
                tracing::debug!("{error}");
            }
        }
        (self.tell)(link.up, link.mtu as usize);
    }
}

/// Whether a namespace is that of the calling thread.
fn is_ours(namespace: BorrowedFd<'_>) -> io::Result<bool> {
    let ours = rustix::fs::stat("/proc/thread-self/ns/net")?;
    let theirs = rustix::fs::fstat(namespace)?;
    Ok((ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino))
}
