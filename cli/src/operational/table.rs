//! The operational commands. A further one is an entry here, and its effect.

use super::names::Names;
use super::{Argument, Entry, Flag, entry};
use crate::health;
use crate::host::interfaces::Kind;
use crate::host::{interfaces, processes, reboot, sensors, version};
use crate::monitor::{bandwidth, command, log as lines, traffic, vpn as rates};
use crate::show_configuration as configuration;
use crate::show_log::{self as log, Of};
use crate::{
    advise, explain, explain_wireguard, reload, reset, show, show_bottleneck, show_crypto, show_dhcp,
    show_firewall, show_https, show_machine, show_metrics, show_nat, show_openvpn, show_path, show_qat,
    show_secgw, show_snmp, show_threads, show_vpn, status, system, top,
};
use gateway::log::Subsystem;
use gateway::openvpn::model::Mode;

const INTERFACE: Argument =
    Argument { name: "INTERFACE", about: "The WireGuard interface", names: Names::WireguardInterfaces };
const WIREGUARD_PEER: Argument =
    Argument { name: "PEER", about: "Name or public key of the peer", names: Names::WireguardPeers };
const OPENVPN: Argument =
    Argument { name: "INTERFACE", about: "The OpenVPN interface", names: Names::OpenVpnInterfaces };
const TARGET: Argument =
    Argument { name: "TARGET", about: "Target of service path-monitor", names: Names::Targets };
const CLIENT: Argument =
    Argument { name: "CLIENT", about: "Common name of the client", names: Names::OpenVpnClients };
const OPENVPN_PEER: Argument =
    Argument { name: "PEER", about: "Common name of the client", names: Names::OpenVpnClients };
const IPSEC_PEER: Argument = Argument { name: "PEER", about: "Name of the peer", names: Names::IpsecPeers };
const TUNNEL: Argument = Argument { name: "TUNNEL", about: "Number of the tunnel", names: Names::Tunnels };
const CIPHER: Argument = Argument { name: "CIPHER", about: "Only this cipher", names: Names::Ciphers };

const QAT: Argument = Argument { name: "DEVICE", about: "The accelerator", names: Names::QatDevices };
const LINES: Argument = Argument { name: "LINES", about: "How many lines", names: Names::Number };
const ANY: Argument =
    Argument { name: "NAME", about: "The interface", names: Names::MachineInterfaces(None) };
const FILTER: Argument =
    Argument { name: "FILTER", about: "Only these packets, as tcpdump selects them", names: Names::Text };
const COMMAND: Argument =
    Argument { name: "COMMAND", about: "A command that shows something, as one word", names: Names::Text };

/// The interface of a kind that the user names.
const fn of_kind(kind: Kind) -> Argument {
    Argument { name: "NAME", about: "The interface", names: Names::MachineInterfaces(Some(kind)) }
}

const REVISION: Argument = Argument {
    name: "REVISION",
    about: "Number of the revision, from 0, the newest",
    names: Names::Revisions,
};
const SECRETS: Flag = Flag::new("secrets", "Show secrets, too; they are hidden otherwise");

const WIREGUARD: &str = "/v1/interfaces/wireguard";
const OPENVPN_STATE: &str = "/v1/interfaces/openvpn";
const OPENVPN_EXPLAIN: &str = "/v1/interfaces/openvpn/{INTERFACE}/explain";
const WORKERS: &str = "/v1/workers";
const STATISTICS: &str = "Show system calls, wake-ups, EAGAINs and sizes of bursts of the workers";
const BOTTLENECK: &str =
    "Look for a second at what limits the speed of each interface, and say what to do about it";
const IPSEC: &str = "/v1/vpn/ipsec";
const MACHINE: &str = "/v1/machine";
const NAT: &str = "/v1/nat";
const FIREWALL: &str = "/v1/firewall";
const DHCP: &str = "/v1/dhcp/client";

const SECGW: &str = "/v1/secgw";
const CRYPTO: &str = "/v1/crypto";

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
     peer and the drop. At most 4 captures run at once; packets that come faster than they are read are lost and counted, and delay \
     nothing. Interfaces of others are shown by tcpdump.";

const TRACES: &[Flag] = &[Flag::new(
    lines::TRACE,
    "Also what is logged for debugging, of this peer alone, until the command ends",
)];
const TRACED: &str = "The last 10 lines are shown first. With --trace the daemon tells this command the messages that it exchanges with the peer, \
     and what else is of use only while something is sought, without a restart and without a change of its log: nothing of it goes there. \
     Keys and passwords are never among it.";

const CONFIRMED: &[Flag] = &[Flag::new(reboot::YES, "Do not ask")];

const TOP: &[Flag] = &[
    Flag::new("once", "Print one line for each interface and peer, and end"),
    Flag::new("lines", "Print such lines each second, as without a terminal"),
];
const TOP_KEYS: &str = "Keys: q quits, Enter explains the selected row, / filters, v shows interfaces, peers or both, n s i o l h e order by \
     name, state, rate in, rate out, losses, handshake or engine, and the same key again reverses the order. NO_COLOR \
     switches colours off. With --json it prints one object a second.";

const STATUS_STATUS: &str = "Exit status: 0 if everything is up that should be, 1 if something is not, 2 if no daemon answers. \
     A peer without traffic that need not be connected is not down. Warnings do not change the exit status.";
const RELOAD_STATUS: &str =
    "Exit status: 0 if all of the file is in force, 1 if it is not, 2 if no daemon answers.";
const HEALTH_STATUS: &str = "Exit status: 0 if no rule fails, 1 if one is pending or firing, 2 if no daemon answers. What is unknown does not fail.";
const EXPLAIN_STATUS: &str =
    "Exit status: 0 if the peer and its tunnels are up, 1 if they are not, 2 if no daemon answers.";

/// All operational commands, in the order in which help lists them.
pub(super) static TABLE: &[Entry] = &[
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
    entry("show secgw", "Show the ports, SAs, policies and drops of postern secgw", show_secgw::all)
        .asks(SECGW),
    entry("show secgw sa", "List the SAs with packets, bytes and drops", show_secgw::only_sas).asks(SECGW),
    entry("show secgw rules", "List the policies with packets and bytes", show_secgw::only_rules).asks(SECGW),
    entry("show secgw ports", "List the ports with frames and bytes", show_secgw::only_ports).asks(SECGW),
    entry("show secgw drops", "List packets dropped, by reason", show_secgw::only_drops).asks(SECGW),
    entry("show secgw neighbours", "List the stations behind the ports", show_secgw::only_neighbours)
        .asks(SECGW),
    entry("show secgw ike", "List the IKE SAs and tunnels that policies name", show_secgw::only_ike)
        .asks(SECGW),
    entry("show secgw ike detail", "Show all details of these IKE SAs and tunnels", show_secgw::ike_details)
        .asks(SECGW),
    entry("show interfaces", "List the interfaces of this machine", interfaces::all),
    entry("show interfaces statistics", STATISTICS, show::statistics).asks(WORKERS),
    entry("show interfaces counters", "Show what the interfaces have carried and lost", interfaces::counters),
    entry("show interfaces detail", "Show all details of the interfaces", interfaces::details),
    entry("show interfaces bonding", "List the bonding interfaces", |request| {
        interfaces::of_kind(request, Kind::Bonding)
    }),
    entry("show interfaces bonding NAME", "Show one bonding interface", |request| {
        interfaces::one(request, Kind::Bonding)
    })
    .arguments(&[of_kind(Kind::Bonding)]),
    entry("show interfaces bridge", "List the bridge interfaces", |request| {
        interfaces::of_kind(request, Kind::Bridge)
    }),
    entry("show interfaces bridge NAME", "Show one bridge interface", |request| {
        interfaces::one(request, Kind::Bridge)
    })
    .arguments(&[of_kind(Kind::Bridge)]),
    entry("show interfaces dummy", "List the dummy interfaces", |request| {
        interfaces::of_kind(request, Kind::Dummy)
    }),
    entry("show interfaces dummy NAME", "Show one dummy interface", |request| {
        interfaces::one(request, Kind::Dummy)
    })
    .arguments(&[of_kind(Kind::Dummy)]),
    entry("show interfaces ethernet", "List the Ethernet interfaces", |request| {
        interfaces::of_kind(request, Kind::Ethernet)
    }),
    entry("show interfaces ethernet NAME", "Show one Ethernet interface", |request| {
        interfaces::one(request, Kind::Ethernet)
    })
    .arguments(&[of_kind(Kind::Ethernet)]),
    entry("show interfaces loopback", "List the loopback interfaces", |request| {
        interfaces::of_kind(request, Kind::Loopback)
    }),
    entry("show interfaces loopback NAME", "Show one loopback interface", |request| {
        interfaces::one(request, Kind::Loopback)
    })
    .arguments(&[of_kind(Kind::Loopback)]),
    entry("show interfaces tunnel", "List the tunnel interfaces", |request| {
        interfaces::of_kind(request, Kind::Tunnel)
    }),
    entry("show interfaces tunnel NAME", "Show one tunnel interface", |request| {
        interfaces::one(request, Kind::Tunnel)
    })
    .arguments(&[of_kind(Kind::Tunnel)]),
    entry("show interfaces vti", "List the virtual tunnel interfaces", |request| {
        interfaces::of_kind(request, Kind::Vti)
    }),
    entry("show interfaces vti NAME", "Show one virtual tunnel interface", |request| {
        interfaces::one(request, Kind::Vti)
    })
    .arguments(&[of_kind(Kind::Vti)]),
    entry("show interfaces openvpn", "List the OpenVPN interfaces", show_openvpn::interfaces)
        .asks(OPENVPN_STATE),
    entry("show interfaces openvpn INTERFACE", "Show one OpenVPN interface", show_openvpn::interface)
        .arguments(&[OPENVPN])
        .asks(OPENVPN_STATE),
    entry("show interfaces openvpn INTERFACE statistics", STATISTICS, show::statistics)
        .arguments(&[OPENVPN])
        .asks(WORKERS),
    entry("show openvpn server", "List the clients that are connected with OpenVPN servers", |request| {
        show_openvpn::sessions(request, Mode::Server)
    })
    .asks(OPENVPN_STATE),
    entry("show openvpn client", "List the sessions of OpenVPN clients of this machine", |request| {
        show_openvpn::sessions(request, Mode::Client)
    })
    .asks(OPENVPN_STATE),
    entry("show openvpn site-to-site", "List the sessions of OpenVPN peers, site to site", |request| {
        show_openvpn::sessions(request, Mode::SiteToSite)
    })
    .asks(OPENVPN_STATE),
    entry("show interfaces wireguard", "List the WireGuard interfaces", show::interfaces).asks(WIREGUARD),
    entry("show interfaces wireguard INTERFACE", "Show one WireGuard interface", show::interface)
        .arguments(&[INTERFACE])
        .asks(WIREGUARD),
    entry(
        "show interfaces wireguard INTERFACE summary",
        "Show the interface with its peers",
        show::interface_summary,
    )
    .arguments(&[INTERFACE])
    .asks(WIREGUARD),
    entry("show interfaces wireguard INTERFACE statistics", STATISTICS, show::statistics)
        .arguments(&[INTERFACE])
        .asks(WORKERS),
    entry("show drops", "Show how many packets were dropped, by interface and reason", show::drops)
        .options(&[Flag::new("all", "Include the reasons for which nothing was dropped")])
        .asks("/v1/drops"),
    entry(
        "show offloads",
        "Show which offloads are in use, and how many packets they have carried",
        show::offloads,
    )
    .asks("/v1/offloads"),
    entry(
        "show crypto",
        "Show what each crypto engine costs on this machine, and which one each cipher uses",
        show_crypto::show,
    )
    .asks("/v1/crypto"),
    entry("show crypto CIPHER", "Show the crypto engines for one cipher", show_crypto::show)
        .arguments(&[CIPHER])
        .asks("/v1/crypto"),
    entry(
        "show https",
        "Show where the API over HTTPS is, the names of its keys, and the certificate",
        show_https::show,
    )
    .asks("/v1/service/https"),
    entry(
        "show snmp",
        "Show whether snmpd answers, what its sub-agent has answered and sent, and what is wrong",
        show_snmp::show,
    )
    .asks("/v1/service/snmp"),
    entry(
        "show metrics",
        "Show all counters and states as Prometheus reads them (OpenMetrics)",
        show_metrics::show,
    )
    .asks("/v1/facts"),
    entry("show datapath", "Show the stages of the data path, and the drop reasons of each", |_| {
        Ok(show::datapath())
    }),
    entry(
        "show datapath threads",
        "Show for a second how busy the threads are that carry packets, and what they hand off",
        show_threads::show,
    )
    .asks("/v1/threads"),
    entry("show bottleneck", BOTTLENECK, show_bottleneck::show).asks("/v1/bottleneck"),
    entry("show bottleneck NAME", "The same for one interface", show_bottleneck::show)
        .arguments(&[ANY])
        .asks("/v1/bottleneck"),
    entry(
        "show path",
        "Show round-trip time, loss and MTU of the tunnels that are probed, and what is wrong with them",
        show_path::show,
    )
    .asks("/v1/path"),
    entry("show path TARGET", "The same for one target", show_path::show)
        .arguments(&[TARGET])
        .asks("/v1/path"),
    entry(
        "show health",
        "Show what is wrong with the gateway and what to do, as the daemon finds it each second",
        health::show,
    )
    .asks("/v1/health")
    .more(HEALTH_STATUS),
    entry("show vpn ipsec sa", "List the tunnels with state, traffic and algorithms", show_vpn::sas)
        .asks(IPSEC),
    entry("show vpn ipsec sa detail", "Show all details of the IKE SAs and tunnels", show_vpn::details)
        .asks(IPSEC),
    entry("show vpn ipsec sa verbose", "The same, in the words of VyOS 1.3", show_vpn::details).asks(IPSEC),
    entry(
        "show vpn ipsec connections",
        "List peers and tunnels with their addresses, networks and identities",
        show_vpn::connections,
    )
    .asks(IPSEC),
    entry(
        "show vpn ipsec policy",
        "List the policies: which packets must use which tunnel",
        show_vpn::policies,
    )
    .asks(IPSEC),
    entry("show vpn ipsec state", "List the SAs, one for each direction", show_vpn::states).asks(IPSEC),
    entry(
        "show vpn ipsec status",
        "Show whether IPsec runs, and how many peers and tunnels are up",
        show_vpn::status,
    )
    .asks(IPSEC),
    entry(
        "show vpn ipsec remote-access summary",
        "List the connections of remote users; there are none: remote access is not supported yet",
        |_| Ok(show_vpn::remote_access()),
    ),
    entry("show vpn ike sa", "Show the IKE SAs", show_vpn::ike_sas).asks(IPSEC),
    entry("show vpn ike sa peer PEER", "Show the IKE SA with one peer", show_vpn::ike_sas)
        .arguments(&[IPSEC_PEER])
        .asks(IPSEC),
    entry(
        "show vpn ike secrets",
        "Show the authentication method of each peer; secrets are hidden",
        show_vpn::secrets,
    )
    .asks(IPSEC),
    entry(
        "show vpn ike status",
        "Show whether IPsec runs, and how many peers and tunnels are up",
        show_vpn::status,
    )
    .asks(IPSEC),
    entry(
        "show vpn debug",
        "Show all details of peers and tunnels, and why those that are down are down",
        show_vpn::debug,
    )
    .asks(IPSEC),
    entry("show vpn debug peer PEER", "Show the same for one peer", show_vpn::debug)
        .arguments(&[IPSEC_PEER])
        .asks(IPSEC),
    entry("show vpn advice", "Measure which algorithms to take on this machine, and what each costs", |_| {
        advise::show()
    }),
    entry("show system cpu", "Show the processor, and its instructions for ciphers and packets", |_| {
        Ok(system::cpu())
    }),
    entry("show system cpu info", "The same, in the words of older VyOS", |_| Ok(system::cpu())),
    entry("show hardware cpu", "Show the processor", |_| Ok(system::cpu())),
    entry("show hardware cpu detail", "Show the processor as the kernel describes it", |_| {
        Ok(system::cpu_detail())
    }),
    entry("show cpu-info", "Show the processor as the kernel describes it", |_| Ok(system::cpu_detail())),
    entry("show hardware sensors", "Show temperatures, fans and voltages", |_| Ok(sensors::show())),
    entry("show environment sensors", "Show temperatures, fans and voltages", |_| Ok(sensors::show())),
    entry("show system processes", "Show what uses the processors", |_| Ok(processes::show())),
    entry(
        "show system commit",
        "List the revisions of the configuration, the newest first",
        configuration::revisions,
    ),
    entry("show system commit diff REVISION", "Show what a revision changed", configuration::changes)
        .arguments(&[REVISION]),
    entry("show configuration", "Show what is in force, in braces", configuration::braces)
        .options(&[SECRETS]),
    entry("show configuration commands", "Show what is in force, as lines of set", configuration::commands)
        .options(&[SECRETS]),
    entry("show configuration json", "Show what is in force, as JSON", configuration::as_json)
        .options(&[SECRETS]),
    entry(
        "show configuration canonical",
        "Show what is in force, with the words of newer VyOS in the place of older ones",
        configuration::in_one_dialect,
    )
    .options(&[SECRETS]),
    entry(
        "show system acceleration",
        "List the crypto accelerators with their drivers and algorithms",
        |_| Ok(system::acceleration()),
    ),
    entry("show system acceleration qat", "Show whether there is QuickAssist, and its versions", |_| {
        Ok(show_qat::overview())
    }),
    entry("show system acceleration qat status", "Show the state of each QuickAssist device", |_| {
        Ok(show_qat::status())
    }),
    entry(
        "show system acceleration qat device DEVICE config",
        "Show the configuration of a QuickAssist device, as its driver has it",
        show_qat::configuration,
    )
    .arguments(&[QAT]),
    entry(
        "show system acceleration qat device DEVICE flows",
        "Show what a QuickAssist device has computed",
        show_qat::flows,
    )
    .arguments(&[QAT])
    .asks(CRYPTO),
    entry(
        "show system acceleration qat device DEVICE flows detail",
        "Show the same with the source of each number",
        show_qat::flows_detail,
    )
    .arguments(&[QAT])
    .asks(CRYPTO),
    entry(
        "show system acceleration qat interrupts",
        "Show the interrupts of the QuickAssist devices by processor",
        |_| Ok(show_qat::interrupts()),
    ),
    entry("show log", "Show the log of this machine", |request| log::show(request, Of::Machine)),
    entry("show log tail", "Show the last 10 lines of it", log::tail),
    entry("show log tail LINES", "Show its last lines", log::tail).arguments(&[LINES]),
    entry("show log kernel", "Show the log of the kernel", |request| log::show(request, Of::Kernel)),
    entry("show log ipsec", "Show the log of the daemon", |request| log::show(request, Of::Daemon)),
    entry("show log vpn", "Show the log of the daemon", |request| log::show(request, Of::Daemon)),
    entry("show log openvpn", "Show the log of the daemon", |request| log::show(request, Of::Daemon)),
    entry("show log vpn ipsec", "The same, in the words of VyOS 1.3", |request| {
        log::show(request, Of::Daemon)
    }),
    entry("show version", "Show the version of Postern, of the kernel and of this machine", |_| {
        Ok(version::all())
    }),
    entry("show version kernel", "Show the release of the kernel", |_| Ok(version::kernel())),
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
    .options(TRACES)
    .more(TRACED),
    entry("monitor log wireguard", "Follow what the daemon logs of WireGuard", |request| {
        Ok(lines::follow(request, Subsystem::WireGuard))
    }),
    entry("monitor log wireguard peer PEER", "Follow what it logs of one peer", |request| {
        Ok(lines::follow(request, Subsystem::WireGuard))
    })
    .arguments(&[WIREGUARD_PEER])
    .options(TRACES)
    .more(TRACED),
    entry("advise", "Measure which algorithms to take on this machine, and what each costs", |_| {
        advise::show()
    }),
    entry("reboot", "Restart this machine, after a question", reboot::now).options(CONFIRMED),
    entry("reboot now", "Restart this machine, after a question", reboot::now).options(CONFIRMED),
    entry("show dhcp client leases", "List what interfaces have got by DHCP", show_dhcp::leases).asks(DHCP),
    entry("show firewall", "List zones and rule sets, with the packets of each rule", show_firewall::all)
        .asks(FIREWALL),
    entry("show firewall zone-policy", "List zones, and the rule sets between them", show_firewall::zones)
        .asks(FIREWALL),
    entry("show nat", "List the rules of NAT, with the connections that each has translated", show_nat::all)
        .asks(NAT),
    entry("show nat source rules", "List the source rules of NAT", show_nat::source).asks(NAT),
    entry("show nat source statistics", "List the source rules of NAT", show_nat::source).asks(NAT),
    entry("show nat destination rules", "List the destination rules of NAT", show_nat::destination).asks(NAT),
    entry("show nat destination statistics", "List the destination rules of NAT", show_nat::destination)
        .asks(NAT),
    entry(
        "show system managed",
        "Show what other programs of the machine do for the configuration, and their files",
        show_machine::managed,
    )
    .asks(MACHINE),
    entry(
        "show system option performance",
        "Show what the profile has set, what it was before, and what could not be set",
        show_machine::performance,
    )
    .asks(MACHINE),
    entry(
        "explain interfaces wireguard INTERFACE",
        "Explain the peers of a WireGuard interface",
        explain_wireguard::explain,
    )
    .arguments(&[INTERFACE])
    .asks("/v1/interfaces/wireguard/{INTERFACE}/explain")
    .more(EXPLAIN_STATUS),
    entry(
        "explain interfaces wireguard INTERFACE peer PEER",
        "Explain one peer of the interface",
        explain_wireguard::explain,
    )
    .arguments(&[INTERFACE, WIREGUARD_PEER])
    .asks("/v1/interfaces/wireguard/{INTERFACE}/explain")
    .more(EXPLAIN_STATUS),
    entry(
        "explain openvpn INTERFACE",
        "Explain which sessions of an OpenVPN interface failed, and why",
        show_openvpn::explain,
    )
    .arguments(&[OPENVPN])
    .asks(OPENVPN_EXPLAIN)
    .more(EXPLAIN_STATUS),
    entry(
        "explain openvpn INTERFACE client CLIENT",
        "Explain why a client, by its common name or its address, is connected or not",
        show_openvpn::explain,
    )
    .arguments(&[OPENVPN, CLIENT])
    .asks(OPENVPN_EXPLAIN)
    .more(EXPLAIN_STATUS),
    entry(
        "reset openvpn client CLIENT",
        "End the sessions of a client, which may connect again",
        show_openvpn::reset,
    )
    .arguments(&[CLIENT])
    .asks(OPENVPN_STATE),
    entry(
        "reset openvpn interface INTERFACE",
        "Begin all sessions of an OpenVPN interface again",
        show_openvpn::reset,
    )
    .arguments(&[OPENVPN])
    .asks(OPENVPN_STATE),
    entry("explain vpn ipsec peer PEER", "Explain the connection to an IPsec peer", explain::peer)
        .arguments(&[IPSEC_PEER])
        .asks(IPSEC)
        .more(EXPLAIN_STATUS),
    entry("reset secgw ike PEER", "Re-establish the tunnels to a peer that policies name", show_secgw::reset)
        .arguments(&[IPSEC_PEER])
        .asks(SECGW),
    entry("reset vpn ipsec site-to-site peer PEER", "Re-establish all tunnels to one peer", reset::peer)
        .arguments(&[IPSEC_PEER])
        .asks(IPSEC),
    entry("reset vpn ipsec site-to-site peer PEER tunnel TUNNEL", "Re-establish one tunnel", reset::peer)
        .arguments(&[IPSEC_PEER, TUNNEL])
        .asks(IPSEC),
    entry("reset vpn ipsec site-to-site all", "Re-establish the tunnels to all peers", reset::all)
        .asks(IPSEC),
    entry("reset vpn ipsec-peer PEER", "VyOS 1.3 spelling of site-to-site peer", reset::peer_or_all)
        .arguments(&[IPSEC_PEER])
        .asks(IPSEC)
        .hidden(),
    entry(
        "reset vpn ipsec-peer PEER tunnel TUNNEL",
        "VyOS 1.3 spelling of site-to-site peer PEER tunnel",
        reset::peer_or_all,
    )
    .arguments(&[IPSEC_PEER, TUNNEL])
    .asks(IPSEC)
    .hidden(),
    entry("restart vpn", "Re-establish all IPsec connections", reset::all).asks(IPSEC),
    entry("restart vpn ipsec", "Re-establish all IPsec connections", reset::all).asks(IPSEC),
    entry("restart ipsec", "Re-establish all IPsec connections", reset::all).asks(IPSEC),
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
