//! What lines become.

use crate::{SA, SITE_A, SITE_B, SP, strictly};
use config::secgw::settings::{Action, Direction, Fallback, Family, Mode, Offload, Ports, Protocol};
use tunnel::esp::Transform;

#[test]
fn a_policy_has_its_ranges_its_priority_and_its_action() {
    let line = "sp ipv4 out src 10.0.0.0/8 dst 192.0.2.0/24 proto 17:255 sport 0:65535 dport 4500:4501 pri 7 esp protect 300";
    let settings = strictly(line).settings;
    let policy = &settings.policies[0];
    assert_eq!((policy.family, policy.direction), (Family::V4, Direction::Outbound));
    assert_eq!((policy.action, policy.priority), (Action::Protect(300), 7));
    assert_eq!(
        (policy.source.to_string(), policy.destination.to_string()),
        ("10.0.0.0/8".into(), "192.0.2.0/24".into())
    );
    assert_eq!(policy.protocol, Protocol { value: 17, mask: 255 });
    assert!(policy.protocol.contains(17) && !policy.protocol.contains(6));
    assert_eq!(
        (policy.source_ports, policy.destination_ports),
        (Ports::ALL, Ports { low: 4500, high: 4501 })
    );
    assert!(policy.destination_ports.contains(4501) && !policy.destination_ports.contains(4502));
}

#[test]
fn policies_count_the_peers_of_ike_that_they_name() {
    let lines = "sp ipv4 out ike east pri 1\nsp ipv4 in pri 1 ike west\nsp ipv6 in ike east pri 2";
    let settings = strictly(lines).settings;
    let actions: Vec<Action> = settings.policies.iter().map(|policy| policy.action).collect();
    assert_eq!(actions, [Action::Ike(0), Action::Ike(1), Action::Ike(0)]);
    assert_eq!(settings.ike_peers, ["east", "west"]);
}

#[test]
fn what_a_policy_omits_is_any_address_any_protocol_and_port_0() {
    let settings = strictly("sp ipv6 in esp discard").settings;
    let policy = &settings.policies[0];
    assert_eq!((policy.source.to_string(), policy.priority), ("::/0".into(), 0));
    assert!(policy.protocol.contains(6) && policy.protocol.contains(58));
    assert!(policy.source_ports.contains(0) && !policy.source_ports.contains(1));
}

#[test]
fn an_sa_has_its_keys_in_the_order_of_rfc_7296() {
    let text = "sa out 7 auth_algo sha1-hmac auth_key 1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1 \
                cipher_algo aes-128-ctr cipher_key 2:2:2:2:2:2:2:2:2:2:2:2:2:2:2:2:3:3:3:ff mode transport";
    let settings = strictly(text).settings;
    let sa = &settings.sas[0];
    let transform = sa.protection.transform().expect("Postern has it");
    assert_eq!(sa.keys.len(), transform.key_material_length());
    assert_eq!(sa.keys.expose()[14..22], [2, 2, 3, 3, 3, 255, 1, 1], "the salt is behind its key");
    assert_eq!(sa.mode, Mode::Transport);
    assert!(!format!("{settings:?}").contains("255"), "keys are not printed");
}

#[test]
fn an_sa_has_its_options() {
    let options = "type inline-crypto-offload port_id 3 fallback cpu-crypto udp-encap mss 1400 esn 5 telemetry reassembly_en";
    let settings = strictly(&format!("{SA} {options}")).settings;
    let sa = &settings.sas[0];
    assert_eq!(
        (sa.offload, sa.port, sa.fallback),
        (Offload::InlineCrypto, Some(3), Some(Fallback::CpuCrypto))
    );
    assert!(sa.udp_encapsulation && sa.telemetry && sa.reassembly);
    assert_eq!((sa.mss, sa.extended_sequence), (1400, 5));
    let settings = strictly(&format!("{SA} flow-direction 2 3")).settings;
    assert_eq!((settings.sas[0].port, settings.sas[0].queue), (Some(2), Some(3)));
    assert_eq!(settings.sas[0].protection.transform().map(Transform::name).as_deref(), Some("aes-128-gcm"));
}

#[test]
fn the_last_line_of_a_neighbour_counts() {
    let settings = strictly("neigh port 0x1 2:0:0:0:0:1\nneigh port 1 02:00:00:00:00:02\n").settings;
    assert_eq!((settings.neighbours.len(), settings.neighbours[&1].address[5]), (1, 2));
}

#[test]
fn two_sites_have_the_same_sas_the_other_way_round() {
    let (a, b) = (strictly(SITE_A), strictly(SITE_B));
    assert_eq!((a.findings.len(), b.findings.len()), (0, 0));
    assert_eq!((a.settings.policies.len(), a.settings.sas.len(), a.settings.routes.len()), (10, 6, 5));
    for out in a.settings.sas.iter().filter(|sa| sa.direction == Direction::Outbound) {
        let inbound = b.settings.sas_with(Direction::Inbound, out.spi).next().expect("the other site has it");
        assert_eq!((&inbound.keys, inbound.mode), (&out.keys, out.mode));
    }
    assert_eq!(
        a.settings.routes[2].network().map(|network| network.to_string()).as_deref(),
        Some("198.51.100.1/32")
    );
    assert!(strictly(SP).settings.policies[0].source_ports == Ports::ALL);
}
