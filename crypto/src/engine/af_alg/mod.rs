//! The kernel's crypto API through `AF_ALG` sockets: any driver that the kernel has, including those of devices.
//!
//! If a device's driver serves an algorithm, it is bound by the driver's name, even if the kernel prefers another
//! driver: measurements decide which is faster. Otherwise it is bound by the algorithm's name. A burst sends one packet
//! on each socket of the key and receives the answers into a buffer. They are copied to the packets when all have
//! arrived.

mod driver;
mod key;
mod socket;
mod transform;

pub use driver::{Driver, drivers};

use super::library::Unavailable;
use super::{Engine, Key, LoadError, PairKey};
use crate::cipher::{Cipher, Encryption, Integrity, Pair};
use crate::lock;
use key::{AfAlgKey, AfAlgPairKey};
use rustix::io::Errno;
use socket::Kind;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use transform::Transform;
use zeroize::Zeroizing;

const NAME: &str = "af-alg";

fn aead_name(cipher: Cipher) -> &'static str {
    match cipher {
        Cipher::ChaCha20Poly1305 => "rfc7539(chacha20,poly1305)",
        Cipher::Aes128Gcm | Cipher::Aes192Gcm | Cipher::Aes256Gcm => "gcm(aes)",
        Cipher::Aes128Ccm | Cipher::Aes192Ccm | Cipher::Aes256Ccm => "ccm(aes)",
    }
}

fn encryption_name(encryption: Encryption) -> Option<&'static str> {
    match encryption {
        Encryption::Null => None,
        Encryption::AesCbc(_) => Some("cbc(aes)"),
        Encryption::AesCtr(_) => Some("ctr(aes)"),
        Encryption::TripleDesCbc => Some("cbc(des3_ede)"),
    }
}

fn integrity_name(integrity: Integrity) -> &'static str {
    match integrity {
        Integrity::HmacSha1 => "hmac(sha1)",
        Integrity::HmacSha256 => "hmac(sha256)",
        Integrity::HmacSha384 => "hmac(sha384)",
        Integrity::HmacSha512 => "hmac(sha512)",
        Integrity::AesXcbc => "xcbc(aes)",
    }
}

/// The name of the kernel's `authenc` algorithm for a pair.
fn both_name(pair: Pair) -> Option<String> {
    Some(format!("authenc({},{})", integrity_name(pair.integrity), encryption_name(pair.encryption)?))
}

/// All algorithms that this engine uses.
fn algorithms() -> Vec<(Kind, String)> {
    let ciphers = Cipher::ALL.iter().map(|&cipher| (Kind::Aead, aead_name(cipher).to_owned()));
    let encryptions =
        Encryption::ALL.iter().filter_map(|&it| Some((Kind::Cipher, encryption_name(it)?.into())));
    let integrities = Integrity::ALL.iter().map(|&it| (Kind::Hash, integrity_name(it).to_owned()));
    let pairs = Encryption::ALL.iter().flat_map(|&encryption| {
        let pair = move |&integrity| both_name(Pair { encryption, integrity });
        Integrity::ALL.iter().filter_map(pair).map(|name| (Kind::Aead, name))
    });
    let mut all: Vec<_> = ciphers.chain(encryptions).chain(integrities).chain(pairs).collect();
    all.sort();
    all.dedup();
    all
}

/// The name to bind for an algorithm.
#[derive(Clone)]
struct Served {
    /// A driver name or the algorithm name.
    name: String,
    is_async: bool,
}

impl Served {
    fn transform(&self, kind: Kind, key: &[u8], tag: Option<usize>) -> rustix::io::Result<Transform> {
        Ok(Transform::new(kind, &self.name, key, tag)?.asynchronous(self.is_async))
    }
}

/// The AF_ALG engine.
pub struct AfAlg {
    kernel: String,
    accelerators: Vec<Driver>,
    served: Mutex<BTreeMap<(Kind, String), Served>>,
}

impl AfAlg {
    /// Checks whether the kernel offers its ciphers to programs, and which devices serve them.
    pub fn load() -> Result<Self, Unavailable> {
        let refused = |what: String| Err(Unavailable::Refused(what));
        match ["gcm(aes)", "cbc(aes)"].map(|name| {
            let kind = if name == "gcm(aes)" { Kind::Aead } else { Kind::Cipher };
            socket::bound(kind, name).map(drop)
        }) {
            [Err(Errno::AFNOSUPPORT), _] => {
                return refused(String::from(
                    "the kernel has no AF_ALG (CONFIG_CRYPTO_USER_API, module af_alg)",
                ));
            }
            [Err(Errno::NOENT), Err(Errno::NOENT)] => {
                let modules = "modules algif_aead and algif_skcipher";
                return refused(format!(
                    "the kernel has AF_ALG, but no AEAD or cipher interface ({modules})"
                ));
            }
            [Err(error), Err(_)] => return refused(format!("the kernel refuses AF_ALG: {error}")),
            _ => {}
        }
        let drivers = drivers();
        // The kernel keeps `authenc` instances around a device's cipher in its list. They are no devices of their own.
        let is_device = |driver: &Driver| driver.is_accelerator() && !driver.name.starts_with("authenc(");
        let accelerators = algorithms()
            .into_iter()
            .filter_map(|(kind, algorithm)| driver::first(&drivers, (kind.name(), &algorithm), is_device));
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            kernel: kernel.trim().to_owned(),
            accelerators: accelerators.collect(),
            served: Mutex::default(),
        })
    }

    /// The drivers of devices that are used.
    pub fn accelerators(&self) -> &[Driver] {
        &self.accelerators
    }

    /// The device's driver for an algorithm, among those found at start.
    fn device(&self, kind: Kind, algorithm: &str) -> Option<Driver> {
        driver::first(&self.accelerators, (kind.name(), algorithm), |_| true)
    }

    /// Whether a driver belongs to no device, or to one found at start. A device that appears later would turn this
    /// engine into an accelerator, which was neither allowed nor measured.
    fn is_known(&self, driver: &Driver) -> bool {
        !driver.is_accelerator() || self.accelerators.contains(driver)
    }

    /// Loads a key for `algorithm`; also returns what was bound. The kernel instantiates templates on demand, so
    /// `/proc/crypto` is read after the first use.
    fn transform(
        &self,
        kind: Kind,
        algorithm: &str,
        key: &[u8],
        tag: Option<usize>,
    ) -> rustix::io::Result<(Transform, Served)> {
        let index = (kind, algorithm.to_owned());
        if let Some(served) = lock(&self.served).get(&index).cloned() {
            return Ok((served.transform(kind, key, tag)?, served));
        }
        let device = self.device(kind, algorithm);
        let name = device.as_ref().map_or(algorithm, |driver| &driver.name).to_owned();
        let mut served = Served { name, is_async: false };
        drop(served.transform(kind, key, tag)?);
        let is_device = device.is_some();
        let is_bound = |driver: &Driver| {
            if is_device { driver.name == served.name } else { self.is_known(driver) }
        };
        if let Some(driver) = driver::first(&drivers(), (kind.name(), algorithm), is_bound) {
            served = Served { name: driver.name, is_async: driver.is_async };
        }
        lock(&self.served).insert(index, served.clone());
        Ok((served.transform(kind, key, tag)?, served))
    }

    /// The combined key, if the kernel supports it. For a device's cipher, `authenc` is instantiated by the driver
    /// names of its parts; afterwards it appears in `/proc/crypto`.
    fn both(&self, pair: Pair, secrets: [&[u8]; 2]) -> Option<Transform> {
        let (algorithm, key) = (both_name(pair)?, both_key(secrets));
        let tag = Some(pair.integrity.tag_length());
        let cipher = self.device(Kind::Cipher, encryption_name(pair.encryption)?);
        if let (None, Some(cipher)) = (self.device(Kind::Aead, &algorithm), cipher) {
            let mac = (Kind::Hash.name(), integrity_name(pair.integrity));
            let mac = driver::first(&drivers(), mac, |driver| self.is_known(driver))?;
            let name = format!("authenc({},{})", mac.name, cipher.name);
            return Served { name, is_async: true }.transform(Kind::Aead, &key, tag).ok();
        }
        Some(self.transform(Kind::Aead, &algorithm, &key, tag).ok()?.0)
    }
}

/// Both keys in the format of `authenc` (crypto/authenc.h): an attribute with the length of the encryption key, the
/// integrity key, the encryption key.
fn both_key([encryption, integrity]: [&[u8]; 2]) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(Vec::with_capacity(8 + encryption.len() + integrity.len()));
    for half in [8u16, 1] {
        key.extend_from_slice(&half.to_ne_bytes());
    }
    key.extend_from_slice(&(encryption.len() as u32).to_be_bytes());
    key.extend_from_slice(integrity);
    key.extend_from_slice(encryption);
    key
}

fn load_error(cipher: impl ToString) -> impl Fn(Errno) -> LoadError {
    let cipher = cipher.to_string();
    move |error| match error {
        Errno::NOENT => LoadError::Unsupported { engine: NAME, cipher: cipher.clone() },
        _ => LoadError::Failed { engine: NAME, cipher: cipher.clone() },
    }
}

impl Engine for AfAlg {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> String {
        let devices = self.accelerators.iter().map(|driver| format!(", {driver}"));
        format!("Linux {}{}", self.kernel, devices.collect::<String>())
    }

    fn is_accelerator(&self) -> bool {
        !self.accelerators.is_empty()
    }

    fn holds_descriptors(&self) -> bool {
        true
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        LoadError::check(cipher, cipher.key_length(), secret)?;
        let longest = cipher.tag_lengths().last().copied();
        let (transform, served) =
            self.transform(Kind::Aead, aead_name(cipher), secret, longest).map_err(load_error(cipher))?;
        let transforms = longest.map(|tag| (tag, Arc::new(transform))).into_iter().collect();
        let secret = Zeroizing::new(secret.to_vec());
        Ok(Arc::new(AfAlgKey { cipher, served, secret, transforms: Mutex::new(transforms) }))
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        LoadError::check_pair(pair, encryption, integrity)?;
        let load = |kind, name, key| self.transform(kind, name, key, None).map_err(load_error(pair));
        let cipher = encryption_name(pair.encryption)
            .map(|name| load(Kind::Cipher, name, encryption))
            .transpose()?
            .map(|(transform, _)| transform);
        let (mac, _) = load(Kind::Hash, integrity_name(pair.integrity), integrity)?;
        let both = self.both(pair, [encryption, integrity]);
        Ok(Arc::new(AfAlgPairKey { encryption: pair.encryption, cipher, mac, both }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_listed_once() {
        let names: Vec<String> = algorithms().into_iter().map(|(_, name)| name).collect();
        // Three AEADs, three ciphers, five MACs, and an `authenc` for each cipher with each MAC.
        assert_eq!(names.len(), 3 + 3 + 5 + 15);
        assert!(names.iter().any(|name| name == "authenc(hmac(sha256),cbc(aes))"), "{names:?}");
    }

    #[test]
    fn both_keys_are_laid_out_as_the_kernel_reads_them() {
        let key = both_key([&[1; 16], &[2; 20]]);
        assert_eq!(key.len(), 8 + 36);
        assert_eq!(key[..2], 8u16.to_ne_bytes());
        assert_eq!(key[2..8], [1u16.to_ne_bytes(), [0, 0], [0, 16]].concat());
        assert_eq!(key[8..], [vec![2; 20], vec![1; 16]].concat());
    }

    #[test]
    fn an_unavailable_af_alg_is_named_in_the_reason() {
        if let Err(reason) = AfAlg::load() {
            assert!(reason.to_string().contains("AF_ALG"), "{reason}");
        }
    }
}
