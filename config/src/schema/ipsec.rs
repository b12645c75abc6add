//! `vpn ipsec`: site to site, in the spelling of VyOS 1.4 and 1.5, and beside it that of 1.3 and before.

use super::algorithm::{DH_GROUPS, ENCRYPTIONS, HASHES, PFS, PRFS};
use super::pki::{self, CA, CERTIFICATE};
use super::value::Type;
use super::{Node, NotServed, PORT, Tag, branch, flag, flag_or, not_served, tag, value, values};

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
const NO_EFFECT: &str = "has no effect";
const LOG: &str = "has no effect: how much is said is said by LOG_LEVEL in the environment";
const PASSPHRASE: &str = "has no effect: a private key must not need one";

/// Tags that peers refer to.
const ESP_GROUP: &str = "vpn ipsec esp-group <esp-group>";
const IKE_GROUP: &str = "vpn ipsec ike-group <ike-group>";
const PROPOSES: &str = "proposal 1 encryption aes256gcm128";

pub(super) static TAGS: &[Tag] = &[
    tag("vpn ipsec authentication psk <psk>", Type::Name, "Name of a pre-shared secret"),
    tag(ESP_GROUP, Type::Name, "Name of a group of settings for ESP").begins(PROPOSES),
    tag("vpn ipsec esp-group <esp-group> proposal <number>", PROPOSAL, "Number of a proposal"),
    tag(IKE_GROUP, Type::Name, "Name of a group of settings for IKE").begins(PROPOSES),
    tag("vpn ipsec ike-group <ike-group> proposal <number>", PROPOSAL, "Number of a proposal"),
    tag("vpn ipsec nat-networks allowed-network <prefix>", Type::Prefix, "A network"),
    tag("vpn ipsec site-to-site peer <peer>", Type::Name, "Name of the peer; in older VyOS, its address"),
    tag(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel>",
        Type::Number(0, u32::MAX as u64),
        "Number of a tunnel",
    ),
];

pub(super) static GENERAL: &[Node] = &[
    value(
        "vpn ipsec authentication psk <psk> dhcp-interface",
        Type::Name,
        "Interface whose address is an identity",
    )
    .note("has no effect: write the address itself, or %any, as id"),
    values(
        "vpn ipsec authentication psk <psk> id",
        IDENTITY,
        "Identity or address of one side that has this secret",
    ),
    value("vpn ipsec authentication psk <psk> secret", SECRET, "The secret").secret(),
    value(
        "vpn ipsec authentication psk <psk> secret-type",
        Type::Word(&["plaintext", "base64", "hex"]),
        "How the secret is written",
    )
    .or("plaintext"),
    flag("vpn ipsec disable-uniqreqids", "Accepted; has no effect").note(NO_EFFECT),
    values("vpn ipsec interface", Type::Name, "Accepted; has no effect")
        .note("has no effect: IKE is served on every interface, to peers of the configuration only"),
    value("vpn ipsec log level", Type::Number(0, 2), "Accepted; has no effect").or("0").note(LOG),
    values("vpn ipsec log subsystem", SUBSYSTEM, "Accepted; has no effect").note(LOG),
    flag(
        "vpn ipsec options disable-route-autoinstall",
        "Leave the routes to the networks behind peers to others",
    ),
    flag("vpn ipsec options flexvpn", "Accepted; has no effect").note(NO_EFFECT),
    value("vpn ipsec options interface", Type::Name, "Accepted; has no effect").note(NO_EFFECT),
    value(
        "vpn ipsec options retransmission attempts",
        Type::Number(1, 20),
        "How often a request is sent again",
    )
    .or("7"),
    value("vpn ipsec options retransmission base", Type::Decimal(100, 1000), "By what each wait is longer")
        .or("1.8"),
    value("vpn ipsec options retransmission timeout", Type::Number(1, 300), "Seconds of the first wait")
        .or("1"),
    values(
        "vpn ipsec passthrough",
        Type::Prefix,
        "Network that is reached in clear, although a tunnel's remote prefix contains it",
    ),
    flag("vpn ipsec options virtual-ip", "Accepted; has no effect").note(NO_EFFECT),
    // VyOS 1.3 and before.
    value("vpn ipsec auto-update", Type::Number(30, 65_535), "Accepted; has no effect").note(NO_EFFECT),
    value("vpn ipsec include-ipsec-conf", Type::Text(1024), "Accepted; has no effect").note(NO_EFFECT),
    value("vpn ipsec include-ipsec-secrets", Type::Text(1024), "Accepted; has no effect").note(NO_EFFECT),
    values("vpn ipsec ipsec-interfaces interface", Type::Name, "Older spelling of interface")
        .note("has no effect: IKE is served on every interface, to peers of the configuration only"),
    value("vpn ipsec logging log-level", Type::Number(0, 2), "Older spelling of log level").note(LOG),
    values("vpn ipsec logging log-modes", SUBSYSTEM, "Older spelling of log subsystem").note(LOG),
    values(
        "vpn ipsec nat-networks allowed-network <prefix> exclude",
        Type::Prefix,
        "Accepted; has no effect",
    )
    .note(NO_EFFECT),
    value("vpn ipsec nat-traversal", ENABLE, "Accepted; has no effect")
        .note("has no effect: NAT is noticed without it"),
];

pub(super) static GROUPS: &[Node] = &[
    flag_or("vpn ipsec esp-group <esp-group> compression", ENABLE, "Accepted; has no effect"),
    // Ours: strongSwan writes noesn in a proposal.
    flag("vpn ipsec esp-group <esp-group> disable-esn", "Offer and accept only sequence numbers of 32 bits"),
    flag("vpn ipsec esp-group <esp-group> disable-rekey", "Let SAs end instead of replacing them"),
    value(
        "vpn ipsec esp-group <esp-group> life-bytes",
        Type::Number(1024, 26_843_545_600_000),
        "Bytes after which an SA is replaced",
    ),
    value(
        "vpn ipsec esp-group <esp-group> life-packets",
        Type::Number(1000, 26_843_545_600_000),
        "Packets after which an SA is replaced",
    ),
    value(
        "vpn ipsec esp-group <esp-group> lifetime",
        Type::Number(30, DAY),
        "Seconds after which an SA is replaced",
    )
    .or("3600"),
    value(
        "vpn ipsec esp-group <esp-group> mode",
        Type::Word(&["tunnel", "transport"]),
        "Whether whole packets are carried, or what follows their IP header",
    )
    .or("tunnel"),
    value(
        "vpn ipsec esp-group <esp-group> pfs",
        Type::Word(PFS),
        "Diffie-Hellman group for new keys; with enable, the first of the ike-group",
    )
    .or("enable"),
    value("vpn ipsec esp-group <esp-group> proposal <number> encryption", Type::Word(ENCRYPTIONS), "Cipher")
        .or("aes128"),
    value(
        "vpn ipsec esp-group <esp-group> proposal <number> hash",
        Type::Word(HASHES),
        "MAC beside a cipher that does not authenticate; SHA-2 if not set",
    ),
    value(
        "vpn ipsec ike-group <ike-group> close-action",
        Type::Word(&["none", "trap", "start", "hold", "clear", "restart"]),
        "What is done when the peer ends a tunnel",
    )
    .or("none"),
    branch(
        "vpn ipsec ike-group <ike-group> dead-peer-detection",
        "Ask a peer that is silent whether it lives",
    ),
    value(
        "vpn ipsec ike-group <ike-group> dead-peer-detection action",
        Type::Word(&["trap", "clear", "restart", "hold"]),
        "What is done when it does not",
    )
    .or("clear"),
    value(
        "vpn ipsec ike-group <ike-group> dead-peer-detection interval",
        Type::Number(2, DAY),
        "Seconds of silence after which it is asked",
    )
    .or("30"),
    value(
        "vpn ipsec ike-group <ike-group> dead-peer-detection timeout",
        Type::Number(2, DAY),
        "Seconds without an answer after which it is dead",
    )
    .or("120"),
    flag(
        "vpn ipsec ike-group <ike-group> disable-mobike",
        "Do not follow a peer to another address by MOBIKE, which is not served yet",
    ),
    flag_or(
        "vpn ipsec ike-group <ike-group> ikev2-reauth",
        Type::Word(&["yes", "no"]),
        "Reauthenticate instead of only rekeying the IKE SA",
    )
    .note("is since VyOS 1.4 without a value: there for yes, deleted for no"),
    value(
        "vpn ipsec ike-group <ike-group> key-exchange",
        Type::Word(&["ikev1", "ikev2"]),
        "Version of IKE: only ikev2",
    )
    .or("ikev2"),
    value(
        "vpn ipsec ike-group <ike-group> lifetime",
        Type::Number(0, DAY),
        "Seconds after which the keys are replaced; 0 for never",
    )
    .or("28800"),
    value(
        "vpn ipsec ike-group <ike-group> mode",
        Type::Word(&["main", "aggressive"]),
        "Of IKEv1; has no effect",
    )
    .note("has no effect: it is of IKEv1"),
    value("vpn ipsec ike-group <ike-group> mobike", ENABLE, "Older spelling of disable-mobike").note(
        "has no effect: MOBIKE is not served yet (since VyOS 1.4 the word is disable-mobike, there or not)",
    ),
    value(
        "vpn ipsec ike-group <ike-group> proposal <number> dh-group",
        Type::Word(DH_GROUPS),
        "Diffie-Hellman group; those of at least 128 bits if not set",
    ),
    value("vpn ipsec ike-group <ike-group> proposal <number> encryption", Type::Word(ENCRYPTIONS), "Cipher")
        .or("aes128"),
    value(
        "vpn ipsec ike-group <ike-group> proposal <number> hash",
        Type::Word(HASHES),
        "MAC and pseudorandom function; SHA-2 if not set",
    ),
    value(
        "vpn ipsec ike-group <ike-group> proposal <number> prf",
        Type::Word(PRFS),
        "Pseudorandom function; that of the hash if not set",
    ),
];

pub(super) static PEERS: &[Node] = &[
    value(
        "vpn ipsec site-to-site peer <peer> authentication local-id",
        IDENTITY,
        "Who we are; our address, or the subject of our certificate, if not set",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication mode",
        Type::Word(&["pre-shared-secret", "rsa", "x509"]),
        "How the sides prove who they are",
    )
    .or("pre-shared-secret"),
    value(
        "vpn ipsec site-to-site peer <peer> authentication remote-id",
        IDENTITY,
        "Who the peer must be; %any for anyone",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication rsa local-key",
        Type::Reference(pki::KEY_PAIR),
        "Our key pair, with its private key",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication rsa passphrase",
        SECRET,
        "Passphrase of our private key; not served",
    )
    .secret()
    .note(PASSPHRASE),
    value(
        "vpn ipsec site-to-site peer <peer> authentication rsa remote-key",
        Type::Reference(pki::KEY_PAIR),
        "Key pair with the peer's public key",
    ),
    flag(
        "vpn ipsec site-to-site peer <peer> authentication use-x509-id",
        "We are the subject of our certificate",
    ),
    // Ours: VyOS leaves it to the settings of strongSwan.
    flag(
        "vpn ipsec site-to-site peer <peer> authentication x509 accept-sha1",
        "Sign with SHA-1 if the peer knows nothing better, and take such signatures",
    )
    .note("is weak: remove it as soon as the peer signs by RFC 7427, or with a key on a curve"),
    values(
        "vpn ipsec site-to-site peer <peer> authentication x509 ca-certificate",
        Type::Reference(CA),
        "Who may have signed the peer's certificate",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication x509 certificate",
        Type::Reference(CERTIFICATE),
        "Our certificate",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> authentication x509 passphrase",
        SECRET,
        "Passphrase of our private key; not served",
    )
    .secret()
    .note(PASSPHRASE),
    // Ours: in strongSwan's words.
    value(
        "vpn ipsec site-to-site peer <peer> authentication x509 revocation",
        Type::Word(&["relaxed", "ifuri", "strict"]),
        "What must be known about the peer's certificate: nothing; where it says where to ask, or always, that it is not revoked",
    )
    .or("relaxed"),
    value(
        "vpn ipsec site-to-site peer <peer> connection-type",
        Type::Word(&["initiate", "respond", "trap", "none"]),
        "Call at once; when there is traffic (trap, before called respond); or never",
    )
    .or("initiate"),
    value(
        "vpn ipsec site-to-site peer <peer> default-esp-group",
        Type::Reference(ESP_GROUP),
        "The esp-group of tunnels that name none",
    ),
    value("vpn ipsec site-to-site peer <peer> description", DESCRIPTION, "Who it is"),
    value("vpn ipsec site-to-site peer <peer> dhcp-interface", Type::Name, "Accepted as local-address any")
        .note("is taken as local-address any"),
    flag("vpn ipsec site-to-site peer <peer> disable", "As if the peer were not there"),
    flag(
        "vpn ipsec site-to-site peer <peer> force-udp-encapsulation",
        "ESP in UDP even where there is no NAT, as if not set",
    ),
    value("vpn ipsec site-to-site peer <peer> ike-group", Type::Reference(IKE_GROUP), "Settings for IKE"),
    value(
        "vpn ipsec site-to-site peer <peer> ikev2-reauth",
        Type::Word(&["yes", "no", "inherit"]),
        "As in the ike-group, for this peer",
    )
    .or("inherit"),
    value(
        "vpn ipsec site-to-site peer <peer> local-address",
        Type::AddressOrAny,
        "Our address; any if not set",
    ),
    values(
        "vpn ipsec site-to-site peer <peer> remote-address",
        Type::PeerAddress,
        "Where the peer is; any, as if not set, if it calls us from anywhere",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> replay-window",
        Type::Number(0, 1 << 20),
        "Packets that may arrive late; 0 switches the check off",
    ),
    value("vpn ipsec site-to-site peer <peer> vti bind", Type::Interface("vti"), "Not served yet"),
    value("vpn ipsec site-to-site peer <peer> vti esp-group", Type::Reference(ESP_GROUP), "Not served yet"),
    // VyOS 1.3 and before.
    value("vpn ipsec site-to-site peer <peer> authentication id", IDENTITY, "Older spelling of local-id")
        .note("is since VyOS 1.4: authentication local-id"),
    value(
        "vpn ipsec site-to-site peer <peer> authentication pre-shared-secret",
        SECRET,
        "The secret, as older VyOS had it",
    )
    .secret()
    .note("is since VyOS 1.4: vpn ipsec authentication psk NAME secret, with both sides as id"),
    value(
        "vpn ipsec site-to-site peer <peer> force-encapsulation",
        ENABLE,
        "With disable, ESP in UDP only where there is a NAT, which is slower",
    )
    .note("is a VyOS 1.3 option: enable is the default (force-udp-encapsulation), disable sends ESP without UDP where there is no NAT"),
];

pub(super) static TUNNELS: &[Node] = &[
    flag("vpn ipsec site-to-site peer <peer> tunnel <tunnel> disable", "As if the tunnel were not there"),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> esp-group",
        Type::Reference(ESP_GROUP),
        "Settings for ESP",
    ),
    value("vpn ipsec site-to-site peer <peer> tunnel <tunnel> local port", PORT, "Port of our side"),
    values(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> local prefix",
        Type::Prefix,
        "Network on our side; our own address if not set",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> mtu",
        Type::Number(576, 9000),
        "Largest packet inside the tunnel",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> priority",
        Type::Number(1, 100),
        "Which of several tunnels for the same traffic is taken; 1 is the first",
    ),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> protocol",
        Type::Protocol,
        "The only protocol that is carried",
    ),
    value("vpn ipsec site-to-site peer <peer> tunnel <tunnel> remote port", PORT, "Port of the other side"),
    values(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> remote prefix",
        Type::Prefix,
        "Network on the other side; the peer's own address if not set",
    ),
    // VyOS 1.3 and before.
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> allow-nat-networks",
        ENABLE,
        "Accepted; has no effect",
    )
    .note(NO_EFFECT),
    value(
        "vpn ipsec site-to-site peer <peer> tunnel <tunnel> allow-public-networks",
        ENABLE,
        "Accepted; has no effect",
    )
    .note(NO_EFFECT),
];

const IMPORT: &str =
    "put it under pki: set pki certificate NAME certificate BASE64, set pki ca NAME certificate BASE64";

pub(super) static NOT_SERVED: &[NotServed] = &[
    not_served("interfaces vti")
        .instead("use tunnels with prefixes: set vpn ipsec site-to-site peer NAME tunnel 1 ..."),
    not_served("vpn ipsec authentication ppk"),
    not_served("vpn ipsec profile"),
    not_served("vpn ipsec remote-access"),
    not_served("vpn ipsec site-to-site peer <peer> authentication ppk"),
    not_served("vpn ipsec site-to-site peer <peer> ppk"),
    not_served("vpn ipsec site-to-site peer <peer> authentication rsa-key-name").instead(KEY_PAIR),
    not_served("vpn ipsec site-to-site peer <peer> authentication x509 ca-cert-file").instead(IMPORT),
    not_served("vpn ipsec site-to-site peer <peer> authentication x509 cert-file").instead(IMPORT),
    not_served("vpn ipsec site-to-site peer <peer> authentication x509 crl-file").instead(IMPORT),
    not_served("vpn ipsec site-to-site peer <peer> authentication x509 key").instead(IMPORT),
    not_served("vpn ipsec site-to-site peer <peer> virtual-address"),
    not_served("vpn ipsec site-to-site peer <peer> vti traffic-selector"),
    not_served("vpn l2tp"),
    not_served("vpn openconnect"),
    not_served("vpn pptp"),
    not_served("vpn rsa-keys").instead(KEY_PAIR),
    not_served("vpn sstp"),
];

const KEY_PAIR: &str = "put keys under pki: set pki key-pair NAME public key BASE64, set vpn ipsec site-to-site peer NAME authentication mode rsa, with rsa local-key and rsa remote-key";
