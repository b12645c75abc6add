//! What tunnels, gateways and the daemon show: `show interfaces`, `show secgw`, `show drops`, `show crypto` and others.

use super::{ANY, INTERFACE, OPENVPN, OPENVPN_STATE, SECGW};
use crate::host::interfaces;
use crate::host::interfaces::Kind;
use crate::operational::names::Names;
use crate::operational::{Argument, Entry, Flag, entry};
use crate::{
    health, show, show_bottleneck, show_crypto, show_failover, show_https, show_metrics, show_openvpn,
    show_path, show_secgw, show_snmp, show_threads,
};
use gateway::openvpn::model::Mode;

const TARGET: Argument =
    Argument { name: "TARGET", about: "Target of service path-monitor", names: Names::Targets };

const CIPHER: Argument = Argument { name: "CIPHER", about: "Only this cipher", names: Names::Ciphers };
/// The interface of a kind that the user names.
const fn of_kind(kind: Kind) -> Argument {
    Argument { name: "NAME", about: "The interface", names: Names::MachineInterfaces(Some(kind)) }
}

const WIREGUARD: &str = "/v1/interfaces/wireguard";
const WORKERS: &str = "/v1/workers";
const STATISTICS: &str = "Show system calls, wake-ups, EAGAINs and sizes of bursts of the workers";
const BOTTLENECK: &str =
    "Look for a second at what limits the speed of each interface, and say what to do about it";

const HEALTH_STATUS: &str = "Exit status: 0 if no rule fails, 1 if one is pending or firing, 2 if no daemon answers. What is unknown does not fail.";

pub(super) static ENTRIES: &[Entry] = &[
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
    entry(
        "show failover",
        "List groups of tunnels that stand in for each other, and which of them packets take",
        show_failover::show,
    )
    .asks("/v1/failover"),
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
];
