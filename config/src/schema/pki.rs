//! `pki`: certificates and keys, in base64, without the BEGIN and END lines of a PEM file.

use super::value::Type;
use super::{Inner, Node, Tag, Unsupported, flag, inner, tag, unsupported, value, values};

/// Tags that other nodes refer to.
pub(super) const CA: &str = "pki ca <ca>";
pub(super) const CERTIFICATE: &str = "pki certificate <certificate>";
pub(super) const KEY_PAIR: &str = "pki key-pair <key-pair>";
pub(super) const SHARED_SECRET: &str = "pki openvpn shared-secret <key>";

pub(super) static INNER: &[Inner] = &[
    inner("pki", "Certificates and keys"),
    inner("pki ca", "Certificate authorities"),
    inner("pki ca <ca> private", "Private key of the authority"),
    inner("pki certificate", "Certificates of this gateway"),
    inner("pki certificate <certificate> private", "Private key of the certificate"),
    inner("pki key-pair", "Key pairs, for authentication without certificates"),
    inner("pki key-pair <key-pair> private", "Private key"),
    inner("pki key-pair <key-pair> public", "Public key"),
    inner("pki dh", "Parameters of Diffie-Hellman key exchanges"),
    inner("pki openvpn", "Keys of OpenVPN"),
    inner("pki openvpn shared-secret", "Keys that both ends have, for control packets"),
];

pub(super) static TAGS: &[Tag] = &[
    tag(CA, Type::Name, "Name of the certificate authority").begins("certificate BASE64"),
    tag(CERTIFICATE, Type::Name, "Name of the certificate").begins("certificate BASE64"),
    tag(KEY_PAIR, Type::Name, "Name of the key pair").begins("public key BASE64"),
    tag("pki dh <dh>", Type::Name, "Name of the parameters"),
    tag(SHARED_SECRET, Type::Name, "Name of the key").begins("key HEX"),
];

const DESCRIPTION: Type = Type::Text(255);
const PROTECTED: &str = "The private key is encrypted with a passphrase (not supported)";

pub(super) static NODES: &[Node] = &[
    value("pki ca <ca> certificate", Type::Base64, "Certificate of the authority, in base64"),
    values("pki ca <ca> crl", Type::Base64, "Certificate revocation list (CRL), in base64"),
    // Not in VyOS, which only has the list itself.
    values("pki ca <ca> crl-file", Type::File, "File with a CRL; read again when it changes"),
    value("pki ca <ca> description", DESCRIPTION, "Description"),
    value("pki ca <ca> private key", Type::Base64, "Private key, in base64 (not used)").secret(),
    flag("pki ca <ca> private password-protected", PROTECTED),
    flag("pki ca <ca> revoke", "Stop trusting this authority"),
    value("pki certificate <certificate> certificate", Type::Base64, "Certificate, in base64"),
    value("pki certificate <certificate> description", DESCRIPTION, "Description"),
    value("pki certificate <certificate> private key", Type::Base64, "Private key, in base64").secret(),
    flag("pki certificate <certificate> private password-protected", PROTECTED),
    flag("pki certificate <certificate> revoke", "Stop using this certificate"),
    value("pki key-pair <key-pair> private key", Type::Base64, "Private key, in base64").secret(),
    flag("pki key-pair <key-pair> private password-protected", PROTECTED),
    value("pki key-pair <key-pair> public key", Type::Base64, "Public key, in base64"),
    value("pki dh <dh> parameters", Type::Base64, "Parameters, in base64")
        .note("has no effect: all key exchanges are on elliptic curves"),
    value(
        "pki openvpn shared-secret <key> key",
        Type::StaticKey,
        "The 256 bytes of an OpenVPN static key, in hexadecimal digits without spaces",
    )
    .secret(),
    value("pki openvpn shared-secret <key> version", Type::Word(&["1"]), "Version of the format").or("1"),
];

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("pki certificate <certificate> acme")
        .instead("set the certificate itself: set pki certificate NAME certificate BASE64"),
    unsupported("pki openssh"),
    unsupported("pki x509"),
];
