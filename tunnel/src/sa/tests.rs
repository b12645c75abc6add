use super::*;
use crypto::Cipher;
use crypto::engine::{Engine, none};

const EXPIRES: Time = Time::from_nanoseconds(1000);

fn sa(end_sequence: u64) -> OutboundSa {
    let key = none::None.load(Cipher::ChaCha20Poly1305, &[0; 32]).expect("none takes any key");
    let renew = Some(Time::from_nanoseconds(500));
    OutboundSa::new(key, 7, Lifetime { renew, renew_sequence: 8, expires: EXPIRES, end_sequence })
}

#[test]
fn sequence_numbers_are_consecutive_and_end() {
    let (sa, now) = (sa(10), Time::from_nanoseconds(1));
    assert_eq!(sa.assign(4, now), Ok(0..4));
    assert_eq!(sa.assign(4, now), Ok(4..8));
    assert_eq!(sa.assign(2, now), Ok(8..10));
    assert_eq!(sa.assign(1, now), Err(DropReason::CounterExhausted));
    assert!(!sa.is_usable(now));
}

/// Otherwise small bursts pass, and nobody hears that large ones do not.
#[test]
fn an_sa_ends_with_the_first_burst_that_finds_too_few_numbers_or_packets() {
    let now = Time::from_nanoseconds(1);
    for has_one_user in [false, true] {
        let by_numbers = sa(10);
        by_numbers.set_one_user(has_one_user);
        assert_eq!(by_numbers.assign(8, now), Ok(0..8));
        assert!(by_numbers.is_usable(now));
        assert_eq!(by_numbers.assign(3, now), Err(DropReason::CounterExhausted));
        assert!(!by_numbers.is_usable(now));
        assert_eq!((by_numbers.assign(1, now), by_numbers.next()), (Err(DropReason::CounterExhausted), 10));
    }
    let by_packets = sa(100).with_volume(Volume::new(90, 100).with_packets(10));
    assert_eq!(by_packets.spend(8, 40), Ok(()));
    assert!(by_packets.is_usable(now));
    assert_eq!((by_packets.spend(3, 1), by_packets.is_usable(now)), (Err(DropReason::KeyExpired), false));
    assert_eq!(by_packets.spend(1, 1), Err(DropReason::KeyExpired));
    assert_eq!(by_packets.volume().map(Volume::packets), Some(10));
}

#[test]
fn threads_get_each_number_once_and_no_more_bytes_than_the_limit() {
    const COUNT: u64 = 100_000;
    let (sa, now) = (sa(COUNT).with_volume(Volume::new(50_000, 60_000)), Time::from_nanoseconds(1));
    let (mut numbers, spent) = std::thread::scope(|scope| {
        let work = || {
            let taken: Vec<u64> = std::iter::from_fn(|| sa.assign(7, now).ok()).flatten().collect();
            (taken, (0..COUNT).filter(|_| sa.spend(1, 1).is_ok()).count() as u64)
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        threads.into_iter().fold((Vec::new(), 0), |(mut all, spent), thread| {
            let (taken, more) = thread.join().expect("it does not panic");
            all.extend(taken);
            (all, spent + more)
        })
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (0..COUNT / 7 * 7).collect::<Vec<u64>>(), "none is missing, and none is twice there");
    assert_eq!(spent, 60_000);
}

#[test]
fn the_counter_never_wraps() {
    let (sa, now) = (sa(u64::MAX), Time::from_nanoseconds(1));
    sa.next.store(u64::MAX - 1, Ordering::Relaxed);
    assert_eq!(sa.assign(1, now), Ok(u64::MAX - 1..u64::MAX));
    assert_eq!(sa.assign(1, now), Err(DropReason::CounterExhausted));
}

#[test]
fn bytes_are_spent_up_to_the_end_and_renewal_is_asked_for_before() {
    let (sa, now) = (sa(100).with_volume(Volume::new(50, 100)), Time::from_nanoseconds(1));
    assert_eq!(sa.spend(1, 50), Ok(()));
    assert!(!sa.wants_renewal(now));
    assert_eq!((sa.spend(1, 40), sa.wants_renewal(now)), (Ok(()), true));
    assert!(sa.is_usable(now));
    assert_eq!(sa.spend(1, 11), Err(DropReason::KeyExpired));
    assert!(!sa.is_usable(now), "what was refused once is the end");
    assert_eq!(sa.spend(1, 1), Err(DropReason::KeyExpired));
    assert_eq!(sa.volume().map(|volume| (volume.packets(), volume.bytes())), Some((2, 100)));
}

/// The peer's limits may be lower than the local ones: it rekeys when it reaches them.
#[test]
fn a_key_is_worn_by_many_packets_whatever_it_may_carry() {
    let without_limit = || Volume::new(u64::MAX, u64::MAX);
    let lifetime =
        Lifetime { renew: None, renew_sequence: u64::MAX, expires: EXPIRES, end_sequence: u64::MAX };
    let key = || none::None.load(Cipher::ChaCha20Poly1305, &[0; 32]).expect("none takes any key");
    let (inbound, outbound) = (
        InboundSa::new(key(), 7, lifetime, false).with_volume(without_limit()),
        OutboundSa::new(key(), 7, lifetime).with_volume(without_limit()),
    );
    let now = Time::from_nanoseconds(1);
    for (packets, is_worn) in [(1000, false), (WORN_PACKETS, true)] {
        inbound.spend(packets as usize, 100);
        outbound.assign(packets as usize, now).expect("there are numbers left");
        assert_eq!([inbound.is_worn(), outbound.is_worn()], [is_worn; 2], "{packets}");
    }
}

#[test]
fn an_expired_key_assigns_nothing() {
    assert_eq!(sa(10).assign(1, EXPIRES), Err(DropReason::KeyExpired));
    assert!(!sa(10).is_usable(EXPIRES));
}

#[test]
fn renewal_is_asked_for_once_by_age_or_by_use() {
    let by_age = sa(100);
    assert!(!by_age.wants_renewal(Time::from_nanoseconds(499)));
    assert!(by_age.wants_renewal(Time::from_nanoseconds(500)));
    assert!(!by_age.wants_renewal(Time::from_nanoseconds(501)));
    let by_use = sa(100);
    by_use.assign(9, Time::from_nanoseconds(1)).expect("there are numbers left");
    assert!(by_use.wants_renewal(Time::from_nanoseconds(1)));
}
