//! `interfaces openvpn`, with the words of VyOS 1.3 to 1.5.

use super::form::Form;
use super::pki::{CA, CERTIFICATE, SHARED_SECRET};
use super::value::Type;
use super::{
    Inner, Node, PORT, Tag, Unsupported, branch, flag, flag_or, inner, tag, unsupported, value, values,
};

/// Data ciphers, in VyOS's words.
const CIPHERS: &[&str] =
    &["none", "3des", "aes128", "aes128gcm", "aes192", "aes192gcm", "aes256", "aes256gcm"];
/// Digests.
const HASHES: &[&str] = &["md5", "sha1", "sha256", "sha384", "sha512"];
const ELLIPTIC: &str = "has no effect: all key exchanges are on elliptic curves";
const DCO: &str = "has no effect: Postern's data path carries all packets";

pub(super) static INNER: &[Inner] = &[
    inner("interfaces openvpn", "OpenVPN interfaces"),
    inner(
        "interfaces openvpn <interface> authentication",
        "Name and password of a client, or hashes that a server checks them with",
    ),
    inner("interfaces openvpn <interface> encryption", "Data ciphers"),
    inner("interfaces openvpn <interface> ip", "IPv4 settings"),
    inner("interfaces openvpn <interface> ipv6", "IPv6 settings"),
    inner("interfaces openvpn <interface> keep-alive", "Detection of a peer that does not answer"),
    inner("interfaces openvpn <interface> local-address", "Addresses of this end, site to site"),
    inner("interfaces openvpn <interface> offload", "Offloads"),
    inner("interfaces openvpn <interface> server client", "Settings of single clients"),
    inner("interfaces openvpn <interface> server client-ip-pool", "IPv4 addresses for clients"),
    inner("interfaces openvpn <interface> server client-ipv6-pool", "IPv6 addresses for clients"),
    inner("interfaces openvpn <interface> server push-route", "Routes of all clients into the tunnel"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("interfaces openvpn <interface>", Type::Interface("vtun"), "Name of the interface"),
    tag("interfaces openvpn <interface> local-address <address>", Type::Address, "Address of this end"),
    tag("interfaces openvpn <interface> server client <client>", Type::Name, "Common name of the client"),
    tag("interfaces openvpn <interface> server push-route <prefix>", Type::Prefix, "Prefix of the route"),
];

pub(super) static NODES: &[Node] = &[
    value(
        "interfaces openvpn <interface> authentication username",
        Type::Text(128),
        "Name that the client sends",
    ),
    value(
        "interfaces openvpn <interface> authentication password",
        Type::Secret(128),
        "Password that the client sends",
    )
    .secret(),
    // Not in VyOS, which runs programs.
    value(
        "interfaces openvpn <interface> authentication password-hash-file",
        Type::File,
        "File with lines NAME:HASH, as htpasswd -B and openssl passwd -6 make them",
    ),
    value("interfaces openvpn <interface> description", Type::Text(255), "Description"),
    value("interfaces openvpn <interface> device-type", Type::Word(&["tun", "tap"]), "Kind of the interface")
        .or("tun"),
    flag("interfaces openvpn <interface> disable", "Do not make the interface"),
    value(
        "interfaces openvpn <interface> encryption cipher",
        Type::Word(CIPHERS),
        "Data cipher, site to site",
    ),
    values(
        "interfaces openvpn <interface> encryption data-ciphers",
        Type::Word(CIPHERS),
        "Data cipher that may be negotiated; the first that both ends have is used",
    ),
    // VyOS 1.3 and before.
    values(
        "interfaces openvpn <interface> encryption ncp-ciphers",
        Type::Word(CIPHERS),
        "VyOS 1.3 name of data-ciphers",
    )
    .note("was renamed in VyOS 1.4: use data-ciphers"),
    value(
        "interfaces openvpn <interface> hash",
        Type::Word(HASHES),
        "Digest of CBC ciphers and of tls auth-key (default: sha1)",
    ),
    value("interfaces openvpn <interface> ip-version", Type::Word(IP_VERSIONS), "IP version outside")
        .or("auto"),
    value(
        "interfaces openvpn <interface> keep-alive failure-count",
        Type::Number(0, 1000),
        "Intervals without a packet after which the session ends",
    )
    .or("60"),
    value(
        "interfaces openvpn <interface> keep-alive interval",
        Type::Number(0, 600),
        "Seconds between pings",
    )
    .or("10"),
    value(
        "interfaces openvpn <interface> local-address <address> subnet-mask",
        Type::Address,
        "Netmask of the address, for device-type tap",
    ),
    value(
        "interfaces openvpn <interface> local-host",
        Type::Address,
        "Address of this machine to bind (default: all)",
    ),
    value("interfaces openvpn <interface> local-port", PORT, "Port to bind (server default: 1194)"),
    value("interfaces openvpn <interface> mode", Type::Word(MODES), "What this end is"),
    // Not in VyOS, which has openvpn-option for it.
    value(
        "interfaces openvpn <interface> mtu",
        Type::Number(576, 65_535),
        "MTU inside the tunnel, in bytes (default: 1500)",
    ),
    flag("interfaces openvpn <interface> offload dco", "OpenVPN in the kernel").note(DCO),
    values(
        "interfaces openvpn <interface> openvpn-option",
        Type::Text(1024),
        "Directive of OpenVPN with its arguments, with or without two dashes",
    ),
    flag(
        "interfaces openvpn <interface> persistent-tunnel",
        "Keep the interface while a session is renewed; always so",
    ),
    value("interfaces openvpn <interface> protocol", Type::Word(PROTOCOLS), "Transport outside").or("udp"),
    values(
        "interfaces openvpn <interface> remote-address",
        Type::Address,
        "Address of the other end inside the tunnel, site to site",
    ),
    values(
        "interfaces openvpn <interface> remote-host",
        Type::Form(Form::Remote),
        "Address or name of the peer; several are tried in turn",
    ),
    value("interfaces openvpn <interface> remote-port", PORT, "Port of the peer (default: 1194)"),
    branch("interfaces openvpn <interface> replace-default-route", "Route all traffic into the tunnel"),
    // VyOS takes any value of it.
    flag_or(
        "interfaces openvpn <interface> replace-default-route local",
        Type::Text(255),
        "The peer is in the network of this machine",
    ),
    branch("interfaces openvpn <interface> server", "Settings of mode server"),
    flag("interfaces openvpn <interface> server client <client> disable", "Refuse the client"),
    values(
        "interfaces openvpn <interface> server client <client> ip",
        Type::Address,
        "Address of the client",
    ),
    values(
        "interfaces openvpn <interface> server client <client> push-route",
        Type::Prefix,
        "Prefix that the client routes into the tunnel",
    ),
    values(
        "interfaces openvpn <interface> server client <client> subnet",
        Type::Prefix,
        "Network behind the client",
    ),
    flag("interfaces openvpn <interface> server client-ip-pool disable", "Give clients no IPv4 address"),
    value("interfaces openvpn <interface> server client-ip-pool start", Type::Address, "First address"),
    value("interfaces openvpn <interface> server client-ip-pool stop", Type::Address, "Last address"),
    value(
        "interfaces openvpn <interface> server client-ip-pool subnet-mask",
        Type::Address,
        "Netmask that clients are given (default: that of the subnet)",
    ),
    value(
        "interfaces openvpn <interface> server client-ipv6-pool base",
        Type::Prefix,
        "Network from whose first address on clients are given addresses",
    ),
    flag("interfaces openvpn <interface> server client-ipv6-pool disable", "Give clients no IPv6 address"),
    value(
        "interfaces openvpn <interface> server domain-name",
        Type::Form(Form::Remote),
        "Domain for clients",
    ),
    value(
        "interfaces openvpn <interface> server max-connections",
        Type::Number(1, 4096),
        "Largest number of clients (default: 1024)",
    ),
    values("interfaces openvpn <interface> server name-server", Type::Address, "Name server for clients"),
    value(
        "interfaces openvpn <interface> server push-route <prefix> metric",
        Type::Number(0, u32::MAX as u64),
        "Metric of the route",
    )
    .or("0"),
    flag(
        "interfaces openvpn <interface> server reject-unconfigured-clients",
        "Refuse clients that have no: server client NAME",
    ),
    values(
        "interfaces openvpn <interface> server subnet",
        Type::Prefix,
        "Network of the tunnel, of which the server has the first address",
    ),
    value("interfaces openvpn <interface> server topology", Type::Word(TOPOLOGIES), "Kind of addresses")
        .or("subnet"),
    branch("interfaces openvpn <interface> tls", "Certificates and keys of the control channel"),
    value(
        "interfaces openvpn <interface> tls auth-key",
        Type::Reference(SHARED_SECRET),
        "Key that signs control packets (tls-auth)",
    ),
    values(
        "interfaces openvpn <interface> tls ca-certificate",
        Type::Reference(CA),
        "Authority that signs the certificate of the peer",
    ),
    value(
        "interfaces openvpn <interface> tls certificate",
        Type::Reference(CERTIFICATE),
        "Certificate of this end",
    ),
    value(
        "interfaces openvpn <interface> tls crypt-key",
        Type::Reference(SHARED_SECRET),
        "Key that encrypts control packets (tls-crypt)",
    ),
    value(
        "interfaces openvpn <interface> tls dh-params",
        Type::Name,
        "Parameters of Diffie-Hellman key exchanges",
    )
    .note(ELLIPTIC),
    values(
        "interfaces openvpn <interface> tls peer-fingerprint",
        Type::Fingerprint,
        "SHA-256 fingerprint of a certificate that is accepted",
    ),
    value(
        "interfaces openvpn <interface> tls role",
        Type::Word(&["active", "passive"]),
        "Which end begins the handshake, site to site",
    ),
    value(
        "interfaces openvpn <interface> tls tls-version-min",
        Type::Word(&["1.0", "1.1", "1.2", "1.3"]),
        "Lowest version of TLS; 1.0 and 1.1 are never used",
    ),
    flag("interfaces openvpn <interface> use-lzo-compression", "Framing of packets for peers with comp-lzo")
        .note(LZO),
];

const IP_VERSIONS: &[&str] = &["auto", "ipv4", "ipv6", "dual-stack"];
const MODES: &[&str] = &["site-to-site", "client", "server"];
const PROTOCOLS: &[&str] = &["udp", "tcp-passive", "tcp-active"];
const TOPOLOGIES: &[&str] = &["subnet", "point-to-point", "net30"];

const LZO: &str = "compresses nothing: a server tells its clients to stop";
const ROUTED: &str = "remove the line: the interface carries IP packets, without Ethernet";
const IN_PKI: &str = "set the certificate or key in pki, and name it: set interfaces openvpn INTERFACE tls";
const STATIC: &str =
    "remove the line, and use certificates: a key without a handshake has no forward secrecy";
const MSS: &str = "remove the line: segments are clamped to 1492 bytes outside; to change that: set interfaces openvpn INTERFACE \
                   openvpn-option 'mssfix BYTES mtu'";

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("interfaces openvpn <interface> ip adjust-mss").instead(MSS),
    unsupported("interfaces openvpn <interface> ip arp-cache-timeout").instead(ROUTED),
    unsupported("interfaces openvpn <interface> ip disable-arp-filter").instead(ROUTED),
    unsupported("interfaces openvpn <interface> ip disable-forwarding"),
    unsupported("interfaces openvpn <interface> ip enable-arp-accept").instead(ROUTED),
    unsupported("interfaces openvpn <interface> ip enable-arp-announce").instead(ROUTED),
    unsupported("interfaces openvpn <interface> ip enable-arp-ignore").instead(ROUTED),
    unsupported("interfaces openvpn <interface> ip enable-directed-broadcast"),
    unsupported("interfaces openvpn <interface> ip enable-proxy-arp").instead(ROUTED),
    unsupported("interfaces openvpn <interface> ip proxy-arp-pvlan").instead(ROUTED),
    unsupported("interfaces openvpn <interface> ip source-validation"),
    unsupported("interfaces openvpn <interface> ipv6 accept-dad"),
    unsupported("interfaces openvpn <interface> ipv6 address"),
    unsupported("interfaces openvpn <interface> ipv6 adjust-mss").instead(MSS),
    unsupported("interfaces openvpn <interface> ipv6 base-reachable-time"),
    unsupported("interfaces openvpn <interface> ipv6 disable-forwarding"),
    unsupported("interfaces openvpn <interface> ipv6 dup-addr-detect-transmits"),
    unsupported("interfaces openvpn <interface> ipv6 source-validation"),
    unsupported("interfaces openvpn <interface> mirror"),
    unsupported("interfaces openvpn <interface> redirect"),
    unsupported("interfaces openvpn <interface> server bridge").instead(ROUTED),
    unsupported("interfaces openvpn <interface> server mfa")
        .instead("remove the line: a second factor is checked by a program that auth-user-pass-verify names"),
    unsupported("interfaces openvpn <interface> shared-secret-key").instead(STATIC),
    unsupported("interfaces openvpn <interface> shared-secret-key-file").instead(STATIC),
    unsupported("interfaces openvpn <interface> tls auth-file").instead(IN_PKI),
    unsupported("interfaces openvpn <interface> tls ca-cert-file").instead(IN_PKI),
    unsupported("interfaces openvpn <interface> tls cert-file").instead(IN_PKI),
    unsupported("interfaces openvpn <interface> tls crl-file").instead("set pki ca NAME crl-file FILE"),
    unsupported("interfaces openvpn <interface> tls crypt-file").instead(IN_PKI),
    unsupported("interfaces openvpn <interface> tls dh-file").instead("remove the line: it has no effect"),
    unsupported("interfaces openvpn <interface> tls key-file").instead(IN_PKI),
    unsupported("interfaces openvpn <interface> vrf"),
];
