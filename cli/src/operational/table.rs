//! The operational commands, by verb and subject. A further one is an entry in one of these files, and its effect.
//!
//! ```text
//! table.rs         status, reload; the help for words; arguments and paths of the API that several files name
//! show_tunnels.rs  show interfaces, openvpn, secgw, drops, crypto, datapath, path, health, ...
//! show_ipsec.rs    show vpn
//! show_machine.rs  show system, configuration, log, version, nat, ...
//! monitor.rs       top, monitor
//! change.rs        advise, reboot, explain, reset, restart
//! ```

mod change;
mod monitor;
mod show_ipsec;
mod show_machine;
mod show_tunnels;

use super::names::Names;
use super::{Argument, Entry, entry};
use crate::{reload, show_secgw, status};

const INTERFACE: Argument =
    Argument { name: "INTERFACE", about: "The WireGuard interface", names: Names::WireguardInterfaces };

const WIREGUARD_PEER: Argument =
    Argument { name: "PEER", about: "Name or public key of the peer", names: Names::WireguardPeers };

const OPENVPN: Argument =
    Argument { name: "INTERFACE", about: "The OpenVPN interface", names: Names::OpenVpnInterfaces };

const IPSEC_PEER: Argument = Argument { name: "PEER", about: "Name of the peer", names: Names::IpsecPeers };
const ANY: Argument =
    Argument { name: "NAME", about: "The interface", names: Names::MachineInterfaces(None) };

const OPENVPN_STATE: &str = "/v1/interfaces/openvpn";
const IPSEC: &str = "/v1/vpn/ipsec";
const SECGW: &str = "/v1/secgw";
const STATUS_STATUS: &str = "Exit status: 0 if everything is up that should be, 1 if something is not, 2 if no daemon answers. \
     A peer without traffic that need not be connected is not down. Warnings do not change the exit status.";

const RELOAD_STATUS: &str =
    "Exit status: 0 if all of the file is in force, 1 if it is not, 2 if no daemon answers.";

/// All operational commands, in the order in which help lists them.
pub(super) fn all_entries() -> impl Iterator<Item = &'static Entry> {
    let parts = [
        DAEMON,
        show_tunnels::ENTRIES,
        show_ipsec::ENTRIES,
        show_machine::ENTRIES,
        monitor::ENTRIES,
        change::ENTRIES,
    ];
    parts.into_iter().flatten()
}

/// The state and the configuration of the daemon as a whole.
static DAEMON: &[Entry] = &[
    entry(
        "status",
        "Show on one screen which peers and tunnels are up, and why others are down",
        status::show,
    )
    .asks("/v1/status")
    .more(STATUS_STATUS),
    entry("reload", "Apply a changed configuration file, and print the result", reload::run)
        .more(RELOAD_STATUS),
    entry("reload secgw", "Make postern secgw read its file again, without loss", show_secgw::reload)
        .asks(SECGW)
        .more(RELOAD_STATUS),
];

/// The help for words of paths that are no command by themselves.
pub(super) static WORDS: &[(&str, &str)] = &[
    ("show", "Show state and counters"),
    ("show openvpn", "OpenVPN sessions"),
    ("show vpn", "IPsec peers and tunnels"),
    ("show vpn ipsec", "IPsec tunnels"),
    ("show vpn ike", "IKE SAs and authentication"),
    ("show vpn ike sa peer", "One peer"),
    ("show vpn debug peer", "One peer"),
    ("show system commit diff", "Show what a revision changed"),
    ("show vpn ipsec remote-access", "Connections of remote users"),
    ("show system", "Processor, processes, accelerators and settings of this machine"),
    ("show dhcp", "DHCP"),
    ("show dhcp client", "DHCP clients of interfaces"),
    ("show nat source", "Rules for packets that leave"),
    ("show nat destination", "Rules for packets that arrive"),
    ("show system option", "Options of the machine"),
    ("show system acceleration qat device", "One device"),
    ("show hardware", "Processor and sensors"),
    ("show environment", "Sensors"),
    ("monitor", "Follow rates, packets and logs until interrupted"),
    ("monitor bandwidth interface", "One interface"),
    ("monitor log ipsec peer", "One peer"),
    ("monitor log openvpn peer", "One client"),
    ("monitor log wireguard peer", "One peer"),
    ("monitor traffic", "Packets"),
    ("monitor traffic interface", "One interface"),
    ("monitor traffic interface NAME filter", "Only some packets"),
    ("monitor traffic interface NAME peer", "One peer of a tunnel interface"),
    ("monitor command", "Repeat a command"),
    ("monitor command diff", "Show what changes"),
    ("explain", "Explain why a connection is down, and how to fix it"),
    ("explain interfaces", "Tunnel interfaces"),
    ("explain interfaces wireguard", "Explain the peers of a WireGuard interface"),
    ("explain interfaces wireguard INTERFACE peer", "Explain one peer of the interface"),
    ("explain openvpn", "OpenVPN interfaces"),
    ("explain openvpn INTERFACE client", "Explain one client"),
    ("explain vpn", "IPsec peers"),
    ("explain vpn ipsec", "IPsec peers"),
    ("explain vpn ipsec peer", "Explain the connection to an IPsec peer"),
    ("reset", "Re-establish connections"),
    ("reset openvpn", "OpenVPN sessions"),
    ("reset openvpn client", "End the sessions of a client, which may connect again"),
    ("reset openvpn interface", "Begin all sessions of an interface again"),
    ("reset secgw", "Connections of postern secgw"),
    ("reset secgw ike", "Re-establish the tunnels to a peer that policies name"),
    ("reset vpn", "IPsec connections"),
    ("reset vpn ipsec", "IPsec connections"),
    ("reset vpn ipsec site-to-site", "Connections between gateways"),
    ("reset vpn ipsec site-to-site peer", "Re-establish the tunnels to one peer"),
    ("reset vpn ipsec site-to-site peer PEER tunnel", "Re-establish one tunnel"),
    ("reset vpn ipsec-peer", "VyOS 1.3 spelling of site-to-site peer"),
    ("reset vpn ipsec-peer PEER tunnel", "Re-establish one tunnel"),
    ("restart", "Re-establish all IPsec connections"),
];
