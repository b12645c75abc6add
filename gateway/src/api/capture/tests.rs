use super::*;
use packet::DropReason;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::sync::Arc;

fn packet() -> Captured {
    Captured {
        at: Duration::from_nanos(1_700_000_000_123_456_789),
        peer: Some(Arc::new("berlin".to_owned())),
        length: 100,
        bytes: vec![0x45; 60],
        ..Captured::default()
    }
}

#[test]
fn a_comment_has_the_peer_and_why_the_packet_was_dropped() {
    let dropped = |peer: Option<&str>, drop| {
        comment(&Captured { peer: peer.map(|peer| Arc::new(peer.to_owned())), drop, ..packet() })
    };
    let drop = Some((DropReason::BadTag, "decrypt"));
    assert_eq!(dropped(Some("berlin"), drop).as_deref(), Some("berlin, bad-tag at decrypt"));
    assert_eq!(dropped(None, drop).as_deref(), Some("bad-tag at decrypt"));
    assert_eq!(dropped(Some("berlin"), None).as_deref(), Some("berlin"));
    assert_eq!(dropped(Some(""), None), None);
}

#[test]
fn what_is_written_can_be_read_with_its_times_lengths_and_losses() {
    let pcapng = Pcapng { name: "wg0".to_owned(), port: 51_820 };
    let mut writer = pcapng.begin(128).expect("memory");
    let endpoint = Endpoint::new("192.0.2.1:1000".parse().expect("literal"));
    let outer = Captured { layer: Layer::Outer(Some(endpoint)), direction: Direction::Outbound, ..packet() };
    for packet in [&packet(), &outer] {
        writer.write_pcapng_block(pcapng.block(packet)).expect("memory");
    }
    writer.write_pcapng_block(statistics(7)).expect("memory");
    let bytes = writer.into_inner();
    let mut reader = PcapNgReader::new(bytes.as_slice()).expect("it is pcapng");
    let (mut packets, mut lost) = (Vec::new(), None);
    while let Some(block) = reader.next_block() {
        match block.expect("it is whole") {
            Block::EnhancedPacket(packet) => packets.push(packet.into_owned()),
            Block::InterfaceStatistics(found) => lost = Some(found.into_owned()),
            _ => {}
        }
    }
    assert_eq!(reader.interfaces().len(), 2);
    let [inner, outer] = packets.try_into().expect("two packets");
    assert_eq!((inner.interface_id, inner.timestamp, inner.original_len), (0, packet().at, 100));
    assert!(inner.options.contains(&EnhancedPacketOption::Flags(INBOUND)));
    assert_eq!((outer.interface_id, outer.original_len, outer.data.len()), (1, 128, 88));
    assert_eq!(
        &outer.data[20..24],
        [51_820u16.to_be_bytes(), 1000u16.to_be_bytes()].concat(),
        "from our port"
    );
    assert_eq!(lost.expect("it was written").options, [InterfaceStatisticsOption::IsbIfDrop(7)]);
}

#[test]
fn a_client_that_has_gone_is_noticed() {
    let (sender, receiver) = mpsc::channel(1);
    assert!(deliver(&sender, Bytes::from_static(b"chunk"), || false));
    drop(receiver);
    assert!(!deliver(&sender, Bytes::from_static(b"chunk"), || false));
}

#[test]
fn a_client_that_does_not_read_does_not_keep_a_capture_whose_interface_is_gone() {
    let (sender, _receiver) = mpsc::channel(1);
    assert!(deliver(&sender, Bytes::from_static(b"chunk"), || false));
    let begun = Instant::now();
    assert!(!deliver(&sender, Bytes::from_static(b"chunk"), || begun.elapsed() > 3 * BUSY));
}

#[tokio::test]
async fn only_root_with_a_capability_may_capture() {
    use crate::api::router;
    use axum::body::Body;
    use axum::http::Request;
    use crypto::choice::Choice;
    use crypto::engine::none;
    use tower::ServiceExt;
    let shown = Shown::new(Arc::new(Choice::among(vec![Arc::new(none::None)])), Vec::new());
    let status = async |client: Option<Client>| {
        let mut request = Request::get("/v1/local/capture/wg0").body(Body::empty()).expect("a request");
        if let Some(client) = client {
            request.extensions_mut().insert(client);
        }
        router(shown.clone()).oneshot(request).await.expect("infallible").status()
    };
    let client = |uid, has_capabilities| Some(Client { uid, has_capabilities });
    assert_eq!(status(client(0, true)).await, StatusCode::NOT_FOUND, "there is no such interface");
    assert_eq!(status(client(0, false)).await, StatusCode::FORBIDDEN, "a helper of a daemon that is root");
    assert_eq!(status(client(1000, true)).await, StatusCode::FORBIDDEN);
    assert_eq!(status(None).await, StatusCode::FORBIDDEN, "nobody knows who it is");
}
