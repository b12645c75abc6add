//! The words of ipsec.conf, and those of swanctl.conf for the same.

use crate::import::section::{Section, Setting};

/// Whose ipsec.conf it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    StrongSwan,
    Libreswan,
}

/// Settings that libreswan alone has.
const LIBRESWAN: &[&str] = &[
    "ikev2",
    "phase2",
    "phase2alg",
    "leftrsasigkey",
    "rightrsasigkey",
    "leftsubnets",
    "rightsubnets",
    "salifetime",
    "ipsec-lifetime",
    "encapsulation",
    "ike_frag",
    "negotiationshunt",
    "failureshunt",
    "ipsec-interface",
    "vti-interface",
    "protostack",
    "nssdir",
    "dumpdir",
    "plutodebug",
    "virtual-private",
    "virtual_private",
    "overlapip",
    "narrowing",
    "rightaddresspool",
];

impl Dialect {
    pub(super) fn of(setup: &[Section], connections: &[Section]) -> Self {
        let mut settings = setup.iter().chain(connections).flat_map(|section| &section.settings);
        let is_its = |setting: &Setting| LIBRESWAN.contains(&setting.name.as_str());
        if settings.any(is_its) { Self::Libreswan } else { Self::StrongSwan }
    }
}

/// Settings of a connection that have another name in swanctl.conf.
pub(super) const CONNECTION: &[(&str, &str)] = &[
    ("ike", "proposals"),
    ("keyingtries", "keyingtries"),
    ("mobike", "mobike"),
    ("fragmentation", "fragmentation"),
    ("ike_frag", "fragmentation"),
    ("forceencaps", "encap"),
    ("encapsulation", "encap"),
    ("aggressive", "aggressive"),
    ("ikedscp", "dscp"),
    ("mediation", "mediation"),
    ("mediated_by", "mediated_by"),
    ("if_id_in", "if_id_in"),
    ("if_id_out", "if_id_out"),
    ("ipsec-interface", "if_id_in"),
    ("vti-interface", "if_id_in"),
];

/// Settings of a connection that its child has in swanctl.conf.
pub(super) const CHILD: &[(&str, &str)] = &[
    ("esp", "esp_proposals"),
    ("phase2alg", "esp_proposals"),
    ("ah", "ah_proposals"),
    ("lifetime", "life_time"),
    ("keylife", "life_time"),
    ("salifetime", "life_time"),
    ("ipsec-lifetime", "life_time"),
    ("lifebytes", "life_bytes"),
    ("ipsec-max-bytes", "life_bytes"),
    ("lifepackets", "life_packets"),
    ("ipsec-max-packets", "life_packets"),
    ("compress", "ipcomp"),
    ("installpolicy", "policies"),
    ("mark_in", "mark_in"),
    ("mark_out", "mark_out"),
    ("mark", "mark_out"),
    ("reqid", "reqid"),
    ("tfc", "tfc_padding"),
    ("inactivity", "inactivity"),
    ("replay_window", "replay_window"),
    ("replay-window", "replay_window"),
    ("sha2-truncbug", "sha256_96"),
    ("sha2_truncbug", "sha256_96"),
    ("closeaction", "close_action"),
    ("nic-offload", "hw_offload"),
    ("pfs", "pfs"),
    ("priority", "priority"),
];

/// Settings of a side, by their names without it.
pub(super) const SIDE: &[(&str, &str)] = &[
    ("id", "id"),
    ("cert", "certs"),
    ("auth", "auth"),
    ("ca", "ca_id"),
    ("groups", "groups"),
    ("certpolicy", "cert_policy"),
    ("rsasigkey", "pubkeys"),
    ("pubkey", "pubkeys"),
    ("sigkey", "pubkeys"),
    ("ecdsakey", "pubkeys"),
];

/// Settings that matter little, or for IKEv1 alone.
pub(super) const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("margintime", "rekeying begins in time before the end"),
    ("rekeymargin", "rekeying begins in time before the end"),
    ("rekeyfuzz", "rekeying is spread by itself"),
    ("marginbytes", "rekeying begins in time before the end"),
    ("marginpackets", "rekeying begins in time before the end"),
    ("modeconfig", "it is for IKEv1 only"),
    ("xauth", "it is for IKEv1 only"),
    ("phase2", "it is ESP"),
    ("pfsgroup", "the group for PFS is that of esp"),
    ("overlapip", "prefixes of tunnels are checked by Postern"),
    ("nm-configured", "it is for NetworkManager"),
    ("connaddrfamily", "it is seen from the addresses"),
    ("hostaddrfamily", "it is seen from the addresses"),
    ("clientaddrfamily", "it is seen from the prefixes"),
    ("ikepad", "it is for IKEv1 only"),
    ("esn", "both kinds of sequence numbers are offered"),
    ("leftsendcert", "the certificate is always sent"),
    ("rightsendcert", "the peer decides"),
    ("leftnexthop", "the routing table of the system decides"),
    ("rightnexthop", "the routing table of the peer decides"),
    ("leftca", "the certificate of this side is what the peer checks"),
    ("failureshunt", "packets of a tunnel that is not up are never sent in clear"),
    ("negotiationshunt", "packets of a tunnel that is not up are never sent in clear"),
];
