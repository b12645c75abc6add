//! The choice of the data cipher: the server takes the first of its list that the client accepts.

use super::data::Framing;
use super::peer_info::PeerInfo;
use crypto::Cipher;
use crypto::cipher::{Encryption, Integrity};
use std::fmt;

/// A cipher of data packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataCipher {
    /// An AEAD cipher: any AES-GCM, or ChaCha20-Poly1305.
    Aead(Cipher),
    /// AES in CBC mode, or no cipher, with the HMAC that both sides are configured with.
    WithHmac(Encryption),
}

/// How data packets are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    /// The cipher.
    pub cipher: DataCipher,
    /// `auth`: the HMAC of a cipher that is no AEAD cipher. It is not negotiated.
    pub auth: Integrity,
    /// `protocol-flags aead-epoch`: an AEAD cipher has epoch keys.
    pub epochs: bool,
    /// The framing of compression around inner packets, which are not compressed.
    pub framing: Option<Framing>,
}

impl DataCipher {
    const NAMES: [(&str, Self); 8] = [
        ("AES-256-GCM", Self::Aead(Cipher::Aes256Gcm)),
        ("AES-192-GCM", Self::Aead(Cipher::Aes192Gcm)),
        ("AES-128-GCM", Self::Aead(Cipher::Aes128Gcm)),
        ("CHACHA20-POLY1305", Self::Aead(Cipher::ChaCha20Poly1305)),
        ("AES-256-CBC", Self::WithHmac(Encryption::AesCbc(32))),
        ("AES-192-CBC", Self::WithHmac(Encryption::AesCbc(24))),
        ("AES-128-CBC", Self::WithHmac(Encryption::AesCbc(16))),
        ("none", Self::WithHmac(Encryption::Null)),
    ];

    /// OpenVPN's default for `--data-ciphers`.
    pub const DEFAULT: [Self; 3] =
        [Self::Aead(Cipher::Aes256Gcm), Self::Aead(Cipher::Aes128Gcm), Self::Aead(Cipher::ChaCha20Poly1305)];

    /// Whether it can have epoch keys.
    pub fn is_aead(self) -> bool {
        matches!(self, Self::Aead(_))
    }

    /// OpenVPN's name.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, cipher)| *cipher == self);
        found.map_or("unknown", |(name, _)| *name)
    }

    /// The cipher with OpenVPN's name, in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, cipher)| *cipher)
    }

    /// Names of a list, as in `--data-ciphers`.
    pub fn list(ciphers: &[Self]) -> String {
        ciphers.iter().map(|cipher| cipher.name()).collect::<Vec<_>>().join(":")
    }
}

impl fmt::Display for DataCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// OpenVPN's name of an HMAC, as in `--auth`.
pub fn auth_name(auth: Integrity) -> &'static str {
    match auth {
        Integrity::HmacSha256 => "SHA256",
        Integrity::HmacSha384 => "SHA384",
        Integrity::HmacSha512 => "SHA512",
        // Of the others, OpenVPN has only this.
        Integrity::HmacSha1 | Integrity::AesXcbc => "SHA1",
    }
}

/// No cipher is accepted by both sides.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no common cipher: we offer {ours}, the peer accepts {theirs}")]
pub struct NoCommonCipher {
    /// Our list.
    pub ours: String,
    /// What the peer has announced.
    pub theirs: String,
}

/// The cipher for a client with this information and this options summary. `fallback` is for a client that does not negotiate.
pub fn choose(
    ours: &[DataCipher],
    fallback: Option<DataCipher>,
    info: &PeerInfo,
    options: &str,
) -> Result<DataCipher, NoCommonCipher> {
    let named = |name: &str| ours.iter().find(|cipher| name.eq_ignore_ascii_case(cipher.name())).copied();
    let theirs = match (&info.ciphers, info.ncp) {
        (Some(ciphers), _) => ciphers.clone(),
        (None, 2..) => vec![String::from("AES-256-GCM"), String::from("AES-128-GCM")],
        (None, _) => option(options, "cipher").map(str::to_owned).into_iter().collect(),
    };
    let found = ours.iter().find(|our| theirs.iter().any(|name| named(name) == Some(**our)));
    let fallback = fallback.filter(|_| info.ciphers.is_none() && info.ncp < 2);
    found.copied().or(fallback).ok_or_else(|| NoCommonCipher {
        ours: DataCipher::list(ours),
        theirs: if theirs.is_empty() { String::from("none that it names") } else { theirs.join(":") },
    })
}

/// The value of a word in an options summary such as `V4,dev-type tun,cipher AES-256-CBC`.
pub fn option<'a>(options: &'a str, name: &str) -> Option<&'a str> {
    options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(ours: &[DataCipher], info: &str, options: &str) -> Result<DataCipher, NoCommonCipher> {
        choose(ours, None, &PeerInfo::parse(info), options)
    }

    #[test]
    fn the_fallback_is_for_clients_that_do_not_negotiate() {
        let (ours, cbc) = (DataCipher::DEFAULT, DataCipher::WithHmac(Encryption::AesCbc(32)));
        let chosen = |info, options| choose(&ours, Some(cbc), &PeerInfo::parse(info), options).ok();
        assert_eq!(chosen("", "cipher AES-256-CBC"), Some(cbc));
        assert_eq!(chosen("", "V4,dev-type tun"), Some(cbc));
        assert_eq!(chosen("", "cipher AES-128-GCM"), Some(ours[1]), "a cipher of the list is better");
        assert_eq!(chosen("IV_CIPHERS=AES-256-CBC", "cipher AES-256-CBC"), None);
        assert_eq!(chosen("IV_NCP=2", "cipher AES-256-CBC"), Some(ours[0]));
    }

    #[test]
    fn the_order_of_the_server_counts() {
        let ours = [DataCipher::Aead(Cipher::ChaCha20Poly1305), DataCipher::Aead(Cipher::Aes256Gcm)];
        assert_eq!(chosen(&ours, "IV_CIPHERS=AES-256-GCM:chacha20-poly1305", ""), Ok(ours[0]));
        assert_eq!(chosen(&ours, "IV_CIPHERS=BF-CBC:AES-256-GCM", ""), Ok(ours[1]));
    }

    #[test]
    fn clients_without_a_list_have_both_gcm_ciphers_or_the_one_of_their_options() {
        let ours = DataCipher::DEFAULT;
        assert_eq!(chosen(&ours, "IV_NCP=2", "cipher AES-256-CBC"), Ok(ours[0]));
        assert_eq!(chosen(&ours, "", "V4,dev-type tun,cipher AES-128-GCM,auth SHA1"), Ok(ours[1]));
    }

    #[test]
    fn a_refusal_names_both_lists() {
        let error =
            chosen(&DataCipher::DEFAULT[..1], "IV_CIPHERS=BF-CBC", "").expect_err("nothing in common");
        assert_eq!(error.to_string(), "no common cipher: we offer AES-256-GCM, the peer accepts BF-CBC");
    }
}
