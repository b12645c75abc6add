//! Crypto devices of DPDK: its software drivers (`crypto_aesni_gcm`, `crypto_aesni_mb`, `crypto_openssl`), and cards such as Intel's QAT.
//!
//! Each driver is an engine, as each has a speed of its own. A key is in one device, with a session for each direction and each length of
//! additional data and of tags; the keys of a driver are spread over its devices. Packets are copied to and from memory of DPDK.
//!
//! What a device does not have is done by AWS-LC: short tags with some drivers, many lengths of additional data (as AES-GMAC has), and
//! packets without a text.
//!
//! Devices have to be given to EAL, by the words of `postern secgw --dpdk`. Tested with software drivers: no card was tried.

use super::aws_lc::AwsLc;
use super::library::Unavailable;
use super::{Engine, EngineFailure, Job, Key, LoadError, NONCE, PairJob, PairKey, TAG};
use crate::cipher::{Cipher, Encryption, Integrity, Pair};
use crate::lock;
use dpdk::Eal;
use dpdk::crypto::{
    BURST, Cipher as DeviceCipher, Device, Job as DeviceJob, Key as Session, KeyError, Mac, Transform,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

/// A device that gives its work to others, which are its alone then.
const SCHEDULER: &str = "crypto_scheduler";

/// The drivers of the crypto devices that EAL has; none if it does not run. With a scheduler, only that.
pub fn drivers() -> Vec<String> {
    let devices = Eal::running().map(Eal::devices).unwrap_or_default();
    let mut drivers: Vec<String> = devices.into_iter().map(|device| device.driver).collect();
    drivers.sort_unstable();
    drivers.dedup();
    if drivers.iter().any(|driver| driver == SCHEDULER) {
        drivers.retain(|driver| driver == SCHEDULER);
    }
    drivers
}

/// The name of the engine of a driver: `dpdk-openssl` for `crypto_openssl`. A program has few.
pub fn engine_name(driver: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let name = format!("dpdk-{}", driver.trim_start_matches("crypto_").replace('_', "-"));
    let mut names = lock(&NAMES);
    if let Some(name) = names.iter().find(|known| **known == name) {
        return name;
    }
    let name: &'static str = name.leak();
    names.push(name);
    name
}

/// The engine of all devices with one driver.
pub struct Dpdk {
    name: &'static str,
    devices: Vec<Arc<Device>>,
    /// Keys so far.
    keys: AtomicUsize,
}

impl Dpdk {
    /// Opens all devices with this driver.
    ///
    /// # Errors
    /// DPDK refuses, or has no such device.
    pub fn open(driver: &str) -> Result<Self, Unavailable> {
        let eal = Eal::running().ok_or_else(|| Unavailable::Refused("EAL does not run".to_owned()))?;
        let numbers = eal.devices().into_iter().filter(|device| device.driver == driver);
        let devices: Result<Vec<_>, _> = numbers.map(|device| eal.open_device(device.number)).collect();
        let devices = devices.map_err(|error| Unavailable::Refused(error.to_string()))?;
        if devices.is_empty() {
            return Err(Unavailable::Refused(format!("DPDK has no device of {driver}")));
        }
        Ok(Self { name: engine_name(driver), devices, keys: AtomicUsize::new(0) })
    }

    /// The device of the next key.
    fn next_device(&self) -> Arc<Device> {
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&self.devices[number % self.devices.len()])
    }

    fn failed(&self, error: KeyError, cipher: String) -> LoadError {
        match error {
            KeyError::Unsupported => LoadError::Unsupported { engine: self.name, cipher },
            KeyError::Failed => LoadError::Failed { engine: self.name, cipher },
        }
    }
}

impl Engine for Dpdk {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> String {
        let names: Vec<&str> = self.devices.iter().map(|device| device.facts().name.as_str()).collect();
        format!("{}, {}", self.devices[0].version(), names.join(", "))
    }

    fn is_accelerator(&self) -> bool {
        self.devices.iter().any(|device| device.facts().is_hardware)
    }

    /// Sessions are in memory of DPDK, of which there is little.
    fn holds_descriptors(&self) -> bool {
        true
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        LoadError::check(cipher, cipher.key_length(), secret)?;
        let device_cipher = match cipher {
            Cipher::Aes128Gcm | Cipher::Aes192Gcm | Cipher::Aes256Gcm => DeviceCipher::AesGcm,
            Cipher::ChaCha20Poly1305 => DeviceCipher::ChaCha20Poly1305,
            // Its nonce and additional data have another form in DPDK.
            _ => return Err(self.failed(KeyError::Unsupported, cipher.to_string())),
        };
        let sessions = Sessions::new(self.next_device(), (device_cipher, secret), (Mac::None, &[]), NONCE);
        for seals in [true, false] {
            // The additional data of ESP.
            sessions
                .session(Shape { seals, aad: 8, tag: TAG })
                .map_err(|error| self.failed(error, cipher.to_string()))?;
        }
        Ok(Arc::new(DpdkKey { sessions, software: AwsLc.load(cipher, secret)? }))
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        LoadError::check_pair(pair, encryption, integrity)?;
        let (cipher, iv_length) = match pair.encryption {
            Encryption::Null => (DeviceCipher::Null, 0),
            Encryption::AesCbc(_) => (DeviceCipher::AesCbc, 16),
            Encryption::AesCtr(_) => (DeviceCipher::AesCtr, 16),
            Encryption::TripleDesCbc => (DeviceCipher::TripleDesCbc, 8),
        };
        let mac = match pair.integrity {
            Integrity::HmacSha1 => Mac::HmacSha1,
            Integrity::HmacSha256 => Mac::HmacSha256,
            Integrity::HmacSha384 => Mac::HmacSha384,
            Integrity::HmacSha512 => Mac::HmacSha512,
            Integrity::AesXcbc => Mac::AesXcbc,
        };
        let sessions = Sessions::new(self.next_device(), (cipher, encryption), (mac, integrity), iv_length);
        let tag = pair.integrity.tag_length();
        let load = |seals| {
            let session = sessions.session(Shape { seals, aad: 0, tag });
            session.map_err(|error| self.failed(error, pair.to_string()))
        };
        let software = AwsLc.load_pair(pair, encryption, integrity)?;
        Ok(Arc::new(DpdkPairKey { seal: load(true)?, open: load(false)?, software }))
    }
}

/// The most sessions of a key.
const MOST_SESSIONS: usize = 8;

/// What a session is for, beside its key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    seals: bool,
    aad: usize,
    tag: usize,
}

/// The sessions of a key in a device.
struct Sessions {
    device: Arc<Device>,
    cipher: (DeviceCipher, Zeroizing<Vec<u8>>),
    mac: (Mac, Zeroizing<Vec<u8>>),
    iv_length: usize,
    made: Mutex<Vec<(Shape, Arc<Session>)>>,
}

impl Sessions {
    fn new(device: Arc<Device>, cipher: (DeviceCipher, &[u8]), mac: (Mac, &[u8]), iv_length: usize) -> Self {
        let kept = |secret: &[u8]| Zeroizing::new(secret.to_vec());
        let (cipher, mac) = ((cipher.0, kept(cipher.1)), (mac.0, kept(mac.1)));
        Self { device, cipher, mac, iv_length, made: Mutex::default() }
    }

    /// The session of a shape, which is made if there is none. There are too many, or the device does not have it: `Unsupported`.
    fn session(&self, shape: Shape) -> Result<Arc<Session>, KeyError> {
        let mut made = lock(&self.made);
        if let Some((_, session)) = made.iter().find(|(there, _)| *there == shape) {
            return Ok(Arc::clone(session));
        }
        if made.len() == MOST_SESSIONS {
            return Err(KeyError::Unsupported);
        }
        let session = self.device.load_key(&Transform {
            cipher: (self.cipher.0, &self.cipher.1),
            mac: (self.mac.0, &self.mac.1),
            iv_length: self.iv_length as u16,
            aad_length: u16::try_from(shape.aad).map_err(|_| KeyError::Unsupported)?,
            tag_length: shape.tag as u16,
            seals: shape.seals,
        })?;
        let session = Arc::new(session);
        made.push((shape, Arc::clone(&session)));
        Ok(session)
    }
}

/// A key of a cipher that authenticates.
struct DpdkKey {
    sessions: Sessions,
    /// For what the device does not have.
    software: Arc<dyn Key>,
}

fn shape(seals: bool, job: &Job<'_>) -> Shape {
    Shape { seals, aad: job.aad.len(), tag: job.tag.len() }
}

impl DpdkKey {
    fn run(&self, seals: bool, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        for alike in jobs.chunk_by_mut(|one, other| shape(seals, one) == shape(seals, other)) {
            let shape = shape(seals, &alike[0]);
            alike.chunks_mut(BURST).try_for_each(|jobs| self.run_one(shape, jobs))?;
        }
        Ok(())
    }

    /// Jobs of one shape, as many as a device takes at once.
    fn run_one(&self, shape: Shape, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        match self.sessions.session(shape) {
            Ok(session) => run_session(&session, jobs),
            Err(KeyError::Unsupported) if shape.seals => self.software.seal(jobs),
            Err(KeyError::Unsupported) => self.software.open(jobs),
            Err(KeyError::Failed) => Err(EngineFailure),
        }
    }
}

/// Runs jobs on a device; which of them are authentic.
fn run_device(session: &Session, mut jobs: Vec<DeviceJob<'_>>) -> Result<Vec<bool>, EngineFailure> {
    session.run(&mut jobs).map_err(|_| EngineFailure)?;
    Ok(jobs.iter().map(DeviceJob::is_authentic).collect())
}

fn device_job<'a>(job: &'a mut Job<'_>) -> DeviceJob<'a> {
    let mut iv = [0; 16];
    iv[..NONCE].copy_from_slice(&job.nonce);
    DeviceJob::new(iv, job.text, 0, job.aad, job.tag)
}

fn device_pair_job<'a>(job: &'a mut PairJob<'_>) -> DeviceJob<'a> {
    DeviceJob::new(job.iv, job.packet, job.text, job.suffix, job.tag)
}

fn run_session(session: &Session, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
    let verdicts = run_device(session, jobs.iter_mut().map(device_job).collect())?;
    for (job, authentic) in jobs.iter_mut().zip(verdicts) {
        job.authentic = authentic;
    }
    Ok(())
}

impl Key for DpdkKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(true, jobs)
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(false, jobs)
    }

    /// The first chunks of a burst stay done when a later one fails. The guard has copies of all.
    fn restores(&self) -> bool {
        false
    }
}

/// The keys of a cipher and a MAC.
struct DpdkPairKey {
    seal: Arc<Session>,
    open: Arc<Session>,
    /// For what drivers compute wrong.
    software: Arc<dyn PairKey>,
}

impl DpdkPairKey {
    fn run(&self, seals: bool, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        jobs.chunks_mut(BURST).try_for_each(|jobs| self.run_one(seals, jobs))
    }

    fn run_one(&self, seals: bool, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        // crypto_aesni_mb has a wrong MAC for nothing, and runs over memory when it decrypts nothing in CBC with AVX2.
        if jobs.iter().any(|job| job.packet.len() == job.text) {
            return if seals { self.software.seal(jobs) } else { self.software.open(jobs) };
        }
        let session = if seals { &self.seal } else { &self.open };
        let verdicts = run_device(session, jobs.iter_mut().map(device_pair_job).collect())?;
        for (job, authentic) in jobs.iter_mut().zip(verdicts) {
            job.authentic = authentic;
        }
        Ok(())
    }
}

impl PairKey for DpdkPairKey {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.run(true, jobs)
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.run(false, jobs)
    }

    /// The first chunks of a burst stay done when a later one fails. The guard has copies of all.
    fn restores(&self) -> bool {
        false
    }
}
