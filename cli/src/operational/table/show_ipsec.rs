//! `show vpn`: IKE and IPsec.

use super::{IPSEC, IPSEC_PEER};
use crate::operational::{Entry, entry};
use crate::{advise, show_vpn};

pub(super) static ENTRIES: &[Entry] = &[
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
];
