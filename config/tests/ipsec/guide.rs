//! Lines of a guide, in the spelling of VyOS 1.3, as they are typed into a session.

use super::{address, groups_of, loaded, secret_of};
use config::Settings;
use config::settings::ipsec::{Action, Encryption, Group, Identity, Pfs, Prf, Remote, Start};
use config::settings::machine::Profile;
use crypto::Cipher;
use crypto::cipher::{self, Integrity};

pub const OFFLOADED: &str = "configure
# ESP
set vpn ipsec esp-group QAT-ESP lifetime 3600
set vpn ipsec esp-group QAT-ESP mode tunnel
set vpn ipsec esp-group QAT-ESP pfs dh-group14
set vpn ipsec esp-group QAT-ESP proposal 1 encryption aes256gcm128
set vpn ipsec esp-group QAT-ESP proposal 1 hash sha256
# IKE
set vpn ipsec ike-group QAT-IKE dead-peer-detection action restart
set vpn ipsec ike-group QAT-IKE dead-peer-detection interval 30
set vpn ipsec ike-group QAT-IKE dead-peer-detection timeout 120
set vpn ipsec ike-group QAT-IKE ikev2-reauth no
set vpn ipsec ike-group QAT-IKE key-exchange ikev2
set vpn ipsec ike-group QAT-IKE lifetime 28800
set vpn ipsec ike-group QAT-IKE proposal 1 dh-group 14
set vpn ipsec ike-group QAT-IKE proposal 1 encryption aes256gcm128
set vpn ipsec ike-group QAT-IKE proposal 1 hash sha256
# the peer
set vpn ipsec site-to-site peer 203.0.113.10 authentication mode pre-shared-secret
set vpn ipsec site-to-site peer 203.0.113.10 authentication pre-shared-secret 'YourStrongPSK'
set vpn ipsec site-to-site peer 203.0.113.10 connection-type initiate
set vpn ipsec site-to-site peer 203.0.113.10 ike-group QAT-IKE
set vpn ipsec site-to-site peer 203.0.113.10 local-address 198.51.100.10
set vpn ipsec site-to-site peer 203.0.113.10 tunnel 1 esp-group QAT-ESP
set vpn ipsec site-to-site peer 203.0.113.10 tunnel 1 local prefix 10.0.1.0/24
set vpn ipsec site-to-site peer 203.0.113.10 tunnel 1 remote prefix 10.0.2.0/24
set system acceleration qat
commit
save
";
pub const SMALLER_PACKETS: &str = "configure
set vpn ipsec site-to-site peer 203.0.113.10 tunnel 1 mtu 1400
commit
save
";
pub const SOFTWARE: &str = "configure
set vpn ipsec esp-group YC-ESP lifetime 3600
set vpn ipsec esp-group YC-ESP mode tunnel
set vpn ipsec esp-group YC-ESP pfs dh-group14
set vpn ipsec esp-group YC-ESP proposal 1 encryption aes256
set vpn ipsec esp-group YC-ESP proposal 1 hash sha256
set vpn ipsec ike-group YC-IKE dead-peer-detection action restart
set vpn ipsec ike-group YC-IKE dead-peer-detection interval 30
set vpn ipsec ike-group YC-IKE dead-peer-detection timeout 120
set vpn ipsec ike-group YC-IKE ikev2-reauth no
set vpn ipsec ike-group YC-IKE key-exchange ikev2
set vpn ipsec ike-group YC-IKE lifetime 28800
set vpn ipsec ike-group YC-IKE proposal 1 dh-group 14
set vpn ipsec ike-group YC-IKE proposal 1 encryption aes256
set vpn ipsec ike-group YC-IKE proposal 1 hash sha256
set vpn ipsec site-to-site peer 10.128.0.10 authentication mode pre-shared-secret
set vpn ipsec site-to-site peer 10.128.0.10 authentication pre-shared-secret 'YandexCloudVPNKey'
set vpn ipsec site-to-site peer 10.128.0.10 connection-type initiate
set vpn ipsec site-to-site peer 10.128.0.10 ike-group YC-IKE
set vpn ipsec site-to-site peer 10.128.0.10 local-address 10.129.0.10
set vpn ipsec site-to-site peer 10.128.0.10 tunnel 1 esp-group YC-ESP
set vpn ipsec site-to-site peer 10.128.0.10 tunnel 1 local prefix 10.129.1.0/24
set vpn ipsec site-to-site peer 10.128.0.10 tunnel 1 remote prefix 10.128.1.0/24
commit
save
";
pub const TWO_PROPOSALS: &str = "configure
set vpn ipsec esp-group VK-ESP-QAT lifetime 3600
set vpn ipsec esp-group VK-ESP-QAT mode tunnel
set vpn ipsec esp-group VK-ESP-QAT pfs dh-group14
set vpn ipsec esp-group VK-ESP-QAT proposal 1 encryption aes256gcm128
set vpn ipsec esp-group VK-ESP-QAT proposal 2 encryption aes256
set vpn ipsec esp-group VK-ESP-QAT proposal 2 hash sha256
set vpn ipsec ike-group VK-IKE-QAT dead-peer-detection action restart
set vpn ipsec ike-group VK-IKE-QAT dead-peer-detection interval 15
set vpn ipsec ike-group VK-IKE-QAT dead-peer-detection timeout 60
set vpn ipsec ike-group VK-IKE-QAT ikev2-reauth no
set vpn ipsec ike-group VK-IKE-QAT key-exchange ikev2
set vpn ipsec ike-group VK-IKE-QAT lifetime 28800
set vpn ipsec ike-group VK-IKE-QAT proposal 1 dh-group 14
set vpn ipsec ike-group VK-IKE-QAT proposal 1 encryption aes256gcm128
set vpn ipsec ike-group VK-IKE-QAT proposal 1 hash sha256
set vpn ipsec site-to-site peer 185.185.185.10 authentication mode pre-shared-secret
set vpn ipsec site-to-site peer 185.185.185.10 authentication pre-shared-secret 'VKCloudBareMetal2025'
set vpn ipsec site-to-site peer 185.185.185.10 connection-type respond
set vpn ipsec site-to-site peer 185.185.185.10 ike-group VK-IKE-QAT
set vpn ipsec site-to-site peer 185.185.185.10 local-address 185.185.186.10
set vpn ipsec site-to-site peer 185.185.185.10 tunnel 1 esp-group VK-ESP-QAT
set vpn ipsec site-to-site peer 185.185.185.10 tunnel 1 local prefix 192.168.10.0/24
set vpn ipsec site-to-site peer 185.185.185.10 tunnel 1 remote prefix 192.168.20.0/24
set system acceleration qat
commit
save
";
pub const HIGH_THROUGHPUT: &str = "configure
set vpn ipsec esp-group HIGH-THROUGHPUT lifetime 3600
set vpn ipsec esp-group HIGH-THROUGHPUT mode tunnel
set vpn ipsec esp-group HIGH-THROUGHPUT pfs disable
set vpn ipsec esp-group HIGH-THROUGHPUT proposal 1 encryption aes128gcm128
commit
save
";
pub const LOW_LATENCY: &str = "configure
set vpn ipsec esp-group LOW-LATENCY lifetime 1800
set vpn ipsec esp-group LOW-LATENCY mode tunnel
set vpn ipsec esp-group LOW-LATENCY pfs dh-group14
set vpn ipsec esp-group LOW-LATENCY proposal 1 encryption aes128gcm64
set vpn ipsec ike-group LOW-LATENCY-IKE lifetime 14400
commit
save
";
pub const MAX_SECURITY: &str = "configure
set vpn ipsec esp-group MAX-SECURITY lifetime 1800
set vpn ipsec esp-group MAX-SECURITY mode tunnel
set vpn ipsec esp-group MAX-SECURITY pfs dh-group16
set vpn ipsec esp-group MAX-SECURITY proposal 1 encryption aes256gcm128
set vpn ipsec ike-group MAX-SECURITY-IKE lifetime 7200
set vpn ipsec ike-group MAX-SECURITY-IKE proposal 1 dh-group 16
set vpn ipsec ike-group MAX-SECURITY-IKE proposal 1 encryption aes256gcm128
commit
save
";
const MACHINE: &str = include_str!("../../../tests/interop/guide/machine.set");
pub const ALL: &[&str] =
    &[OFFLOADED, SMALLER_PACKETS, SOFTWARE, TWO_PROPOSALS, HIGH_THROUGHPUT, LOW_LATENCY, MAX_SECURITY];

#[test]
fn every_block_of_a_guide_for_vyos_is_served_unchanged() {
    for block in ALL.iter().filter(|block| **block != SMALLER_PACKETS) {
        loaded(block);
    }
    let (ipsec, warnings) = loaded(&ALL.concat());
    assert_eq!(ipsec.peers.len(), 3);
    let old_secrets =
        warnings.iter().filter(|warning| warning.contains("pre-shared-secret, and 2 more")).count();
    assert_eq!(old_secrets, 1, "said once: {warnings:?}");
}

/// Lines of its blocks that are about other programs of the machine.
#[test]
fn what_is_done_by_the_machine_is_served() {
    let (settings, warnings) =
        Settings::new(&config::parse(MACHINE).expect("right")).expect("it is served as well");
    assert_eq!(settings.machine.performance, Some(Profile::Throughput));
    assert_eq!(settings.machine.tasks["qat-daily-check"].path, "/config/scripts/qat-check.sh");
    assert_eq!(settings.machine.tasks["qat-daily-check"].times.crontab, "0 0 */1 * *");
    assert_eq!(settings.machine.syslog.expect("set").local.len(), 2);
    assert!(settings.machine.snmp.expect("set").communities.contains_key("public"));
    assert!(warnings.is_empty(), "{warnings:?}");
    let deleted = |words: &str| {
        let tree = config::parse(&format!("{MACHINE}{words}")).expect("it can go");
        Settings::new(&tree).expect("what is left is right").0.machine
    };
    for line in MACHINE.lines() {
        let machine = deleted(&line.replacen("set", "delete", 1));
        assert_ne!(machine, deleted(""), "{line}");
    }
    let all = ["service", "system option", "system syslog", "system task-scheduler"];
    assert!(deleted(&all.map(|words| format!("delete {words}\n")).concat()).is_empty());
    for line in ["set system acceleration qat", "set system acceleration qat\ndelete system acceleration qat"]
    {
        config::parse(line).expect(line);
    }
}

#[test]
fn a_peer_named_by_its_address_is_found_there_and_is_who_it_is_called() {
    let (ipsec, _) = loaded(&[OFFLOADED, SMALLER_PACKETS].concat());
    let peer = &ipsec.peers["203.0.113.10"];
    assert_eq!(peer.remote_addresses, [Remote::Address(address("203.0.113.10"))]);
    assert_eq!(peer.remote_id, Some(Identity::Address(address("203.0.113.10"))));
    assert_eq!((peer.local_address, &peer.local_id), (Some(address("198.51.100.10")), &None));
    assert_eq!(secret_of(peer), b"YourStrongPSK");
    assert_eq!((peer.start, peer.reauthenticate), (Start::Initiate, false));
    let detection = peer.ike.dead_peer_detection.expect("set");
    assert_eq!((detection.action, detection.interval_seconds), (Action::Restart, 30));
    let tunnel = &peer.tunnels[&1];
    assert_eq!((tunnel.mtu, tunnel.local.prefixes.len(), tunnel.remote.prefixes.len()), (Some(1400), 1, 1));
    assert_eq!(tunnel.esp.pfs, Pfs::Group(Group::Modp2048));
}

#[test]
fn a_hash_beside_a_cipher_that_authenticates_names_the_prf() {
    let (ike, esp, _) = groups_of(OFFLOADED, "QAT-IKE", "QAT-ESP");
    assert_eq!(ike.proposals.len(), 1);
    assert_eq!(ike.proposals[0].encryption, Encryption::Aead(Cipher::Aes256Gcm, 16));
    assert_eq!((&*ike.proposals[0].integrity, &*ike.proposals[0].prfs), (&[][..], &[Prf::HmacSha256][..]));
    assert_eq!(ike.proposals[0].groups, [Group::Modp2048]);
    assert!(esp.proposals[0].integrity.is_empty());
    let (ike, _, _) = groups_of(MAX_SECURITY, "MAX-SECURITY-IKE", "MAX-SECURITY");
    let prfs = &ike.proposals[0].prfs;
    assert_eq!((prfs.first(), prfs.last()), (Some(&Prf::HmacSha256), Some(&Prf::HmacSha1)));
}

#[test]
fn proposals_are_offered_in_the_order_of_their_numbers() {
    let (_, esp, _) = groups_of(TWO_PROPOSALS, "VK-IKE-QAT", "VK-ESP-QAT");
    let found: Vec<_> = esp.proposals.iter().map(|it| (it.number, it.encryption, &*it.integrity)).collect();
    let cbc = Encryption::Plain(cipher::Encryption::AesCbc(32));
    assert_eq!(
        found,
        [(1, Encryption::Aead(Cipher::Aes256Gcm, 16), &[][..]), (2, cbc, &[Integrity::HmacSha256][..])]
    );
}

#[test]
fn a_group_without_a_proposal_offers_what_is_not_weak() {
    let (ike, esp, _) = groups_of(LOW_LATENCY, "LOW-LATENCY-IKE", "LOW-LATENCY");
    assert_eq!(ike.lifetime_seconds, Some(14_400));
    assert_eq!(ike.proposals[0].encryption, Encryption::Aead(Cipher::Aes256Gcm, 16));
    for proposal in &ike.proposals {
        assert!(proposal.groups.iter().all(|group| ![1, 2, 5].contains(&group.id())));
        assert!(
            !proposal.integrity.contains(&Integrity::HmacSha1) && !proposal.prfs.contains(&Prf::HmacSha1)
        );
    }
    assert_eq!(esp.proposals[0].encryption, Encryption::Aead(Cipher::Aes128Gcm, 8));
}
