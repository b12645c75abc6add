//! The choice between engines: who is called, who is left, and that no packet notices.

#[path = "support/ill.rs"]
mod ill;

use crypto::Cipher;
use crypto::choice::{Choice, Guarded, Happening, Health, Measured, Rules, SIZES, Slot};
use crypto::cipher::{Encryption, Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use ill::{BREAKS, DOUBTS, ERRS, Ill, LIES, LIES_ONCE, STALLS, TRUSTS, WELL};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const CIPHER: Cipher = Cipher::ChaCha20Poly1305;

fn pinned_to(engine: &str) -> Rules {
    Rules { pinned: [(CIPHER.to_string(), engine.to_owned())].into(), accelerators: true }
}

/// A choice in which the ill engine is used, under guard.
fn choice_of(ill: &Ill) -> Choice {
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(Guarded::new(Arc::new(ill.clone())))]);
    choice.set_rules(pinned_to("ill"));
    choice.row(CIPHER.into());
    choice
}

/// Seals and opens a burst; whether all was as it should be.
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
fn an_engine_that_fails_in_any_way_loses_and_spoils_nothing() {
    for how in [ERRS, STALLS, LIES, BREAKS, TRUSTS, DOUBTS] {
        let ill = Ill::default();
        let choice = choice_of(&ill);
        let secret = [3; 32];
        let (key, reference) = (choice.load(CIPHER, &secret), AwsLc.load(CIPHER, &secret));
        let (key, reference) = (key.expect("it loads"), reference.expect("it loads"));
        let before = ill.calls.load(Ordering::Relaxed);
        assert!((0..10).all(|round| right(&*key, &*reference, round)), "while it is well");
        assert!(ill.calls.load(Ordering::Relaxed) > before, "it is the one that is called");
        ill.how.store(how, Ordering::Relaxed);
        assert!((0..10).all(|round| right(&*key, &*reference, round)), "kind {how}");
        let (health, failures) = choice.health(1);
        assert!(matches!(health, Health::Failed(_)) && failures >= 1, "kind {how}");
        let calls = ill.calls.load(Ordering::Relaxed);
        assert!(right(&*key, &*reference, 99));
        assert_eq!(ill.calls.load(Ordering::Relaxed), calls, "it is left alone");
        assert_eq!(choice.maintain().first().map(|event| event.what.clone()), Some(Happening::Failed));
    }
}

const PAIR: Pair = Pair { encryption: Encryption::AesCbc(16), integrity: Integrity::HmacSha256 };

/// Seals and opens a burst of the other kind of job; whether all was as it should be.
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
    for how in [ERRS, STALLS, LIES, BREAKS, TRUSTS, DOUBTS] {
        let ill = Ill::default();
        let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(Guarded::new(Arc::new(ill.clone())))]);
        choice.set_rules(Rules {
            pinned: [(PAIR.to_string(), String::from("ill"))].into(),
            accelerators: true,
        });
        let loads = [&choice as &dyn Engine, &AwsLc].map(|engine| engine.load_pair(PAIR, &[3; 16], &[4; 32]));
        let [key, reference] = loads.map(|key| key.expect("it loads"));
        let before = ill.calls.load(Ordering::Relaxed);
        assert!((0..10).all(|round| right_pair(&*key, &*reference, round)), "while it is well");
        assert!(ill.calls.load(Ordering::Relaxed) > before, "it is the one that is called");
        ill.how.store(how, Ordering::Relaxed);
        assert!((0..10).all(|round| right_pair(&*key, &*reference, round)), "kind {how}");
        assert!(matches!(choice.health(1), (Health::Failed(_), 1..)), "kind {how}");
    }
}

/// An engine whose driver takes for ever to load a key.
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
fn a_key_that_is_never_loaded_is_waited_for_once() {
    let slow = Guarded::new(Arc::new(Slow));
    assert!(matches!(slow.load(CIPHER, &[3; 32]), Err(LoadError::Failed { .. })));
    let started = Instant::now();
    assert!(slow.load(CIPHER, &[3; 32]).is_err());
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[test]
fn an_engine_that_is_well_again_is_used_again() {
    let ill = Ill::default();
    let choice = choice_of(&ill);
    let (key, reference) = (choice.load(CIPHER, &[3; 32]), AwsLc.load(CIPHER, &[3; 32]));
    let (key, reference) = (key.expect("it loads"), reference.expect("it loads"));
    ill.how.store(ERRS, Ordering::Relaxed);
    assert!(right(&*key, &*reference, 1));
    std::thread::sleep(Duration::from_millis(1100));
    let events: Vec<_> = choice.maintain().into_iter().map(|event| event.what).collect();
    assert_eq!(events, [Happening::Failed, Happening::FailedAgain]);
    ill.how.store(WELL, Ordering::Relaxed);
    assert!(choice.maintain().is_empty(), "it waits longer each time");
    std::thread::sleep(Duration::from_millis(2100));
    let events: Vec<_> = choice.maintain().into_iter().map(|event| event.what).collect();
    assert_eq!(events, [Happening::Recovered]);
    let calls = ill.calls.load(Ordering::Relaxed);
    assert!(right(&*key, &*reference, 2));
    assert!(ill.calls.load(Ordering::Relaxed) > calls);
}

#[test]
fn an_engine_that_begins_to_lie_outside_a_guard_is_found_when_it_is_checked() {
    let ill = Ill::default();
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(ill.clone())]);
    choice.row(CIPHER.into());
    assert!(choice.maintain().is_empty());
    let lying = Choice::among(vec![Arc::new(AwsLc), Arc::new(ill.clone())]);
    lying.row(CIPHER.into());
    ill.how.store(LIES, Ordering::Relaxed);
    assert_eq!(lying.maintain().first().map(|event| event.what.clone()), Some(Happening::Failed));
}

#[test]
fn an_engine_that_computes_something_else_is_never_chosen() {
    let ill = Ill::default();
    ill.how.store(LIES, Ordering::Relaxed);
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(ill)]);
    let row = choice.row(CIPHER.into());
    assert!(row.measured()[1].cost().is_none());
    assert!(Slot::all().all(|slot| row.chosen(slot) == 0));
}

#[test]
fn an_accelerator_is_used_only_where_it_is_allowed() {
    let ill = Ill { accelerator: true, ..Ill::default() };
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(ill)]);
    let row = choice.row(CIPHER.into());
    assert!(Slot::all().all(|slot| row.chosen(slot) == 0), "it is not allowed");
    choice.set_rules(pinned_to("ill"));
    assert!(Slot::all().all(|slot| row.chosen(slot) == 1), "at once, for a row that is there");
    choice.set_rules(Rules { accelerators: false, ..pinned_to("ill") });
    assert!(Slot::all().all(|slot| row.chosen(slot) == 0), "forbidden beats pinned");
}

#[test]
fn an_engine_that_answers_one_packet_of_a_burst_wrongly_is_found_by_samples() {
    let ill = Ill::default();
    let choice = choice_of(&ill);
    let key = choice.load(CIPHER, &[3; 32]).expect("it loads");
    ill.how.store(LIES_ONCE, Ordering::Relaxed);
    // A forged verdict is computed again at once; wrong text is found by a sample, of one byte in 64.
    let mut bursts = 0;
    while choice.health(1).0 == Health::Works {
        let (mut texts, mut tags) = (vec![vec![7; 1400]; 32], vec![vec![0; 16]; 32]);
        let packets = texts.iter_mut().zip(&mut tags);
        let job = |(text, tag)| Job { nonce: [1; 12], aad: b"", text, tag, authentic: false };
        let mut jobs: Vec<Job<'_>> = packets.map(|(text, tag)| job((&mut text[..], &mut tag[..]))).collect();
        key.seal(&mut jobs).expect("an engine seals");
        bursts += 1;
        assert!(bursts < 10_000, "it is not found");
    }
}

#[test]
fn an_engine_that_is_stuck_is_given_nothing_more() {
    let ill = Ill::default();
    let engine = Guarded::new(Arc::new(ill.clone()));
    let key = engine.load(CIPHER, &[3; 32]).expect("it loads");
    let seal = || {
        let (mut text, mut tag) = ([0; 64], [0; 16]);
        key.seal(&mut [Job { nonce: [0; 12], aad: b"", text: &mut text, tag: &mut tag, authentic: false }])
    };
    ill.how.store(STALLS, Ordering::Relaxed);
    assert!(seal().is_err());
    let calls = ill.calls.load(Ordering::Relaxed);
    let started = Instant::now();
    assert!((0..100).all(|_| seal().is_err()) && engine.load(CIPHER, &[4; 32]).is_err());
    assert!(started.elapsed() < Duration::from_millis(200), "no caller waits for it");
    assert_eq!(ill.calls.load(Ordering::Relaxed), calls);
    ill.how.store(WELL, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(seal(), Ok(()), "it has let go");
}

#[test]
fn an_engine_that_falls_ill_again_and_again_is_tried_ever_later() {
    let ill = Ill::default();
    let choice = choice_of(&ill);
    let key = choice.load(CIPHER, &[3; 32]).expect("it loads");
    let reference = AwsLc.load(CIPHER, &[3; 32]).expect("it loads");
    for longest in [1, 2] {
        ill.how.store(ERRS, Ordering::Relaxed);
        assert!(right(&*key, &*reference, 1));
        let Health::Failed(wait) = choice.health(1).0 else { panic!("it has failed") };
        assert!(wait > Duration::from_millis(longest * 1000 - 500), "{wait:?}");
        ill.how.store(WELL, Ordering::Relaxed);
        std::thread::sleep(wait + Duration::from_millis(50));
        assert!(choice.maintain().iter().any(|event| event.what == Happening::Recovered));
    }
}

#[test]
fn an_engine_that_could_not_be_measured_is_measured_later() {
    let ill = Ill::default();
    ill.how.store(LIES, Ordering::Relaxed);
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(ill.clone())]);
    choice.set_rules(pinned_to("ill"));
    let row = choice.row(CIPHER.into());
    assert_eq!(row.measured()[1], Measured::Wrong);
    let told = |choice: &Choice| choice.maintain().into_iter().map(|event| event.what).collect::<Vec<_>>();
    assert_eq!(told(&choice), [Happening::Wrong(CIPHER.into())]);
    ill.how.store(WELL, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(told(&choice), [Happening::Measured(CIPHER.into())]);
    assert!(Slot::all().all(|slot| row.chosen(slot) == 1), "and followed");
}

#[test]
fn a_key_that_the_chosen_engine_does_not_load_is_told() {
    let ill = Ill::default();
    let choice = choice_of(&ill);
    ill.loads_none.store(true, Ordering::Relaxed);
    let key = choice.load(CIPHER, &[3; 32]).expect("another engine loads it");
    assert!(matches!(choice.health(1), (Health::Failed(_), 1)));
    assert_eq!(choice.maintain()[0].what, Happening::NotLoaded(CIPHER.into()));
    assert!(right(&*key, &*AwsLc.load(CIPHER, &[3; 32]).expect("it loads"), 1));
}

#[test]
fn a_forbidden_accelerator_is_given_no_key_of_a_session_and_left_alone() {
    let ill = Ill { accelerator: true, ..Ill::default() };
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(ill.clone())]);
    choice.row(CIPHER.into());
    let loads = ill.loads.load(Ordering::Relaxed);
    choice.load(CIPHER, &[3; 32]).expect("it loads");
    choice.maintain();
    assert_eq!(ill.loads.load(Ordering::Relaxed), loads);
}

#[test]
fn an_engine_that_holds_descriptors_is_given_a_key_only_where_it_is_chosen() {
    let ill = Ill { holds_descriptors: true, ..Ill::default() };
    let choice = choice_of(&ill);
    let loads = ill.loads.load(Ordering::Relaxed);
    choice.load(CIPHER, &[3; 32]).expect("it loads");
    assert_eq!(ill.loads.load(Ordering::Relaxed), loads + 1);
    choice.set_rules(pinned_to("aws-lc"));
    choice.load(CIPHER, &[3; 32]).expect("it loads");
    assert_eq!(ill.loads.load(Ordering::Relaxed), loads + 1);
}

/// An engine that computes what AWS-LC does, and takes its time for it.
struct Paced {
    name: &'static str,
    accelerator: bool,
    /// For a call, and for each byte.
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
fn an_accelerator_that_wins_at_large_sizes_is_used_at_those_only() {
    // The processor takes 20 ns a byte; the device 55 us for a call and 1 ns a byte. Alone they are equal at 2895 bytes, in
    // bursts of 32, where the call is shared, at 90: both are far from the sizes measured.
    let nanos = Duration::from_nanos;
    let processor = Paced { name: "processor", accelerator: false, call: nanos(0), byte: nanos(20) };
    let device = Paced { name: "device", accelerator: true, call: nanos(55_000), byte: nanos(1) };
    let choice = Choice::among(vec![Arc::new(processor), Arc::new(device)]);
    let row = choice.row(CIPHER.into());
    assert!(Slot::all().all(|slot| row.chosen(slot) == 0), "it is not allowed");
    choice.set_rules(Rules { accelerators: true, ..Rules::default() });
    for slot in Slot::all() {
        let least = if slot.burst == 0 { 2895 } else { 90 };
        assert_eq!(row.chosen(slot) == 1, SIZES[slot.size] > least, "{slot:?} {:?}", row.ranking(slot));
    }
}

/// Two keystreams under one nonce are none: what was sealed half way must not be sealed again, and must not leave.
#[test]
fn a_burst_that_an_engine_has_left_half_done_is_given_to_no_other() {
    let ill = Ill::default();
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(ill.clone())]);
    choice.set_rules(pinned_to("ill"));
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
    ill.how.store(BREAKS, Ordering::Relaxed);
    assert_eq!(seal(20), Err(EngineFailure));
    assert_eq!(seal(20), Ok(()), "the next burst goes by another engine");
    assert!(matches!(choice.health(1), (Health::Failed(_), 1)));
}
