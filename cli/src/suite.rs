//! Algorithms in the format of swanctl and of VyOS.

use gateway::ipsec::model::{Algorithms, Group, Integrity, Prf};

/// The cipher with its key size: `AES_GCM_16_256`.
pub(crate) fn encryption(algorithms: &Algorithms, between: &str) -> String {
    let key = algorithms.key_bits.map(|bits| format!("{between}{bits}"));
    algorithms.encryption.name().to_owned() + &key.unwrap_or_default()
}

/// Cipher, MAC and group: `AES_CBC_256/HMAC_SHA2_256_128/MODP_2048`.
pub(crate) fn joined(algorithms: &Algorithms, between: &str) -> String {
    let integrity = algorithms.integrity.map(Integrity::name);
    parts(encryption(algorithms, between), [integrity, algorithms.group.map(Group::name)])
}

/// The same as swanctl prints it: with PRF and sequence numbers.
pub(crate) fn full(algorithms: &Algorithms) -> String {
    let rest = [
        algorithms.integrity.map(Integrity::name),
        algorithms.prf.map(Prf::name),
        algorithms.group.map(Group::name),
        algorithms.extended_sequence.then_some("ESN"),
    ];
    parts(encryption(algorithms, "-"), rest)
}

fn parts<const N: usize>(first: String, rest: [Option<&str>; N]) -> String {
    rest.into_iter().flatten().fold(first, |text, part| text + "/" + part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::ipsec::model::Encryption;

    #[test]
    fn algorithms_are_written_as_vyos_writes_them() {
        let gcm = Algorithms {
            encryption: Encryption::AesGcm16,
            key_bits: Some(256),
            integrity: None,
            prf: None,
            group: Some(Group::Modp2048),
            extended_sequence: true,
        };
        assert_eq!(joined(&gcm, "_"), "AES_GCM_16_256/MODP_2048");
        assert_eq!(full(&gcm), "AES_GCM_16-256/MODP_2048/ESN");
        let cbc = Algorithms {
            encryption: Encryption::AesCbc,
            integrity: Some(Integrity::HmacSha256),
            prf: Some(Prf::HmacSha1),
            extended_sequence: false,
            ..gcm
        };
        assert_eq!(joined(&cbc, "_"), "AES_CBC_256/HMAC_SHA2_256_128/MODP_2048");
        assert_eq!(full(&cbc), "AES_CBC-256/HMAC_SHA2_256_128/PRF_HMAC_SHA1/MODP_2048");
        let chacha =
            Algorithms { encryption: Encryption::ChaCha20Poly1305, key_bits: None, group: None, ..gcm };
        assert_eq!(
            (joined(&chacha, "/"), encryption(&chacha, "/")),
            ("CHACHA20_POLY1305".into(), "CHACHA20_POLY1305".into())
        );
    }
}
