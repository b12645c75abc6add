//! Algorithms in the words of swanctl, which are those of `show` in VyOS.

/// The algorithms of an SA.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Suite {
    /// `AES_GCM_16` or `AES_CBC`.
    pub(crate) cipher: String,
    /// Bits of its key, where there are several.
    pub(crate) key: Option<String>,
    /// The MAC, unless the cipher authenticates.
    pub(crate) integrity: Option<String>,
    /// The pseudorandom function, of IKE.
    pub(crate) prf: Option<String>,
    /// The Diffie-Hellman group.
    pub(crate) group: Option<String>,
    /// Whether sequence numbers have 64 bits.
    pub(crate) extended: bool,
}

impl Suite {
    /// Reads what the API says: `aes256gcm128-prfsha256-ecp256`.
    pub(crate) fn read(text: &str) -> Self {
        let mut suite = Self::default();
        for word in text.split('-') {
            if word == "esn" {
                suite.extended = true;
            } else if let Some(hash) = word.strip_prefix("prf") {
                suite.prf = Some(format!("PRF_{}", prf(hash)));
            } else if let Some(mac) = integrity(word) {
                suite.integrity = Some(mac.to_owned());
            } else if let Some(group) = group(word) {
                suite.group = Some(group);
            } else if suite.cipher.is_empty() {
                (suite.cipher, suite.key) = cipher(word);
            }
        }
        suite
    }

    /// The cipher with its key: `AES_GCM_16_256`.
    pub(crate) fn encryption(&self, between: &str) -> String {
        let key = self.key.iter().map(|bits| format!("{between}{bits}"));
        [self.cipher.clone()].into_iter().chain(key).collect()
    }

    /// All that there is, as `AES_CBC_256/HMAC_SHA2_256_128/MODP_2048`.
    pub(crate) fn joined(&self, between: &str) -> String {
        let parts = [Some(self.encryption(between)), self.integrity.clone(), self.group.clone()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }

    /// The same as swanctl prints it: with PRF and sequence numbers.
    pub(crate) fn full(&self) -> String {
        let extended = self.extended.then(|| "ESN".to_owned());
        let parts = [
            Some(self.encryption("-")),
            self.integrity.clone(),
            self.prf.clone(),
            self.group.clone(),
            extended,
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }
}

fn cipher(word: &str) -> (String, Option<String>) {
    let whole = |name: &str| (name.to_owned(), None);
    match word {
        "3des" => return whole("3DES_CBC"),
        "null" => return whole("NULL"),
        "chacha20poly1305" => return whole("CHACHA20_POLY1305"),
        _ => {}
    }
    let Some((bits, mode)) = word.strip_prefix("aes").and_then(|rest| rest.split_at_checked(3)) else {
        return whole(word);
    };
    let tag = |mode: &str, bits: &str| bits.parse::<u16>().map(|bits| format!("AES_{mode}_{}", bits / 8));
    let name = match mode {
        "" => Ok("AES_CBC".to_owned()),
        "ctr" => Ok("AES_CTR".to_owned()),
        "gmac" => Ok("NULL_AES_GMAC".to_owned()),
        _ => match mode.split_at_checked(3) {
            Some(("gcm", bits)) => tag("GCM", bits),
            Some(("ccm", bits)) => tag("CCM", bits),
            _ => return whole(word),
        },
    };
    name.map_or_else(|_| whole(word), |name| (name, Some(bits.to_owned())))
}

fn integrity(word: &str) -> Option<&'static str> {
    Some(match word {
        "sha1" => "HMAC_SHA1_96",
        "sha256" => "HMAC_SHA2_256_128",
        "sha384" => "HMAC_SHA2_384_192",
        "sha512" => "HMAC_SHA2_512_256",
        "aesxcbc" => "AES_XCBC_96",
        _ => return None,
    })
}

fn prf(hash: &str) -> &str {
    match hash {
        "sha1" => "HMAC_SHA1",
        "sha256" => "HMAC_SHA2_256",
        "sha384" => "HMAC_SHA2_384",
        "sha512" => "HMAC_SHA2_512",
        "aesxcbc" => "AES128_XCBC",
        other => other,
    }
}

fn group(word: &str) -> Option<String> {
    if word == "x25519" {
        return Some("CURVE_25519".to_owned());
    }
    let number = |prefix: &str| word.strip_prefix(prefix).filter(|rest| rest.parse::<u16>().is_ok());
    let named = |prefix: &str, name: &str| number(prefix).map(|number| format!("{name}_{number}"));
    named("modp", "MODP").or_else(|| named("ecp", "ECP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_written_as_vyos_writes_them() {
        let joined = |text: &str| Suite::read(text).joined("_");
        assert_eq!(joined("aes256gcm128-modp2048-esn"), "AES_GCM_16_256/MODP_2048");
        assert_eq!(joined("aes256-sha256-modp2048"), "AES_CBC_256/HMAC_SHA2_256_128/MODP_2048");
        assert_eq!(joined("chacha20poly1305-prfsha256-x25519"), "CHACHA20_POLY1305/CURVE_25519");
        assert_eq!(joined("3des-sha1"), "3DES_CBC/HMAC_SHA1_96");
        assert_eq!(joined("aes128gmac"), "NULL_AES_GMAC_128");
        assert_eq!(Suite::read("aes192ccm64-aesxcbc").joined("/"), "AES_CCM_8/192/AES_XCBC_96");
        assert_eq!(
            Suite::read("aes128-sha1-prfsha1-modp1024").full(),
            "AES_CBC-128/HMAC_SHA1_96/PRF_HMAC_SHA1/MODP_1024"
        );
        assert_eq!(Suite::read("aes128gcm96-esn").full(), "AES_GCM_12-128/ESN");
    }
}
