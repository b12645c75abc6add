//! Crypto devices of DPDK that refuse, stall, fail and compute wrong results: a test double of the library does that to real drivers.

#![expect(unsafe_code, reason = "calls functions of the test double")]

use crypto::Cipher;
use crypto::choice::{Choice, EngineChange, Guarded, Health, Measured, Rules, Slot};
use crypto::cipher::{Encryption, Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::dpdk::{Dpdk, drivers};
use crypto::engine::{Engine, Job, Key, PairJob};
use dpdk::{Eal, Library};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const CIPHER: Cipher = Cipher::Aes128Gcm;
const PAIR: Pair = Pair { encryption: Encryption::AesCbc(16), integrity: Integrity::HmacSha256 };
const WORDS: &str = "--no-huge -m 96 --no-pci --no-shconf --no-telemetry --iova-mode=va --lcores 0@0 \
    --vdev crypto_openssl0 --vdev crypto_openssl1 --vdev crypto_null0";

// `enum fault` of double.c.
const WORKS: i32 = 0;
const REFUSES: i32 = 1;
const STALLS: i32 = 2;
const FAILS: i32 = 3;
const WRONG: i32 = 4;
const CREDULOUS: i32 = 5;

/// The double, in use by one test at a time.
struct Double {
    set_fault: unsafe extern "C" fn(i32),
    count: unsafe extern "C" fn() -> u64,
    keys: unsafe extern "C" fn() -> u64,
    _one: MutexGuard<'static, ()>,
}

impl Double {
    /// None if the library was not built.
    fn start() -> Option<Self> {
        static ONE: Mutex<()> = Mutex::new(());
        static STARTED: OnceLock<&'static Eal> = OnceLock::new();
        let beside = std::env::current_exe().expect("it runs").with_file_name("libpostern_dpdk_double.so");
        if !beside.exists() {
            let what = format!(
                "there is no {}: cargo build -p postern-dpdk-shim --features double",
                beside.display()
            );
            assert!(std::env::var_os("NO_SKIP").is_none(), "NO_SKIP is set: {what}");
            // The test harness would capture eprintln: what is skipped must be seen.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
            return None;
        }
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        STARTED.get_or_init(|| {
            let library = Library::open(&beside).expect("it was built for this DPDK");
            let words: Vec<String> = WORDS.split_whitespace().map(str::to_owned).collect();
            Eal::start(library, &words, || ()).expect("it starts")
        });
        let (set_fault, [count, keys]) = functions(&beside);
        let double = Self { set_fault, count, keys, _one: one };
        double.set(WORKS);
        Some(double)
    }

    fn set(&self, fault: i32) {
        // SAFETY: the function has this type in double.c.
        unsafe { (self.set_fault)(fault) };
    }

    /// Packets that devices have given back.
    fn count(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (self.count)() }
    }

    /// Keys in devices.
    fn keys(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (self.keys)() }
    }
}

fn functions(path: &PathBuf) -> (unsafe extern "C" fn(i32), [unsafe extern "C" fn() -> u64; 2]) {
    // SAFETY: it is loaded already, and its functions have these types.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(path).expect("it is loaded")));
        let set = library.get::<unsafe extern "C" fn(i32)>(b"postern_set_fault");
        let counts = [&b"postern_count_operations"[..], b"postern_count_keys"]
            .map(|name| *library.get::<unsafe extern "C" fn() -> u64>(name).expect("it has it"));
        (*set.expect("it has it"), counts)
    }
}

fn engine(driver: &str) -> Arc<dyn Engine> {
    Arc::new(Dpdk::open(driver).expect("it is there"))
}

/// A choice that uses a driver, guarded.
fn choice(driver: &str, name: &str) -> Choice {
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(Guarded::new(engine(driver)))]);
    choice.set_rules(Rules { pinned: [(CIPHER.to_string(), name.to_owned())].into(), accelerators: true });
    choice.row(CIPHER.into());
    choice
}

/// Jobs of different lengths, additional data and tags, with plaintexts that tell them apart.
fn texts(count: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    (0..count).map(|i| (vec![i as u8; 20 + i % 90], vec![0; [16, 16, 12, 8][i / 40 % 4]])).unzip()
}

fn jobs<'a>(texts: &'a mut [Vec<u8>], tags: &'a mut [Vec<u8>]) -> Vec<Job<'a>> {
    let numbered = texts.iter_mut().zip(tags).enumerate();
    let job = |(i, (text, tag)): (usize, (&'a mut Vec<u8>, &'a mut Vec<u8>))| {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&i.to_be_bytes());
        Job { nonce, aad: &b"additional"[..i / 60 % 10], text, tag, authentic: false }
    };
    numbered.map(job).collect()
}

/// Whether a burst is sealed as AWS-LC seals it, and opens, and a forgery in it does not.
fn right(key: &dyn Key, reference: &dyn Key, count: usize) -> bool {
    let (plain, tags) = texts(count);
    let ((mut ours, mut our_tags), (mut theirs, mut their_tags)) =
        ((plain.clone(), tags.clone()), (plain.clone(), tags));
    if key.seal(&mut jobs(&mut ours, &mut our_tags)).is_err() {
        return false;
    }
    reference.seal(&mut jobs(&mut theirs, &mut their_tags)).expect("it works");
    let is_equal = ours == theirs && our_tags == their_tags;
    ours[count / 2][0] ^= 1;
    let mut opened = jobs(&mut ours, &mut our_tags);
    let is_opened = key.open(&mut opened).is_ok();
    let verdicts: Vec<bool> = opened.iter().map(|job| job.authentic).collect();
    let is_told = verdicts.iter().enumerate().all(|(i, &authentic)| authentic == (i != count / 2));
    ours[count / 2].clone_from(&plain[count / 2]);
    is_equal && is_opened && is_told && ours == plain
}

#[test]
fn no_fault_of_a_device_loses_or_damages_a_packet_and_it_is_used_again_behind_it() {
    let Some(double) = Double::start() else { return };
    assert_eq!(drivers(), ["crypto_null", "crypto_openssl"]);
    let secret = [3; 16];
    let reference = AwsLc.load(CIPHER, &secret).expect("it loads");
    for fault in [REFUSES, STALLS, FAILS, WRONG, CREDULOUS] {
        let choice = choice("crypto_openssl", "dpdk-openssl");
        assert!(choice.engines()[1].version().ends_with("crypto_openssl0, crypto_openssl1"));
        let key = choice.load(CIPHER, &secret).expect("it loads");
        let before = double.count();
        assert!((0..5).all(|_| right(&*key, &*reference, 20)), "while it works");
        assert!(double.count() >= before + 5 * (20 + 20), "the device did it");

        double.set(fault);
        assert!((0..5).all(|_| right(&*key, &*reference, 20)), "fault {fault}");
        let (health, failures) = choice.health(1);
        assert!(matches!(health, Health::Failed(_)) && failures >= 1, "fault {fault}");
        assert_eq!(choice.maintain().first().map(|event| event.what.clone()), Some(EngineChange::Failed));
        let before = double.count();
        assert!(right(&*key, &*reference, 20) && double.count() == before, "it is not asked again at once");

        double.set(WORKS);
        let begun = Instant::now();
        while choice.health(1).0 != Health::Works {
            assert!(begun.elapsed() < Duration::from_secs(60), "fault {fault}: it recovers");
            std::thread::sleep(Duration::from_millis(20));
            choice.maintain();
        }
        let before = double.count();
        assert!((0..5).all(|_| right(&*key, &*reference, 20)), "behind fault {fault}");
        assert!(double.count() >= before + 5 * (20 + 20), "behind fault {fault}, the device does it again");
    }
}

#[test]
fn a_device_that_passes_packets_as_they_are_is_never_chosen() {
    let Some(_double) = Double::start() else { return };
    // In the double, crypto_null says that it has AES-GCM.
    let choice = choice("crypto_null", "dpdk-null");
    let row = choice.row(CIPHER.into());
    assert_eq!(row.measured()[1], Measured::Failed, "its known packet comes back wrong");
    assert!(Slot::all().all(|slot| row.chosen(slot) == 0));
    let unguarded = Choice::among(vec![Arc::new(AwsLc), engine("crypto_null")]);
    assert_eq!(unguarded.row(CIPHER.into()).measured()[1], Measured::Wrong);
    let secret = [4; 16];
    let (key, reference) = (choice.load(CIPHER, &secret), AwsLc.load(CIPHER, &secret));
    assert!(right(&*key.expect("it loads"), &*reference.expect("it loads"), 20));
}

#[test]
fn bursts_of_any_size_and_mixture_are_done_or_left_unchanged() {
    let Some(double) = Double::start() else { return };
    let engine = engine("crypto_openssl");
    let secret = [5; 16];
    let key = engine.load(CIPHER, &secret).expect("it loads");
    let reference = AwsLc.load(CIPHER, &secret).expect("it loads");
    for count in [1, 39, 256, 257, 700] {
        assert!(right(&*key, &*reference, count), "{count}");
    }
    let pair = engine.load_pair(PAIR, &[6; 16], &[7; 32]).expect("it loads");
    let plain: Vec<Vec<u8>> = (0..300).map(|i| vec![i as u8; 24 + 16 * (i % 5)]).collect();
    let (mut packets, mut tags) = (plain.clone(), vec![vec![0; 16]; 300]);
    let mut pairs: Vec<PairJob<'_>> = packets
        .iter_mut()
        .zip(&mut tags)
        .map(|(packet, tag)| PairJob { iv: [9; 16], packet, text: 8, suffix: b"high", tag, authentic: false })
        .collect();
    pair.seal(&mut pairs).expect("it works");
    pair.open(&mut pairs).expect("it works");
    assert!(pairs.iter().all(|job| job.authentic));
    pair.seal(&mut pairs).expect("it works");
    double.set(FAILS);
    assert!(pair.open(&mut pairs).is_err());
    drop(pairs);
    assert!(packets.iter().zip(&plain).all(|(now, plain)| now[..8] == plain[..8] && now[8..] != plain[8..]));
    let (mut texts, mut tags) = texts(700);
    let plain = texts.clone();
    assert!(key.seal(&mut jobs(&mut texts, &mut tags)).is_err());
    assert!(texts == plain && tags.iter().flatten().all(|&byte| byte == 0), "no job is changed");
}

#[test]
fn what_a_stalled_device_gives_back_late_harms_nothing() {
    let Some(double) = Double::start() else { return };
    let engine = engine("crypto_openssl");
    let secret = [8; 16];
    let reference = AwsLc.load(CIPHER, &secret).expect("it loads");
    // More packets than DPDK has memory for, if it were not given back.
    for _ in 0..3 {
        let key = engine.load(CIPHER, &secret).expect("it loads");
        double.set(STALLS);
        let (mut texts, mut tags) = texts(256);
        assert!(key.seal(&mut jobs(&mut texts, &mut tags)[..39]).is_err());
        drop(key);
        let kept = double.keys();
        assert!(kept > 0, "the device still reads the key");
        double.set(WORKS);
        // One in each device.
        for key in [(); 2].map(|()| engine.load(CIPHER, &secret).expect("it loads")) {
            assert!((0..40).all(|_| right(&*key, &*reference, 256)));
        }
        assert!(double.keys() < kept, "when it has given the packets back, the key is erased");
    }
}
