//! Keys that OpenVPN's own files name, as `--genkey` makes them.

use crypto::pem;
use crypto::random::{Random, System};
use std::time::{SystemTime, UNIX_EPOCH};
use tunnel::openvpn::wrap::StaticKey;
use tunnel::openvpn::wrap::v2::{KeyFileError, LONGEST_METADATA, Metadata, ServerKey};
use zeroize::Zeroizing;

/// Bytes of a key of tokens.
const TOKEN_KEY: usize = 128;

/// Why the key of a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientKeyError {
    /// The server's key cannot be read.
    #[error(transparent)]
    Server(#[from] KeyFileError),
    /// The metadata does not fit.
    #[error("the metadata is too long\n  fix: write at most {} bytes", LONGEST_METADATA - 1)]
    Metadata,
}

/// A key for `tls-auth` and `tls-crypt`.
pub fn shared() -> Zeroizing<String> {
    StaticKey::random(&mut System::default()).to_file()
}

/// The server's key for `tls-crypt-v2`.
pub fn server() -> Zeroizing<String> {
    ServerKey::random(&mut System::default()).to_file()
}

/// A client's key for `tls-crypt-v2`, for the server with this key. Without metadata, it says when it was made.
pub fn client(server: &[u8], metadata: Option<Vec<u8>>) -> Result<Zeroizing<String>, ClientKeyError> {
    let now = || Metadata::Made(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let metadata = metadata.map_or_else(now, Metadata::User);
    let key = StaticKey::random(&mut System::default());
    let key = ServerKey::from_file(server)?.wrap(key, Some(&metadata)).ok_or(ClientKeyError::Metadata)?;
    Ok(key.to_file())
}

/// The key for `auth-gen-token-secret`.
pub fn tokens() -> Zeroizing<String> {
    let mut key = Zeroizing::new([0; TOKEN_KEY]);
    System::default().fill(&mut key[..]);
    pem::write("OpenVPN auth-token server key", &key[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tunnel::openvpn::wrap::v2::ClientKey;

    #[test]
    fn the_key_of_a_client_has_what_it_was_made_with() {
        let server = server();
        let own = ServerKey::from_file(server.as_bytes()).expect("a file of ours");
        let metadata = |given| {
            let key = client(server.as_bytes(), given).expect("it fits");
            let key = ClientKey::from_file(key.as_bytes()).expect("a file of ours");
            own.unwrap(&key.wrapped).expect("authentic").2
        };
        assert_eq!(metadata(Some(b"anna".to_vec())), Some(Metadata::User(b"anna".to_vec())));
        assert!(matches!(metadata(None), Some(Metadata::Made(time)) if time.as_secs() > 1_700_000_000));
        assert!(client(server.as_bytes(), Some(vec![0; LONGEST_METADATA - 1])).is_ok());
        let too_long = client(server.as_bytes(), Some(vec![0; LONGEST_METADATA]));
        assert!(matches!(too_long, Err(ClientKeyError::Metadata)));
        assert!(matches!(client(b"nothing", None), Err(ClientKeyError::Server(_))));
    }

    #[test]
    fn keys_differ_and_have_the_form_of_openvpn() {
        assert_ne!(shared(), shared());
        assert!(StaticKey::from_file(&shared()).is_ok());
        let sections = pem::read(tokens().as_bytes()).expect("PEM");
        assert_eq!(
            (sections[0].label.as_str(), sections[0].der.len()),
            ("OpenVPN auth-token server key", TOKEN_KEY)
        );
    }
}
