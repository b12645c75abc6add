//! The choice between engines: which engine is called, which is no longer used, and that no packet is lost.

#[path = "support/faulty.rs"]
mod faulty;

use crypto::Cipher;
use crypto::choice::{Carried, Choice, EngineChange, Guarded, Health, Measured, Rules, SIZES, Slot};
use crypto::cipher::{Encryption, Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use faulty::{ACCEPTS_ALL, FAILS, FAILS_HALFWAY, Faulty, ONE_WRONG, REJECTS_ALL, STALLS, WORKS, WRONG};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const CIPHER: Cipher = Cipher::ChaCha20Poly1305;

fn pinned_to(engine: &str) -> Rules {
    Rules { pinned: [(CIPHER.to_string(), engine.to_owned())].into(), accelerators: true }
}

/// A choice that uses the faulty engine, guarded.
fn choice_of(faulty: &Faulty) -> Choice {
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(Guarded::new(Arc::new(faulty.clone())))]);
    choice.set_rules(pinned_to("faulty"));
    choice.row(CIPHER.into());
    choice
}

/// Seals and opens a burst; returns whether all results are right.
fn right(key: &dyn Key, reference: &dyn Key, round: u8) -> bool {
    let plain: Vec<Vec<u8>> = (0..20).map(|i| vec![i ^ round; 100 + usize::from(i)]).collect();
    let (mut texts, mut tags) = (plain.clone(), vec![vec![0; 16]; 20]);
    let run = |texts: &mut [Vec<u8>],
               tags: &mut [Vec<u8>],
               work: &dyn Fn(&mut [Job<'_>]) -> Result<(), EngineFailure>| {
        let mut jobs: Vec<Job<'_>> = texts
            .iter_mut()
            .zip(tags)
            .enumerate()
            .map(|(i, (text, tag))| Job { nonce: [i as u8; 12], aad: b"head", text, tag, authentic: false })
            .collect();
        work(&mut jobs).is_ok().then(|| jobs.iter().map(|job| job.authentic).collect::<Vec<_>>())
    };
    if run(&mut texts, &mut tags, &|jobs| key.seal(jobs)).is_none() {
        return false;
    }
    let (mut theirs, mut damaged) = (texts.clone(), texts.clone());
    damaged[7][0] ^= 1;
    let opened = run(&mut theirs, &mut tags.clone(), &|jobs| reference.open(jobs));
    let ours = run(&mut texts, &mut tags.clone(), &|jobs| key.open(jobs));
    let found = run(&mut damaged, &mut tags, &|jobs| key.open(jobs));
    let all = Some(vec![true; 20]);
    let but_one = Some((0..20).map(|i| i != 7).collect());
    opened == all && ours == all && found == but_one && texts == plain && theirs == plain
}

#[test]
fn no_failure_of_an_engine_loses_or_damages_a_packet() {
    for how in [FAILS, STALLS, WRONG, FAILS_HALFWAY, ACCEPTS_ALL, REJECTS_ALL] {
        let faulty = Faulty::default();
        let choice = choice_of(&faulty);
        let secret = [3; 32];
        let (key, reference) = (choice.load(CIPHER, &secret), AwsLc.load(CIPHER, &secret));
        let (key, reference) = (key.expect("it loads"), reference.expect("it loads"));
        let before = faulty.calls.load(Ordering::Relaxed);
        assert!((0..10).all(|round| right(&*key, &*reference, round)), "while it works");
        assert!(faulty.calls.load(Ordering::Relaxed) > before, "the faulty engine is called");
        faulty.how.store(how, Ordering::Relaxed);
        assert!((0..10).all(|round| right(&*key, &*reference, round)), "kind {how}");
        let (health, failures) = choice.health(1);
        assert!(matches!(health, Health::Failed(_)) && failures >= 1, "kind {how}");
        let calls = faulty.calls.load(Ordering::Relaxed);
        assert!(right(&*key, &*reference, 99));
        assert_eq!(faulty.calls.load(Ordering::Relaxed), calls, "a failed engine is not called");
        assert_eq!(choice.maintain().first().map(|event| event.what.clone()), Some(EngineChange::Failed));
    }
}

const PAIR: Pair = Pair { encryption: Encryption::AesCbc(16), integrity: Integrity::HmacSha256 };

/// Seals and opens a burst of [`PairJob`]s; returns whether all results are right.
fn right_pair(key: &dyn PairKey, reference: &dyn PairKey, round: u8) -> bool {
    let plain: Vec<Vec<u8>> = (0..20).map(|i| vec![i ^ round; 8 + 16 * usize::from(i)]).collect();
    let mut tags = vec![vec![0; 16]; 20];
    type Work<'w> = &'w dyn Fn(&mut [PairJob<'_>]) -> Result<(), EngineFailure>;
    let run = |packets: &mut [Vec<u8>], tags: &mut [Vec<u8>], work: Work<'_>| {
        let job =
            |(packet, tag)| PairJob { iv: [round; 16], packet, text: 8, suffix: &[1], tag, authentic: false };
        let pairs = packets.iter_mut().map(Vec::as_mut_slice).zip(tags.iter_mut().map(Vec::as_mut_slice));
        let mut jobs: Vec<PairJob<'_>> = pairs.map(job).collect();
        work(&mut jobs).is_ok().then(|| jobs.iter().map(|job| job.authentic).collect::<Vec<_>>())
    };
    let mut sealed = plain.clone();
    if run(&mut sealed, &mut tags, &|jobs| key.seal(jobs)).is_none() {
        return false;
    }
    let (mut ours, mut theirs, mut damaged) = (sealed.clone(), sealed.clone(), sealed);
    damaged[7][9] ^= 1;
    let before = damaged[7].clone();
    let opened = run(&mut theirs, &mut tags.clone(), &|jobs| reference.open(jobs));
    let again = run(&mut ours, &mut tags.clone(), &|jobs| key.open(jobs));
    let found = run(&mut damaged, &mut tags, &|jobs| key.open(jobs));
    let (all, but_one) = (Some(vec![true; 20]), Some((0..20).map(|i| i != 7).collect()));
    let verdicts = opened == all && again == all && found == but_one;
    verdicts && ours == plain && theirs == plain && damaged[7] == before && damaged[8] == plain[8]
}

#[test]
fn pairs_are_guarded_as_well() {
    for how in [FAILS, STALLS, WRONG, FAILS_HALFWAY, ACCEPTS_ALL, REJECTS_ALL] {
        let faulty = Faulty::default();
        let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(Guarded::new(Arc::new(faulty.clone())))]);
        choice.set_rules(Rules {
            pinned: [(PAIR.to_string(), String::from("faulty"))].into(),
            accelerators: true,
        });
        let loads = [&choice as &dyn Engine, &AwsLc].map(|engine| engine.load_pair(PAIR, &[3; 16], &[4; 32]));
        let [key, reference] = loads.map(|key| key.expect("it loads"));
        let before = faulty.calls.load(Ordering::Relaxed);
        assert!((0..10).all(|round| right_pair(&*key, &*reference, round)), "while it works");
        assert!(faulty.calls.load(Ordering::Relaxed) > before, "the faulty engine is called");
        faulty.how.store(how, Ordering::Relaxed);
        assert!((0..10).all(|round| right_pair(&*key, &*reference, round)), "kind {how}");
        assert!(matches!(choice.health(1), (Health::Failed(_), 1..)), "kind {how}");
    }
}

/// An engine whose driver takes longer than allowed to load a key.
struct Slow;

impl Engine for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn version(&self) -> String {
        String::from("1")
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        std::thread::sleep(Duration::from_secs(8));
        AwsLc.load(cipher, secret)
    }
}

#[test]
fn only_the_first_caller_waits_for_a_key_that_does_not_load() {
    let slow = Guarded::new(Arc::new(Slow));
    assert!(matches!(slow.load(CIPHER, &[3; 32]), Err(LoadError::Failed { .. })));
    let started = Instant::now();
    assert!(slow.load(CIPHER, &[3; 32]).is_err());
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_recovered_engine_is_used_again() {
    let faulty = Faulty::default();
    let choice = choice_of(&faulty);
    let (key, reference) = (choice.load(CIPHER, &[3; 32]), AwsLc.load(CIPHER, &[3; 32]));
    let (key, reference) = (key.expect("it loads"), reference.expect("it loads"));
    faulty.how.store(FAILS, Ordering::Relaxed);
    assert!(right(&*key, &*reference, 1));
    std::thread::sleep(Duration::from_millis(1100));
    let events: Vec<_> = choice.maintain().into_iter().map(|event| event.what).collect();
    assert_eq!(events, [EngineChange::Failed, EngineChange::FailedAgain]);
    faulty.how.store(WORKS, Ordering::Relaxed);
    assert!(choice.maintain().is_empty(), "the delay doubles");
    std::thread::sleep(Duration::from_millis(2100));
    let events: Vec<_> = choice.maintain().into_iter().map(|event| event.what).collect();
    assert_eq!(events, [EngineChange::Recovered]);
    let calls = faulty.calls.load(Ordering::Relaxed);
    assert!(right(&*key, &*reference, 2));
    assert!(faulty.calls.load(Ordering::Relaxed) > calls);
}

#[test]
fn the_periodic_check_finds_wrong_results_of_an_unguarded_engine() {
    let faulty = Faulty::default();
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(faulty.clone())]);
    choice.row(CIPHER.into());
    assert!(choice.maintain().is_empty());
    let wrong = Choice::among(vec![Arc::new(AwsLc), Arc::new(faulty.clone())]);
    wrong.row(CIPHER.into());
    faulty.how.store(WRONG, Ordering::Relaxed);
    assert_eq!(wrong.maintain().first().map(|event| event.what.clone()), Some(EngineChange::Failed));
}

#[test]
fn an_engine_with_wrong_results_is_never_chosen() {
    let faulty = Faulty::default();
    faulty.how.store(WRONG, Ordering::Relaxed);
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(faulty)]);
    let row = choice.row(CIPHER.into());
    assert!(row.measured()[1].cost().is_none());
    assert!(Slot::all().all(|slot| row.chosen(slot) == 0));
}

#[test]
fn an_accelerator_is_used_only_where_it_is_allowed() {
    let faulty = Faulty { accelerator: true, ..Faulty::default() };
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(faulty)]);
    let row = choice.row(CIPHER.into());
    assert!(Slot::all().all(|slot| row.chosen(slot) == 0), "it is not allowed");
    choice.set_rules(pinned_to("faulty"));
    assert!(Slot::all().all(|slot| row.chosen(slot) == 1), "rules apply at once to existing rows");
    choice.set_rules(Rules { accelerators: false, ..pinned_to("faulty") });
    assert!(Slot::all().all(|slot| row.chosen(slot) == 0), "a pinned accelerator must still be allowed");
}

#[test]
fn an_accelerator_counts_the_traffic_that_it_carries() {
    let faulty = Faulty { accelerator: true, ..Faulty::default() };
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(faulty.clone())]);
    choice.set_rules(pinned_to("faulty"));
    let key = choice.load(CIPHER, &[3; 32]).expect("it loads");
    let reference = AwsLc.load(CIPHER, &[3; 32]).expect("it loads");
    assert_eq!(choice.carried(1), Some([Carried::default(); 2]), "measuring is no traffic");
    assert!(right(&*key, &*reference, 0));
    // `right` seals 20 packets of 100 to 119 bytes, and opens them twice.
    let sealed = Carried { packets: 20, bytes: 2190 };
    let opened = Carried { packets: 40, bytes: 4380 };
    assert_eq!(choice.carried(1), Some([sealed, opened]));
    assert_eq!(choice.carried(0), None, "the processor's engines are not counted");
    faulty.how.store(FAILS, Ordering::Relaxed);
    assert!(right(&*key, &*reference, 1));
    assert_eq!(choice.carried(1), Some([sealed, opened]), "another engine has done this");
}

#[test]
fn sampling_finds_one_wrong_packet_per_burst() {
    let faulty = Faulty::default();
    let choice = choice_of(&faulty);
    let key = choice.load(CIPHER, &[3; 32]).expect("it loads");
    faulty.how.store(ONE_WRONG, Ordering::Relaxed);
    // A packet reported as forged is recomputed at once; wrong text is found by sampling one byte in 64.
    let mut bursts = 0;
    while choice.health(1).0 == Health::Works {
        let (mut texts, mut tags) = (vec![vec![7; 1400]; 32], vec![vec![0; 16]; 32]);
        let packets = texts.iter_mut().zip(&mut tags);
        let job = |(text, tag)| Job { nonce: [1; 12], aad: b"", text, tag, authentic: false };
        let mut jobs: Vec<Job<'_>> = packets.map(|(text, tag)| job((&mut text[..], &mut tag[..]))).collect();
        key.seal(&mut jobs).expect("another engine seals");
        bursts += 1;
        assert!(bursts < 10_000, "the wrong results are not found");
    }
}

#[test]
fn an_engine_that_hangs_gets_no_more_bursts_and_keys() {
    let faulty = Faulty::default();
    let engine = Guarded::new(Arc::new(faulty.clone()));
    let key = engine.load(CIPHER, &[3; 32]).expect("it loads");
    let seal = || {
        let (mut text, mut tag) = ([0; 64], [0; 16]);
        key.seal(&mut [Job { nonce: [0; 12], aad: b"", text: &mut text, tag: &mut tag, authentic: false }])
    };
    faulty.how.store(STALLS, Ordering::Relaxed);
    assert!(seal().is_err());
    let calls = faulty.calls.load(Ordering::Relaxed);
    let started = Instant::now();
    assert!((0..100).all(|_| seal().is_err()) && engine.load(CIPHER, &[4; 32]).is_err());
    assert!(started.elapsed() < Duration::from_millis(200), "no caller waits for it");
    assert_eq!(faulty.calls.load(Ordering::Relaxed), calls);
    faulty.how.store(WORKS, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(seal(), Ok(()), "the engine no longer hangs");
}

#[test]
fn the_retry_delay_of_an_engine_that_keeps_failing_grows() {
    let faulty = Faulty::default();
    let choice = choice_of(&faulty);
    let key = choice.load(CIPHER, &[3; 32]).expect("it loads");
    let reference = AwsLc.load(CIPHER, &[3; 32]).expect("it loads");
    for longest in [1, 2] {
        faulty.how.store(FAILS, Ordering::Relaxed);
        assert!(right(&*key, &*reference, 1));
        let Health::Failed(wait) = choice.health(1).0 else { panic!("it has failed") };
        assert!(wait > Duration::from_millis(longest * 1000 - 500), "{wait:?}");
        faulty.how.store(WORKS, Ordering::Relaxed);
        std::thread::sleep(wait + Duration::from_millis(50));
        assert!(choice.maintain().iter().any(|event| event.what == EngineChange::Recovered));
    }
}

#[test]
fn an_engine_that_could_not_be_measured_is_measured_later() {
    let faulty = Faulty::default();
    faulty.how.store(WRONG, Ordering::Relaxed);
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(faulty.clone())]);
    choice.set_rules(pinned_to("faulty"));
    let row = choice.row(CIPHER.into());
    assert_eq!(row.measured()[1], Measured::Wrong);
    let told = |choice: &Choice| choice.maintain().into_iter().map(|event| event.what).collect::<Vec<_>>();
    assert_eq!(told(&choice), [EngineChange::Wrong(CIPHER.into())]);
    faulty.how.store(WORKS, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(told(&choice), [EngineChange::Measured(CIPHER.into())]);
    assert!(Slot::all().all(|slot| row.chosen(slot) == 1), "and followed");
}

#[test]
fn a_failure_to_load_a_key_is_reported() {
    let faulty = Faulty::default();
    let choice = choice_of(&faulty);
    faulty.loads_none.store(true, Ordering::Relaxed);
    let key = choice.load(CIPHER, &[3; 32]).expect("another engine loads it");
    assert!(matches!(choice.health(1), (Health::Failed(_), 1)));
    assert_eq!(choice.maintain()[0].what, EngineChange::NotLoaded(CIPHER.into()));
    assert!(right(&*key, &*AwsLc.load(CIPHER, &[3; 32]).expect("it loads"), 1));
}

#[test]
fn no_key_is_loaded_into_an_accelerator_that_is_not_allowed() {
    let faulty = Faulty { accelerator: true, ..Faulty::default() };
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(faulty.clone())]);
    choice.row(CIPHER.into());
    let loads = faulty.loads.load(Ordering::Relaxed);
    choice.load(CIPHER, &[3; 32]).expect("it loads");
    choice.maintain();
    assert_eq!(faulty.loads.load(Ordering::Relaxed), loads);
}

#[test]
fn a_key_is_loaded_into_an_engine_with_descriptors_only_if_it_is_chosen() {
    let faulty = Faulty { holds_descriptors: true, ..Faulty::default() };
    let choice = choice_of(&faulty);
    let loads = faulty.loads.load(Ordering::Relaxed);
    choice.load(CIPHER, &[3; 32]).expect("it loads");
    assert_eq!(faulty.loads.load(Ordering::Relaxed), loads + 1);
    choice.set_rules(pinned_to("aws-lc"));
    choice.load(CIPHER, &[3; 32]).expect("it loads");
    assert_eq!(faulty.loads.load(Ordering::Relaxed), loads + 1);
}

/// AWS-LC, slowed down to a given pace.
struct Paced {
    name: &'static str,
    accelerator: bool,
    /// Minimum time per call, and per byte.
    call: Duration,
    byte: Duration,
}

struct PacedKey(Arc<dyn Key>, Duration, Duration);

impl PacedKey {
    fn pace(&self, started: Instant, jobs: &[Job<'_>]) {
        let bytes: usize = jobs.iter().map(|job| job.text.len()).sum();
        while started.elapsed() < self.1 + self.2 * bytes as u32 {
            std::hint::spin_loop();
        }
    }
}

impl Key for PacedKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let started = Instant::now();
        self.0.seal(jobs)?;
        self.pace(started, jobs);
        Ok(())
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let started = Instant::now();
        self.0.open(jobs)?;
        self.pace(started, jobs);
        Ok(())
    }
}

impl Engine for Paced {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> String {
        String::from("1")
    }

    fn is_accelerator(&self) -> bool {
        self.accelerator
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        Ok(Arc::new(PacedKey(AwsLc.load(cipher, secret)?, self.call, self.byte)))
    }
}

#[test]
fn an_accelerator_that_is_faster_for_large_packets_is_used_only_for_those() {
    // The CPU takes 20 ns per byte; the device 55 us per call and 1 ns per byte. Their costs are equal at 2895 bytes
    // for a single packet, and at 90 bytes for bursts of 32, which share the call. Both are far from the sizes
    // measured.
    let nanos = Duration::from_nanos;
    let processor = Paced { name: "processor", accelerator: false, call: nanos(0), byte: nanos(20) };
    let device = Paced { name: "device", accelerator: true, call: nanos(55_000), byte: nanos(1) };
    let engines: [Arc<dyn Engine>; 2] = [Arc::new(processor), Arc::new(device)];
    let as_computed = |slot: Slot| SIZES[slot.size] > if slot.burst == 0 { 2895 } else { 90 };
    // A busy machine may take the processor away while an engine is measured: then it is measured again.
    let mut wrong = Vec::new();
    let is_right = (0..5).any(|_| {
        let choice = Choice::among(engines.to_vec());
        let row = choice.row(CIPHER.into());
        assert!(Slot::all().all(|slot| row.chosen(slot) == 0), "it is not allowed");
        choice.set_rules(Rules { accelerators: true, ..Rules::default() });
        let others = Slot::all().filter(|&slot| (row.chosen(slot) == 1) != as_computed(slot));
        wrong = others.map(|slot| (slot, row.ranking(slot))).collect();
        wrong.is_empty()
    });
    assert!(is_right, "{wrong:?}");
}

/// Encrypting twice under one nonce cancels the keystream. So a half-sealed burst must neither be sealed again nor be
/// sent.
#[test]
fn a_half_sealed_burst_is_given_to_no_other_engine() {
    let faulty = Faulty::default();
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(faulty.clone())]);
    choice.set_rules(pinned_to("faulty"));
    let key = choice.load(CIPHER, &[3; 32]).expect("it loads");
    let seal = |jobs: usize| {
        let (mut texts, mut tags) = (vec![[7u8; 100]; jobs], vec![[0u8; 16]; jobs]);
        let packets = texts.iter_mut().zip(&mut tags).zip(0u8..);
        let mut jobs: Vec<Job<'_>> = packets
            .map(|((text, tag), number)| Job { nonce: [number; 12], aad: b"", text, tag, authentic: false })
            .collect();
        key.seal(&mut jobs)
    };
    assert_eq!(seal(20), Ok(()));
    faulty.how.store(FAILS_HALFWAY, Ordering::Relaxed);
    assert_eq!(seal(20), Err(EngineFailure));
    assert_eq!(seal(20), Ok(()), "another engine seals the next burst");
    assert!(matches!(choice.health(1), (Health::Failed(_), 1)));
}
