//! Files encrypted with a passphrase, in the format of age version 1 (<https://age-encryption.org/v1>).
//!
//! ```text
//! passphrase ── scrypt ──> wrap key ──> file key ──┬── HKDF "header"  ──> MAC of the header
//!                                                  └── HKDF "payload" ──> ChaCha20-Poly1305, 64 KiB at a time
//! ```
//!
//! The program `age -d` decrypts these files, and `age -p` writes files that are read here. Of the recipients of the format,
//! only a passphrase is supported. The whole file is in memory: a backup is small.

mod header;
mod payload;

use crate::engine::scrypt;
use crate::{Random, Secret, SecretBytes};
use aws_lc_rs::hkdf;
use header::Header;
use zeroize::Zeroizing;

/// log2(N) of scrypt in the files that the program `age` writes: 256 MiB of memory, and about a second.
pub const WORK_FACTOR: u8 = 18;
/// The least for a machine with little memory: 32 MiB.
pub const LEAST_WORK_FACTOR: u8 = 15;

const FILE_KEY: usize = 16;
const NONCE: usize = 16;

/// Why a file cannot be decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// It does not begin as such a file does.
    #[error("it is not encrypted with age")]
    NotAge,
    /// The text form of the format.
    #[error(
        "it is encrypted with age, in its text form\n  fix: age -d FILE > FILE.tar, then restore that with --no-passphrase"
    )]
    Armored,
    /// Another recipient than a passphrase.
    #[error(
        "it is encrypted for a key, not with a passphrase\n  fix: age -d -i KEYS FILE > FILE.tar, then restore that with --no-passphrase"
    )]
    NoPassphrase,
    /// The header is not one of this format.
    #[error("its header is damaged")]
    Header,
    /// More work than is spent on an unknown file.
    #[error(
        "its work factor is {0}, and more than {WORK_FACTOR} is refused: it would take gigabytes of memory\n  fix: age -d FILE > FILE.tar, then restore that with --no-passphrase"
    )]
    WorkFactor(u8),
    /// scrypt did not get its memory.
    #[error("there is not enough memory for the passphrase: {} MiB are needed", .0 >> 20)]
    Memory(u64),
    /// The file key does not open.
    #[error("the passphrase is wrong")]
    Passphrase,
    /// The MAC of the header or the tag of a chunk is wrong, or the file is cut off.
    #[error("it was changed or cut off after it was encrypted")]
    Damaged,
}

/// Whether the bytes begin as a file of this format does.
pub fn is_age(file: &[u8]) -> bool {
    file.starts_with(header::VERSION) || file.starts_with(header::ARMOR)
}

/// Encrypts `text` with a passphrase. `work_factor` is log2(N) of scrypt; the caller chooses it by the memory there is.
pub fn seal(
    passphrase: &SecretBytes,
    work_factor: u8,
    text: &[u8],
    random: &mut dyn Random,
) -> Result<Vec<u8>, AgeError> {
    let file_key = SecretBytes::random(FILE_KEY, random);
    let mut salt = [0; header::SALT];
    random.fill(&mut salt);
    let wrap = wrap_key(passphrase, &salt, work_factor)?;
    let mut file = Header { salt, work_factor, body: header::wrap(&wrap, &file_key) }.print(&file_key);
    let mut nonce = [0; NONCE];
    random.fill(&mut nonce);
    file.extend_from_slice(&nonce);
    payload::seal(&derive(&file_key, &nonce, b"payload"), text, &mut file);
    Ok(file)
}

/// Checks that a passphrase may decrypt the file, before one is asked for: log2(N) of its scrypt.
pub fn work_factor(file: &[u8]) -> Result<u8, AgeError> {
    let (Header { work_factor, .. }, ..) = Header::parse(file)?;
    if work_factor > WORK_FACTOR { Err(AgeError::WorkFactor(work_factor)) } else { Ok(work_factor) }
}

/// Decrypts a file. Costs at most 256 MiB of memory, whatever the file says.
pub fn open(passphrase: &SecretBytes, file: &[u8]) -> Result<Zeroizing<Vec<u8>>, AgeError> {
    let work_factor = work_factor(file)?;
    let (header, mac, rest) = Header::parse(file)?;
    let wrap = wrap_key(passphrase, &header.salt, work_factor)?;
    let file_key = header::unwrap(&wrap, header.body)?;
    header::verify(&file_key, mac)?;
    let (nonce, chunks) = rest.split_at_checked(NONCE).ok_or(AgeError::Damaged)?;
    payload::open(&derive(&file_key, nonce, b"payload"), chunks)
}

fn wrap_key(passphrase: &SecretBytes, salt: &[u8], work_factor: u8) -> Result<Secret, AgeError> {
    let salt = [b"age-encryption.org/v1/scrypt", salt].concat();
    scrypt::scrypt(passphrase.expose(), &salt, work_factor)
        .ok_or_else(|| AgeError::Memory(scrypt::memory(work_factor)))
}

/// HKDF-SHA-256 (RFC 5869) of the file key.
fn derive(file_key: &SecretBytes, salt: &[u8], info: &[u8]) -> Secret {
    let mut key = Zeroizing::new([0; 32]);
    let info = [info];
    let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(file_key.expose());
    let derived = derived.expand(&info, hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut key[..]));
    derived.expect("32 bytes are one block of HKDF");
    Secret::new(*key)
}

#[cfg(test)]
mod tests;
