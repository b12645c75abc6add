use super::numbers::{encryption, esn, group, identity, method, notify, payload, protocol, transform};
use super::*;
use crate::esp::TrafficSelector;

fn header() -> Header {
    Header {
        initiator_spi: 0x0102_0304_0506_0708,
        responder_spi: 9,
        exchange: Exchange::IkeAuth,
        from_initiator: true,
        is_response: false,
        message_id: 5,
    }
}

fn selectors(addresses: [&str; 2], ports: [u16; 2]) -> TrafficSelector {
    let [from, to] = addresses.map(|address| address.parse().expect("literal"));
    TrafficSelector { protocol: 6, ports: ports[0]..=ports[1], addresses: from..=to }
}

fn proposals() -> Vec<Proposal> {
    let key = |bits| Transform {
        attribute: Attribute::KeyLength(bits),
        ..Transform::new(transform::ENCRYPTION, encryption::AES_GCM_16)
    };
    let esn = Transform::new(transform::ESN, esn::YES);
    let group = Transform::new(transform::GROUP, group::ECP_256);
    let proposal = |number, protocol, spi, transforms| Proposal { number, protocol, spi, transforms };
    vec![
        proposal(1, protocol::ESP, ProposalSpi::Child(7), vec![key(128), key(256), esn]),
        proposal(2, protocol::IKE, ProposalSpi::Ike(u64::MAX), vec![key(192), group]),
        proposal(3, protocol::IKE, ProposalSpi::None, vec![]),
    ]
}

/// One payload of each type.
fn payloads() -> Vec<Payload<'static>> {
    let id = |body| Identification::parse(body).expect("literal");
    let certificate = Certificate { encoding: 4, data: b"certificate" };
    vec![
        Payload::Sa(proposals()),
        Payload::Ke(KeyExchange { group: group::CURVE25519, public: &[7; 32] }),
        Payload::IdI(id(&[identity::FQDN, 0, 0, 0, b'a'])),
        Payload::IdR(id(&[identity::IPV4, 0, 0, 0, 192, 0, 2, 1])),
        Payload::Certificate(certificate),
        Payload::CertificateRequest(certificate),
        Payload::Auth(Authentication { method: method::SHARED_KEY, data: &[1; 32] }),
        Payload::Nonce(&[2; 32]),
        Payload::Notify(Notify::new(notify::COOKIE, b"cookie")),
        Payload::Notify(Notify { kind: notify::REKEY_SA, spi: Some((protocol::ESP, 7)), data: &[] }),
        Payload::Delete(Delete::Ike),
        Payload::Delete(Delete::Esp(vec![1, 2])),
        Payload::Delete(Delete::Ah(vec![3])),
        Payload::VendorId(b"vendor"),
        Payload::TsI(vec![
            selectors(["192.0.2.0", "192.0.2.255"], [0, 65535]),
            selectors(["192.0.2.9", "192.0.2.9"], [80, 80]),
        ]),
        Payload::TsR(vec![selectors(["2001:db8::", "2001:db8::ffff"], [53, 54])]),
        Payload::Configuration(&[1, 0, 0, 0, 0, 1, 0, 0]),
        Payload::Eap(&[1, 9, 0, 5, 1]),
    ]
}

fn everything() -> Vec<u8> {
    emit_clear(&header(), &payloads())
}

/// A message with one payload, given as bytes.
fn message(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16 + 4).to_be_bytes();
    [&header().emit(kind, body.len() + 4)[..], &[0, flags], &length, body].concat()
}

fn error(datagram: &[u8]) -> ParseError {
    Message::parse(datagram).expect_err("it is malformed")
}

fn error_in(kind: u8, body: &[u8]) -> ParseError {
    error(&message(kind, 0, body))
}

#[test]
fn every_payload_is_read_as_it_was_written() {
    let bytes = everything();
    let Message { header: read, body: Body::Clear(found) } = Message::parse(&bytes).expect("it is ours")
    else {
        panic!("it is in the clear");
    };
    assert_eq!(read, header());
    assert_eq!(found.clone().into_list(), payloads());
    assert_eq!(found.notify(notify::COOKIE).map(|notify| notify.data), Some(&b"cookie"[..]));
    assert_eq!(found.error(), None);
}

/// Laid out by hand after the figures of RFC 7296 sections 3.1 to 3.4 and 3.9.
#[test]
fn the_wire_is_that_of_the_figures() {
    #[rustfmt::skip]
    let bytes = [
        &[1u8, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &[33, 0x20, 34, 0x08, 0, 0, 0, 0, 0, 0, 0, 112],
        // SA: one proposal of four transforms.
        &[34, 0, 0, 48, 0, 0, 0, 44, 1, 1, 0, 4],
        &[3, 0, 0, 12, 1, 0, 0, 12, 0x80, 14, 0, 128],
        &[3, 0, 0, 8, 2, 0, 0, 5, 3, 0, 0, 8, 3, 0, 0, 12, 0, 0, 0, 8, 4, 0, 0, 31],
        // KE and Nonce.
        &[40, 0, 0, 16, 0, 31, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9],
        &[0, 0, 0, 20], &[5; 16],
    ].concat();
    let Message { header, body: Body::Clear(payloads) } = Message::parse(&bytes).expect("well formed") else {
        panic!("it is in the clear");
    };
    assert_eq!(
        (header.exchange, header.from_initiator, header.is_response),
        (Exchange::IkeSaInit, true, false)
    );
    let [proposal] = &payloads.sa.expect("it is there")[..] else { panic!("one proposal") };
    assert_eq!((proposal.number, proposal.protocol, proposal.spi), (1, protocol::IKE, ProposalSpi::None));
    let found: Vec<_> = proposal.transforms.iter().map(|one| (one.kind, one.id, one.attribute)).collect();
    let none = Attribute::None;
    assert_eq!(found, [(1, 12, Attribute::KeyLength(128)), (2, 5, none), (3, 12, none), (4, 31, none)]);
    assert_eq!(payloads.ke, Some(KeyExchange { group: 31, public: &[9; 8] }));
    assert_eq!(payloads.nonce, Some(&[5; 16][..]));
    let written = [
        Payload::Sa(vec![proposal.clone()]),
        Payload::Ke(KeyExchange { group: 31, public: &[9; 8] }),
        Payload::Nonce(&[5; 16]),
    ];
    assert_eq!(emit_clear(&header, &written), bytes);
}

#[test]
fn no_prefix_is_a_message() {
    let bytes = everything();
    for length in 0..bytes.len() {
        Message::parse(&bytes[..length]).expect_err("it is cut off");
        // The same with a correct length in the header: the chain ends early.
        if let Some(cut) = bytes.get(..length).filter(|_| length >= Header::LENGTH) {
            let mut cut = cut.to_vec();
            cut[24..28].copy_from_slice(&(length as u32).to_be_bytes());
            Message::parse(&cut).expect_err("the last payload is missing");
        }
    }
}

#[test]
fn no_changed_byte_makes_it_panic() {
    let bytes = everything();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let _ = Message::parse(&flipped);
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            let _ = Message::parse(&changed);
        }
    }
}

#[test]
fn every_body_survives_every_length() {
    for payload in payloads() {
        let mut body = Vec::new();
        payload.emit(&mut body);
        for length in 0..=body.len() {
            let _ = Message::parse(&message(payload.kind(), 0, &body[..length]));
            let longer = [&body[..length], &[0; 3]].concat();
            let _ = Message::parse(&message(payload.kind(), 0, &longer));
        }
    }
}

#[test]
fn headers_of_other_lengths_versions_and_without_an_spi_are_refused() {
    let bytes = everything();
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        error(&bytes)
    };
    assert_eq!(changed(27, bytes[27] ^ 1), ParseError::Length);
    assert_eq!(error(&[&bytes[..], &[0]].concat()), ParseError::Length);
    assert_eq!(changed(17, 0x10), ParseError::MajorVersion(1));
    assert_eq!(changed(17, 0x30), ParseError::MajorVersion(3));
    let mut later = bytes.clone();
    later[17] = 0x21;
    Message::parse(&later).expect("minor versions differ in nothing that matters");
    let mut zero = bytes.clone();
    zero[..8].fill(0);
    assert_eq!(error(&zero), ParseError::ZeroSpi);
}

#[test]
fn unknown_payloads_are_skipped_unless_critical() {
    let skipped = message(200, 0, b"whatever");
    assert_eq!(Message::parse(&skipped).expect("skipped").body, Body::Clear(Payloads::default()));
    assert_eq!(error(&message(200, CRITICAL, b"whatever")), ParseError::UnsupportedCritical(200));
    // Section 2.5: the bit has no meaning for a known payload type.
    Message::parse(&message(payload::NONCE, CRITICAL, &[0; 16])).expect("known");
}

const CRITICAL: u8 = 0x80;

#[test]
fn what_may_come_once_comes_once() {
    for payload in payloads() {
        let twice = Message::parse(&emit_clear(&header(), &[payload.clone(), payload.clone()])).err();
        let may_repeat = matches!(
            payload,
            Payload::Certificate(_)
                | Payload::CertificateRequest(_)
                | Payload::Notify(_)
                | Payload::Delete(_)
                | Payload::VendorId(_)
        );
        assert_eq!(twice, (!may_repeat).then_some(ParseError::Misplaced), "{payload:?}");
    }
}

#[test]
fn the_numbers_of_things_are_bounded() {
    let vendor = vec![Payload::VendorId(&[]); 128];
    Message::parse(&emit_clear(&header(), &vendor[1..])).expect("127 payloads");
    assert_eq!(error(&emit_clear(&header(), &vendor)), ParseError::TooMany);

    let proposal = &proposals()[2];
    let sa = |count| emit_clear(&header(), &[Payload::Sa(vec![proposal.clone(); count])]);
    Message::parse(&sa(64)).expect("64 proposals");
    assert_eq!(error(&sa(65)), ParseError::TooMany);

    let transforms = vec![Transform::new(transform::PRF, 2); 129];
    let many = |count: usize| {
        let proposal = Proposal { transforms: transforms[..count].to_vec(), ..proposal.clone() };
        emit_clear(&header(), &[Payload::Sa(vec![proposal])])
    };
    Message::parse(&many(128)).expect("128 transforms");
    assert_eq!(error(&many(129)), ParseError::TooMany);
}

#[test]
fn lengths_inside_payloads_are_checked() {
    // A proposal that is shorter than its own head, longer than the payload, and with a transform too few.
    assert_eq!(error_in(payload::SA, &[0, 0, 0, 3, 1, 1, 0, 0]), ParseError::Truncated);
    assert_eq!(error_in(payload::SA, &[0, 0, 0, 9, 1, 1, 0, 0]), ParseError::Truncated);
    assert_eq!(error_in(payload::SA, &[0, 0, 0, 8, 1, 1, 0, 1]), ParseError::Truncated);
    assert_eq!(error_in(payload::SA, &[]), ParseError::Truncated);
    // SPIs of the wrong size: of IKE, of ESP.
    assert_eq!(error_in(payload::SA, &[0, 0, 0, 12, 1, 1, 4, 0, 1, 2, 3, 4]), ParseError::Malformed);
    assert_eq!(error_in(payload::SA, &[0, 0, 0, 8, 1, 3, 0, 0]), ParseError::Malformed);
    // More proposals are announced than follow, and the reverse.
    assert_eq!(error_in(payload::SA, &[2, 0, 0, 8, 1, 1, 0, 0]), ParseError::Truncated);
    assert_eq!(error_in(payload::SA, &[0, 0, 0, 8, 1, 1, 0, 0, 0]), ParseError::Malformed);
    // CVE-2023-23009: selectors shorter than their type needs, and fewer than announced.
    assert_eq!(error_in(payload::TSI, &[1, 0, 0, 0, 7, 0, 0, 8, 0, 0, 0, 0]), ParseError::Truncated);
    assert_eq!(error_in(payload::TSI, &[1, 0, 0, 0]), ParseError::Truncated);
    assert_eq!(error_in(payload::TSI, &[0, 0, 0, 0]), ParseError::Malformed);
    // CVE-2023-38710: a deletion with SPIs of a protocol that has none, or of none.
    assert_eq!(error_in(payload::DELETE, &[1, 4, 0, 1, 1, 2, 3, 4]), ParseError::Malformed);
    assert_eq!(error_in(payload::DELETE, &[4, 4, 0, 1, 1, 2, 3, 4]), ParseError::Malformed);
    assert_eq!(error_in(payload::DELETE, &[3, 4, 0, 2, 1, 2, 3, 4]), ParseError::Malformed);
    assert_eq!(error_in(payload::DELETE, &[3, 0, 0, 0]), ParseError::Malformed);
    // A notification whose SPI goes beyond its end.
    assert_eq!(error_in(payload::NOTIFY, &[3, 4, 0, 1, 1, 2, 3]), ParseError::Truncated);
    // Nonces of 15 and of 257 bytes.
    assert_eq!(error_in(payload::NONCE, &[0; 15]), ParseError::Malformed);
    assert_eq!(error_in(payload::NONCE, &[0; 257]), ParseError::Malformed);
}

#[test]
fn what_nothing_uses_may_be_as_it_likes() {
    for kind in [payload::EAP, payload::CP] {
        for body in [&[][..], &[1, 9, 0, 6, 1], &[1, 0, 0, 0, 0, 1, 0, 9]] {
            Message::parse(&message(kind, 0, body)).expect("its body is passed over");
        }
    }
}

#[test]
fn inverted_selectors_are_refused_and_opaque_ones_match_nothing() {
    let one = |ports: [u8; 4], addresses: [u8; 8]| {
        let body = [&[1, 0, 0, 0, 7, 6, 0, 16][..], &ports, &addresses].concat();
        Message::parse(&message(payload::TSI, 0, &body)).map(|message| match message.body {
            Body::Clear(payloads) => payloads.ts_i.map(|selectors| selectors.len()),
            _ => None,
        })
    };
    assert_eq!(one([0, 0, 255, 255], [10, 0, 0, 0, 10, 0, 0, 255]), Ok(Some(1)));
    assert_eq!(one([0, 0, 255, 255], [10, 0, 0, 1, 10, 0, 0, 0]), Err(ParseError::Malformed));
    assert_eq!(one([0, 9, 0, 8], [10, 0, 0, 0, 10, 0, 0, 255]), Err(ParseError::Malformed));
    assert_eq!(one([255, 255, 0, 0], [10, 0, 0, 0, 10, 0, 0, 255]), Ok(Some(0)));
}

#[test]
fn attributes_that_we_do_not_know_are_told() {
    let sa = |attributes: &[u8]| {
        let length = attributes.len() as u8;
        let head = [0, 0, 0, 16 + length, 1, 1, 0, 1, 0, 0, 0, 8 + length, 1, 0, 0, 12];
        let bytes = message(payload::SA, 0, &[&head[..], attributes].concat());
        let Body::Clear(payloads) = Message::parse(&bytes)?.body else { panic!("it is in the clear") };
        Ok(payloads.sa.expect("it is there")[0].transforms[0].attribute)
    };
    assert_eq!(sa(&[0x80, 14, 1, 0]), Ok(Attribute::KeyLength(256)));
    assert_eq!(sa(&[0x80, 15, 1, 0]), Ok(Attribute::Unknown));
    assert_eq!(sa(&[0, 14, 0, 2, 1, 0]), Ok(Attribute::Unknown));
    assert_eq!(sa(&[0x80, 14, 1, 0, 0x80, 14, 0, 128]), Ok(Attribute::Unknown));
    assert_eq!(sa(&[0, 14, 0, 3, 1, 0]), Err(ParseError::Truncated));
}

#[test]
fn an_encrypted_payload_is_alone() {
    let associated = emit_associated(&header(), payload::IDI, Envelope::Whole, 40);
    let bytes = [&associated[..], &[6; 40]].concat();
    let sealed = Sealed { first: payload::IDI, associated: &associated, text: &[6; 40] };
    assert_eq!(Message::parse(&bytes).expect("ours").body, Body::Encrypted(sealed));

    // Something after it, something before it, and one inside a chain.
    let mut followed = [&bytes[..], &[0, 0, 0, 4]].concat();
    let length = (followed.len() as u32).to_be_bytes();
    followed[24..28].copy_from_slice(&length);
    assert_eq!(error(&followed), ParseError::Misplaced);
    let inner = [&[payload::SK, 0, 0, 4][..], &[0, 0, 0, 8, 1, 2, 3, 4]].concat();
    for before in [payload::VENDOR_ID, 200] {
        let bytes = [&header().emit(before, inner.len())[..], &inner].concat();
        assert_eq!(error(&bytes), ParseError::Misplaced);
    }
    assert_eq!(Payloads::parse(payload::SK, &[0, 0, 0, 4]), Err(ParseError::Misplaced));
    assert_eq!(Payloads::parse(payload::SKF, &[0, 0, 0, 4]), Err(ParseError::Misplaced));
}

#[test]
fn fragments_are_numbered_from_1_to_their_total() {
    let fragment = |number, total| {
        let associated = emit_associated(&header(), 0, Envelope::Fragment(number, total), 3);
        [&associated[..], b"abc"].concat()
    };
    let bytes = fragment(2, 3);
    let Body::Fragment { number: 2, total: 3, sealed } = Message::parse(&bytes).expect("ours").body else {
        panic!("it is a fragment");
    };
    assert_eq!((sealed.associated.len(), sealed.text), (Header::LENGTH + 8, &b"abc"[..]));
    for (number, total) in [(0, 3), (4, 3), (0, 0), (1, 0)] {
        assert_eq!(error(&fragment(number, total)), ParseError::Malformed);
    }
}
