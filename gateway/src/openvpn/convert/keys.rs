//! Certificates and keys.

use super::Refusals;
use crate::openvpn::certificates::Tracked;
use config::openvpn::OpenVpn;
use config::openvpn::settings::{
    Connection, Digest, Material, NameMatch, Revocation, Suite, TlsVersion, Wrapping,
};
use crypto::cipher::Integrity;
use crypto::pem::{self, Section};
use crypto::pki::Certificate;
use crypto::prf::Prf;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::time::Duration;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::name_fields::NameFields;
use tunnel::openvpn::offer::Offer;
use tunnel::openvpn::server::ServerWrap;
use tunnel::openvpn::verify::{Identity, NameCheck, PeerCheck};
use tunnel::openvpn::wrap::v2::{ClientKey, ServerKey};
use tunnel::openvpn::wrap::{Role, StaticKey, WrapKeys};

const STATIC_KEY_FIX: &str = "make one with openvpn --genkey secret FILE, and give it to both ends";
const PEER_KEY_FIX: &str =
    "make one with openvpn --genkey tls-crypt-v2-server FILE, or tls-crypt-v2-client for a client";
const PEM_FIX: &str = "write a file in PEM";

/// What TLS may negotiate.
pub(super) fn offer(settings: &OpenVpn) -> Offer {
    let tls = &settings.tls;
    let named = |suites: &Option<Vec<Suite>>| {
        let names = suites.as_ref()?.iter().map(|suite| suite.name().replace('-', "_"));
        Some(names.collect())
    };
    let groups = tls.groups.as_ref().map(|all| all.iter().map(|group| group.name().to_owned()).collect());
    Offer {
        suites_tls12: named(&tls.suites),
        suites_tls13: named(&tls.suites_tls13),
        groups,
        without_tls12: tls.version_min == Some(TlsVersion::V1_3),
        without_tls13: tls.version_max == Some(TlsVersion::V1_2),
    }
}

/// The HMAC beside CBC and of `tls-auth`; `none` was refused.
pub(super) fn digest(settings: &OpenVpn) -> (Integrity, Prf) {
    match settings.data.digest {
        Digest::Sha1 | Digest::None => (Integrity::HmacSha1, Prf::HmacSha1),
        Digest::Sha256 => (Integrity::HmacSha256, Prf::HmacSha256),
        Digest::Sha384 => (Integrity::HmacSha384, Prf::HmacSha384),
        Digest::Sha512 => (Integrity::HmacSha512, Prf::HmacSha512),
    }
}

/// The wrap of control packets of a server.
pub(super) fn server_wrap(
    settings: &OpenVpn,
    link: &Connection,
    refusals: &mut Refusals,
) -> Option<ServerWrap> {
    let Some(Wrapping::CryptV2 { key, force_cookie, others }) = &link.wrapping else {
        return shared(settings, link, Role::Server, refusals).map(ServerWrap::Shared);
    };
    if others.is_some() {
        let fix = "write tls-crypt-v2 alone, or tls-crypt for all clients";
        refusals.refuse("tls-crypt-v2", "clients without such a key beside it", fix);
    }
    match ServerKey::from_file(key.bytes()) {
        Ok(key) => {
            let days = settings.server.as_ref().and_then(|server| server.key_max_age_days);
            let max_age = days.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600));
            Some(ServerWrap::PerClient { key, allow_without_cookie: !force_cookie, max_age })
        }
        Err(error) => wrong(refusals, "tls-crypt-v2", &error, PEER_KEY_FIX),
    }
}

/// The wrap of control packets of a client.
pub(super) fn client_wrap(
    settings: &OpenVpn,
    link: &Connection,
    refusals: &mut Refusals,
) -> Option<ClientWrap> {
    let Some(Wrapping::CryptV2 { key, .. }) = &link.wrapping else {
        return shared(settings, link, Role::Client, refusals).map(ClientWrap::Shared);
    };
    match ClientKey::from_file(key.bytes()) {
        Ok(key) => Some(ClientWrap::Own(key)),
        Err(error) => wrong(refusals, "tls-crypt-v2", &error, PEER_KEY_FIX),
    }
}

fn shared(settings: &OpenVpn, link: &Connection, role: Role, refusals: &mut Refusals) -> Option<WrapKeys> {
    let mut key =
        |name: &str, material: &Material| match StaticKey::from_file(material.text().unwrap_or_default()) {
            Ok(key) => Some(key),
            Err(error) => wrong(refusals, name, &error, STATIC_KEY_FIX),
        };
    Some(match &link.wrapping {
        Some(Wrapping::Auth(material, direction)) => {
            WrapKeys::tls_auth(digest(settings).1, key("tls-auth", material)?, *direction)
        }
        Some(Wrapping::Crypt(material)) => WrapKeys::tls_crypt(key("tls-crypt", material)?, role),
        Some(Wrapping::CryptV2 { .. }) | None => WrapKeys::none(),
    })
}

/// Which certificates of the peer are accepted.
pub(super) fn check(settings: &OpenVpn, peer: Role, refusals: &mut Refusals) -> Option<PeerCheck> {
    let list = match &settings.tls.revocation {
        Some(Revocation::List(material)) => Some(material.bytes()),
        Some(Revocation::Directory(_)) | None => None,
    };
    check_with(settings, peer, list, refusals)
}

/// Refuses the certificate of this end, for what TLS found wrong with it.
pub(super) fn wrong_certificate<T>(reason: String, refusals: &mut Refusals) -> Option<T> {
    refusals.wrong("cert", reason, "write the certificate of this key");
    None
}

/// The same with this file of revocation lists.
pub(super) fn check_with(
    settings: &OpenVpn,
    peer: Role,
    list: Option<&[u8]>,
    refusals: &mut Refusals,
) -> Option<PeerCheck> {
    let tls = &settings.tls;
    let mut check = PeerCheck::new(peer);
    if let Some(material) = &tls.authority {
        for authority in certificates("ca", material, refusals)? {
            if let Err(error) = check.add_authority(&authority) {
                return wrong(refusals, "ca", &error, "write the certificates of authorities");
            }
        }
    }
    if let Some(list) = list {
        let sections = match pem::read(list) {
            Ok(sections) => sections,
            Err(error) => return wrong(refusals, "crl-verify", &error, PEM_FIX),
        };
        // A file that is cut in its first line has none: without a list, no certificate would be revoked.
        if sections.is_empty() {
            refusals.wrong("crl-verify", "there is no BEGIN X509 CRL in it".to_owned(), PEM_FIX);
            return None;
        }
        for list in sections {
            if let Err(error) = check.add_list(list.der.expose()) {
                let problem = format!("{error}: it is malformed, or has an extension that is not supported");
                refusals.wrong("crl-verify", problem, "make it again: easyrsa gen-crl");
                return None;
            }
        }
    }
    // Another purpose than that of the peer was refused.
    if tls.extended_key_usage.is_some() {
        check.require_purpose();
    }
    if let Some(usages) = &tls.key_usage {
        check.require_key_usage();
        check.require_key_usages(usages);
    }
    tls.issuer_fingerprints.iter().for_each(|fingerprint| check.add_issuer(*fingerprint));
    if let Some(name) = &tls.peer_name {
        check.require_name(match name.by {
            NameMatch::Name => NameCheck::Exactly(name.name.clone()),
            NameMatch::Prefix => NameCheck::Prefix(name.name.clone()),
            NameMatch::Subject => NameCheck::Subject(name.name.clone()),
        });
    }
    check.set_name_fields(name_fields(settings, refusals));
    tls.peer_fingerprints.iter().for_each(|fingerprint| check.add_fingerprint(*fingerprint));
    Some(check)
}

/// The fields that make the name of a peer.
pub(super) fn name_fields(settings: &OpenVpn, refusals: &mut Refusals) -> NameFields {
    NameFields::new(&settings.tls.username_fields).unwrap_or_else(|unknown| {
        let fix = "write CN, OU, emailAddress, serialNumber, ext:subjectAltName, or an object identifier";
        refusals.refuse("x509-username-field", &unknown.to_string(), fix);
        NameFields::default()
    })
}

/// The fields of certificates that programs are told about.
pub(super) fn tracked(settings: &OpenVpn, refusals: &mut Refusals) -> Tracked {
    Tracked::new(&settings.tls.tracked).unwrap_or_else(|unknown| {
        let fix = "write the name of an attribute of the subject, such as CN; SHA1, SHA256, keyUsage, extendedKeyUsage, basicConstraints, \
            subjectAltName, issuerAltName, subjectKeyIdentifier, authorityKeyIdentifier, nsCertType or nsComment";
        refusals.refuse("x509-track", &format!("the field {unknown}"), fix);
        Tracked::default()
    })
}

/// The authorities, for programs that check certificates.
pub(super) fn authorities(material: &Material, refusals: &mut Refusals) -> Option<Vec<Certificate>> {
    let found = certificates("ca", material, refusals)?;
    // One that our parser does not read is used for chains all the same.
    Some(found.iter().filter_map(|der| Certificate::from_der(der).ok()).collect())
}

/// Our certificate, and its key.
pub(super) fn identity(settings: &OpenVpn, refusals: &mut Refusals) -> Option<Identity> {
    let tls = &settings.tls;
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        let fix = "write cert FILE and key FILE";
        refusals.refuse("auth-user-pass", "a client without a certificate", fix);
        return None;
    };
    let mut chain = certificates("cert", certificate, refusals)?;
    if let Some(extra) = &tls.extra_certificates {
        chain.extend(certificates("extra-certs", extra, refusals)?);
    }
    if tls.asks_key_password {
        return Some(Identity::locked());
    }
    let sections = sections("key", key, refusals)?;
    let key = sections.iter().find(|section| section.label.ends_with("PRIVATE KEY"));
    let key = key.and_then(|section| PrivateKeyDer::try_from(section.der.expose().to_vec()).ok());
    if key.is_none() {
        refusals.wrong("key", "there is no private key in it".to_owned(), PEM_FIX);
    }
    Some(Identity { chain, key: key? })
}

fn certificates(
    name: &str,
    material: &Material,
    refusals: &mut Refusals,
) -> Option<Vec<CertificateDer<'static>>> {
    let sections = sections(name, material, refusals)?;
    let found = sections.iter().filter(|section| section.label == "CERTIFICATE");
    let found: Vec<CertificateDer<'static>> =
        found.map(|section| CertificateDer::from(section.der.expose().to_vec())).collect();
    if found.is_empty() {
        refusals.wrong(name, "there is no BEGIN CERTIFICATE in it".to_owned(), PEM_FIX);
        return None;
    }
    Some(found)
}

pub(super) fn sections(name: &str, material: &Material, refusals: &mut Refusals) -> Option<Vec<Section>> {
    match pem::read(material.bytes()) {
        Ok(sections) => Some(sections),
        Err(error) => wrong(refusals, name, &error, PEM_FIX),
    }
}

fn wrong<T>(refusals: &mut Refusals, name: &str, error: &dyn std::error::Error, fix: &str) -> Option<T> {
    refusals.wrong(name, error.to_string(), fix);
    None
}
