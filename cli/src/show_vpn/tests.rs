//! The tables of two peers, one up and one down.

use super::*;
use crate::vpn::samples::{down, up};
use gateway::ipsec::model::{Encryption, SaState};

#[test]
fn sas_have_the_columns_of_vyos_and_those_that_are_down_a_reason() {
    let table = [
        "Connection       State    Uptime    Bytes In/Out    Packets In/Out    Remote address    Remote ID       Proposal",
        "---------------  -------  --------  --------------  ----------------  ----------------  --------------  --------------",
        "berlin-tunnel-1  up       5m        230K/7M         999/12K           192.0.2.2         berlin.example  AES_GCM_16_256",
    ];
    assert_eq!(sa_table(&[up()]), table.join("\n") + "\n");
    let text = sa_table(&[up(), down()]);
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("rome2-tunnel-1   down     N/A "), "{last}");
    assert!(last.ends_with("N/A             no common proposal for IKE"), "{last}");
}

#[test]
fn a_tunnel_of_a_peer_called_by_its_address_is_named_as_scripts_expect() {
    let mut peer = up();
    peer.name = "192.0.2.2".to_owned();
    peer.tunnels[0].name = "192.0.2.2-tunnel-1".to_owned();
    assert!(sa_table(&[peer]).contains("\npeer-192.0.2.2-tunnel-1  up "));
}

#[test]
fn a_peer_that_does_not_answer_is_silent_as_in_explain() {
    let silent = IpsecPeer { silent: Some(14), ..up() };
    let line = |text: String, number: usize| text.lines().nth(number).unwrap_or_default().to_owned();
    let ike = ike_sa(&silent);
    assert!(line(ike.clone(), 6).trim_start().starts_with("silent IKEv2"), "{ike}");
    assert!(explain(&silent).starts_with("vpn ipsec site-to-site peer berlin: silent"));
    let text = connection_table(std::slice::from_ref(&silent));
    assert!(line(text.clone(), 2).starts_with("berlin           silent "), "{text}");
    let text = sa_table(&[silent]);
    assert!(line(text.clone(), 2).ends_with("the peer has not answered for 14s"), "{text}");
    assert!(!sa_table(&[up()]).contains("Reason"));
}

#[test]
fn an_ike_sa_with_long_names_keeps_its_columns() {
    let address = "2001:db8:1111:2222:3333:4444:5555:6666";
    let long = Algorithms {
        encryption: Encryption::AesCbc,
        key_bits: Some(256),
        integrity: Some(Integrity::HmacSha512),
        prf: Some(Prf::HmacSha512),
        group: Some(Group::Modp8192),
        extended_sequence: false,
    };
    let peer = IpsecPeer {
        remote_id: Some("C=DE, O=Example Networks, CN=berlin.gateways.example.org".to_owned()),
        remote_address: Some(address.to_owned()),
        local_address: Some(address.replace("6666", "7777")),
        algorithms: Some(long),
        ..up()
    };
    let text = ike_sa(&peer);
    let lines: Vec<&str> = text.lines().collect();
    let start = |line: &str, word: &str| line.find(word).unwrap_or_else(|| panic!("{word}: {text}"));
    let local = start(lines[2], "192.0.2.1 ");
    assert_eq!((start(lines[0], "Local ID"), start(lines[1], " ------------") + 1), (local, local), "{text}");
    let of = |line: usize| {
        let line = lines[line];
        let begins = |at: &usize| *at > 0 && !line[*at..].starts_with(' ') && line[..*at].ends_with(' ');
        (0..line.len()).filter(begins).collect::<Vec<_>>()
    };
    assert_eq!(of(5).len(), 8, "{text}");
    assert_eq!(of(5), of(6), "{text}");
    assert_eq!(of(6), of(4).into_iter().filter(|at| of(6).contains(at)).collect::<Vec<_>>(), "{text}");
}

#[test]
fn connections_are_peers_and_their_tunnels() {
    let text = connection_table(&[up(), down()]);
    let cells: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    let ids = ["192.0.2.1", "berlin.example"];
    let ike = ["berlin", "up", "IKEv2", "192.0.2.2", "-", "-", ids[0], ids[1], "AES_GCM_16/256/CURVE_25519"];
    let networks = ["10.1.0.0/16", "10.2.0.0/16"];
    let child = ["berlin-tunnel-1", "up", "IPsec", "192.0.2.2", networks[0], networks[1]];
    assert_eq!(cells[0], ike);
    assert_eq!(cells[1], [&child[..], &ids, &["AES_GCM_16/256"]].concat());
    assert_eq!(cells[2][..3], ["rome2", "down", "IKEv2"]);
    assert_eq!(cells[3].last(), Some(&"-"));
}

#[test]
fn an_ike_sa_is_shown_with_both_ends() {
    let text = ike_sa(&up());
    assert!(text.starts_with("Peer ID / IP                            Local ID / IP\n"), "{text}");
    assert!(text.contains("berlin.example 192.0.2.2                192.0.2.1 192.0.2.1\n"), "{text}");
    let row =
        text.lines().find(|line| line.starts_with("    up")).map(|line| line.split_whitespace().collect());
    let expected =
        vec!["up", "IKEv2", "AES_GCM_16_256", "PRF_HMAC_SHA2_256", "CURVE_25519", "yes", "3723", "28800"];
    assert_eq!(row, Some(expected));
    assert!(
        ike_sa(&down())
            .contains("    down   IKEv2   n/a          n/a           n/a            no     0       28800\n")
    );
    let unlimited = IpsecPeer { lifetime: None, ..down() };
    assert!(ike_sa(&unlimited).ends_with("no     0       never\n\n"), "{}", ike_sa(&unlimited));
}

#[test]
fn details_are_those_of_swanctl() {
    assert_eq!(
        detail::sa(&up()),
        "berlin: #3, ESTABLISHED, IKEv2, 00000000000000a1_i* 00000000000000b2_r\n\
         \x20 local  '192.0.2.1' @ 192.0.2.1:4500\n\
         \x20 remote 'berlin.example' @ 192.0.2.2:4500\n\
         \x20 AES_GCM_16-256/PRF_HMAC_SHA2_256/CURVE_25519\n\
         \x20 established 3723s ago, rekeying in 20000s, expires in 25077s\n\
         \x20 berlin-tunnel-1: #1, INSTALLED, TUNNEL-in-UDP, ESP:AES_GCM_16-256/ESN\n\
         \x20   installed 300s ago, rekeying in 3000s, expires in 3300s\n\
         \x20   in  c9a3bd01, 235520 bytes,   999 packets\n\
         \x20   out 00000b02, 7340032 bytes, 12345 packets\n\
         \x20   local  10.1.0.0/16\n\
         \x20   remote 10.2.0.0/16\n"
    );
    let text = detail::sa(&down());
    assert!(text.starts_with("rome2: DOWN, IKEv2, no common proposal for IKE\n"), "{text}");
}

#[test]
fn a_replaced_sa_is_shown_with_its_selectors() {
    let mut peer = up();
    let newest = peer.tunnels[0].sas[0].clone();
    let older =
        IpsecSa { state: SaState::Rekeyed, local: vec!["10.1.7.0/24".to_owned()], sending: false, ..newest };
    peer.tunnels[0].sas.insert(0, older);
    let text = detail::sa(&peer);
    let of = |word: &str| text.lines().position(|line| line.contains(word)).expect(word);
    assert!(of("REKEYED") < of("local  10.1.7.0/24") && of("local  10.1.7.0/24") < of("INSTALLED"), "{text}");
    assert!(of("INSTALLED") < of("local  10.1.0.0/16"), "{text}");
}

#[test]
fn the_status_counts_tunnels_and_names_those_that_are_down() {
    assert_eq!(
        status_text(&[up(), down()]),
        "IPSec Process Running\n\n1 Active IPsec Tunnels, of 2\n1 Connected Peers, of 2\n\
         \x20 rome2-tunnel-1 is down: no common proposal for IKE\n"
    );
    assert!(status_text(&[]).contains("\n0 Active IPsec Tunnels, of 0\n"));
}

#[test]
fn secrets_are_named_and_not_shown() {
    let text = secret_table(&[up(), down()]);
    let rows: Vec<&str> = text.lines().skip(2).collect();
    assert!(
        rows[0].ends_with("berlin.example  ********, set by vpn ipsec authentication psk sites secret"),
        "{text}"
    );
    assert!(rows[1].starts_with("rome2 ") && rows[1].ends_with("  any             certificate"), "{text}");
}

#[test]
fn each_direction_of_a_tunnel_has_its_state() {
    let text = detail::state(&up());
    assert_eq!(
        text.lines().take(3).collect::<Vec<_>>(),
        [
            "src 192.0.2.1 dst 192.0.2.2",
            "\tproto esp spi 0x00000b02 reqid 1 mode tunnel, in UDP",
            "\tAES_GCM_16-256/ESN, installed for 300s, tunnel berlin-tunnel-1"
        ]
    );
    assert!(text.contains("src 192.0.2.2 dst 192.0.2.1\n\tproto esp spi 0xc9a3bd01 "), "{text}");
}

#[test]
fn what_keeps_a_tunnel_down_is_part_of_debugging_it() {
    let text = debug_text(&down());
    assert!(text.starts_with("rome2: DOWN, IKEv2, ") && text.contains("  fix: set vpn ipsec "), "{text}");
}

#[test]
fn policies_stay_while_the_tunnel_is_down() {
    let text = detail::policy(&up());
    assert!(text.starts_with("src 10.1.0.0/16 dst 10.2.0.0/16\n\tdir out "), "{text}");
    assert!(text.contains("src 10.2.0.0/16 dst 10.1.0.0/16\n\tdir in "), "{text}");
    assert!(text.contains("\t\tproto esp spi 0xc9a3bd01 reqid 1 mode tunnel\n"), "{text}");
    assert!(detail::policy(&down()).contains("src 10.1.0.0/16 dst 10.3.0.0/16\n"));
}
