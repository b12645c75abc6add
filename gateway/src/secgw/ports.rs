//! Ports that carry frames: their drivers, and the state of each.

use super::frame::Address;
use super::plan::PortPlan;
use config::secgw::Driver;
use port::link::{LinkError, hardware_address};
use port::tun::TunError;
use port::xdp::{self, Take, XdpOptions};
use port::{Receive, Transmit, af_packet, tap};
use tunnel::Time;

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Of an interface that is there.
    #[error("port {0}: {1}")]
    Link(u16, LinkError),
    /// Of a TAP interface.
    #[error("port {0}: {1}")]
    Tap(u16, TunError),
    /// More queues than are served.
    #[error("port {number}: {interface} has {queues} queues\n  fix: ethtool -L {interface} combined 1")]
    Queues {
        /// The port.
        number: u16,
        /// Its interface.
        interface: String,
        /// How many it has.
        queues: usize,
    },
}

/// An open port.
pub struct FramePort {
    /// Its number.
    pub number: u16,
    /// The name of its interface, or another one.
    pub name: String,
    /// Whether its packets are in clear.
    pub is_protected: bool,
    /// Its Ethernet address, if frames for other stations are dropped.
    pub station: Option<Address>,
    /// Its Ethernet address.
    pub address: Address,
    /// Where frames come from.
    pub receive: Box<dyn Receive>,
    /// Where frames go.
    pub transmit: Box<dyn Transmit>,
    /// Whether frames are received.
    pub is_received: bool,
    /// Whether its last read failed.
    pub is_failing: bool,
    /// Until when it is not read and not waited for: it is down.
    pub rests_until: Option<Time>,
}

/// Opens a port; needs CAP_NET_RAW, and CAP_BPF and CAP_NET_ADMIN by its driver.
///
/// # Errors
/// The interface is missing, down or used, or a right is missing.
pub fn open(plan: &PortPlan) -> Result<FramePort, PortError> {
    let (number, name) = (plan.number, plan.interface.as_str());
    let link = |error| PortError::Link(number, error);
    let (receive, transmit): (Box<dyn Receive>, Box<dyn Transmit>) = match plan.driver {
        Driver::AfXdp => {
            let options = XdpOptions { take: Take::Ip, ..XdpOptions::default() };
            let mut queues = xdp::open(name, options).map_err(link)?;
            if queues.len() != 1 {
                let (interface, queues) = (name.to_owned(), queues.len());
                return Err(PortError::Queues { number, interface, queues });
            }
            let (receive, transmit) = queues.remove(0);
            (Box::new(receive), Box::new(transmit))
        }
        Driver::Tap => {
            let halves = tap::open(name).and_then(|halves| tap::set_up(name, plan.address).map(|()| halves));
            let (receive, transmit) = halves.map_err(|error| PortError::Tap(number, error))?;
            (Box::new(receive), Box::new(transmit))
        }
        // The plan refuses other drivers.
        Driver::AfPacket | Driver::Pcap | Driver::Crypto => {
            let (receive, transmit) = af_packet::open(name).map_err(link)?;
            (Box::new(receive), Box::new(transmit))
        }
    };
    let address = hardware_address(name).map_err(link)?;
    Ok(FramePort {
        number,
        name: name.to_owned(),
        is_protected: plan.is_protected,
        station: (!plan.is_promiscuous).then_some(address),
        address,
        receive,
        transmit,
        is_received: plan.is_received,
        is_failing: false,
        rests_until: None,
    })
}
