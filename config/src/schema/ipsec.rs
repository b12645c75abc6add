//! `vpn ipsec`: site to site, with the words of VyOS 1.4 and 1.5, and those of 1.3 and before.

use super::algorithm::{DH_GROUPS, ENCRYPTIONS, ESP_PRESETS, HASHES, IKE_PRESETS, KEY_EXCHANGES, PFS, PRFS};
use super::pki::{self, CA, CERTIFICATE};
use super::value::Type;
use super::{
    Inner, Node, PORT, PROCESSORS, RECEIVE_THREADS, THREADS, Tag, Unsupported, branch, flag, flag_or, inner,
    tag, unsupported, value, values,
};

const ENABLE: Type = Type::Word(&["enable", "disable"]);
const SUBSYSTEM: Type = Type::Word(&[
    "all", "any", "asn", "cfg", "chd", "dmn", "enc", "esp", "ike", "imc", "imv", "job", "knl", "lib", "mgr",
    "net", "pts", "tls", "tnc",
]);
const DESCRIPTION: Type = Type::Text(255);
const IDENTITY: Type = Type::Text(255);
const SECRET: Type = Type::Secret(1024);
const PROPOSAL: Type = Type::Number(1, 65_535);
const DAY: u64 = 86_400;
const IGNORED: &str = "is ignored";
const LOG: &str = "is ignored: all of IPsec is logged alike; see system log subsystem ipsec";
const PASSPHRASE: &str = "is ignored: encrypted private keys are not supported";

/// Tags that peers refer to.
const ESP_GROUP: &str = "vpn ipsec esp-group <esp-group>";
const IKE_GROUP: &str = "vpn ipsec ike-group <ike-group>";
const PROPOSES: &str = "proposal 1 encryption aes256gcm128";

pub(super) static INNER: &[Inner] = &[
    inner("vpn", "Virtual private networks"),
    inner("vpn ipsec", "IPsec: IKEv2 and ESP"),
    inner("vpn ipsec authentication", "Credentials shared by peers"),
    inner("vpn ipsec authentication psk", "Pre-shared keys"),
    inner("vpn ipsec esp-group", "ESP settings for tunnels"),
    inner("vpn ipsec esp-group <esp-group> proposal", "ESP proposals, in the order of preference"),
    inner("vpn ipsec ike-group", "IKE settings for peers"),
    inner("vpn ipsec ike-group <ike-group> proposal", "IKE proposals, in the order of preference"),
    inner("vpn ipsec ipsec-interfaces", "Ignored; VyOS 1.3 name of interface"),
    inner("vpn ipsec log", "The log of IPsec"),
    inner("vpn ipsec logging", "VyOS 1.3 name of log"),
    inner("vpn ipsec nat-networks", "Ignored"),
    inner("vpn ipsec nat-networks allowed-network", "Ignored"),
    inner("vpn ipsec options", "Settings for all peers"),
    inner("vpn ipsec options retransmission", "Retransmission of IKE requests"),
    inner("vpn ipsec site-to-site", "Tunnels between sites"),
    inner("vpn ipsec site-to-site peer", "Peers"),
    inner(
        "vpn ipsec site-to-site peer <peer> authentication",
        "Authentication of this gateway and of the peer",
    ),
    inner(
        "vpn ipsec site-to-site peer <peer> authentication rsa",
        "Authentication by RSA keys without certificates",
    ),
    inner(
        "vpn ipsec site-to-site peer <peer> authentication second",
        "Second round of authentication of both sides (RFC 4739)",
    ),
    inner("vpn ipsec site-to-site peer <peer> authentication x509", "Authentication by certificates"),
    inner("vpn ipsec site-to-site peer <peer> tunnel", "Tunnels to the peer"),
    inner("vpn ipsec site-to-site peer <peer> tunnel <tunnel> local", "Traffic selector of this side"),
    inner("vpn ipsec site-to-site peer <peer> tunnel <tunnel> remote", "Traffic selector of the peer's side"),
    inner("vpn ipsec site-to-site peer <peer> vti", "Virtual tunnel interface (not supported)"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("vpn ipsec authentication psk <psk>", Type::Name, "Name of the pre-shared key"),
    tag(ESP_GROUP, Type::Name, "Name of the ESP settings").begins(PROPOSES),
    tag(
        "vpn ipsec esp-group <esp-group> proposal <number>",
        PROPOSAL,
        "Number of the proposal; the lowest is preferred",
    ),
    tag(IKE_GROUP, Type::Name, "Name of the IKE settings").begins(PROPOSES),
    tag(
        "vpn ipsec ike-group <ike-group> proposal <number>",
        PROPOSAL,
        "Number of the proposal; the lowest is preferred",
    ),
    tag("vpn ipsec nat-networks allowed-network <prefix>", Type::Prefix, "Ignored"),
    tag("vpn ipsec site-to-site peer <peer>", Type::Name, "Name of the peer; in VyOS 1.3 its address"),
    tag(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel>",
        Type::Number(0, u32::MAX as u64),
        "Number of the tunnel",
    ),
];

pub(super) static GENERAL: &[Node] = &[
    value(
        "vpn ipsec authentication psk <psk> dhcp-interface",
        Type::Name,
        "Ignored; interface whose address is an identity",
    )
    .note("is ignored: set id to the address, or to %any"),
    values(
        "vpn ipsec authentication psk <psk> id",
        IDENTITY,
        "Identity or address of a side that uses this key",
    ),
    value("vpn ipsec authentication psk <psk> secret", SECRET, "Pre-shared key").secret(),
    value(
        "vpn ipsec authentication psk <psk> secret-type",
        Type::Word(&["plaintext", "base64", "hex"]),
        "Encoding of the secret",
    )
    .or("plaintext"),
    flag("vpn ipsec disable-uniqreqids", "Ignored").note(IGNORED),
    values("vpn ipsec interface", Type::Name, "Ignored")
        .note("is ignored: IKE listens on every interface, for configured peers only"),
    value("vpn ipsec log level", Type::Number(0, 2), "0 as the rest of the daemon, 1 and 2 for debugging")
        .or("0"),
    values("vpn ipsec log subsystem", SUBSYSTEM, "Ignored").note(LOG),
    flag("vpn ipsec options disable-route-autoinstall", "Do not install routes to remote prefixes"),
    flag("vpn ipsec options flexvpn", "Ignored").note(IGNORED),
    value("vpn ipsec options interface", Type::Name, "Ignored").note(IGNORED),
    value(
        "vpn ipsec options retransmission attempts",
        Type::Number(1, 20),
        "Number of times that a request is sent again",
    )
    .or("7"),
    value(
        "vpn ipsec options retransmission base",
        Type::Decimal(100, 1000),
        "Factor by which each wait is longer than the one before",
    )
    .or("1.8"),
    value(
        "vpn ipsec options retransmission timeout",
        Type::Number(1, 300),
        "Seconds before a request is sent again for the first time",
    )
    .or("1"),
    values(
        "vpn ipsec passthrough",
        Type::Prefix,
        "Prefix reached without encryption, within a remote prefix",
    ),
    flag("vpn ipsec options virtual-ip", "Ignored").note(IGNORED),
    // VyOS 1.3 and before.
    value("vpn ipsec auto-update", Type::Number(30, 65_535), "Ignored").note(IGNORED),
    value("vpn ipsec include-ipsec-conf", Type::Text(1024), "Ignored").note(IGNORED),
    value("vpn ipsec include-ipsec-secrets", Type::Text(1024), "Ignored").note(IGNORED),
    values("vpn ipsec ipsec-interfaces interface", Type::Name, "Ignored; VyOS 1.3 name of interface")
        .note("is ignored: IKE listens on every interface, for configured peers only"),
    value("vpn ipsec logging log-level", Type::Number(0, 2), "VyOS 1.3 name of log level")
        .note("is the VyOS 1.3 name of: vpn ipsec log level"),
    values("vpn ipsec logging log-modes", SUBSYSTEM, "Ignored; VyOS 1.3 name of log subsystem").note(LOG),
    values("vpn ipsec nat-networks allowed-network <prefix> exclude", Type::Prefix, "Ignored").note(IGNORED),
    value("vpn ipsec nat-traversal", ENABLE, "Ignored").note("is ignored: NAT is always detected"),
];

pub(super) static GROUPS: &[Node] = &[
    flag_or("vpn ipsec esp-group <esp-group> compression", ENABLE, "Ignored"),
    // Not in VyOS; strongSwan writes noesn in a proposal.
    flag("vpn ipsec esp-group <esp-group> disable-esn", "Use 32-bit sequence numbers only (no ESN)"),
    flag("vpn ipsec esp-group <esp-group> disable-rekey", "Let SAs expire instead of rekeying them"),
    value(
        "vpn ipsec esp-group <esp-group> life-bytes",
        Type::Number(1024, 26_843_545_600_000),
        "Bytes after which an SA is rekeyed",
    ),
    value(
        "vpn ipsec esp-group <esp-group> life-packets",
        Type::Number(1000, 26_843_545_600_000),
        "Packets after which an SA is rekeyed",
    ),
    value(
        "vpn ipsec esp-group <esp-group> lifetime",
        Type::Number(30, DAY),
        "Seconds after which an SA is rekeyed",
    )
    .or("3600"),
    value(
        "vpn ipsec esp-group <esp-group> mode",
        Type::Word(&["tunnel", "transport"]),
        "Encapsulate whole packets (tunnel) or their payload (transport)",
    )
    .or("tunnel"),
    value(
        "vpn ipsec esp-group <esp-group> pfs",
        Type::Word(PFS),
        "Perfect forward secrecy; enable uses the first group of the ike-group",
    )
    .or("enable"),
    // Not in VyOS: the groups of its guide to acceleration.
    value(
        "vpn ipsec esp-group <esp-group> preset",
        Type::Word(ESP_PRESETS),
        "Settings for a purpose; what the group sets itself goes before",
    ),
    value(
        "vpn ipsec esp-group <esp-group> proposal <number> encryption",
        Type::Word(ENCRYPTIONS),
        "Encryption algorithm",
    )
    .or("aes128"),
    value(
        "vpn ipsec esp-group <esp-group> proposal <number> hash",
        Type::Word(HASHES),
        "Integrity algorithm; not used with GCM and other AEADs (default: SHA-2)",
    ),
    value(
        "vpn ipsec ike-group <ike-group> close-action",
        Type::Word(&["none", "trap", "start", "hold", "clear", "restart"]),
        "Action when the peer closes a tunnel",
    )
    .or("none"),
    branch("vpn ipsec ike-group <ike-group> dead-peer-detection", "Detect a peer that does not answer"),
    value(
        "vpn ipsec ike-group <ike-group> dead-peer-detection action",
        Type::Word(&["trap", "clear", "restart", "hold"]),
        "Action when the peer does not answer",
    )
    .or("clear"),
    value(
        "vpn ipsec ike-group <ike-group> dead-peer-detection interval",
        Type::Number(2, DAY),
        "Seconds without traffic before the peer is probed",
    )
    .or("30"),
    value(
        "vpn ipsec ike-group <ike-group> dead-peer-detection timeout",
        Type::Number(2, DAY),
        "Seconds without an answer before the peer is given up",
    )
    .or("120"),
    flag("vpn ipsec ike-group <ike-group> disable-mobike", "Disable MOBIKE, which is not supported yet"),
    flag_or(
        "vpn ipsec ike-group <ike-group> ikev2-reauth",
        Type::Word(&["yes", "no"]),
        "Authenticate again before the lifetime ends, in place of rekeying the IKE SA",
    )
    .note("is without a value since VyOS 1.4: set it for yes, delete it for no"),
    value(
        "vpn ipsec ike-group <ike-group> key-exchange",
        Type::Word(KEY_EXCHANGES),
        "IKE version; only ikev2 is supported",
    )
    .or("ikev2"),
    value(
        "vpn ipsec ike-group <ike-group> lifetime",
        Type::Number(0, DAY),
        "Seconds after which the IKE SA is rekeyed; 0 disables rekeying",
    )
    .or("28800"),
    value(
        "vpn ipsec ike-group <ike-group> mode",
        Type::Word(&["main", "aggressive"]),
        "Ignored; for IKEv1 only",
    )
    .note("is ignored: it is for IKEv1 only"),
    value("vpn ipsec ike-group <ike-group> mobike", ENABLE, "Ignored; VyOS 1.3 name of disable-mobike")
        .note("is ignored: MOBIKE is not supported yet (VyOS 1.4 has disable-mobike instead)"),
    value(
        "vpn ipsec ike-group <ike-group> preset",
        Type::Word(IKE_PRESETS),
        "Settings for a purpose; what the group sets itself goes before",
    ),
    value(
        "vpn ipsec ike-group <ike-group> proposal <number> dh-group",
        Type::Word(DH_GROUPS),
        "Diffie-Hellman group (default: 31, 19, 20, 21, 14, 15 and 16)",
    ),
    value(
        "vpn ipsec ike-group <ike-group> proposal <number> encryption",
        Type::Word(ENCRYPTIONS),
        "Encryption algorithm",
    )
    .or("aes128"),
    value(
        "vpn ipsec ike-group <ike-group> proposal <number> hash",
        Type::Word(HASHES),
        "Integrity algorithm and PRF (default: SHA-2)",
    ),
    value(
        "vpn ipsec ike-group <ike-group> proposal <number> prf",
        Type::Word(PRFS),
        "Pseudorandom function (default: that of the hash)",
    ),
];

pub(super) static PEERS: &[Node] = &[
    value(
        "vpn ipsec site-to-site peer <peer> authentication local-id",
        IDENTITY,
        "Identity of this gateway (default: its address or certificate subject)",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication mode",
        Type::Word(&["pre-shared-secret", "rsa", "x509"]),
        "Authentication method",
    )
    .or("pre-shared-secret"),
    value(
        "vpn ipsec site-to-site peer <peer> authentication remote-id",
        IDENTITY,
        "Identity that the peer must have; %any accepts every identity",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication rsa local-key",
        Type::Reference(pki::KEY_PAIR),
        "Key pair of this gateway",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication rsa passphrase",
        SECRET,
        "Ignored; encrypted private keys are not supported",
    )
    .secret()
    .note(PASSPHRASE),
    value(
        "vpn ipsec site-to-site peer <peer> authentication rsa remote-key",
        Type::Reference(pki::KEY_PAIR),
        "Key pair with the public key of the peer",
    ),
    // Not in VyOS: the rounds are strongSwan's local-2 and remote-2.
    value(
        "vpn ipsec site-to-site peer <peer> authentication second local-id",
        IDENTITY,
        "Identity of this gateway in the second round",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication second mode",
        Type::Word(&["pre-shared-secret"]),
        "Authentication method of the second round: the psk with these identities",
    )
    .or("pre-shared-secret"),
    value(
        "vpn ipsec site-to-site peer <peer> authentication second remote-id",
        IDENTITY,
        "Identity that the peer must have in the second round",
    ),
    flag(
        "vpn ipsec site-to-site peer <peer> authentication use-x509-id",
        "Use the certificate subject as local identity",
    ),
    // Not in VyOS, where strongSwan's own settings decide.
    flag(
        "vpn ipsec site-to-site peer <peer> authentication x509 accept-sha1",
        "Allow SHA-1 signatures with peers that lack RFC 7427",
    )
    .note("is weak: remove it when the peer supports RFC 7427 or has an ECDSA key"),
    values(
        "vpn ipsec site-to-site peer <peer> authentication x509 ca-certificate",
        Type::Reference(CA),
        "Authority trusted to sign the certificate of the peer",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication x509 certificate",
        Type::Reference(CERTIFICATE),
        "Certificate of this gateway",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication x509 passphrase",
        SECRET,
        "Ignored; encrypted private keys are not supported",
    )
    .secret()
    .note(PASSPHRASE),
    // Not in VyOS: the values are strongSwan's.
    value(
        "vpn ipsec site-to-site peer <peer> authentication x509 revocation",
        Type::Word(&["relaxed", "ifuri", "strict"]),
        "Revocation status required: never, if the certificate names a server, always",
    )
    .or("relaxed"),
    value(
        "vpn ipsec site-to-site peer <peer> connection-type",
        Type::Word(&["initiate", "respond", "trap", "none"]),
        "When to connect: at once, on traffic (trap or respond), or never",
    )
    .or("initiate"),
    value(
        "vpn ipsec site-to-site peer <peer> default-esp-group",
        Type::Reference(ESP_GROUP),
        "ESP settings of tunnels without an esp-group",
    ),
    value("vpn ipsec site-to-site peer <peer> description", DESCRIPTION, "Description"),
    value("vpn ipsec site-to-site peer <peer> dhcp-interface", Type::Name, "Same as local-address any")
        .note("is read as local-address any"),
    flag("vpn ipsec site-to-site peer <peer> disable", "Disable the peer"),
    flag(
        "vpn ipsec site-to-site peer <peer> force-udp-encapsulation",
        "Send ESP in UDP also without NAT (the default)",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> ike-group",
        Type::Reference(IKE_GROUP),
        "IKE settings of the peer",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> ikev2-reauth",
        Type::Word(&["yes", "no", "inherit"]),
        "Reauthentication, if other than in the ike-group",
    )
    .or("inherit"),
    value(
        "vpn ipsec site-to-site peer <peer> local-address",
        Type::AddressOrAny,
        "Address of this gateway (default: any)",
    ),
    values(
        "vpn ipsec site-to-site peer <peer> remote-address",
        Type::PeerAddress,
        "Address of the peer; with any, the default, the peer must connect to us",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> replay-window",
        Type::Number(0, 1 << 20),
        "Size of the replay window in packets; 0 disables replay protection",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> vti bind",
        Type::Interface("vti"),
        "VTI interface (not supported)",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> vti esp-group",
        Type::Reference(ESP_GROUP),
        "ESP settings (not supported)",
    ),
    // VyOS 1.3 and before.
    value("vpn ipsec site-to-site peer <peer> authentication id", IDENTITY, "VyOS 1.3 name of local-id")
        .note("was renamed in VyOS 1.4: use authentication local-id"),
    value(
        "vpn ipsec site-to-site peer <peer> authentication pre-shared-secret",
        SECRET,
        "Pre-shared key, in the place that VyOS 1.3 has for it",
    )
    .secret()
    .note("moved in VyOS 1.4: use vpn ipsec authentication psk NAME secret, with both sides as id"),
    value(
        "vpn ipsec site-to-site peer <peer> force-encapsulation",
        ENABLE,
        "VyOS 1.3 option; disable sends ESP without UDP where there is no NAT",
    )
    .note("is a VyOS 1.3 option: enable is the default (force-udp-encapsulation), disable sends ESP without UDP where there is no NAT"),
];

pub(super) static TUNNELS: &[Node] = &[
    flag("vpn ipsec site-to-site peer <peer> tunnel <tunnel> disable", "Disable the tunnel"),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> esp-group",
        Type::Reference(ESP_GROUP),
        "ESP settings of the tunnel",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> local port",
        PORT,
        "Local TCP or UDP port (default: any)",
    ),
    values(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> local prefix",
        Type::Prefix,
        "Local prefix (default: the address of this gateway)",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> mtu",
        Type::Number(576, 9000),
        "MTU inside the tunnel, in bytes",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> priority",
        Type::Number(1, 100),
        "Order among tunnels for the same traffic; 1 is used first",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> protocol",
        Type::Protocol,
        "IP protocol of the traffic (default: all)",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> remote port",
        PORT,
        "Remote TCP or UDP port (default: any)",
    ),
    values(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> remote prefix",
        Type::Prefix,
        "Remote prefix (default: the address of the peer)",
    ),
    // VyOS 1.3 and before.
    value("vpn ipsec site-to-site peer <peer> tunnel <tunnel> allow-nat-networks", ENABLE, "Ignored")
        .note(IGNORED),
    value("vpn ipsec site-to-site peer <peer> tunnel <tunnel> allow-public-networks", ENABLE, "Ignored")
        .note(IGNORED),
    value("vpn ipsec processors", Type::Processors, PROCESSORS),
    value(
        "vpn ipsec receive-threads",
        RECEIVE_THREADS,
        "Threads that receive from outside; auto: one for four processors",
    )
    .or("auto"),
    value("vpn ipsec threads", THREADS, "Threads that encrypt and decrypt; auto: one a processor").or("auto"),
];

const IMPORT: &str = "configure certificates under pki: set pki certificate NAME certificate BASE64, set pki ca NAME certificate BASE64";

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("interfaces vti").instead(
        "use a tunnel with prefixes: set vpn ipsec site-to-site peer NAME tunnel 1 local prefix PREFIX",
    ),
    unsupported("vpn ipsec authentication ppk"),
    unsupported("vpn ipsec profile"),
    unsupported("vpn ipsec remote-access"),
    unsupported("vpn ipsec site-to-site peer <peer> authentication ppk"),
    unsupported("vpn ipsec site-to-site peer <peer> ppk"),
    unsupported("vpn ipsec site-to-site peer <peer> authentication rsa-key-name").instead(KEY_PAIR),
    unsupported("vpn ipsec site-to-site peer <peer> authentication x509 ca-cert-file").instead(IMPORT),
    unsupported("vpn ipsec site-to-site peer <peer> authentication x509 cert-file").instead(IMPORT),
    unsupported("vpn ipsec site-to-site peer <peer> authentication x509 crl-file").instead(IMPORT),
    unsupported("vpn ipsec site-to-site peer <peer> authentication x509 key").instead(IMPORT),
    unsupported("vpn ipsec site-to-site peer <peer> virtual-address"),
    unsupported("vpn ipsec site-to-site peer <peer> vti traffic-selector"),
    unsupported("vpn l2tp"),
    unsupported("vpn openconnect"),
    unsupported("vpn pptp"),
    unsupported("vpn rsa-keys").instead(KEY_PAIR),
    unsupported("vpn sstp"),
];

const KEY_PAIR: &str = "configure keys under pki: set pki key-pair NAME public key BASE64, set vpn ipsec site-to-site peer NAME authentication mode rsa, with rsa local-key and rsa remote-key";
