//! Two peers, site to site: nothing is pushed, and what protects data packets follows from what both announce.
//!
//! The server of TLS chooses the cipher: the first of its list that the other accepts. Both find the same choice. A peer that does not
//! negotiate (before 2.6, or with a static configuration) gets data packets of version 1 under derived keys.

use super::action::Cause;
use super::channel::Channel;
use super::keepalive::Keepalive;
use super::keys::{self, DataKeyError};
use super::negotiate::{self, DataCipher, NoCommonCipher, Suite};
use super::peer::Agreement;
use super::peer_info::{PeerInfo, proto};
use super::wrap::Role;
use crypto::cipher::Integrity;

/// What a peer announces of the features that it uses.
const ANNOUNCED: u32 = proto::DATA_V2
    | proto::TLS_EXPORT
    | proto::CONTROL_EXIT
    | proto::DYNAMIC_TLS_CRYPT
    | proto::DATA_EPOCH
    | proto::NEGOTIATING_PEER;
/// The peer ID of data packets between peers that cannot export one.
const PEER_ID: u32 = 0x0076_706e;

/// What this end is configured with.
pub(super) struct Own<'a> {
    pub(super) role: Role,
    pub(super) ciphers: &'a [DataCipher],
    pub(super) fallback: Option<DataCipher>,
    pub(super) auth: Integrity,
    pub(super) keepalive: Keepalive,
}

/// Our peer information. `features`: bits that may be announced.
pub(super) fn announcement(
    features: u32,
    ciphers: &[DataCipher],
    mtu: u16,
    more: &[(String, String)],
) -> String {
    let features = features & ANNOUNCED | proto::NEGOTIATING_PEER;
    PeerInfo::of_client(features, &DataCipher::list(ciphers), mtu, more)
}

/// What both ends do with data packets, and whether later keys are negotiated under a wrap of their own. `info` is limited to the
/// features that are used here.
pub(super) fn agree(
    own: &Own<'_>,
    info: &PeerInfo,
    options: &str,
    channel: &Channel,
) -> Result<(Agreement, bool), Cause> {
    let negotiates = info.announces(proto::NEGOTIATING_PEER);
    let none = PeerInfo::default();
    let info = if negotiates { info } else { &none };
    let cipher = cipher(own, info, options)?;
    let export_keys = info.has(proto::TLS_EXPORT);
    let peer_id = match (info.has(proto::DATA_V2), export_keys) {
        (false, _) => None,
        (true, false) => Some(PEER_ID),
        (true, true) => Some(channel.exported(0, keys::peer_id).map_err(DataKeyError::from)?),
    };
    let epochs = cipher.is_aead() && info.has(proto::DATA_EPOCH | proto::DATA_V2 | proto::TLS_EXPORT);
    let agreement = Agreement {
        suite: Suite { cipher, auth: own.auth, epochs, framing: None },
        export_keys,
        peer_id,
        lookup: 0,
        control_exit: info.has(proto::CONTROL_EXIT),
        keepalive: own.keepalive,
    };
    Ok((agreement, info.has(proto::DYNAMIC_TLS_CRYPT)))
}

fn cipher(own: &Own<'_>, info: &PeerInfo, options: &str) -> Result<DataCipher, NoCommonCipher> {
    let Some(theirs) = info.ciphers.as_ref().filter(|_| own.role == Role::Client) else {
        return negotiate::choose(own.ciphers, own.fallback, info, options);
    };
    let is_ours = |cipher: &DataCipher| own.ciphers.contains(cipher);
    let mut named = theirs.iter().filter_map(|name| DataCipher::by_name(name));
    named
        .find(is_ours)
        .ok_or_else(|| NoCommonCipher { ours: DataCipher::list(own.ciphers), theirs: theirs.join(":") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(role: Role, ours: &[DataCipher], info: &str, options: &str) -> Option<DataCipher> {
        let (fallback, auth, keepalive) = (None, Integrity::HmacSha1, Keepalive::default());
        let own = Own { role, ciphers: ours, fallback, auth, keepalive };
        cipher(&own, &PeerInfo::parse(info), options).ok()
    }

    #[test]
    fn the_list_of_the_server_of_tls_decides_on_both_ends() {
        let [aes256, aes128, chacha] = DataCipher::DEFAULT;
        let (server, client) = ([chacha, aes128], [aes256, aes128, chacha]);
        let lists = [&client[..], &server].map(|list| format!("IV_CIPHERS={}", DataCipher::list(list)));
        assert_eq!(chosen(Role::Server, &server, &lists[0], ""), Some(chacha));
        assert_eq!(chosen(Role::Client, &client, &lists[1], ""), Some(chacha));
        assert_eq!(chosen(Role::Client, &[aes256], &lists[1], ""), None);
    }

    #[test]
    fn a_peer_that_does_not_negotiate_names_its_cipher_in_its_options() {
        let options = "V4,dev-type tun,cipher AES-128-GCM,auth SHA1";
        for role in [Role::Server, Role::Client] {
            assert_eq!(chosen(role, &DataCipher::DEFAULT, "", options), Some(DataCipher::DEFAULT[1]));
        }
    }

    #[test]
    fn a_peer_announces_that_it_negotiates_and_does_not_ask_for_options() {
        let info = PeerInfo::parse(&announcement(super::super::peer_info::OURS, &[], 1500, &[]));
        assert!(info.has(proto::NEGOTIATING_PEER | proto::DATA_V2) && !info.has(proto::REQUEST_PUSH));
    }
}
