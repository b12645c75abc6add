//! Data keys: 256 bytes, exported from TLS or, for peers before 2.6, from the PRF of TLS 1.0 (RFC 2246, section 5).
//!
//! ```text
//! client to server: cipher key 64 | HMAC key 64 | server to client: cipher key 64 | HMAC key 64
//! ```

use super::key_method::KeySource;
use super::packet::SessionId;
use super::tls::{Tls, TlsError};
use super::wrap::Role;
use crypto::engine::{LoadError, tls1_prf};
use std::fmt;
use zeroize::Zeroizing;

/// RFC 5705 label of data keys.
const DATA_LABEL: &[u8] = b"EXPORTER-OpenVPN-datakeys";
/// RFC 5705 label of dynamic tls-crypt.
const WRAP_LABEL: &[u8] = b"EXPORTER-OpenVPN-dynamic-tls-crypt";
/// RFC 5705 label of the peer ID of two peers without a server.
const PEER_ID_LABEL: &[u8] = b"EXPORTER-OpenVPN-p2p-peerid";
/// Bytes of both directions.
const LENGTH: usize = 256;
const DIRECTION: usize = LENGTH / 2;

/// Why data keys cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataKeyError {
    /// TLS does not export keys.
    #[error(transparent)]
    Export(#[from] TlsError),
    /// The engine does not load them.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// The data keys of both directions.
pub struct DataKeys(Zeroizing<[u8; LENGTH]>);

impl fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKeys(..)")
    }
}

/// The keys of one direction: which part is used depends on the cipher.
#[derive(Clone, Copy)]
pub struct Direction<'a> {
    /// The cipher key.
    pub cipher: &'a [u8],
    /// The HMAC key; with an AEAD cipher, the constant part of nonces.
    pub hmac: &'a [u8],
}

impl DataKeys {
    /// Exports the keys from TLS.
    pub fn export(tls: &Tls) -> Result<Self, TlsError> {
        tls.export(DATA_LABEL).map(Self)
    }

    /// Derives the keys from the random numbers of both sides and their session IDs.
    pub fn derive(sources: [&KeySource; 2], sessions: [SessionId; 2]) -> Self {
        let ([client, server], [client_session, server_session]) = (sources, sessions);
        let seeds: &[&[u8]] = &[&client.random1, &server.random1];
        let master = tls1_prf::compute(&client.pre_master, b"OpenVPN master secret", seeds, 48);
        let seeds: &[&[u8]] = &[&client.random2, &server.random2, &client_session.0, &server_session.0];
        let keys = tls1_prf::compute(master.expose(), b"OpenVPN key expansion", seeds, LENGTH);
        Self(Zeroizing::new(keys.expose().try_into().expect("as long as it was asked for")))
    }

    /// The keys with which `sender` seals.
    pub fn of_sender(&self, sender: Role) -> Direction<'_> {
        let start = if sender == Role::Client { 0 } else { DIRECTION };
        let (cipher, hmac) = self.0[start..start + DIRECTION].split_at(DIRECTION / 2);
        Direction { cipher, hmac }
    }
}

/// Exports the key of dynamic tls-crypt from the first TLS session.
pub fn export_wrap(tls: &Tls) -> Result<Zeroizing<[u8; LENGTH]>, TlsError> {
    tls.export(WRAP_LABEL)
}

/// Exports the peer ID of data packets between two peers without a server.
pub fn peer_id(tls: &Tls) -> Result<u32, TlsError> {
    let [high, middle, low] = *tls.export(PEER_ID_LABEL)?;
    Ok(u32::from_be_bytes([0, high, middle, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both steps written out with the PRF, whose own vector is in `crypto`.
    #[test]
    fn the_prf_takes_the_master_secret_and_both_session_ids() {
        let client = KeySource { pre_master: [1; 48], random1: [2; 32], random2: [3; 32] };
        let server = KeySource { pre_master: [0; 48], random1: [4; 32], random2: [5; 32] };
        let sessions = [SessionId([6; 8]), SessionId([7; 8])];
        let keys = DataKeys::derive([&client, &server], sessions);
        let master = tls1_prf::compute(&[1; 48], b"OpenVPN master secret", &[&[2; 32], &[4; 32]], 48);
        let seed = [&[3; 32][..], &[5; 32], &[6; 8], &[7; 8]].concat();
        let expected = tls1_prf::compute(master.expose(), b"OpenVPN key expansion", &[&seed], 256);
        assert_eq!(keys.of_sender(Role::Client).cipher, &expected.expose()[..64]);
        assert_eq!(keys.of_sender(Role::Client).hmac, &expected.expose()[64..128]);
        assert_eq!(keys.of_sender(Role::Server).cipher, &expected.expose()[128..192]);
        assert_eq!(format!("{keys:?}"), "DataKeys(..)");
    }
}
