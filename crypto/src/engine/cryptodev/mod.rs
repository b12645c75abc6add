//! `/dev/crypto` of cryptodev-linux, a kernel module that some boards and appliances ship for their crypto devices.
//!
//! A session is a key in the driver. The driver runs one call of a session at a time, and each packet is a call. So a
//! key has as many sessions as calls ran at the same time.
//!
//! The automatic tests run without the module and check only the arguments of the calls. The shared engine tests have
//! been run by hand on version 1.14 of the module, with software and with virtio-crypto, and on no other hardware. That
//! version logs a kernel message for every packet that is not authentic.

mod device;

use super::library::Unavailable;
use super::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use crate::cipher::{Cipher, Encryption, Integrity, Pair};
use crate::lock;
use crate::machine::names_device;
use device::{Device, Implementation, Session, algorithm};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The processed packet and its MAC.
type Done = (Vec<u8>, [u8; 64]);

const NAME: &str = "cryptodev";

fn encryption_number(encryption: Encryption) -> Option<u32> {
    match encryption {
        Encryption::Null => None,
        Encryption::AesCbc(_) => Some(algorithm::AES_CBC),
        Encryption::AesCtr(_) => Some(algorithm::AES_CTR),
        Encryption::TripleDesCbc => Some(algorithm::TRIPLE_DES_CBC),
    }
}

fn integrity_number(integrity: Integrity) -> Option<u32> {
    match integrity {
        Integrity::HmacSha1 => Some(algorithm::SHA1_HMAC),
        Integrity::HmacSha256 => Some(algorithm::SHA256_HMAC),
        Integrity::HmacSha384 => Some(algorithm::SHA384_HMAC),
        Integrity::HmacSha512 => Some(algorithm::SHA512_HMAC),
        Integrity::AesXcbc => None,
    }
}

/// The cryptodev engine.
pub struct Cryptodev {
    device: Arc<Device>,
    /// Names of drivers that belong to devices.
    devices: Vec<String>,
}

impl Cryptodev {
    /// Opens the device and queries its drivers.
    pub fn load() -> Result<Self, Unavailable> {
        let refused = |error: Errno| match error {
            Errno::NOENT => Unavailable::Refused(String::from(
                "there is no /dev/crypto (the module cryptodev of cryptodev-linux is not loaded)",
            )),
            Errno::ACCESS | Errno::PERM => {
                Unavailable::Refused(String::from("no permission to open /dev/crypto"))
            }
            error => {
                Unavailable::Refused(format!("/dev/crypto is not the device of cryptodev-linux: {error}"))
            }
        };
        let device = Arc::new(Device::open().map_err(refused)?);
        let ciphers = [
            (algorithm::AES_GCM, 16),
            (algorithm::AES_CBC, 16),
            (algorithm::AES_CTR, 16),
            (algorithm::TRIPLE_DES_CBC, 24),
        ];
        let macs = Integrity::ALL.iter().filter_map(|&integrity| integrity_number(integrity));
        // Drivers may refuse a 3DES key with equal parts.
        let key: Vec<u8> = (1..=24).collect();
        let sessions = ciphers
            .iter()
            .map(|&(cipher, length)| Session::new(&device, (cipher, &key[..length]), (0, &[])))
            .chain(macs.map(|mac| Session::new(&device, (0, &[]), (mac, &key))));
        let mut devices: Vec<String> = sessions
            .filter_map(|session| session.ok()?.implementation().ok())
            .flat_map(names_of_devices)
            .collect();
        devices.sort_unstable();
        devices.dedup();
        Ok(Self { device, devices })
    }
}

/// The drivers of an implementation that belong to devices.
fn names_of_devices(implementation: Implementation) -> Vec<String> {
    let is_driver_only = implementation.is_driver_only;
    let names = implementation.drivers.into_iter().filter(|name| !name.is_empty());
    names.filter(|name| is_driver_only || names_device(name)).collect()
}

impl Engine for Cryptodev {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> String {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let devices: String = self.devices.iter().map(|name| format!(", {name}")).collect();
        format!("Linux {}{devices}", kernel.trim())
    }

    fn is_accelerator(&self) -> bool {
        !self.devices.is_empty()
    }

    fn holds_descriptors(&self) -> bool {
        true
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        LoadError::check(cipher, cipher.key_length(), secret)?;
        if !matches!(cipher, Cipher::Aes128Gcm | Cipher::Aes192Gcm | Cipher::Aes256Gcm) {
            return Err(LoadError::Unsupported { engine: NAME, cipher: cipher.to_string() });
        }
        let key = CryptodevKey {
            device: Arc::clone(&self.device),
            secret: Zeroizing::new(secret.to_vec()),
            idle: Mutex::default(),
        };
        key.with_session(crate::engine::TAG, |_| Ok(()))
            .map_err(|_| LoadError::Failed { engine: NAME, cipher: cipher.to_string() })?;
        Ok(Arc::new(key))
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        LoadError::check_pair(pair, encryption, integrity)?;
        let unsupported = || LoadError::Unsupported { engine: NAME, cipher: pair.to_string() };
        let key = CryptodevPairKey {
            device: Arc::clone(&self.device),
            cipher: encryption_number(pair.encryption),
            mac: integrity_number(pair.integrity).ok_or_else(unsupported)?,
            secrets: [encryption, integrity].map(|secret| Zeroizing::new(secret.to_vec())),
            idle: Mutex::default(),
        };
        key.with_sessions(|_| Ok(()))
            .map_err(|_| LoadError::Failed { engine: NAME, cipher: pair.to_string() })?;
        Ok(Arc::new(key))
    }
}

/// A key of AES-GCM.
struct CryptodevKey {
    device: Arc<Device>,
    secret: Zeroizing<Vec<u8>>,
    /// Idle sessions by tag length: the driver only ever shortens the tags of a session.
    idle: Mutex<BTreeMap<usize, Vec<Session>>>,
}

impl CryptodevKey {
    /// Calls a function with an unused session, which is created if there is none.
    fn with_session<R>(
        &self,
        tag: usize,
        work: impl FnOnce(&Session) -> Result<R, EngineFailure>,
    ) -> Result<R, EngineFailure> {
        let idle = lock(&self.idle).get_mut(&tag).and_then(Vec::pop);
        let make = || Session::new(&self.device, (algorithm::AES_GCM, &self.secret), (0, &[]));
        let session = idle.map_or_else(make, Ok).map_err(|_| EngineFailure)?;
        let result = work(&session)?;
        lock(&self.idle).entry(tag).or_default().push(session);
        Ok(result)
    }

    /// Processes copies of the jobs, and takes the results over if all succeed.
    fn run(&self, encrypts: bool, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let mut done = Vec::with_capacity(jobs.len());
        for job in &*jobs {
            let mut message = [&*job.text, &*job.tag].concat();
            let crypt = |session: &Session| {
                let tag = job.tag.len();
                match session.crypt_authenticated(encrypts, &job.nonce, job.aad, &mut message, tag) {
                    Ok(()) => Ok(true),
                    Err(Errno::BADMSG) if !encrypts => Ok(false),
                    Err(_) => Err(EngineFailure),
                }
            };
            let authentic = self.with_session(job.tag.len(), crypt)?;
            done.push((authentic, message));
        }
        for (job, (authentic, message)) in jobs.iter_mut().zip(done) {
            let (text, tag) = message.split_at(job.text.len());
            job.authentic = authentic;
            job.text.copy_from_slice(text);
            if encrypts {
                job.tag.copy_from_slice(tag);
            }
        }
        Ok(())
    }
}

impl Key for CryptodevKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(true, jobs)
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(false, jobs)
    }
}

/// The sessions of a pair. One session for both would authenticate before encrypting; ESP needs the reverse.
struct Sessions {
    cipher: Option<Session>,
    mac: Session,
}

/// The keys of a cipher and a MAC.
struct CryptodevPairKey {
    device: Arc<Device>,
    cipher: Option<u32>,
    mac: u32,
    secrets: [Zeroizing<Vec<u8>>; 2],
    idle: Mutex<Vec<Sessions>>,
}

impl CryptodevPairKey {
    fn with_sessions<R>(
        &self,
        work: impl FnOnce(&Sessions) -> Result<R, EngineFailure>,
    ) -> Result<R, EngineFailure> {
        let idle = lock(&self.idle).pop();
        let sessions = idle.map_or_else(|| self.sessions(), Ok).map_err(|_| EngineFailure)?;
        let result = work(&sessions)?;
        lock(&self.idle).push(sessions);
        Ok(result)
    }

    fn sessions(&self) -> rustix::io::Result<Sessions> {
        let [encryption, integrity] = &self.secrets;
        let cipher = self.cipher.map(|cipher| Session::new(&self.device, (cipher, encryption), (0, &[])));
        let mac = Session::new(&self.device, (0, &[]), (self.mac, integrity))?;
        Ok(Sessions { cipher: cipher.transpose()?, mac })
    }
}

impl Sessions {
    fn crypt(&self, encrypts: bool, iv: &[u8; 16], text: &mut [u8]) -> Result<(), EngineFailure> {
        match &self.cipher {
            Some(cipher) if !text.is_empty() => cipher.crypt(encrypts, iv, text).map_err(|_| EngineFailure),
            _ => Ok(()),
        }
    }

    /// The processed packet and its MAC; `None` if it is not authentic.
    fn run(&self, encrypts: bool, job: &PairJob<'_>) -> Result<Option<Done>, EngineFailure> {
        let mut message = [&*job.packet, job.suffix].concat();
        let text = job.text..job.packet.len();
        if encrypts {
            self.crypt(true, &job.iv, &mut message[text.clone()])?;
        }
        let mac = self.mac.mac(&mut message).map_err(|_| EngineFailure)?;
        if !encrypts {
            if !bool::from(mac[..job.tag.len()].ct_eq(job.tag)) {
                return Ok(None);
            }
            self.crypt(false, &job.iv, &mut message[text])?;
        }
        message.truncate(job.packet.len());
        Ok(Some((message, mac)))
    }
}

impl PairKey for CryptodevPairKey {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        let run = |sessions: &Sessions| jobs.iter().map(|job| sessions.run(true, job)).collect();
        let done: Vec<_> = self.with_sessions(run)?;
        for (job, (packet, mac)) in jobs.iter_mut().zip(done.into_iter().flatten()) {
            job.packet.copy_from_slice(&packet);
            job.tag.copy_from_slice(&mac[..job.tag.len()]);
        }
        Ok(())
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        let run = |sessions: &Sessions| jobs.iter().map(|job| sessions.run(false, job)).collect();
        let done: Vec<_> = self.with_sessions(run)?;
        for (job, done) in jobs.iter_mut().zip(done) {
            job.authentic = done.is_some();
            if let Some((packet, _)) = done {
                job.packet.copy_from_slice(&packet);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_device_the_reason_names_the_module() {
        match Cryptodev::load() {
            Ok(engine) => assert_eq!(engine.name(), NAME),
            Err(reason) => assert!(reason.to_string().contains("/dev/crypto"), "{reason}"),
        }
    }

    #[test]
    fn devices_are_recognized_by_the_flag_or_by_name() {
        let names = |drivers: [&str; 2], is_driver_only| {
            names_of_devices(Implementation { drivers: drivers.map(String::from), is_driver_only })
        };
        assert_eq!(names(["cbc-aes-caam", ""], true), ["cbc-aes-caam"]);
        assert_eq!(names(["virtio_crypto_aes_cbc", ""], false), ["virtio_crypto_aes_cbc"]);
        assert!(names(["cbc-aes-aesni", ""], false).is_empty());
        assert!(names(["", "hmac(sha256-generic)"], false).is_empty());
    }
}
