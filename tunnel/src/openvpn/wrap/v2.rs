//! tls-crypt-v2: the server wraps each client's key with a key of its own, and the client sends the wrapped key along.
//!
//! ```text
//! wrapped key   tag 32 | encrypted (client key 256 | metadata) | length of all of it 2
//! tag           HMAC-SHA256(length 2 | client key 256 | metadata), also the first counter block
//! ```

use super::{KEY, StaticKey, TAG, WrapError, authentic, counter_block, mac};
use crypto::{Random, ctr, pem};
use std::fmt;
use std::time::Duration;
use zeroize::Zeroizing;

/// Bytes of a server key: a cipher key and an HMAC key, 64 bytes each.
const SERVER_KEY: usize = 128;
/// The longest wrapped key.
const LONGEST: usize = 1024;
/// The longest metadata, with its type.
pub const LONGEST_METADATA: usize = LONGEST - TAG - KEY - 2;

const SERVER_LABEL: &str = "OpenVPN tls-crypt-v2 server key";
const CLIENT_LABEL: &str = "OpenVPN tls-crypt-v2 client key";

/// Why a file with a key of tls-crypt-v2 cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// The file is not PEM.
    #[error(transparent)]
    Pem(#[from] pem::PemError),
    /// There is no section with this label.
    #[error("there is no section \"{0}\"")]
    Missing(&'static str),
    /// The key has an impossible length.
    #[error("a key of tls-crypt-v2 does not have {0} bytes")]
    Length(usize),
}

fn section(file: &[u8], label: &'static str) -> Result<crypto::SecretBytes, KeyFileError> {
    let found = pem::read(file)?.into_iter().find(|section| section.label == label && !section.encrypted);
    Ok(found.ok_or(KeyFileError::Missing(label))?.der)
}

/// What a client's key was made for. It is authenticated by the server's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// Bytes of the administrator's choice.
    User(Vec<u8>),
    /// When the key was made, since 1970.
    Made(Duration),
    /// A type that is not known here.
    Other(u8, Vec<u8>),
}

impl Metadata {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&kind, value) = bytes.split_first()?;
        Some(match (kind, <[u8; 8]>::try_from(value)) {
            (0, _) => Self::User(value.to_vec()),
            (1, Ok(seconds)) => Self::Made(Duration::from_secs(u64::from_be_bytes(seconds))),
            _ => Self::Other(kind, value.to_vec()),
        })
    }

    /// The type, and the bytes behind it.
    pub fn parts(&self) -> (u8, Vec<u8>) {
        let mut bytes = self.emit();
        let kind = bytes.remove(0);
        (kind, bytes)
    }

    fn emit(&self) -> Vec<u8> {
        match self {
            Self::User(value) => [&[0][..], value].concat(),
            Self::Made(time) => [&[1][..], &time.as_secs().to_be_bytes()].concat(),
            Self::Other(kind, value) => [&[*kind][..], value].concat(),
        }
    }
}

/// The server's key.
pub struct ServerKey(Zeroizing<[u8; SERVER_KEY]>);

impl ServerKey {
    /// A random key.
    pub fn random(random: &mut dyn Random) -> Self {
        let mut key = Zeroizing::new([0; SERVER_KEY]);
        random.fill(&mut key[..]);
        Self(key)
    }

    /// Reads a key file.
    pub fn from_file(file: &[u8]) -> Result<Self, KeyFileError> {
        let bytes = section(file, SERVER_LABEL)?;
        let key = bytes.expose().try_into().map_err(|_| KeyFileError::Length(bytes.len()))?;
        Ok(Self(Zeroizing::new(key)))
    }

    /// The key as a file.
    pub fn to_file(&self) -> Zeroizing<String> {
        pem::write(SERVER_LABEL, &self.0[..])
    }

    fn parts(&self) -> (&[u8; 32], &[u8]) {
        let (cipher, hmac) = self.0.split_at(SERVER_KEY / 2);
        (cipher.first_chunk().expect("64 bytes"), &hmac[..TAG])
    }

    /// Wraps a client's key. The metadata has at most [`LONGEST_METADATA`] bytes, or `None` is returned.
    pub fn wrap(&self, client: StaticKey, metadata: Option<&Metadata>) -> Option<ClientKey> {
        let metadata = metadata.map(Metadata::emit).unwrap_or_default();
        if metadata.len() > LONGEST_METADATA {
            return None;
        }
        let length = ((TAG + KEY + metadata.len() + 2) as u16).to_be_bytes();
        let (cipher, hmac) = self.parts();
        let tag = mac(hmac, &[&length, client.expose(), &metadata]);
        let mut wrapped = Vec::with_capacity(LONGEST);
        wrapped.extend_from_slice(&tag);
        wrapped.extend_from_slice(client.expose());
        wrapped.extend_from_slice(&metadata);
        ctr::apply(cipher, counter_block(&tag), &mut wrapped[TAG..]);
        wrapped.extend_from_slice(&length);
        Some(ClientKey { key: client, wrapped })
    }

    /// Splits a packet with a client's wrapped key at its end into the packet, the client's key, and the metadata.
    pub fn unwrap<'a>(&self, packet: &'a [u8]) -> Result<(&'a [u8], StaticKey, Option<Metadata>), WrapError> {
        let (rest, length) = packet.split_last_chunk::<2>().ok_or(WrapError::Malformed)?;
        let whole = usize::from(u16::from_be_bytes(*length));
        if !(TAG + KEY + 2..=LONGEST).contains(&whole) {
            return Err(WrapError::Malformed);
        }
        let start = packet.len().checked_sub(whole).ok_or(WrapError::Malformed)?;
        let (packet, wrapped) = rest.split_at(start);
        let (tag, encrypted) = wrapped.split_first_chunk::<TAG>().ok_or(WrapError::Malformed)?;
        let (cipher, hmac) = self.parts();
        let mut text = Zeroizing::new(encrypted.to_vec());
        ctr::apply(cipher, counter_block(tag), &mut text);
        authentic(&mac(hmac, &[length, &text]), tag)?;
        let (key, metadata) = text.split_first_chunk::<KEY>().ok_or(WrapError::Malformed)?;
        Ok((packet, StaticKey::new(key), Metadata::parse(metadata)))
    }
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerKey(..)")
    }
}

/// A client's key, and the same wrapped for its server.
#[derive(Clone, Debug)]
pub struct ClientKey {
    /// The key of the wrap.
    pub key: StaticKey,
    /// The wrapped key, which only the server can read.
    pub wrapped: Vec<u8>,
}

impl ClientKey {
    /// Reads a key file.
    pub fn from_file(file: &[u8]) -> Result<Self, KeyFileError> {
        let bytes = section(file, CLIENT_LABEL)?;
        let (key, wrapped) =
            bytes.expose().split_first_chunk::<KEY>().ok_or(KeyFileError::Length(bytes.len()))?;
        if !(TAG + KEY + 2..=LONGEST).contains(&wrapped.len()) {
            return Err(KeyFileError::Length(bytes.len()));
        }
        Ok(Self { key: StaticKey::new(key), wrapped: wrapped.to_vec() })
    }

    /// The key as a file.
    pub fn to_file(&self) -> Zeroizing<String> {
        pem::write(CLIENT_LABEL, &Zeroizing::new([self.key.expose(), &self.wrapped[..]].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> ServerKey {
        ServerKey(Zeroizing::new(std::array::from_fn(|index| index as u8)))
    }

    #[test]
    fn a_wrapped_key_is_unwrapped_by_its_server_only() {
        for metadata in
            [None, Some(Metadata::User(b"berlin".to_vec())), Some(Metadata::Made(Duration::from_secs(9)))]
        {
            let client = server().wrap(StaticKey::new(&[9; KEY]), metadata.as_ref()).expect("short");
            let packet = [b"packet", &client.wrapped[..]].concat();
            let (rest, key, found) = server().unwrap(&packet).expect("authentic");
            assert_eq!((rest, key.expose(), found), (&b"packet"[..], &[9; KEY], metadata));
            let other = ServerKey(Zeroizing::new([1; SERVER_KEY]));
            assert_eq!(other.unwrap(&packet).map(|_| ()), Err(WrapError::NotAuthentic));
            for index in 6..packet.len() {
                let mut changed = packet.clone();
                changed[index] ^= 1;
                assert!(server().unwrap(&changed).is_err(), "{index}");
            }
            for length in 0..packet.len() {
                assert!(server().unwrap(&packet[..length]).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn keys_are_written_to_files_and_read_again() {
        let client = server().wrap(StaticKey::new(&[9; KEY]), None).expect("short");
        let read = ClientKey::from_file(client.to_file().as_bytes()).expect("a file of ours");
        assert_eq!((read.key.expose(), read.wrapped), (&[9; KEY], client.wrapped));
        let file = server().to_file();
        assert_eq!(ServerKey::from_file(file.as_bytes()).expect("a file of ours").0, server().0);
        assert!(file.lines().all(|line| line.len() <= 64));
    }

    #[test]
    fn metadata_that_is_too_long_is_not_wrapped() {
        let metadata = |length| Metadata::User(vec![0; length - 1]);
        let wrap = |length| server().wrap(StaticKey::new(&[9; KEY]), Some(&metadata(length)));
        assert_eq!(wrap(LONGEST_METADATA).expect("fits").wrapped.len(), LONGEST);
        assert!(wrap(LONGEST_METADATA + 1).is_none());
    }
}
