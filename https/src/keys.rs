//! Keys of clients: the server has salted hashes of them only.

use base64ct::{Base64, Encoding};
use gateway::https::wire::{Key, hash};
use subtle::ConstantTimeEq;

/// The keys, by their names.
#[derive(Default)]
pub(crate) struct Keys {
    salt: Vec<u8>,
    hashes: Vec<(String, [u8; 32])>,
}

impl Keys {
    /// The keys that the daemon names; one that cannot be read is no key.
    pub(crate) fn new(salt: &str, keys: &[Key]) -> Self {
        let hash = |text: &str| Base64::decode_vec(text).ok()?.try_into().ok();
        Self {
            salt: Base64::decode_vec(salt).unwrap_or_default(),
            hashes: keys.iter().filter_map(|key| Some((key.id.clone(), hash(&key.hash)?))).collect(),
        }
    }

    /// The name of a key. How long it takes tells neither which one it is nor how much of it is right.
    pub(crate) fn name(&self, key: &[u8]) -> Option<&str> {
        let asked = hash(&self.salt, key);
        let mut found = None;
        for (name, known) in &self.hashes {
            if bool::from(known.ct_eq(&asked)) {
                found = Some(name.as_str());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_hash_and_nothing_else_is_a_key() {
        let key = |id: &str, key: &str| Key {
            id: id.to_owned(),
            hash: Base64::encode_string(&hash(b"salt", key.as_bytes())),
        };
        let known = [key("a", "one"), key("b", "two"), Key { id: "c".to_owned(), hash: "AAAA".to_owned() }];
        let keys = Keys::new(&Base64::encode_string(b"salt"), &known);
        assert_eq!((keys.name(b"one"), keys.name(b"two")), (Some("a"), Some("b")));
        for wrong in [&b""[..], b"on", b"one ", b"\0\0\0"] {
            assert_eq!(keys.name(wrong), None);
        }
        assert_eq!(Keys::default().name(b""), None);
    }
}
