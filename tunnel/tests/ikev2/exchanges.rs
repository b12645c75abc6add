//! How many key exchanges a peer that has authenticated can have us do.

use crate::mallory::{Mallory, create_payloads, share};
use crate::network::{A, B, Network};
use crate::support::{acquainted, child, connected, esp_offer, ike_offer, net, seconds};
use crypto::exchange::Group;
use tunnel::ikev2::limits::{EXCHANGES_AT_ONCE, EXCHANGES_PER_LIFETIME, SHORTEST_LIFETIME};
use tunnel::ikev2::message::numbers::{group, notify, protocol};
use tunnel::ikev2::message::{Exchange, KeyExchange, Notify, Payload, ProposalSpi};
use tunnel::ikev2::proposal::{EspOffer, IkeOffer};
use tunnel::ikev2::{Cause, Connection, Event};

fn with_pfs(connection: &mut Connection) {
    for child in &mut connection.children {
        child.esp[0].groups = vec![Group::X25519];
    }
}

/// Asks for a Child SA with a key exchange, in place of another one or not; returns the error.
fn ask_for_child(
    network: &mut Network,
    mallory: &mut Mallory,
    spi: u32,
    replaces: Option<u32>,
) -> Option<u16> {
    let mine = share();
    let mut offer = esp_offer();
    offer.groups = vec![Group::X25519];
    let mut list: Vec<Payload<'_>> = replaces
        .map(|spi| {
            Payload::Notify(Notify { kind: notify::REKEY_SA, spi: Some((protocol::ESP, spi)), data: &[] })
        })
        .into_iter()
        .collect();
    list.extend([
        Payload::Sa(EspOffer::propose(&[offer], spi)),
        Payload::Nonce(&[7; 32]),
        Payload::Ke(KeyExchange { group: group::CURVE25519, public: mine.public() }),
        Payload::TsI(vec![net("10.1.0.0", "10.1.0.255")]),
        Payload::TsR(vec![net("10.2.0.0", "10.2.0.255")]),
    ]);
    mallory.ask(network, Exchange::CreateChildSa, &list).expect("it is answered").error()
}

fn refused(network: &Network) -> u64 {
    let sessions = network.hosts[B].endpoint.sessions();
    sessions.iter().filter_map(|it| it.details.as_ref()).map(|it| it.refused_exchanges).sum()
}

fn reports(network: &Network) -> usize {
    let excess = |event: &Event| {
        matches!(event, Event::Failed { authentic: true, cause: Cause::TooManyExchanges, .. })
    };
    network.hosts[B].count(excess)
}

/// What one connection with one child allows at once.
const AT_ONCE: u32 = EXCHANGES_AT_ONCE + 2 * EXCHANGES_PER_LIFETIME;

#[test]
fn key_exchanges_are_few_at_once_and_few_in_time() {
    let (mut network, _) = acquainted(77, |_, it| with_pfs(it));
    let mut mallory = Mallory::established(&mut network);
    let mut asked = 0;
    let mut burst = |network: &mut Network, mallory: &mut Mallory| {
        let mut done = 0;
        for _ in 0..200 {
            asked += 1;
            match ask_for_child(network, mallory, 0x2000_0000 + asked, None) {
                None => done += 1,
                Some(error) => assert_eq!(error, notify::TEMPORARY_FAILURE),
            }
        }
        done
    };
    let done = burst(&mut network, &mut mallory);
    assert_eq!(done, AT_ONCE);
    assert_eq!(refused(&network), u64::from(200 - AT_ONCE));
    assert!((1..=10).contains(&reports(&network)), "{}", reports(&network));
    network.run(SHORTEST_LIFETIME);
    let later = burst(&mut network, &mut mallory);
    assert!(later <= 2 * EXCHANGES_PER_LIFETIME + 1, "{later}");
    // What takes no key exchange is done.
    mallory.ask(&mut network, Exchange::Informational, &[]).expect("it is there");
}

#[test]
fn rekeying_the_ike_sa_and_child_sas_counts_together_whatever_session_it_is_in() {
    let (mut network, _) = acquainted(78, |_, it| with_pfs(it));
    let mut done = 0;
    let mut last = None;
    for session in 0..4u64 {
        let mut mallory = Mallory::new();
        mallory.spi += session * 1000;
        let mut mallory = mallory.begin(&mut network);
        assert_eq!(mallory.authenticate(&mut network).error(), None);
        for round in 0..20 {
            let refused = if round % 2 == 0 {
                ask_for_child(&mut network, &mut mallory, 0x3000_0000 + round, None)
            } else {
                mallory.try_rekey(&mut network)
            };
            match refused {
                None => done += 1,
                Some(error) => {
                    assert_eq!(error, notify::TEMPORARY_FAILURE);
                    last = Some(error);
                }
            }
        }
    }
    assert_eq!(last, Some(notify::TEMPORARY_FAILURE));
    assert!(done <= AT_ONCE + 1, "{done}");
}

/// Without a key exchange too: what is new is compared with what all others have.
#[test]
fn child_sas_are_few_at_once_and_what_is_refused_is_reported_seldom() {
    let (mut network, _) = acquainted(82, |_, _| {});
    let mut mallory = Mallory::established(&mut network);
    let asked = create_payloads();
    let mut errors = |network: &mut Network| {
        let ask = |_| mallory.ask(network, Exchange::CreateChildSa, &asked).expect("answered").error();
        (0..200).filter_map(ask).collect::<Vec<u16>>()
    };
    let refused = errors(&mut network);
    assert_eq!(refused.len() as u32, 200 - AT_ONCE);
    assert!(refused.iter().all(|error| *error == notify::TEMPORARY_FAILURE));
    network.run(SHORTEST_LIFETIME);
    assert!(errors(&mut network).len() < 200, "later there are more");
}

#[test]
fn requests_that_are_refused_are_reported_seldom() {
    let (mut network, _) = acquainted(83, |_, _| {});
    let mut mallory = Mallory::established(&mut network);
    let mut asked = create_payloads();
    asked.retain(|payload| !matches!(payload, Payload::TsR(_)));
    asked.push(Payload::TsR(vec![net("203.0.113.0", "203.0.113.255")]));
    for _ in 0..200 {
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &asked).expect("it is answered");
        assert_eq!(reply.error(), Some(notify::TS_UNACCEPTABLE));
    }
    let failed = network.hosts[B].count(|event| matches!(event, Event::Failed { .. }));
    assert!((1..=20).contains(&failed), "{failed}");
}

/// One peer's excess is no other peer's.
#[test]
fn each_peer_has_its_own() {
    let (mut network, _) = acquainted(79, |_, it| with_pfs(it));
    let mut other = crate::support::connection(B);
    with_pfs(&mut other);
    other.remote = None;
    other.name = "other".to_owned();
    other.remote_identity = Some(tunnel::ikev2::Identity::Fqdn("other.example".to_owned()));
    other.children[0].remote = vec![net("10.7.0.0", "10.7.0.255")];
    network.add(B, other);
    let mut mallory = Mallory::established(&mut network);
    while ask_for_child(&mut network, &mut mallory, 0x2000_0000, None).is_none() {}
    let mut honest = Mallory::new();
    (honest.identity, honest.address) =
        (b"\x02\0\0\0other.example", "198.51.100.1:500".parse().expect("literal"));
    honest.spi += 7;
    let mut honest = honest.begin(&mut network);
    let childless: Vec<_> = honest.auth_payloads().into_iter().take(2).collect();
    honest.ask(&mut network, Exchange::IkeAuth, &childless).expect("answered");
    assert_eq!(honest.try_rekey(&mut network), None);
}

/// Both sides at the shortest lifetimes that can be configured, of many tunnels, for a long time and over a bad network.
#[test]
fn an_honest_peer_is_never_refused() {
    for (lifetime, ike, children) in [(30, 60, 1), (30, 30, 8), (31, 3600, 16), (3600, 2, 1)] {
        let (mut network, _) = connected(80, |host, it| {
            let (ours, theirs) = if host == A { (100, 200) } else { (200, 100) };
            it.children =
                (0..children).map(|at| child(&format!("net {at}"), ours + at, theirs + at)).collect();
            for child in &mut it.children {
                child.lifetime = seconds(lifetime);
            }
            it.lifetime = seconds(ike);
            with_pfs(it);
        });
        network.weather.lost = 20;
        network.run(seconds(600));
        network.weather.lost = 0;
        let of = |network: &Network, host: usize| {
            let sessions = network.hosts[host].endpoint.sessions();
            sessions.iter().filter_map(|it| it.details.as_ref()).map(|it| it.refused_exchanges).sum::<u64>()
        };
        assert_eq!([of(&network, A), of(&network, B)], [0; 2], "{lifetime} {ike} {children}");
        assert_eq!(reports(&network), 0);
        let rekeyed = network.hosts[B].count(|event| matches!(event, Event::ChildUp { .. }));
        assert!(lifetime > 600 || rekeyed > 10 * usize::from(children), "{rekeyed}");
    }
}

/// Keys that have carried what they may are replaced as often as that happens.
#[test]
fn worn_keys_are_replaced_without_limit() {
    for is_worn in [true, false] {
        let (mut network, _) = acquainted(81, |_, it| with_pfs(it));
        network.hosts[B].endpoint.set_worn(Box::new(move |_| is_worn));
        let mut mallory = Mallory::established(&mut network);
        let mut old = crate::mallory::SPI;
        let mut done = 0;
        for round in 0..60 {
            let new = 0x4000_0000 + round;
            match ask_for_child(&mut network, &mut mallory, new, Some(old)) {
                None => (old, done) = (new, done + 1),
                Some(error) => assert_eq!(error, notify::TEMPORARY_FAILURE),
            }
        }
        assert_eq!(done, if is_worn { 60 } else { AT_ONCE });
    }
}

#[test]
fn what_is_refused_before_a_key_exchange_costs_none() {
    let (mut network, _) = acquainted(82, |_, it| with_pfs(it));
    let mut mallory = Mallory::established(&mut network);
    for _ in 0..100 {
        let wrong = [
            Payload::Sa(IkeOffer::propose(&[ike_offer()], ProposalSpi::Ike(9))),
            Payload::Nonce(&[7; 32]),
            Payload::Ke(KeyExchange { group: group::MODP_2048, public: &[1; 256] }),
        ];
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &wrong).expect("answered");
        assert_eq!(reply.error(), Some(notify::INVALID_KE_PAYLOAD));
    }
    assert_eq!(mallory.try_rekey(&mut network), None);
}
