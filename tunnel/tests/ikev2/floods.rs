//! First messages, many of them: cookies and what unauthenticated sources can make us keep (RFC 7296 section 2.6).

use crate::mallory::Mallory;
use crate::network::{A, B, Datagram, Network};
use crate::support::{
    acquainted, assert_agree, assert_nothing_leaks, assert_one_session, begin, connected, established, net,
    seconds,
};
use crypto::SecretBytes;
use crypto::exchange::Group;
use tunnel::ikev2::message::numbers::{notify, payload};
use tunnel::ikev2::message::{Body, Envelope, Exchange, KeyExchange, Message, Payload};
use tunnel::ikev2::{Authentication, Cause, Event, Identity, Load};

#[test]
fn many_half_open_sas_make_cookies_necessary_and_a_real_peer_still_comes_in() {
    let (mut network, ids) = acquainted(17, |host, connection| {
        if host == B {
            connection.remote = None;
        }
    });
    // One real first message, repeated from many sources with other SPIs.
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    for number in 0..1000u16 {
        let mut spoofed = first.clone();
        spoofed.from = ([198, 51, (number >> 8) as u8, number as u8], 500).into();
        spoofed.bytes[..8].copy_from_slice(&u64::from(number + 1).to_be_bytes());
        network.arrive(spoofed);
    }
    assert_eq!(network.hosts[B].endpoint.load().half_open, 64, "the others were asked for cookies");
    network.run(seconds(5));
    assert_eq!(established(&network.hosts[A]), 1);
    assert_agree(&network, 1);
    let cookies = network.log.iter().filter(|(_, datagram)| {
        datagram.to == first.from
            && datagram.bytes.windows(2).any(|pair| pair == notify::COOKIE.to_be_bytes())
    });
    assert!(cookies.count() >= 1, "A was asked, too");
    network.run(seconds(60));
    assert_nothing_leaks(&network, 1);
}

#[test]
fn a_cookie_and_another_group_are_asked_for_together() {
    let (mut network, ids) = acquainted(18, |host, connection| {
        if host == B {
            connection.remote = None;
            connection.ike[0].groups = vec![Group::Ecp256];
        } else {
            connection.ike[0].groups = vec![Group::X25519, Group::Ecp256];
        }
    });
    let (flood, flood_ids) = acquainted(19, |_, connection| connection.ike[0].groups = vec![Group::Ecp256]);
    let mut flood = flood;
    begin(&mut flood, A, flood_ids[A]);
    for number in 0..100u8 {
        let mut spoofed = flood.log[0].1.clone();
        spoofed.from = ([198, 51, 100, number], 500).into();
        spoofed.bytes[7] = number;
        network.arrive(spoofed);
    }
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    assert_agree(&network, 1);
    let to_a = network.log.iter().filter(|(_, one)| one.to.ip() == network.hosts[A].address);
    let told: Vec<Option<u16>> = to_a
        .filter_map(|(_, one)| match Message::parse(&one.bytes).expect("well formed").body {
            Body::Clear(payloads) => Some(payloads.notifies.first().map(|notify| notify.kind)),
            _ => None,
        })
        .collect();
    let expected = [notify::COOKIE, notify::INVALID_KE_PAYLOAD].map(Some);
    assert_eq!(told[..2], expected);
}

#[test]
fn one_source_cannot_take_all_places() {
    let (mut network, ids) = acquainted(20, |host, connection| {
        if host == B {
            connection.remote = None;
        }
    });
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    for number in 0..1000u64 {
        let mut other = first.clone();
        other.from = "198.51.100.1:500".parse().expect("literal");
        other.bytes[..8].copy_from_slice(&(number + 1).to_be_bytes());
        network.arrive(other);
    }
    assert_eq!(network.hosts[B].endpoint.load().half_open, 4, "the others were asked for cookies");
    network.run(seconds(5));
    assert_agree(&network, 1);
}

#[test]
fn a_forged_source_address_does_not_keep_the_peer_out() {
    let (mut network, ids) = acquainted(27, |_, _| {});
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    for number in 0..1000u64 {
        let mut forged = first.clone();
        forged.bytes[..8].copy_from_slice(&(number + 1).to_be_bytes());
        network.arrive(forged);
    }
    network.run(seconds(5));
    assert_agree(&network, 1);
    let cookies = network
        .log
        .iter()
        .filter(|(_, datagram)| datagram.bytes.windows(2).any(|pair| pair == notify::COOKIE.to_be_bytes()));
    assert!(cookies.count() >= 2, "A was asked, and returned it");
}

/// Who returns cookies is where it says that it is, and has its own quota.
#[test]
fn one_source_that_returns_cookies_has_a_quota() {
    let (mut network, _) = acquainted(28, |host, connection| {
        if host == B {
            connection.remote = None;
        }
    });
    for number in 1..100 {
        let mut one = Mallory::new();
        one.spi = number;
        one.init_with_cookie(&mut network);
    }
    assert_eq!(network.hosts[B].endpoint.load().half_open, 4 + 32);
}

#[test]
fn unauthenticated_sources_fill_neither_memory_nor_the_log() {
    let (mut network, ids) = acquainted(21, |_, _| {});
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    for number in 0..10_000u64 {
        let mut unauthenticated = first.clone();
        unauthenticated.from = ([198, 51, (number >> 8) as u8, number as u8], 500).into();
        unauthenticated.bytes[..8].copy_from_slice(&(number + 1).to_be_bytes());
        network.arrive(unauthenticated);
    }
    assert_eq!(network.hosts[B].endpoint.load().half_open, 0, "no connection is for them");
    assert_eq!(network.hosts[B].events.len(), 10);
}

/// A key exchange that comes to nothing costs as much as one that makes a half-open SA.
#[test]
fn public_values_of_no_use_make_cookies_necessary() {
    let (mut network, ids) = acquainted(33, |_, _| {});
    let mut mallory = Mallory::new();
    let mut payloads = mallory.init_payloads();
    payloads[1] = Payload::Ke(KeyExchange { group: 31, public: &[0; 32] });
    let mut answered = |network: &mut Network, kind| {
        mallory.spi += 1;
        let answer = mallory.init(network, &payloads).pop().expect("it is answered");
        let Ok(Message { body: Body::Clear(answer), .. }) = Message::parse(&answer) else { panic!("clear") };
        assert!(answer.notify(kind).is_some(), "{answer:?}");
    };
    for _ in 0..4 {
        answered(&mut network, notify::INVALID_SYNTAX);
    }
    answered(&mut network, notify::COOKIE);
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    assert_agree(&network, 1);
    network.run(seconds(30));
    answered(&mut network, notify::INVALID_SYNTAX);
}

#[test]
fn the_fragments_of_all_who_are_half_open_are_bounded() {
    let (mut network, ids) = acquainted(34, |host, connection| {
        if host == B {
            connection.remote = None;
        } else {
            connection.local_identity = Identity::KeyId(vec![7; 1000]);
        }
        connection.remote_identity = None;
    });
    for number in 0..300u16 {
        let address = ([198, 51, (number >> 8) as u8, number as u8], 500).into();
        let mut unauthenticated = Mallory::half_open_at(&mut network, address);
        let header = unauthenticated.header(Exchange::IkeAuth, 1);
        let piece =
            unauthenticated.seal(&header, Envelope::Fragment(1, 2), payload::VENDOR_ID, &vec![0; 60_000]);
        unauthenticated.send(&mut network, piece);
        assert!(network.hosts[B].endpoint.load().fragments <= 16 << 20);
    }
    assert_eq!(network.hosts[B].endpoint.load().half_open, 300);
    assert!(network.hosts[B].endpoint.load().fragments > 15 << 20);
    network.run(seconds(31));
    assert_eq!(network.hosts[B].endpoint.load(), Load::default());
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    assert_agree(&network, 1);
}

/// CVE-2026-78127 is of this kind: what is refused costs a report each time.
#[test]
fn a_forged_source_address_does_not_fill_the_log() {
    let (mut network, ids) = acquainted(29, |host, connection| {
        if host == A {
            connection.ike[0].groups = vec![Group::Ecp256];
        }
    });
    network.hosts[A].is_dead = true;
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    for number in 0..10_000u64 {
        let mut forged = first.clone();
        forged.bytes[..8].copy_from_slice(&(number + 1).to_be_bytes());
        network.arrive(forged);
    }
    let events = &network.hosts[B].events;
    assert_eq!(events.len(), 4, "after that it is asked for a cookie");
    assert!(events.iter().all(|event| matches!(
        event,
        Event::Failed { connection: Some(_), authentic: false, cause: Cause::NoProposal { .. }, .. }
    )));
    // After a while it is told again.
    network.run(seconds(10));
    network.arrive(Datagram { bytes: first.bytes.clone(), ..first });
    assert_eq!(network.hosts[B].events.len(), 5);
}

#[test]
fn a_flood_does_not_hide_what_became_of_our_own_call() {
    let (mut network, ids) = acquainted(35, |host, connection| {
        if host == B {
            connection.ike[0].groups = vec![Group::Ecp256];
        }
    });
    begin(&mut network, B, ids[B]);
    let first = network.log[0].1.clone();
    begin(&mut network, A, ids[A]);
    for number in 0..1000u64 {
        let mut forged = first.clone();
        forged.bytes[..8].copy_from_slice(&(number + 1).to_be_bytes());
        network.arrive(forged);
        network.run(std::time::Duration::from_millis(10));
    }
    let is_told = |event: &Event| match event {
        Event::Failed { cause: Cause::NoProposal { theirs, .. }, .. } => theirs.is_empty(),
        _ => false,
    };
    assert_eq!(network.hosts[A].count(is_told), 1, "{:?}", network.hosts[A].events);
}

#[test]
fn only_what_is_certain_is_called_authentic() {
    let authentic = |network: &Network, host: usize| -> Vec<bool> {
        let failed = |event: &Event| match event {
            Event::Failed { authentic, .. } => Some(*authentic),
            _ => None,
        };
        network.hosts[host].events.iter().filter_map(failed).collect()
    };
    let (network, _) = connected(30, |host, connection| {
        if host == B {
            connection.authentication = Authentication::SharedKey(SecretBytes::new(b"another".to_vec()));
        }
    });
    assert_eq!([A, B].map(|host| authentic(&network, host)), [vec![false], vec![false]], "who is it?");
    let (network, _) = connected(31, |host, connection| {
        if host == B {
            connection.children[0].remote = vec![net("10.9.0.0", "10.9.0.255")];
        }
    });
    assert_eq!([A, B].map(|host| authentic(&network, host)), [vec![true], vec![true]], "it is known");
    let (mut network, ids) = acquainted(32, |_, _| {});
    network.hosts[B].is_dead = true;
    begin(&mut network, A, ids[A]);
    network.run(seconds(600));
    assert_eq!(authentic(&network, A), [true], "no answer arrived");
}

#[test]
fn a_first_message_that_comes_again_gets_the_same_answer() {
    let (mut network, ids) = acquainted(22, |_, _| {});
    network.hosts[A].is_dead = true;
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    for _ in 0..3 {
        network.arrive(first.clone());
    }
    let answers: Vec<_> = network.log[1..].iter().map(|(_, datagram)| datagram.bytes.clone()).collect();
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(network.hosts[B].endpoint.load().half_open, 1);
    for _ in 0..1000 {
        network.arrive(first.clone());
    }
    assert_eq!(network.log.len(), 1 + 9, "but not without end: its source may be forged");
    network.run(seconds(31));
    assert_eq!(network.hosts[B].endpoint.load(), Load::default());
}

#[test]
fn first_messages_that_come_to_nothing_bring_cookies() {
    let (mut network, ids) = acquainted(24, |host, connection| {
        if host == B {
            connection.remote = None;
        } else {
            connection.ike[0].groups = vec![Group::Ecp256];
        }
    });
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    let before = network.log.len();
    for number in 0..1000u16 {
        let mut unauthenticated = first.clone();
        unauthenticated.from = ([198, 51, (number >> 8) as u8, number as u8], 500).into();
        unauthenticated.bytes[..8].copy_from_slice(&u64::from(number + 1).to_be_bytes());
        network.arrive(unauthenticated);
    }
    let is_cookie = |bytes: &[u8]| bytes.windows(2).any(|pair| pair == notify::COOKIE.to_be_bytes());
    let cookies = network.log[before..].iter().filter(|(_, datagram)| is_cookie(&datagram.bytes)).count();
    assert!((900..1000).contains(&cookies), "{cookies} were asked for one");
}

/// An initiator that moves between its messages keeps its half-open entry, and is counted once.
#[test]
fn a_half_open_peer_that_moves_takes_no_more_places() {
    for is_same in [true, false] {
        let (mut network, _) = acquainted(29, |_, _| {});
        for number in 1..300 {
            let spi = if is_same { 1 } else { number };
            let mut mallory = Mallory::new();
            mallory.spi = spi;
            let Some(mut mallory) = mallory.try_begin(&mut network) else { continue };
            mallory.address.set_port(1001);
            let refusal = mallory.ask(&mut network, Exchange::IkeAuth, &[]).expect("it is answered");
            assert_eq!(refusal.error(), Some(notify::AUTHENTICATION_FAILED));
        }
        let load = network.hosts[B].endpoint.load();
        assert_eq!((load.ike_spis, load.half_open), if is_same { (1, 1) } else { (36, 36) });
        network.run(seconds(60));
        assert_eq!(network.hosts[B].endpoint.load(), Load::default());
    }
}

#[test]
fn while_many_keys_are_made_for_unauthenticated_sources_no_more_are_begun() {
    let (mut network, ids) = acquainted(31, |host, connection| {
        if host == B {
            connection.remote = None;
        }
    });
    network.longest_job[B] = seconds(100);
    for number in 1..1000u16 {
        let mut one = Mallory::new();
        one.address = ([198, 51, (number >> 8) as u8, number as u8], 500).into();
        one.init_with_cookie(&mut network);
    }
    // A few are done already.
    let places = network.hosts[B].endpoint.load().half_open;
    assert!((256..300).contains(&places), "{places}");
    begin(&mut network, A, ids[A]);
    network.longest_job[B] = seconds(0);
    network.run(seconds(200));
    assert_one_session(&network);
}
