//! `top` and `monitor`: what is followed until it is interrupted.

use super::{ANY, IPSEC_PEER, WIREGUARD_PEER};
use crate::monitor::{bandwidth, command, log as lines, traffic, vpn as rates};
use crate::operational::names::Names;
use crate::operational::{Argument, Entry, Flag, entry};
use crate::show_log::Of;
use crate::{health, show_bottleneck, show_log as log, top};
use gateway::log::Subsystem;

const OPENVPN_PEER: Argument =
    Argument { name: "PEER", about: "Common name of the client", names: Names::OpenVpnClients };

const FILTER: Argument =
    Argument { name: "FILTER", about: "Only these packets, as tcpdump selects them", names: Names::Text };

const COMMAND: Argument =
    Argument { name: "COMMAND", about: "A command that shows something, as one word", names: Names::Text };

const PEER: Argument = Argument {
    name: "PEER",
    about: "Name of the peer, or common name of the client",
    names: Names::TunnelPeers,
};

const WRITE: Flag = Flag::with_value(
    traffic::WRITE,
    "FILE",
    "Write pcapng to this file, or with - to standard output, as for | tshark -r -",
);

const COUNT: Flag = Flag::with_value(traffic::COUNT, "N", "End after so many packets");
const SNAPLEN: Flag = Flag::with_value(
    traffic::SNAPLEN,
    "BYTES",
    "Keep so many bytes of each packet: 64 to 65535, 2048 if not given",
);

const ONLY: Flag = Flag::new(traffic::ONLY, "Show only packets that are dropped");
const CAPTURE: &[Flag] = &[WRITE, COUNT, SNAPLEN];
const CAPTURE_DROPS: &[Flag] = &[ONLY, WRITE, COUNT, SNAPLEN];
const CAPTURES: &str = "The packets of a tunnel interface are those inside the tunnel, in clear, each with its peer. A packet that is \
     dropped is shown with the reason and the stage: before it is opened, as it was received outside, with IP and UDP headers that \
     are made. In pcapng, interface 0 has packets of the inside, interface 1 those of the outside, and the comment of a packet is its \
     peer and the drop. At most 4 captures run at once; packets that come faster than they are read are lost from the \
     capture and counted. No worker waits for the reader, but each captured packet costs a copy. Other interfaces are shown by tcpdump.";

const TRACES: &[Flag] =
    &[Flag::new(lines::TRACE, "Also show debug events of this peer, until the command ends")];

const TRACED: &str = "The last 10 lines are shown first. With --trace this command also shows each handshake message that the \
     daemon exchanges with the peer, and its other debug events. The daemon is not restarted, and its own log does not change. Keys and \
     passwords are not shown.";

const TOP: &[Flag] = &[
    Flag::new("once", "Print one line for each interface and peer, and end"),
    Flag::new("lines", "Print such lines each second, as without a terminal"),
];

const TOP_KEYS: &str = "Keys: q quits, Enter explains the selected row, / filters, v shows interfaces, peers or both, n s i o l h e order by \
     name, state, rate in, rate out, losses, handshake or engine, and the same key again reverses the order. NO_COLOR \
     switches colours off. With --json it prints one object a second.";

pub(super) static ENTRIES: &[Entry] = &[
    entry(
        "top",
        "Follow interfaces and peers with rates, states and engines, on the whole terminal",
        top::run,
    )
    .options(TOP)
    .asks("/v1/facts")
    .more(TOP_KEYS),
    entry("monitor vpn", "Show the rates of all peers", rates::follow),
    entry("monitor bottleneck", "Show what limits the speed of each interface", |request| {
        Ok(show_bottleneck::follow(request))
    })
    .asks("/v1/bottleneck"),
    entry(
        "monitor health",
        "Print a line when something goes wrong, and one when it is well again",
        health::follow,
    )
    .asks("/v1/health"),
    entry("monitor bandwidth", "Show the rates of all interfaces", bandwidth::follow),
    entry("monitor bandwidth interface NAME", "Show the rates of one interface", bandwidth::follow)
        .arguments(&[ANY]),
    entry("monitor traffic interface NAME", "Show the packets of an interface", traffic::follow)
        .arguments(&[ANY])
        .options(CAPTURE)
        .more(CAPTURES),
    entry(
        "monitor traffic interface NAME dropped",
        "Show the packets of a tunnel interface, and those that it drops, with the reason",
        traffic::follow_with_drops,
    )
    .arguments(&[ANY])
    .options(CAPTURE_DROPS)
    .more(CAPTURES),
    entry("monitor traffic interface NAME filter FILTER", "Show some of them, by tcpdump", traffic::follow)
        .arguments(&[ANY, FILTER])
        .options(CAPTURE),
    entry("monitor traffic interface NAME peer PEER", "Show the packets of one peer", traffic::follow)
        .arguments(&[ANY, PEER])
        .options(CAPTURE)
        .more(CAPTURES),
    entry(
        "monitor traffic interface NAME peer PEER dropped",
        "Show the packets of one peer, and those that are dropped, with the reason",
        traffic::follow_with_drops,
    )
    .arguments(&[ANY, PEER])
    .options(CAPTURE_DROPS)
    .more(CAPTURES),
    entry("monitor command COMMAND", "Repeat a command every 2 s", command::whole).arguments(&[COMMAND]),
    entry(
        "monitor command diff COMMAND",
        "Repeat a command, and show the lines that change",
        command::changes,
    )
    .arguments(&[COMMAND]),
    entry("monitor log", "Follow the log of this machine", |request| log::follow(request, Of::Machine)),
    entry("monitor log kernel", "Follow the log of the kernel", |request| log::follow(request, Of::Kernel)),
    entry("monitor log vpn", "Follow the log of the daemon", |request| log::follow(request, Of::Daemon)),
    entry("monitor log ipsec", "Follow what the daemon logs of IPsec", |request| {
        Ok(lines::follow(request, Subsystem::Ipsec))
    }),
    entry("monitor log ipsec peer PEER", "Follow what it logs of one peer", |request| {
        Ok(lines::follow(request, Subsystem::Ipsec))
    })
    .arguments(&[IPSEC_PEER])
    .options(TRACES)
    .more(TRACED),
    entry("monitor log openvpn", "Follow what the daemon logs of OpenVPN", |request| {
        Ok(lines::follow(request, Subsystem::OpenVpn))
    }),
    entry("monitor log openvpn peer PEER", "Follow what it logs of one client", |request| {
        Ok(lines::follow(request, Subsystem::OpenVpn))
    })
    .arguments(&[OPENVPN_PEER])
    .more("The last 10 lines are shown first."),
    entry("monitor log wireguard", "Follow what the daemon logs of WireGuard", |request| {
        Ok(lines::follow(request, Subsystem::WireGuard))
    }),
    entry("monitor log wireguard peer PEER", "Follow what it logs of one peer", |request| {
        Ok(lines::follow(request, Subsystem::WireGuard))
    })
    .arguments(&[WIREGUARD_PEER])
    .options(TRACES)
    .more(TRACED),
];
