//! The operational commands. A further one is an entry here, and its effect.

use super::names::Names;
use super::{Argument, Entry, Flag, entry};
use crate::show_configuration as configuration;
use crate::{
    explain, explain_wireguard, reload, reset, show, show_crypto, show_machine, show_vpn,
    status, system,
};

const INTERFACE: Argument =
    Argument { name: "INTERFACE", about: "The WireGuard interface", names: Names::WireguardInterfaces };
const WIREGUARD_PEER: Argument =
    Argument { name: "PEER", about: "Name or public key of the peer", names: Names::WireguardPeers };
const IPSEC_PEER: Argument = Argument { name: "PEER", about: "Name of the peer", names: Names::IpsecPeers };
const TUNNEL: Argument = Argument { name: "TUNNEL", about: "Number of the tunnel", names: Names::Tunnels };
const CIPHER: Argument = Argument { name: "CIPHER", about: "Only this cipher", names: Names::Ciphers };

const REVISION: Argument = Argument {
    name: "REVISION",
    about: "Number of the revision, from 0, the newest",
    names: Names::Revisions,
};
const SECRETS: Flag = Flag { name: "secrets", about: "Show secrets, too; they are hidden otherwise" };

const WIREGUARD: &str = "/v1/interfaces/wireguard";
const IPSEC: &str = "/v1/vpn/ipsec";
const MACHINE: &str = "/v1/machine";

const STATUS_STATUS: &str = "Exit status: 0 if everything is up that should be, 1 if something is not, 2 if no daemon answers. \
     A peer without traffic that need not be connected is not down. Warnings do not change the exit status.";
const RELOAD_STATUS: &str =
    "Exit status: 0 if all of the file is in force, 1 if it is not, 2 if no daemon answers.";
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
    entry("show drops", "Show how many packets were dropped, by interface and reason", show::drops)
        .options(&[Flag { name: "all", about: "Include the reasons for which nothing was dropped" }])
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
    entry("show datapath", "Show the stages of the data path, and the drop reasons of each", |_| {
        Ok(show::datapath())
    }),
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
    entry("show system cpu", "Show the processor, and its instructions for ciphers and packets", |_| {
        Ok(system::cpu())
    }),
    entry("show system cpu info", "The same, in the words of older VyOS", |_| Ok(system::cpu())),
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
    entry("explain vpn ipsec peer PEER", "Explain the connection to an IPsec peer", explain::peer)
        .arguments(&[IPSEC_PEER])
        .asks(IPSEC)
        .more(EXPLAIN_STATUS),
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
    ("show interfaces", "Tunnel interfaces"),
    ("show vpn", "IPsec peers and tunnels"),
    ("show vpn ipsec", "IPsec tunnels"),
    ("show vpn ike", "IKE SAs and authentication"),
    ("show vpn ike sa peer", "One peer"),
    ("show vpn debug peer", "One peer"),
    ("show system", "Processor and accelerators of this machine"),
    ("explain", "Explain why a connection is down, and how to fix it"),
    ("explain interfaces", "Tunnel interfaces"),
    ("explain interfaces wireguard", "Explain the peers of a WireGuard interface"),
    ("explain interfaces wireguard INTERFACE peer", "Explain one peer of the interface"),
    ("explain vpn", "IPsec peers"),
    ("explain vpn ipsec", "IPsec peers"),
    ("explain vpn ipsec peer", "Explain the connection to an IPsec peer"),
    ("reset", "Re-establish connections"),
    ("reset vpn", "IPsec connections"),
    ("reset vpn ipsec", "IPsec connections"),
    ("reset vpn ipsec site-to-site", "Connections between gateways"),
    ("reset vpn ipsec site-to-site peer", "Re-establish the tunnels to one peer"),
    ("reset vpn ipsec site-to-site peer PEER tunnel", "Re-establish one tunnel"),
    ("reset vpn ipsec-peer", "VyOS 1.3 spelling of site-to-site peer"),
    ("reset vpn ipsec-peer PEER tunnel", "Re-establish one tunnel"),
    ("restart", "Re-establish all IPsec connections"),
];
