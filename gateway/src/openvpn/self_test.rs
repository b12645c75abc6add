//! The test of a data cipher: packets of each length are sealed and opened as data packets are.

use config::openvpn::settings::Digest;
use crypto::cipher::{Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, LoadError};
use crypto::random::System;
use packet::{Batch, DropCounters};
use tunnel::openvpn::data::{AeadData, CbcData, DataKey, Header};
use tunnel::openvpn::keys::Direction;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::wrap::StaticKey;
use tunnel::replay::ReplayWindow;

/// The longest packet of the test: what a tunnel with the usual MTU carries, and some more.
pub const LONGEST: usize = 1768;

/// Why the test has failed.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    /// The cipher is not served.
    #[error("cipher: {0} is not served\n  fix: see postern openvpn --show-ciphers")]
    Cipher(String),
    /// The digest is not served.
    #[error("auth: {0} is not served\n  fix: see postern openvpn --show-digests")]
    Digest(String),
    /// The file has no key.
    #[error("secret: {0}")]
    Key(String),
    /// The engine does not load the key.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A packet is not the same afterwards.
    #[error("{0}: a packet of {1} bytes was not the same afterwards")]
    Changed(DataCipher, usize),
}

/// Tests a cipher by its name, with the key of a file or a random one.
pub fn run(cipher: &str, digest: &str, file: Option<&str>) -> Result<DataCipher, SelfTestError> {
    let key = match file {
        None => StaticKey::random(&mut System::default()),
        Some(file) => StaticKey::from_file(file).map_err(|error| SelfTestError::Key(error.to_string()))?,
    };
    let integrity = match Digest::of(digest) {
        Some(Digest::Sha1) => Integrity::HmacSha1,
        Some(Digest::Sha256) => Integrity::HmacSha256,
        Some(Digest::Sha384) => Integrity::HmacSha384,
        Some(Digest::Sha512) => Integrity::HmacSha512,
        Some(Digest::None) | None => return Err(SelfTestError::Digest(digest.to_owned())),
    };
    let cipher = DataCipher::by_name(cipher).ok_or_else(|| SelfTestError::Cipher(cipher.to_owned()))?;
    let data = data(cipher, integrity, &key)?;
    let changed = (1..=LONGEST).find(|length| !is_carried(&data, *length));
    changed.map_or(Ok(cipher), |length| Err(SelfTestError::Changed(cipher, length)))
}

fn data(cipher: DataCipher, integrity: Integrity, key: &StaticKey) -> Result<DataKey, LoadError> {
    let (cipher_key, hmac) = key.expose()[..128].split_at(64);
    let header = Header::V2 { key_id: 0, peer_id: 0 };
    Ok(match cipher {
        DataCipher::Aead(aead) => {
            let constant = *hmac.first_chunk().expect("64 bytes");
            DataKey::Aead(AeadData::new(
                AwsLc.load(aead, &cipher_key[..aead.key_length()])?,
                constant,
                header,
            ))
        }
        DataCipher::WithHmac(encryption) => {
            let keys = Direction { cipher: cipher_key, hmac };
            DataKey::Cbc(CbcData::load(Pair { encryption, integrity }, keys, header, &mut System::default())?)
        }
    })
}

/// Whether a packet is the same after it was sealed and opened.
fn is_carried(data: &DataKey, length: usize) -> bool {
    let inner: Vec<u8> = (0..length).map(|index| index as u8).collect();
    let (mut batch, drops) = (Batch::new(8192), DropCounters::default());
    let Some(packet) = batch.append(length) else { return false };
    packet.copy_from_slice(&inner);
    data.lay_out(&mut batch, 0..1, 1);
    if data.seal(&mut batch, 0..1, 1).is_err() {
        return false;
    }
    data.check(&mut batch, 0..1, &ReplayWindow::new(64), u64::MAX, &drops);
    data.open(&mut batch, 0..1, &drops);
    batch.is_live(0) && batch.packet(0)[data.overhead()..][..length] == inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cipher_and_each_digest_passes_and_others_are_refused() {
        let file = StaticKey::random(&mut System::default()).to_file();
        for cipher in config::openvpn::settings::DataCipher::ALL {
            for digest in Digest::ALL.iter().filter(|digest| **digest != Digest::None) {
                assert!(run(cipher.name(), digest.name(), Some(&file)).is_ok(), "{cipher:?} {digest:?}");
            }
        }
        assert!(matches!(run("BF-CBC", "SHA1", None), Err(SelfTestError::Cipher(_))));
        assert!(matches!(run("AES-128-CBC", "MD5", None), Err(SelfTestError::Digest(_))));
        assert!(matches!(run("AES-128-CBC", "SHA1", Some("x")), Err(SelfTestError::Key(_))));
    }
}
