//! Links, addresses, routes and rules, set through rtnetlink (`rtnetlink(7)`).
//!
//! Every change is idempotent: adding what exists and removing what does not exist both succeed.

pub mod inventory;
mod link;
mod notice;
mod route;
mod rule;
mod static_route;

pub(crate) use link::link_of;
pub use link::{Link, LinkChange};
pub(in crate::host) use link::{NewLink, RouterLink};
pub(crate) use notice::{Concern, Notice, concern, notices, watch};
pub use route::{Outside, Route, Way};
pub use rule::Rule;
pub(in crate::host) use static_route::KernelRoute;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};

/// The main routing table.
pub const MAIN_TABLE: u32 = 254;
/// Marks our routes and rules in `ip route show` and `ip rule show`: an unassigned number of linux/rtnetlink.h, above
/// those of routing daemons.
const DAEMON: u8 = 219;
/// The same of a process for one interface, of which several may run beside a daemon.
const INTERFACE: u8 = 218;
/// The same of what the user sets beside tunnels: static routes, and addresses of links.
const STATIC: u8 = 217;
/// The number of this process, which is set before its first conversation.
static PROTOCOL: AtomicU8 = AtomicU8::new(DAEMON);

fn protocol() -> RouteProtocol {
    RouteProtocol::Other(PROTOCOL.load(Ordering::Relaxed))
}

/// From now on, routes and rules are those of a process for one interface.
pub(in crate::host) fn be_of_one_interface() {
    PROTOCOL.store(INTERFACE, Ordering::Relaxed);
}

/// A request that the kernel refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}: {error}{fix}")]
pub struct NetlinkError {
    /// What was asked for.
    pub what: String,
    /// The kernel's error.
    pub error: Errno,
    /// What to type, as it is printed behind the error; empty if that is not known.
    pub fix: String,
}

impl NetlinkError {
    /// Without a fix.
    pub fn new(what: impl Into<String>, error: &io::Error) -> Self {
        let error = Errno::from_io_error(error).unwrap_or(Errno::IO);
        Self { what: what.into(), error, fix: String::new() }
    }
}

/// A conversation with the kernel of one network namespace.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// A socket for the kernel's notifications of these multicast groups (linux/rtnetlink.h).
pub fn subscribe(groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    groups.iter().try_for_each(|group| socket.add_membership(*group))?;
    Ok(socket)
}

impl Netlink {
    /// Opens a conversation in the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let socket = subscribe(&[])?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The number by which the kernel's notifications name the author of a change.
    pub(in crate::host) fn port(&self) -> io::Result<u32> {
        let mut address = SocketAddr::new(0, 0);
        self.socket.get_address(&mut address)?;
        Ok(address.port_number())
    }

    /// Asks for a change that may have been made already.
    fn change(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<(), NetlinkError> {
        match self.request(message, flags | NLM_F_ACK, what) {
            Err(NetlinkError {
                error: Errno::EXIST | Errno::SRCH | Errno::ADDRNOTAVAIL | Errno::NOENT,
                ..
            }) => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Sends a request and reads all answers to it.
    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let failed = |error: io::Error| NetlinkError::new(what(), &error);
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(failed)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full().map_err(failed)?;
            for answer in messages(&bytes) {
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(answer) => {
                        answers.push(answer);
                        if flags & (NLM_F_DUMP | NLM_F_ACK) == 0 {
                            return Ok(answers);
                        }
                    }
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(answers),
                        Some(code) => return Err(failed(io::Error::from_raw_os_error(-code.get()))),
                    },
                    NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }
}

/// The messages in one datagram of the kernel; an unreadable one is skipped.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        while let Some(&length) = rest.first_chunk::<4>() {
            let length = u32::from_ne_bytes(length) as usize;
            let message = rest.get(..length).filter(|_| length >= 16)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if let Ok(message) = NetlinkMessage::deserialize(message) {
                return Some(message);
            }
        }
        None
    })
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
