use super::agentx::{AgentXError, HEADER, Header, LONGEST, Message, Oid, Value, open, register, response};
use super::changes::Changes;
use super::mib::{Mib, Numbers, POSTERN, name};
use super::session::{Next, answer};
use crate::api::model::{CryptoEngine, EngineState};
use crate::facts::model::{Drop, Facts, State, Tunnel};
use crate::health::model::{Alert, AlertState, Health};

fn tunnel(peer: &str, state: State) -> Tunnel {
    Tunnel { interface: "wg0".into(), peer: peer.into(), state, received_bytes: 7, ..Tunnel::default() }
}

fn facts(tunnels: Vec<Tunnel>) -> Facts {
    let drop = Drop { interface: "wg0".into(), reason: "bad-tag".into(), inbound: 6, ..Drop::default() };
    Facts { tunnels, drops: vec![drop], ..Facts::default() }
}

fn mib(facts: &Facts) -> Mib {
    Mib::new(facts, &Health::default(), &Numbers::default().assign(&facts.tunnels))
}

/// A message of snmpd, in its own byte order.
fn message(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, kind, flags, 0];
    for number in [3, 4, 5, payload.len() as u32] {
        bytes.extend(if flags & 0x10 == 0 { number.to_le_bytes() } else { u32::to_be_bytes(number) });
    }
    bytes.extend(payload);
    bytes
}

fn parse(bytes: &[u8]) -> Result<(Header, Message), AgentXError> {
    let header = Header::parse(bytes)?.ok_or(AgentXError::Truncated)?;
    let message = header.message(&bytes[HEADER..])?;
    Ok((header, message))
}

#[test]
fn a_request_is_read_in_both_byte_orders_and_with_a_prefix() {
    for (flags, number) in [(0, 9_u32.to_le_bytes()), (0x10, 9_u32.to_be_bytes())] {
        // 1.3.6.1.4.9, included, up to the end.
        let payload = [&[1, 4, 1, 0][..], &number, &[0, 0, 0, 0]].concat();
        let (header, message) = parse(&message(6, flags, &payload)).expect("a request");
        assert_eq!((header.session, header.transaction, header.packet), (3, 4, 5));
        let Message::GetNext(ranges) = message else { panic!("{message:?}") };
        assert_eq!((&*ranges[0].start, ranges[0].includes_start), (&[1, 3, 6, 1, 4, 9][..], true));
        assert!(ranges[0].end.is_empty());
    }
}

#[test]
fn what_is_cut_off_or_too_long_is_refused() {
    let whole = message(5, 0, &[1, 4, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert!(parse(&whole).is_ok());
    for end in 0..whole.len() - 4 {
        if end != HEADER {
            assert_eq!(parse(&whole[..end]), Err(AgentXError::Truncated), "{end}");
        }
    }
    let mut long = message(5, 0x10, &[]);
    long[16..20].copy_from_slice(&(LONGEST as u32 + 1).to_be_bytes());
    assert_eq!(Header::parse(&long), Err(AgentXError::TooLong));
    assert_eq!(parse(&message(5, 0, &[200, 0, 0, 0])), Err(AgentXError::Oid));
    assert_eq!(Header::parse(&[2; HEADER]), Err(AgentXError::Version(2)));
}

#[test]
fn messages_of_the_sub_agent_have_the_bytes_of_the_rfc() {
    let opened = open(1, 5, "abc");
    assert_eq!(opened[..4], [1, 1, 0x10, 0]);
    assert_eq!(
        opened[12..],
        [0, 0, 0, 1, 0, 0, 0, 16, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, b'a', b'b', b'c', 0]
    );
    let registered = register(9, 2, &[1, 2]);
    assert_eq!(registered[20..], [0, 127, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
    let header = Header { session: 3, transaction: 4, packet: 5, ..Header::default() };
    let answered = response(&header, 0, 0, &[(vec![1], Value::Counter(7))]);
    assert_eq!(answered[4..20], [0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 28]);
    assert_eq!(answered[28..], [0, 70, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
}

#[test]
fn a_walk_over_ten_thousand_tunnels_meets_each_value_once_and_in_order() {
    let tunnels = (0..10_000).map(|number| tunnel(&format!("peer{number}"), State::Up)).collect();
    let mib = mib(&facts(tunnels));
    let (mut at, mut met) = (POSTERN.to_vec(), 0);
    while let Some((next, value)) = mib.next(&at, false, &[]) {
        assert!(next > at, "{next:?} after {at:?}");
        assert_eq!(mib.get(&next), value);
        assert_eq!(mib.next(&next, true, &[]), Some((next.clone(), value)));
        at = next;
        met += 1;
    }
    // Seven objects of the gateway, 13 columns of a tunnel, three directions of a drop.
    assert_eq!(met, 7 + 13 * 10_000 + 3);
}

#[test]
fn a_range_ends_and_what_is_not_there_is_named() {
    let mib = mib(&facts(vec![tunnel("berlin", State::Up)]));
    let column = name(&[1, 2, 1, 7]);
    let (first, value) = mib.next(&column, false, &name(&[1, 2, 1, 8])).expect("a row");
    assert_eq!(value, Value::Counter(7));
    assert_eq!(mib.next(&first, false, &name(&[1, 2, 1, 8])), None, "the next column");
    assert_eq!(mib.get(&name(&[1, 2, 1, 7, 1])), Value::NoSuchInstance);
    assert_eq!(mib.get(&name(&[1, 2, 1, 99, 1])), Value::NoSuchObject);
    assert_eq!(mib.next(&name(&[2]), false, &[]), None);
    assert!(mib.next(&[1, 3], false, &[]).is_some(), "from before our names");
    assert!(mib.next(&name(&[1, 2, 1, u32::MAX, u32::MAX]), false, &[]).is_some(), "the next table");
    let empty = Mib::default();
    assert_eq!((empty.next(POSTERN, false, &[]), empty.get(&column)), (None, Value::NoSuchObject));
}

#[test]
fn a_tunnel_keeps_its_number_when_others_come_and_go() {
    let mut numbers = Numbers::default();
    let number = |numbers: &mut Numbers, peers: &[&str]| {
        let tunnels: Vec<Tunnel> = peers.iter().map(|peer| tunnel(peer, State::Up)).collect();
        let numbered = numbers.assign(&tunnels);
        assert_eq!(numbered.len(), peers.len());
        numbered.into_iter().find(|(_, at)| tunnels[*at].peer == "m").expect("it is there").0
    };
    let first = number(&mut numbers, &["m"]);
    assert_eq!(number(&mut numbers, &["a", "m", "z"]), first);
    assert_eq!(number(&mut Numbers::default(), &["z", "m"]), first, "after a restart");
}

#[test]
fn requests_are_answered_and_nothing_can_be_changed() {
    let mib = mib(&facts(vec![tunnel("berlin", State::Up)]));
    let ask = |bytes: &[u8]| {
        let (header, message) = parse(bytes).expect("a request");
        answer(&header, &message, &mib)
    };
    let error = |next| match next {
        Next::Send(bytes) => u16::from_be_bytes([bytes[24], bytes[25]]),
        other => panic!("{other:?}"),
    };
    assert_eq!(error(ask(&message(13, 0, &[]))), 0, "ping");
    assert_eq!(error(ask(&message(8, 0, &[]))), 17, "set");
    assert_eq!(error(ask(&message(5, 0x08, &[]))), 262, "another context");
    assert_eq!(ask(&message(11, 0, &[])), Next::Nothing);
    assert_eq!(ask(&message(2, 0, &[1, 0, 0, 0])), Next::End);
    // Two names of the whole tree each time, more often than there are names.
    let bulk = [&[0, 0, 0xff, 0xff][..], &[0, 4, 0, 0], &[0, 0, 0, 0]].concat();
    let Next::Send(bytes) = ask(&message(7, 0, &bulk)) else { panic!("an answer") };
    assert!(bytes.len() > 23 * 20, "{}", bytes.len());
}

#[test]
fn traps_are_sent_once_for_what_changes() {
    let (mut changes, mut numbers) = (Changes::default(), Numbers::default());
    let sentence = "a sentence that is longer than the name of a peer ".repeat(4);
    let alert = Alert {
        rule: "tunnel-down".into(),
        subject: "wg0 berlin".into(),
        sentence: sentence.clone(),
        state: AlertState::Firing,
        ..Alert::default()
    };
    let ill = Health { alerts: vec![alert], ..Health::default() };
    let well = Health::default();
    let mut events = |state, health: &Health| -> Vec<Oid> {
        let facts = facts(vec![tunnel("berlin", state)]);
        let traps = changes.look(&facts, health, &numbers.assign(&facts.tunnels));
        for (_, binds) in traps.iter().filter(|(event, _)| *event >= name(&[0, 3])) {
            assert_eq!(binds[3].1, Value::Text(sentence.clone()), "it is whole");
        }
        traps.into_iter().map(|(event, _)| event).collect()
    };
    assert!(events(State::Down, &ill).is_empty(), "what was so before is no news");
    assert_eq!(events(State::Up, &well), [name(&[0, 2]), name(&[0, 4])]);
    assert!(events(State::Waiting, &well).is_empty(), "it is only silent");
    assert_eq!(events(State::Down, &ill), [name(&[0, 1]), name(&[0, 3])]);
    assert!(events(State::Down, &ill).is_empty());
}

#[test]
fn the_mib_file_has_every_column_that_is_answered() {
    let text = include_str!("../../../docs/POSTERN-MIB.txt");
    let engine = CryptoEngine {
        name: "aws-lc".into(),
        version: None,
        state: EngineState::InUse,
        why: None,
        retry_in: None,
        accelerator: false,
        failures: 0,
        sealed: None,
        opened: None,
    };
    let facts = Facts { engines: vec![engine], ..facts(vec![tunnel("berlin", State::Up)]) };
    let mib = mib(&facts);
    for (entry, oid) in [
        ("posternGateway", &[1, 1][..]),
        ("posternTunnelEntry", &[1, 2, 1]),
        ("posternDropEntry", &[1, 3, 1]),
        ("posternEngineEntry", &[1, 4, 1]),
    ] {
        let prefix = name(oid);
        let mut answered = Vec::new();
        let mut at = prefix.clone();
        while let Some((next, _)) = mib.next(&at, false, &[]).filter(|(next, _)| next.starts_with(&prefix)) {
            answered.push(next[prefix.len()]);
            at = next;
        }
        answered.dedup();
        let objects = text.split(" OBJECT-TYPE\n").skip(1).filter(|it| it.contains("read-only"));
        let number = |object: &str| {
            let place = object.split("::= { ").nth(1)?.split(" }").next()?;
            place.strip_prefix(entry)?.trim().parse::<u32>().ok()
        };
        assert_eq!(objects.filter_map(number).collect::<Vec<_>>(), answered, "{entry}");
    }
}
