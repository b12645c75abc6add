//! `pki`: certificates and keys, as base64 without the lines that a PEM file begins and ends with.

use super::value::Type;
use super::{Node, NotServed, Tag, flag, not_served, tag, value, values};

/// Tags that other nodes refer to.
pub(super) const CA: &str = "pki ca <ca>";
pub(super) const CERTIFICATE: &str = "pki certificate <certificate>";
pub(super) const KEY_PAIR: &str = "pki key-pair <key-pair>";

pub(super) static TAGS: &[Tag] = &[
    tag(CA, Type::Name, "Name of a certificate authority").begins("certificate BASE64"),
    tag(CERTIFICATE, Type::Name, "Name of a certificate").begins("certificate BASE64"),
    tag(KEY_PAIR, Type::Name, "Name of a key pair").begins("public key BASE64"),
];

const DESCRIPTION: Type = Type::Text(255);
const PROTECTED: &str = "The private key is encrypted with a passphrase";

pub(super) static NODES: &[Node] = &[
    value("pki ca <ca> certificate", Type::Base64, "Its certificate"),
    values("pki ca <ca> crl", Type::Base64, "List of certificates that it has revoked"),
    // Ours: VyOS has only the list itself.
    values(
        "pki ca <ca> crl-file",
        Type::Text(1024),
        "File with such a list, which is read again when it changes",
    ),
    value("pki ca <ca> description", DESCRIPTION, "What it is for"),
    value("pki ca <ca> private key", Type::Base64, "Its private key").secret(),
    flag("pki ca <ca> private password-protected", PROTECTED),
    flag("pki ca <ca> revoke", "Not to be trusted any more"),
    value("pki certificate <certificate> certificate", Type::Base64, "The certificate"),
    value("pki certificate <certificate> description", DESCRIPTION, "What it is for"),
    value("pki certificate <certificate> private key", Type::Base64, "Its private key").secret(),
    flag("pki certificate <certificate> private password-protected", PROTECTED),
    flag("pki certificate <certificate> revoke", "Not to be used any more"),
    value("pki key-pair <key-pair> private key", Type::Base64, "The private key").secret(),
    flag("pki key-pair <key-pair> private password-protected", PROTECTED),
    value("pki key-pair <key-pair> public key", Type::Base64, "The public key"),
];

pub(super) static NOT_SERVED: &[NotServed] = &[
    not_served("pki certificate <certificate> acme")
        .instead("put the certificate itself: set pki certificate NAME certificate BASE64"),
    not_served("pki dh"),
    not_served("pki openssh"),
    not_served("pki openvpn"),
    not_served("pki x509"),
];
