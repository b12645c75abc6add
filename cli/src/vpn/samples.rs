//! A peer that is up and one that is down, for tests.

use gateway::ipsec::model::{
    Algorithms, AuthenticationMethod, ConnectionType, Encryption, Group, IpsecFailure, IpsecIke, IpsecPeer,
    IpsecSa, IpsecTunnel, Prf, SaMode, SaState,
};

const ESP: Algorithms = Algorithms {
    encryption: Encryption::AesGcm16,
    key_bits: Some(256),
    integrity: None,
    prf: None,
    group: None,
    extended_sequence: true,
};
const IKE: Algorithms = Algorithms {
    prf: Some(Prf::HmacSha256),
    group: Some(Group::Curve25519),
    extended_sequence: false,
    ..ESP
};

pub(crate) fn up() -> IpsecPeer {
    let sa = IpsecSa {
        spi_in: 0xc9a3_bd01,
        spi_out: 0x0000_0b02,
        suite: "aes256gcm128-esn".to_owned(),
        algorithms: Some(ESP),
        state: SaState::Installed,
        local: vec!["10.1.0.0/16".to_owned()],
        remote: vec!["10.2.0.0/16".to_owned()],
        uptime: 300,
        sending: true,
        rekeying_in: Some(3000),
        expires_in: Some(3300),
    };
    let tunnel = IpsecTunnel {
        name: "berlin-tunnel-1".to_owned(),
        number: 1,
        mode: SaMode::Tunnel,
        in_udp: true,
        local: vec!["10.1.0.0/16".to_owned()],
        remote: vec!["10.2.0.0/16".to_owned()],
        received_bytes: 235_520,
        sent_bytes: 7 << 20,
        received_packets: 999,
        sent_packets: 12_345,
        sas: vec![sa],
        ..IpsecTunnel::default()
    };
    let ike = IpsecIke {
        number: 3,
        initiated: true,
        spi_initiator: "00000000000000a1".to_owned(),
        spi_responder: "00000000000000b2".to_owned(),
        local: "192.0.2.1:4500".to_owned(),
        remote: "192.0.2.2:4500".to_owned(),
        nat: true,
        rekeying_in: Some(20_000),
        expires_in: Some(25_077),
        refused_exchanges: 0,
    };
    IpsecPeer {
        name: "berlin".to_owned(),
        up: true,
        local_address: Some("192.0.2.1".to_owned()),
        remote_address: Some("192.0.2.2".to_owned()),
        local_id: "192.0.2.1".to_owned(),
        remote_id: Some("berlin.example".to_owned()),
        suite: Some("aes256gcm128-prfsha256-x25519".to_owned()),
        algorithms: Some(IKE),
        uptime: Some(3723),
        lifetime: Some(28_800),
        authentication: AuthenticationMethod::Secret,
        secret_at: Some("vpn ipsec authentication psk sites secret".to_owned()),
        connection_type: ConnectionType::Initiate,
        ike: Some(ike),
        tunnels: vec![tunnel],
        ..IpsecPeer::default()
    }
}

pub(crate) fn down() -> IpsecPeer {
    let set = "set vpn ipsec ike-group ROME proposal 2";
    let failure = IpsecFailure {
        at: 0,
        what: "no common proposal for IKE".to_owned(),
        details: vec![
            "we accept aes256gcm128-prfsha256-x25519".to_owned(),
            "the peer offers aes128-sha256-prfsha256-modp2048".to_owned(),
        ],
        fix: vec![format!("{set} encryption aes128"), format!("{set} hash sha256")],
    };
    let tunnel = IpsecTunnel {
        name: "rome2-tunnel-1".to_owned(),
        number: 1,
        mode: SaMode::Tunnel,
        proposals: vec!["aes256gcm128-esn-noesn".to_owned()],
        local: vec!["10.1.0.0/16".to_owned()],
        remote: vec!["10.3.0.0/16".to_owned()],
        ..IpsecTunnel::default()
    };
    IpsecPeer {
        name: "rome2".to_owned(),
        remote_address: Some("192.0.2.3".to_owned()),
        local_id: "192.0.2.1".to_owned(),
        lifetime: Some(28_800),
        authentication: AuthenticationMethod::Certificate,
        connection_type: ConnectionType::Initiate,
        tunnels: vec![tunnel],
        failure: Some(failure),
        ..IpsecPeer::default()
    }
}
