//! Several rounds of authentication (RFC 4739): nothing is installed before the last round, whichever side omits one.

use crate::certificates::certified;
use crate::mallory::{Mallory, child_payloads, create_payloads};
use crate::network::{A, B, Network, Weather};
use crate::support::{
    acquainted, assert_agree, assert_nothing_leaks, assert_one_session, begin, connected, connection,
    esp_offer, established, seconds,
};
use crypto::SecretBytes;
use std::time::Duration;
use tunnel::ikev2::limits::HALF_OPEN_TIME;
use tunnel::ikev2::message::numbers::notify;
use tunnel::ikev2::message::{Delete, Exchange, Notify, Payload};
use tunnel::ikev2::{Authentication, Cause, Connection, Event, FurtherRound, Identity, Load};

/// The secret of the second round.
const SECOND: &[u8] = b"a second secret";

fn round(host: usize, number: u8, secret: &[u8]) -> FurtherRound {
    let name = |host: usize| Identity::Fqdn(format!("round{number}.host{}.example", host + 1));
    FurtherRound {
        local_identity: name(host),
        remote_identity: Some(name(1 - host)),
        authentication: Authentication::SharedKey(SecretBytes::new(secret.to_vec())),
    }
}

/// The second round of a host.
pub fn second(host: usize) -> FurtherRound {
    round(host, 2, SECOND)
}

fn twice(host: usize, it: &mut Connection) {
    it.further = vec![second(host)];
}

fn causes(network: &Network, host: usize) -> Vec<&Cause> {
    let events = network.hosts[host].events.iter();
    events
        .filter_map(|event| match event {
            Event::Failed { cause, .. } => Some(cause),
            _ => None,
        })
        .collect()
}

/// How many IKE_AUTH requests were sent.
fn requests(network: &Network) -> usize {
    network.exchanges().iter().filter(|one| **one == (Exchange::IkeAuth, false)).count()
}

#[test]
fn two_rounds_and_more_make_one_session() {
    for count in [2, 3] {
        let (network, _) = connected(600, |host, it| {
            it.further = (2..=count).map(|number| round(host, number, SECOND)).collect();
        });
        assert_one_session(&network);
        assert_eq!(requests(&network), usize::from(count));
        let known = |event: &Event| match event {
            Event::Established { identity, .. } => identity.to_string() == "host1.example",
            _ => false,
        };
        assert_eq!(network.hosts[B].count(known), 1, "its identity is that of the first round");
    }
}

#[test]
fn a_certificate_comes_first_and_a_secret_second_or_the_reverse() {
    let certified = certified();
    for certificate_first in [true, false] {
        for slow in [false, true] {
            let (mut network, ids) = acquainted(601, |host, it| {
                if certificate_first {
                    it.clone_from(&certified[host]);
                    it.further = vec![second(host)];
                } else {
                    let Connection { local_identity, remote_identity, authentication, .. } =
                        certified[host].clone();
                    it.further = vec![FurtherRound { local_identity, remote_identity, authentication }];
                    let first = second(host);
                    (it.local_identity, it.remote_identity) = (first.local_identity, first.remote_identity);
                    it.authentication = first.authentication;
                }
            });
            network.longest_job = [seconds(u64::from(slow)); 2];
            begin(&mut network, A, ids[A]);
            network.run(seconds(20));
            assert_one_session(&network);
        }
    }
}

#[test]
fn a_wrong_second_round_of_either_side_ends_it() {
    let wrong_secret = |round: &mut FurtherRound| {
        round.authentication = Authentication::SharedKey(SecretBytes::new(b"wrong".to_vec()));
    };
    let wrong_name = |round: &mut FurtherRound| round.local_identity = Identity::Fqdn("another".to_owned());
    let other_peer = |round: &mut FurtherRound| round.remote_identity = Some(Identity::KeyId(vec![1]));
    let changes: [&dyn Fn(&mut FurtherRound); 3] = [&wrong_secret, &wrong_name, &other_peer];
    for change in changes {
        for wrong in [A, B] {
            let (mut network, _) = connected(602, |host, it| {
                twice(host, it);
                if host == wrong {
                    change(&mut it.further[0]);
                }
            });
            assert_agree(&network, 0);
            network.run(seconds(60));
            assert_nothing_leaks(&network, 0);
            let all = [A, B].map(|host| causes(&network, host)).concat();
            assert!(all.iter().any(|cause| matches!(cause, Cause::NotAuthentic { .. })), "{all:?}");
        }
    }
}

#[test]
fn both_sides_must_have_as_many_rounds() {
    for more in [A, B] {
        let (mut network, _) = connected(603, |host, it| {
            if host == more {
                twice(host, it);
            }
        });
        network.run(seconds(60));
        assert_nothing_leaks(&network, 0);
        let expected = if more == A { Cause::ExtraRound } else { Cause::MissingRound };
        assert!(causes(&network, B).contains(&&expected), "{:?}", causes(&network, B));
        assert!(causes(&network, A).contains(&&Cause::Refused), "{:?}", causes(&network, A));
    }
}

#[test]
fn the_bad_network_is_overcome_in_every_round() {
    let mut count = 0;
    for seed in 0..60 {
        let (mut network, ids) = acquainted(6100 + seed, twice);
        network.weather = Weather { lost: 200, duplicated: 200, damaged: 50, delay: seconds(1) };
        network.longest_job = [seconds(u64::from(seed % 3 == 0)); 2];
        begin(&mut network, A, ids[A]);
        network.run(seconds(170));
        network.weather = Weather { delay: Duration::from_millis(10), ..Weather::default() };
        network.run(seconds(400));
        let sessions = established(&network.hosts[A]);
        assert_agree(&network, sessions);
        assert_nothing_leaks(&network, sessions);
        count += sessions;
    }
    assert!(count > 50, "{count} of 60");
}

/// A B with two rounds, and Mallory, who knows both secrets and has been through IKE_SA_INIT.
fn half_open(seed: u64) -> (Network, Mallory) {
    let (mut network, _) = acquainted(seed, twice);
    let mallory = Mallory::half_open(&mut network);
    (network, mallory)
}

fn another() -> Payload<'static> {
    Payload::Notify(Notify::new(notify::ANOTHER_AUTH_FOLLOWS, &[]))
}

/// What Mallory sends in the first round.
fn first_round(mallory: &Mallory) -> Vec<Payload<'static>> {
    [mallory.auth_payloads(), vec![another()]].concat()
}

/// Goes through the first round.
fn pass_first(network: &mut Network, mallory: &mut Mallory) {
    let payloads = first_round(mallory);
    let reply = mallory.ask(network, Exchange::IkeAuth, &payloads).expect("it is answered");
    let reply = reply.payloads();
    assert_eq!(reply.error(), None);
    assert!(reply.id_r.is_some() && reply.auth.is_some() && reply.sa.is_none(), "no child yet");
    assert!(reply.notify(notify::ANOTHER_AUTH_FOLLOWS).is_some());
    (mallory.identity, mallory.secret) = (b"\x02\0\0\0round2.host1.example", SECOND);
}

fn nothing_is_installed(network: &Network) {
    assert!(network.hosts[B].installed.is_empty());
    assert_eq!(established(&network.hosts[B]), 0);
}

#[test]
fn between_two_rounds_no_exchange_but_ike_auth_is_taken() {
    let (mut network, mut mallory) = half_open(610);
    pass_first(&mut network, &mut mallory);
    nothing_is_installed(&network);
    assert!(mallory.ask(&mut network, Exchange::CreateChildSa, &create_payloads()).is_none());
    assert!(mallory.ask(&mut network, Exchange::Informational, &[Payload::Delete(Delete::Ike)]).is_none());
    nothing_is_installed(&network);
    let second = mallory.proof_payloads();
    let reply = mallory.ask(&mut network, Exchange::IkeAuth, &second).expect("it is answered");
    assert!(reply.payloads().sa.is_some(), "the child of the first round");
    assert_eq!((network.hosts[B].installed.len(), established(&network.hosts[B])), (1, 1));
}

#[test]
fn a_peer_that_leaves_out_the_second_round_is_refused() {
    // It does not say that another one follows.
    let (mut network, mut mallory) = half_open(611);
    let reply = mallory.authenticate(&mut network);
    assert_eq!(reply.error(), Some(notify::AUTHENTICATION_FAILED));
    assert_eq!(causes(&network, B), [&Cause::MissingRound]);
    nothing_is_installed(&network);
    // It says so, and then wants its child, or sends nothing.
    for payloads in [child_payloads(&[esp_offer()]), vec![]] {
        let (mut network, mut mallory) = half_open(612);
        pass_first(&mut network, &mut mallory);
        let reply = mallory.ask(&mut network, Exchange::IkeAuth, &payloads).expect("it is answered");
        assert_eq!(reply.error(), Some(notify::AUTHENTICATION_FAILED));
        nothing_is_installed(&network);
    }
    // It is not heard of again.
    let (mut network, mut mallory) = half_open(613);
    pass_first(&mut network, &mut mallory);
    let load = network.hosts[B].endpoint.load();
    assert_eq!(load.half_open, 1);
    assert!(load.fragments > 0, "the first message counts as long as it is kept");
    network.run(HALF_OPEN_TIME + seconds(1));
    assert_eq!(network.hosts[B].endpoint.load(), Load::default());
    assert_eq!(causes(&network, B), [&Cause::MissingRound]);
}

#[test]
fn one_round_is_not_passed_twice() {
    let (mut network, mut mallory) = half_open(614);
    let (identity, secret) = (mallory.identity, mallory.secret);
    pass_first(&mut network, &mut mallory);
    (mallory.identity, mallory.secret) = (identity, secret);
    let again = mallory.proof_payloads();
    let reply = mallory.ask(&mut network, Exchange::IkeAuth, &again).expect("it is answered");
    assert_eq!(reply.error(), Some(notify::AUTHENTICATION_FAILED));
    nothing_is_installed(&network);
    // Nor does a second one come first, or a third one follow.
    let (mut network, mut mallory) = half_open(615);
    (mallory.identity, mallory.secret) = (b"\x02\0\0\0round2.host1.example", SECOND);
    let payloads = first_round(&mallory);
    let reply = mallory.ask(&mut network, Exchange::IkeAuth, &payloads).expect("it is answered");
    assert_eq!(reply.error(), Some(notify::AUTHENTICATION_FAILED));
    let (mut network, mut mallory) = half_open(616);
    pass_first(&mut network, &mut mallory);
    let payloads = [mallory.proof_payloads(), vec![another()]].concat();
    let reply = mallory.ask(&mut network, Exchange::IkeAuth, &payloads).expect("it is answered");
    assert_eq!(reply.error(), Some(notify::AUTHENTICATION_FAILED));
    assert_eq!(causes(&network, B), [&Cause::ExtraRound]);
    nothing_is_installed(&network);
}

#[test]
fn an_answer_that_was_lost_is_repeated_in_every_round() {
    let (mut network, mut mallory) = half_open(617);
    let payloads = first_round(&mallory);
    let mut ask_twice = |mallory: &mut Mallory, payloads: &[Payload<'_>]| {
        let number = mallory.next;
        let reply = |mallory: &mut Mallory, network: &mut Network| {
            let reply = mallory.ask(network, Exchange::IkeAuth, payloads).expect("it is answered");
            let auth = reply.payloads().auth.as_ref().map(|auth| auth.data.to_vec());
            auth.expect("it is a success")
        };
        let first = reply(mallory, &mut network);
        mallory.next = number;
        assert_eq!(reply(mallory, &mut network), first, "round {number}");
    };
    ask_twice(&mut mallory, &payloads);
    (mallory.identity, mallory.secret) = (b"\x02\0\0\0round2.host1.example", SECOND);
    let payloads = mallory.proof_payloads();
    ask_twice(&mut mallory, &payloads);
    assert_eq!((network.hosts[B].installed.len(), established(&network.hosts[B])), (1, 1));
}

#[test]
fn settings_that_change_between_two_rounds_are_obeyed() {
    let (mut network, ids) = acquainted(618, twice);
    let mut mallory = Mallory::half_open(&mut network);
    pass_first(&mut network, &mut mallory);
    network.command(B, |endpoint, now, out| endpoint.remove_connection(now, ids[B], out));
    network.add(B, connection(B));
    let payloads = mallory.proof_payloads();
    let reply = mallory.ask(&mut network, Exchange::IkeAuth, &payloads).expect("it is answered");
    assert_eq!(reply.error(), Some(notify::AUTHENTICATION_FAILED));
    nothing_is_installed(&network);
}

#[test]
fn a_responder_without_rfc_4739_is_not_authenticated_to() {
    let (mut network, ids) = acquainted(619, twice);
    network.on_the_way = Some(Box::new(|datagram| {
        let kind = notify::MULTIPLE_AUTH_SUPPORTED.to_be_bytes();
        let notification = [0, 0, 0, 8, 0, 0, kind[0], kind[1]];
        if let Some(at) = datagram.bytes.windows(8).position(|bytes| bytes == notification) {
            datagram.bytes[at + 6] = 0x7f;
        }
        true
    }));
    begin(&mut network, A, ids[A]);
    network.run(seconds(300));
    assert_eq!(requests(&network), 0);
    assert!(causes(&network, A).contains(&&Cause::MissingRound), "{:?}", causes(&network, A));
}

#[test]
fn what_is_ended_between_two_rounds_leaves_nothing() {
    for milliseconds in (0..200).step_by(5) {
        let (mut network, ids) = acquainted(620, twice);
        network.longest_job = [Duration::from_millis(40); 2];
        begin(&mut network, A, ids[A]);
        network.run(Duration::from_millis(milliseconds));
        network.command(A, |endpoint, now, out| endpoint.close(now, ids[A], out));
        network.run(seconds(60));
        assert_nothing_leaks(&network, 0);
    }
}
