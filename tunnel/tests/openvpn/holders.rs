//! Attacks of senders that hold the key of the wrap, and of observers that send recorded packets again.

use crate::attack::{Attacker, session_count};
use crate::host::Core;
use crate::network::{CLIENT, Datagram, SERVER, Setup};
use crate::{assert_carries, connected, inner, seconds};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;
use tunnel::openvpn::channel::{ChannelEvent, PacketError};
use tunnel::openvpn::limits::MAX_PENDING_SOURCE;
use tunnel::openvpn::packet::{Body, Lead, Opcode, SessionId};
use tunnel::openvpn::peer_info::{OURS, proto};
use tunnel::openvpn::wrap::{PacketId, Role, WrapKeys};

/// All clients have one key of tls-crypt: an observer sends packets for one to another. Their numbers are of a later second,
/// and must not make those of the own session old.
#[test]
fn packets_of_another_session_use_up_no_numbers() {
    let mut setup = Setup::new();
    // Renewals stay under that key.
    setup.client_features = OURS & !proto::DYNAMIC_TLS_CRYPT;
    let mut network = setup.network_of(setup.tls_crypt(), 2, 1);
    network.connect(CLIENT);
    network.run(seconds(5));
    network.connect(CLIENT + 1);
    network.run(seconds(1));
    let [victim, other] = [CLIENT, CLIENT + 1].map(|client| network.hosts[client].address);
    let recorded: Vec<Datagram> = network.log.iter().map(|(_, sent)| sent.clone()).collect();
    for datagram in recorded {
        if datagram.to == other {
            network.arrive(Datagram { to: victim, ..datagram });
        } else if datagram.from == other {
            network.arrive(Datagram { from: victim, ..datagram });
        }
    }
    network.call(CLIENT, |core, now, out| match core {
        Core::Client(client) => client.handle_renewal(now, out),
        Core::Server(_) => unreachable!("a client"),
    });
    network.run(seconds(3));
    let ids: HashSet<u32> = network.hosts[CLIENT].inbound.keys().map(|index| index >> 24 & 7).collect();
    assert!(ids.contains(&1), "the renewal gets its answers: {ids:?}");
}

/// Any opcode, key ID, list of acknowledgments, message number and bytes, in packets that the wrap accepts: at sessions in any
/// stage, and at none.
#[test]
fn authentic_nonsense_does_not_concern_others() {
    let setup = Setup::new();
    let mut network = connected(&setup, 1);
    let opcodes = [
        Opcode::SoftReset,
        Opcode::Control,
        Opcode::Ack,
        Opcode::ClientResetV2,
        Opcode::ServerReset,
        Opcode::ClientResetV3,
        Opcode::ControlWithKey,
    ];
    let keys = WrapKeys::tls_crypt(setup.key.clone(), Role::Client);
    for seed in 0..40 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut attacker = Attacker::new(&setup, &network, seed, OURS);
        // Some have a session, of which some are connected.
        if seed % 2 == 0 {
            attacker.run(&mut network);
        }
        let local = attacker.channel.local();
        for number in 0..100u32 {
            let receiver = match random.random_range(0..3) {
                0 => attacker.channel.remote(),
                1 => Some(SessionId(random.random())),
                _ => None,
            };
            let mut id = || if random.random() { random.random_range(0..20) } else { random.random() };
            let (message, acks) = (id(), [id(), id(), id()]);
            let count = random.random_range(0..=3);
            let payload: Vec<u8> = (0..random.random_range(0..60)).map(|_| random.random()).collect();
            let opcode = opcodes[random.random_range(0..opcodes.len())];
            let message = (opcode != Opcode::Ack).then_some(message);
            let acks = acks[..count].iter().copied().collect();
            let body = Body { acks, receiver, message, payload: &payload };
            let lead = Lead { opcode, key_id: random.random_range(0..8) };
            let id = PacketId { number: 1000 + number, time: network.now().wall.as_secs() as u32 + 1 };
            let packet = keys.seal(lead, local, id, &body.emit());
            let now = network.now();
            network.hosts[SERVER].handle(now, attacker.address, &packet);
            network.collect();
        }
        network.run(seconds(1));
    }
    assert!(session_count(&network) <= 1 + 40.min(MAX_PENDING_SOURCE + 20));
    network.hosts[SERVER].connected.retain(|_, address| address.ip().to_string().starts_with("198.18."));
    assert_carries(&mut network, 7);
    network.run(seconds(3600));
    assert_eq!(network.hosts[SERVER].received.pop(), None, "nothing but the packets of the client");
    network.send(CLIENT, 0, &inner(9));
    network.run(seconds(1));
    assert_eq!(network.hosts[SERVER].received.len(), 1);
}

#[test]
fn new_keys_are_negotiated_twice_a_second_at_most() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    let mut attacker = Attacker::new(&setup, &network, 1, OURS & !proto::DYNAMIC_TLS_CRYPT);
    attacker.run(&mut network);
    assert_eq!(network.hosts[SERVER].connected.len(), 1);
    let mut negotiated = 0;
    for _ in 0..20 {
        attacker.renew(&network);
        let events = attacker.run(&mut network);
        negotiated += events.iter().filter(|event| matches!(event, ChannelEvent::Exchanged { .. })).count();
    }
    assert_eq!(negotiated, 0, "no time has passed");
    assert!(network.hosts[SERVER].refused.contains(&PacketError::TooSoon));
}
