//! Crypto devices: a key is loaded into a device, and runs bursts of jobs on one of its queue pairs.
//!
//! A queue pair belongs to one thread at a time: a burst takes one that is free, and waits if there is none.

#![expect(unsafe_code, reason = "calls a C library")]

use crate::eal::{DeviceError, Eal, checked, lock};
use crate::library::{DeviceRecord, TransformRecord, text};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The most jobs of a call: `POSTERN_JOBS`.
pub const BURST: usize = 256;
/// How long a device may keep the jobs of a call. What comes back later is thrown away.
const LIMIT: Duration = Duration::from_secs(1);
/// Queue pairs of a device that are set up.
const QUEUE_PAIRS: u16 = 8;
/// Before DPDK 24.07 (22.11.6, 23.11.2), a key of AES-GCM has one context of OpenSSL there for all queue pairs: two of them at once would
/// encrypt with one another's nonces.
const ONE_AT_A_TIME: &str = "crypto_openssl";
/// `ENOTSUP`: the device does not have the algorithm.
const NOT_SUPPORTED: i32 = 95;

/// What DPDK says of a crypto device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its number.
    pub number: u8,
    /// Its name, such as `crypto_openssl0` or `0000:01:01.0_qat_sym`.
    pub name: String,
    /// Its driver, such as `crypto_openssl`.
    pub driver: String,
    /// Whether hardware does the work.
    pub is_hardware: bool,
    /// The most queue pairs.
    pub most_queue_pairs: u16,
}

/// `enum postern_cipher`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Cipher {
    /// No encryption.
    Null = 0,
    /// AES-GCM.
    AesGcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
    /// AES-CBC.
    AesCbc,
    /// AES-CTR.
    AesCtr,
    /// Triple DES in CBC mode.
    TripleDesCbc,
}

/// `enum postern_mac`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mac {
    /// The cipher authenticates.
    None = 0,
    /// HMAC with SHA-1.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-384.
    HmacSha384,
    /// HMAC with SHA-512.
    HmacSha512,
    /// AES-XCBC.
    AesXcbc,
}

/// What a device does with jobs under a key.
#[derive(Clone, Copy)]
pub struct Transform<'a> {
    /// The cipher with its key.
    pub cipher: (Cipher, &'a [u8]),
    /// The MAC with its key.
    pub mac: (Mac, &'a [u8]),
    /// The length of an IV, at most 16.
    pub iv_length: u16,
    /// The length of additional data, without a MAC.
    pub aad_length: u16,
    /// The length of a tag.
    pub tag_length: u16,
    /// Whether it seals.
    pub seals: bool,
}

/// `struct postern_job`: a packet to seal or to open in place.
#[repr(C)]
pub struct Job<'a> {
    iv: [u8; 16],
    data: *mut u8,
    beside: *const u8,
    pub(crate) tag: *mut u8,
    length: u32,
    text: u32,
    beside_length: u32,
    tag_length: u32,
    pub(crate) is_authentic: u32,
    bytes: PhantomData<&'a mut [u8]>,
}

impl<'a> Job<'a> {
    /// A job: `data` is authenticated, and from `text` on encrypted; `beside` is the additional data, or with a MAC what is authenticated
    /// behind the data.
    pub fn new(iv: [u8; 16], data: &'a mut [u8], text: usize, beside: &'a [u8], tag: &'a mut [u8]) -> Self {
        assert!(text <= data.len(), "the text is a part of the data");
        Self {
            iv,
            length: data.len() as u32,
            data: data.as_mut_ptr(),
            beside_length: beside.len() as u32,
            beside: beside.as_ptr(),
            tag_length: tag.len() as u32,
            tag: tag.as_mut_ptr(),
            text: text as u32,
            is_authentic: 0,
            bytes: PhantomData,
        }
    }

    /// Whether it was opened, and its tag is right.
    pub fn is_authentic(&self) -> bool {
        self.is_authentic != 0
    }
}

/// A key in a device, as the library has it.
#[repr(C)]
pub(crate) struct Session([u8; 0]);

/// Why a key is not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The device does not have the algorithm with these lengths.
    Unsupported,
    /// The device refuses.
    Failed,
}

/// The device did not do the jobs: it failed, or did not answer in time. They are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunError;

/// A crypto device that is open. It stays open.
pub struct Device {
    eal: &'static Eal,
    facts: DeviceFacts,
    /// Queue pairs that no thread uses.
    free: Mutex<Vec<u16>>,
    freed: Condvar,
}

/// A key in a device, for sealing or for opening.
pub struct Key {
    device: Arc<Device>,
    session: NonNull<Session>,
    aad_length: Option<u16>,
    tag_length: u16,
    /// Held by a run, if the driver runs one at a time under a key.
    turn: Option<Mutex<()>>,
}

impl Eal {
    /// All crypto devices.
    pub fn devices(&self) -> Vec<DeviceFacts> {
        // SAFETY: EAL runs.
        let count = unsafe { (self.library.functions.count_devices)() };
        // Devices that were taken away leave holes, but nothing takes one away.
        (0..u8::try_from(count).unwrap_or_default()).filter_map(|number| self.device(number).ok()).collect()
    }

    fn device(&self, number: u8) -> io::Result<DeviceFacts> {
        let mut record = MaybeUninit::<DeviceRecord>::uninit();
        // SAFETY: EAL runs, and the function fills the record, also if it fails.
        let record = unsafe {
            checked((self.library.functions.describe_device)(number, record.as_mut_ptr()))?;
            record.assume_init()
        };
        let DeviceRecord { name, driver, most_queue_pairs, is_hardware } = record;
        let (name, driver, is_hardware) = (text(&name), text(&driver), is_hardware != 0);
        Ok(DeviceFacts { number, name, driver, is_hardware, most_queue_pairs })
    }

    /// A crypto device, which is opened at the first call, and stays open.
    ///
    /// # Errors
    /// There is none with this number, or DPDK refuses.
    pub fn open_device(&'static self, number: u8) -> Result<Arc<Device>, DeviceError> {
        let mut open = lock(&self.open_devices);
        if let Some(device) = open.get(&number) {
            return Ok(Arc::clone(device));
        }
        let devices = self.devices();
        let present = devices.len();
        let facts = devices.into_iter().find(|device| device.number == number);
        let facts =
            facts.ok_or(DeviceError::Absent { what: "crypto device", number: number.into(), present })?;
        let (name, pairs) = (facts.name.clone(), facts.most_queue_pairs.clamp(1, QUEUE_PAIRS));
        // SAFETY: the device is there, and not open.
        let outcome = self.call(move || unsafe { (self.library.functions.open_device)(number, pairs) });
        checked(outcome).map_err(|error| DeviceError::Refused { name, error })?;
        let free = Mutex::new((0..pairs).collect());
        let device = Arc::new(Device { eal: self, facts, free, freed: Condvar::new() });
        open.insert(number, Arc::clone(&device));
        Ok(device)
    }
}

impl Device {
    /// What DPDK says of it.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// The version of DPDK.
    pub fn version(&self) -> &str {
        self.eal.version()
    }

    /// Loads a key.
    ///
    /// # Errors
    /// The device does not have the algorithm with these lengths, or is full.
    pub fn load_key(self: &Arc<Self>, transform: &Transform<'_>) -> Result<Key, KeyError> {
        let Transform { cipher: (cipher, cipher_key), mac: (mac, mac_key), .. } = *transform;
        assert!(transform.iv_length <= 16, "a job has 16 bytes for it");
        let record = TransformRecord {
            cipher: cipher as u32,
            mac: mac as u32,
            cipher_key: cipher_key.as_ptr(),
            mac_key: mac_key.as_ptr(),
            cipher_key_length: cipher_key.len() as u16,
            mac_key_length: mac_key.len() as u16,
            iv_length: transform.iv_length,
            aad_length: transform.aad_length,
            tag_length: transform.tag_length,
            seals: transform.seals.into(),
        };
        let mut session = std::ptr::null_mut();
        let mut retired = lock(&self.eal.retired_keys);
        self.eal.erase(&mut retired);
        // SAFETY: the device is open, and the record has the lengths of both keys.
        let outcome = unsafe {
            (self.eal.library.functions.load_key)(self.facts.number, &raw const record, &raw mut session)
        };
        if outcome == -NOT_SUPPORTED {
            return Err(KeyError::Unsupported);
        }
        let session = NonNull::new(session).filter(|_| outcome == 0).ok_or(KeyError::Failed)?;
        let aad_length = (mac == Mac::None).then_some(transform.aad_length);
        let turn = (self.facts.driver == ONE_AT_A_TIME).then(Mutex::default);
        Ok(Key { device: Arc::clone(self), session, aad_length, tag_length: transform.tag_length, turn })
    }

    /// Calls a function with a queue pair that no other thread uses.
    fn with_pair<R>(&self, work: impl FnOnce(u16) -> R) -> R {
        let free = lock(&self.free);
        let waited = self.freed.wait_while(free, |free| free.is_empty());
        let pair = waited.unwrap_or_else(PoisonError::into_inner).pop().expect("there is one");
        let result = work(pair);
        lock(&self.free).push(pair);
        self.freed.notify_one();
        result
    }
}

impl Key {
    /// Seals or opens all jobs, at most [`BURST`], with tags and additional data of the key's lengths.
    ///
    /// # Errors
    /// The device fails, or keeps a job for more than a second. All jobs are unchanged.
    pub fn run(&self, jobs: &mut [Job<'_>]) -> Result<(), RunError> {
        for job in &*jobs {
            assert_eq!(job.tag_length, u32::from(self.tag_length), "tags have the length of the key");
            let expected = self.aad_length.map_or(job.beside_length, u32::from);
            assert_eq!(job.beside_length, expected, "additional data have the length of the key");
        }
        let count =
            u32::try_from(jobs.len()).ok().filter(|&count| count as usize <= BURST).ok_or(RunError)?;
        let (eal, limit) = (self.device.eal, LIMIT.as_micros() as u64);
        eal.enter();
        let _turn = self.turn.as_ref().map(lock);
        let outcome = self.device.with_pair(|pair| {
            // SAFETY: the session is the device's, the pair is ours meanwhile, and the jobs have the lengths that were checked.
            unsafe {
                (eal.library.functions.run)(self.session.as_ptr(), pair, jobs.as_mut_ptr(), count, limit)
            }
        });
        if outcome == 0 { Ok(()) } else { Err(RunError) }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let eal = self.device.eal;
        let mut retired = lock(&eal.retired_keys);
        retired.push(Retired(self.session));
        eal.erase(&mut retired);
    }
}

/// A session that no run will use again.
pub(crate) struct Retired(NonNull<Session>);

// SAFETY: only the thread that holds the list erases it.
unsafe impl Send for Retired {}

impl Eal {
    /// Erases keys that are not used any more. One whose device still has jobs, behind a time-out, waits for a later call: a run on the same
    /// queue pair takes the jobs back.
    fn erase(&self, retired: &mut Vec<Retired>) {
        // SAFETY: no run uses these: a run borrows the key. What is erased leaves the list.
        retired.retain(|key| unsafe { (self.library.functions.drop_key)(key.0.as_ptr()) } != 0);
    }
}

// SAFETY: a session is read by any number of queue pairs at once, and made and erased by one thread at a time.
unsafe impl Send for Key {}
// SAFETY: as above.
unsafe impl Sync for Key {}
