//! `explain`, `reset`, `restart`, and what is done to the machine.

use super::{INTERFACE, IPSEC, IPSEC_PEER, OPENVPN, OPENVPN_STATE, SECGW, WIREGUARD_PEER};
use crate::host::reboot;
use crate::operational::names::Names;
use crate::operational::{Argument, Entry, Flag, entry};
use crate::{advise, explain, explain_wireguard, reset, show_openvpn, show_secgw};

const CLIENT: Argument =
    Argument { name: "CLIENT", about: "Common name of the client", names: Names::OpenVpnClients };

const TUNNEL: Argument = Argument { name: "TUNNEL", about: "Number of the tunnel", names: Names::Tunnels };
const OPENVPN_EXPLAIN: &str = "/v1/interfaces/openvpn/{INTERFACE}/explain";
const CONFIRMED: &[Flag] = &[Flag::new(reboot::YES, "Do not ask")];
const EXPLAIN_STATUS: &str =
    "Exit status: 0 if the peer and its tunnels are up, 1 if they are not, 2 if no daemon answers.";

pub(super) static ENTRIES: &[Entry] = &[
    entry("advise", "Measure which algorithms to take on this machine, and what each costs", |_| {
        advise::show()
    }),
    entry("reboot", "Restart this machine, after a question", reboot::now).options(CONFIRMED),
    entry("reboot now", "Restart this machine, after a question", reboot::now).options(CONFIRMED),
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
