use super::policies::{LOWEST, any};
use super::*;
use crate::secgw::settings::{Action, Ports, Protocol};
use crate::{ConfigError, parse};

const GATEWAY: &str = "\
set interfaces secgw sgw0 description 'to site b'
set interfaces secgw sgw0 port 0 driver packet
set interfaces secgw sgw0 port 0 interface eth1
set interfaces secgw sgw0 port 0 neighbour 02:00:00:00:00:01
set interfaces secgw sgw0 port 0 side protected
set interfaces secgw sgw0 port 1 interface eth2
set interfaces secgw sgw0 port 1 neighbour 02:00:00:00:00:02
set interfaces secgw sgw0 port 1 side unprotected
set interfaces secgw sgw0 sa to-b direction out
set interfaces secgw sgw0 sa to-b spi 1005
set interfaces secgw sgw0 sa to-b encryption aes128gcm128
set interfaces secgw sgw0 sa to-b key 000102030405060708090a0b0c0d0e0f10111213
set interfaces secgw sgw0 sa to-b local-address 192.0.2.1
set interfaces secgw sgw0 sa to-b remote-address 192.0.2.2
set interfaces secgw sgw0 sa from-b direction in
set interfaces secgw sgw0 sa from-b spi 1006
set interfaces secgw sgw0 sa from-b encryption aes256
set interfaces secgw sgw0 sa from-b key 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f
set interfaces secgw sgw0 sa from-b hash sha1
set interfaces secgw sgw0 sa from-b hash-key 000102030405060708090a0b0c0d0e0f10111213
set interfaces secgw sgw0 sa from-b local-address 192.0.2.1
set interfaces secgw sgw0 sa from-b remote-address 192.0.2.2
set interfaces secgw sgw0 policy 10 direction out
set interfaces secgw sgw0 policy 10 action protect
set interfaces secgw sgw0 policy 10 sa to-b
set interfaces secgw sgw0 policy 10 source prefix 10.1.0.0/24
set interfaces secgw sgw0 policy 10 destination prefix 10.2.0.0/24
set interfaces secgw sgw0 policy 10 destination port 1024-2047
set interfaces secgw sgw0 policy 10 protocol udp
set interfaces secgw sgw0 policy 20 direction in
set interfaces secgw sgw0 policy 20 action protect
set interfaces secgw sgw0 policy 20 sa from-b
set interfaces secgw sgw0 policy 9 direction out
set interfaces secgw sgw0 policy 9 action discard
set interfaces secgw sgw0 route 10.1.0.0/24 port 0
set interfaces secgw sgw0 route 192.0.2.2/32 port 1
set interfaces secgw sgw0 mtu 1400
";

#[test]
fn a_port_of_dpdk_has_a_device_in_place_of_an_interface() {
    let port = "set interfaces secgw sgw0 port 1";
    let with = |device: &str| {
        let text =
            GATEWAY.replace(&format!("{port} interface eth2"), &format!("{port} driver dpdk\n{device}"));
        text.replace("mtu 1400", "mtu 1500")
    };
    for device in ["net_memif0,role=server,socket=/run/m.sock", "0000:01:00.0", "net_af_xdp1,iface=eth2"] {
        let port = gateway(&with(&format!("{port} device {device}"))).ports.remove(&1).expect("it is there");
        let name = device.split(',').next().expect("a name");
        assert_eq!(
            (port.driver, port.interface.as_str(), port.device.as_deref()),
            (Driver::Dpdk, name, Some(device))
        );
    }
    for (lines, said) in [
        ("", "device is not set"),
        (&format!("{port} interface eth2") as &str, "takes no interface of the kernel"),
        (&format!("{port} device crypto_null0"), "no device of DPDK for frames"),
        (&format!("{port} device eth2"), "no device of DPDK for frames"),
        (&format!("{port} device 'net_memif0, role=server'"), "no device of DPDK for frames"),
        (&format!("{port} device net_memif0\n{port} defer-napi"), "defer-napi is for driver"),
    ] {
        // Routes to the port have none then.
        let errors = settings(&with(lines)).expect_err(lines);
        assert!(errors.iter().any(|error| error.to_string().contains(said)), "{said}: {errors:#?}");
    }
    let long = with(&format!("{port} device net_memif0")).replace("mtu 1500", "mtu 1779");
    assert!(wrong(&long).to_string().contains("at most 1778 bytes"));
    let other = format!("{GATEWAY}{port} device net_memif0\n");
    let errors = settings(&other).expect_err("it has an interface");
    assert!(
        errors.iter().any(|error| error.to_string().contains("device is for driver dpdk")),
        "{errors:#?}"
    );
}

fn settings(text: &str) -> Result<Settings, Vec<ConfigError>> {
    parse(text).and_then(|tree| Settings::new(&tree)).map(|(settings, _)| settings)
}

fn gateway(text: &str) -> Secgw {
    let mut settings = settings(text).unwrap_or_else(|errors| panic!("{errors:#?}"));
    settings.secgw.remove("sgw0").expect("it is there")
}

/// The only thing that is wrong once a line is added or replaced.
fn wrong(text: &str) -> ConfigError {
    let mut errors = settings(text).expect_err(text);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    errors.remove(0)
}

#[test]
fn a_gateway_is_read_with_all_its_parts() {
    let read = gateway(GATEWAY);
    assert_eq!((read.mtu, read.window, read.extended_sequence), (1400, 128, false));
    assert_eq!((read.reassemble, read.threads), (None, 1));
    let port = &read.ports[&0];
    assert_eq!(
        (port.driver, port.is_protected, port.neighbour),
        (Driver::AfPacket, true, [2, 0, 0, 0, 0, 1])
    );
    assert_eq!(read.ports[&1].driver, Driver::AfXdp);
    let [from, to] = &read.sas[..] else { panic!("{:?}", read.sas) };
    assert_eq!((from.spi, from.protection.name()), (1006, "aes-256-cbc with sha1-hmac".to_owned()));
    assert_eq!((from.keys.len(), to.keys.len()), (52, 20));
    let [local, remote] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().expect("literal"));
    assert_eq!(from.mode, Mode::Tunnel { source: remote, destination: local });
    assert_eq!(to.mode, Mode::Tunnel { source: local, destination: remote });
    let ten: Vec<&Policy> = read.policies.iter().filter(|policy| policy.line == 10).collect();
    let [ten] = ten[..] else { panic!("one family: {ten:?}") };
    assert_eq!((ten.action, ten.protocol), (Action::Protect(1005), Protocol { value: 17, mask: 255 }));
    assert_eq!((ten.source_ports, ten.destination_ports), (Ports::ALL, Ports { low: 1024, high: 2047 }));
    let nine: Vec<&Policy> = read.policies.iter().filter(|policy| policy.line == 9).collect();
    assert!(nine.len() == 2 && nine.iter().all(|nine| nine.priority > ten.priority), "{nine:?}");
    assert_eq!(read.routes.len(), 2);
}

#[test]
fn what_no_policy_is_for_is_dropped_in_both_families_and_directions() {
    let without: String =
        GATEWAY.lines().filter(|line| !line.contains(" policy ")).map(|line| format!("{line}\n")).collect();
    let read = gateway(&without);
    for family in Family::ALL {
        for direction in Direction::ALL {
            let is_there = |policy: &&Policy| (policy.family, policy.direction) == (family, direction);
            let found: Vec<&Policy> = read.policies.iter().filter(is_there).collect();
            let [found] = found[..] else { panic!("{family:?} {direction:?}: {found:?}") };
            assert_eq!((found.action, found.priority, found.source), (Action::Discard, LOWEST, any(family)));
        }
    }
}

#[test]
fn fragments_threads_and_long_packets_are_as_they_are_set() {
    let set = |lines: &str| GATEWAY.replace("sgw0 mtu 1400", lines);
    let lines = "sgw0 mtu 3826\nset interfaces secgw sgw0 reassemble 64\nset interfaces secgw sgw0 threads 2";
    let read = gateway(&set(lines));
    assert_eq!((read.mtu, read.reassemble, read.threads), (3826, Some(64), 2));
    let error = wrong(&set("sgw0 mtu 3827"));
    assert!(error.reason.contains("mtu 3827: port 1 has driver af-xdp"), "{error}");
    assert!(
        error
            .fix
            .is_some_and(|fix| fix.contains("sgw0 mtu 3826, or set interfaces secgw sgw0 port 1 driver"))
    );
    let read = gateway(&set("sgw0 mtu 65521\nset interfaces secgw sgw0 port 1 driver tap"));
    assert_eq!(read.mtu, 65521);
    for line in ["sgw0 mtu 65522", "sgw0 threads 65", "sgw0 threads 0", "sgw0 reassemble 65537"] {
        assert_eq!(settings(&set(line)).expect_err(line).len(), 1);
    }
}

#[test]
fn what_is_disabled_is_not_served() {
    let text = format!("{GATEWAY}set interfaces secgw sgw0 disable\n");
    assert!(settings(&text).expect("it is right").is_empty());
}

#[test]
fn a_gateway_comes_back_from_its_own_text() {
    let tree = parse(GATEWAY).expect("it is right");
    let printed = crate::print::commands(&tree, true);
    assert_eq!(gateway(&printed), gateway(GATEWAY));
}

#[test]
fn what_does_not_go_together_is_refused_at_its_line() {
    let line = |text: &str| {
        let place = GATEWAY.lines().position(|line| line == text);
        place.map_or_else(|| panic!("{text}"), |place| place + 1)
    };
    let set = |rest: &str| format!("set interfaces secgw sgw0 {rest}");
    for (old, new, reason) in [
        ("policy 10 sa to-b", "policy 10 sa to-c", "policy 10: there is no sa to-c"),
        ("policy 10 sa to-b", "policy 10 sa from-b", "sa from-b is for the other direction"),
        (
            "policy 10 source prefix 10.1.0.0/24",
            "policy 10 source prefix fd01::/64",
            "one is IPv4, one is IPv6",
        ),
        ("policy 10 destination port 1024-2047", "policy 10 destination port 2047-1024", "no range of ports"),
        (
            "sa to-b key 000102030405060708090a0b0c0d0e0f10111213",
            "sa to-b key 0001",
            "key must have 20 bytes",
        ),
        ("sa from-b hash sha1", "sa from-b hash sha256", "hash-key must have 32 bytes"),
        (
            "sa to-b encryption aes128gcm128",
            "sa to-b encryption aes128",
            "alone does not authenticate packets",
        ),
        (
            "sa to-b remote-address 192.0.2.2",
            "sa to-b remote-address 2001:db8::2",
            "one is IPv4, one is IPv6",
        ),
        ("port 1 interface eth2", "port 1 interface eth1", "port 0 has the interface eth1 already"),
        (
            "port 1 neighbour 02:00:00:00:00:02",
            "port 1 neighbour 01:00:5e:00:00:02",
            "no Ethernet address of a station",
        ),
        ("route 192.0.2.2/32 port 1", "route 192.0.2.2/32 port 2", "there is no port 2"),
    ] {
        let (old, new) = (set(old), set(new));
        let errors = settings(&GATEWAY.replace(&old, &new)).expect_err(&new);
        // An SA that is refused is missing in its policy, too.
        let error = errors
            .iter()
            .find(|error| error.reason.contains(reason))
            .unwrap_or_else(|| panic!("{errors:#?}"));
        assert!(error.fix.is_some() && !error.to_string().contains("0001"), "{error}");
        if !["one is IPv4", "alone", "hash-key"].iter().any(|other| reason.contains(other)) {
            assert_eq!(error.location.line, line(&old), "{error}");
        }
    }
    let is_missing = |rest: &str, reason: &str| {
        let errors = settings(&GATEWAY.replace(&format!("{}\n", set(rest)), "")).expect_err(rest);
        assert!(errors.iter().any(|error| error.reason.contains(reason)), "{errors:#?}");
    };
    is_missing("sa to-b spi 1005", "sa to-b: spi is not set");
    is_missing("port 0 side protected", "port 0: side is not set");
    is_missing("policy 9 action discard", "policy 9: action is not set");
    is_missing("sa from-b hash-key 000102030405060708090a0b0c0d0e0f10111213", "hash-key is not set");
    let unprotected = GATEWAY.replace("port 1 side unprotected", "port 1 side protected");
    assert!(wrong(&unprotected).reason.contains("has no unprotected port"));
    let twice: String =
        GATEWAY.lines().map(|line| format!("{line}\n{}\n", line.replace(" sa to-b ", " sa to-c "))).collect();
    let errors = settings(&twice).expect_err("the same SPI and key");
    let said = |part: &str| errors.iter().any(|error| error.reason.contains(part));
    assert!(said("has the SPI 1005 in the same direction") && said("has the same key"), "{errors:#?}");
}

/// Two peers of IKE.
const PEERS: &str = "\
set vpn ipsec esp-group E proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 prf prfsha256
set vpn ipsec ike-group I proposal 1 dh-group 19
set vpn ipsec authentication psk sites id 192.0.2.1
set vpn ipsec authentication psk sites id 192.0.2.2
set vpn ipsec authentication psk sites id 192.0.2.3
set vpn ipsec authentication psk sites secret 'a secret of both sites'
set vpn ipsec site-to-site peer b authentication mode pre-shared-secret
set vpn ipsec site-to-site peer b authentication local-id 192.0.2.1
set vpn ipsec site-to-site peer b authentication remote-id 192.0.2.2
set vpn ipsec site-to-site peer b ike-group I
set vpn ipsec site-to-site peer b default-esp-group E
set vpn ipsec site-to-site peer b local-address 192.0.2.1
set vpn ipsec site-to-site peer b remote-address 192.0.2.2
set vpn ipsec site-to-site peer b tunnel 1 local prefix 10.1.0.0/24
set vpn ipsec site-to-site peer b tunnel 1 remote prefix 10.2.0.0/24
";

/// The gateway, with a peer in place of SAs.
fn with_ike() -> String {
    GATEWAY.replace("policy 10 sa to-b", "policy 10 ike b").replace("policy 20 sa from-b", "policy 20 ike b")
}

/// The other peer.
fn peer_c() -> String {
    let of_b = PEERS.lines().filter(|line| line.contains(" peer b "));
    let of_b: String = of_b.map(|line| format!("{line}\n")).collect();
    of_b.replace("peer b", "peer c").replace("192.0.2.2", "192.0.2.3").replace("10.2.", "10.3.")
}

#[test]
fn a_peer_that_policies_name_is_of_the_gateway_alone() {
    let read = settings(&format!("{}{PEERS}", with_ike())).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let gateway = &read.secgw["sgw0"];
    assert_eq!((&gateway.ike_peers[..], gateway.ike.len()), (&["b".to_owned()][..], 1));
    assert!(read.ipsec.peers.is_empty(), "ipsec0 does not serve it");
    let of_ike = gateway.policies.iter().filter(|policy| policy.action == Action::Ike(0));
    assert_eq!(of_ike.map(|policy| policy.line).collect::<Vec<_>>(), [10, 20, 20]);
    let without = settings(&format!("{GATEWAY}{PEERS}")).unwrap_or_else(|errors| panic!("{errors:#?}"));
    assert!(without.ipsec.peers.contains_key("b") && without.secgw["sgw0"].ike.is_empty());
    let disabled = format!("{}{PEERS}set interfaces secgw sgw0 disable\n", with_ike());
    let (read, warnings) = parse(&disabled).and_then(|tree| Settings::new(&tree)).expect("it is right");
    assert!(read.ipsec.peers.is_empty() && read.secgw.is_empty());
    assert!(warnings.iter().any(|it| it.contains("peer b is not served") && it.contains("disabled")));
}

#[test]
fn peers_that_cannot_be_of_a_gateway_are_refused_with_what_to_type() {
    let with = |more: &str| format!("{}{PEERS}set {more}\n", with_ike());
    for (text, reason, fix) in [
        (with_ike(), "there is no vpn ipsec site-to-site peer b", "set vpn ipsec site-to-site peer b"),
        (with("vpn ipsec site-to-site peer b disable"), "peer b is disabled", "peer b disable"),
        (with("interfaces secgw sgw0 policy 10 sa to-b"), "sa and ike are both set", "policy 10 sa"),
        (
            with("interfaces secgw sgw0 policy 9 ike b"),
            "ike is for action protect",
            "policy 9 action protect",
        ),
        (with("interfaces secgw sgw0 policy 9 ike c"), "no vpn ipsec site-to-site peer c", "peer c"),
        (with("") + &peer_c(), "has UDP ports 500 and 4500", "policy NUMBER ike c"),
    ] {
        let text = text.replace("set \n", "");
        let errors = settings(&text).expect_err(reason);
        let error = errors.iter().find(|error| error.reason.contains(reason));
        let error = error.unwrap_or_else(|| panic!("{reason}: {errors:#?}"));
        assert!(error.fix.as_ref().is_some_and(|it| it.contains(fix)), "{error}");
        assert!(error.location.line > 0, "{error}");
    }
    let other = with_ike().replace("sgw0", "sgw1").replace("eth", "lan");
    let errors = settings(&format!("{}{other}{PEERS}", with_ike())).expect_err("two gateways");
    assert!(errors.iter().all(|error| error.reason.contains("are for one gateway")), "{errors:#?}");
    let one_way = with_ike().replace("policy 20 ike b", "policy 20 sa from-b") + PEERS;
    let (_, warnings) = parse(&one_way).and_then(|tree| Settings::new(&tree)).expect("it is right");
    assert!(warnings.iter().any(|it| it.contains("no policy with direction in names ike b")), "{warnings:?}");
}

#[test]
fn ports_and_sas_have_what_files_of_ipsec_secgw_do_not() {
    let read = gateway(&format!(
        "{GATEWAY}set interfaces secgw sgw0 port 0 address 10.1.0.1\nset interfaces secgw sgw0 port 0 address fd01::1\n\
         set interfaces secgw sgw0 port 1 defer-napi\nset interfaces secgw sgw0 sa to-b lifetime 3600\n\
         set interfaces secgw sgw0 sa to-b life-bytes 1000000\nset interfaces secgw sgw0 sa to-b life-packets 5000\n"
    ));
    let addresses: Vec<String> = read.ports[&0].addresses.iter().map(ToString::to_string).collect();
    assert_eq!((addresses, read.ports[&1].defers_napi), (vec!["10.1.0.1".into(), "fd01::1".into()], true));
    let of = |direction| read.sas.iter().find(|sa| sa.direction == direction).expect("it is there").limits;
    assert_eq!(of(Direction::Outbound), Limits { seconds: 3600, bytes: 1_000_000, packets: 5000 });
    assert!(!of(Direction::Inbound).is_any());
    let error = wrong(&format!(
        "{}set interfaces secgw sgw0 port 0 defer-napi\n",
        GATEWAY.replace("driver packet", "driver tap")
    ));
    assert!(error.reason.contains("defer-napi is for driver af-xdp or packet"), "{error}");
    let of_ike = format!("{}{PEERS}set interfaces secgw sgw0 port 1 address 192.0.2.7\n", with_ike());
    assert!(wrong(&of_ike).reason.contains("would take ARP of eth2 from the kernel"));
}

#[test]
fn an_sa_in_transport_mode_has_no_addresses() {
    let transport = GATEWAY.replace("sa to-b local-address 192.0.2.1", "sa to-b mode transport").replace(
        "set interfaces secgw sgw0 sa to-b remote-address 192.0.2.2\n",
        "set interfaces secgw sgw0 sa to-b mss 1300\n",
    );
    let read = gateway(&transport);
    let sa = read.sas.iter().find(|sa| sa.spi == 1005).expect("it is there");
    assert_eq!((sa.mode, sa.mss), (Mode::Transport, 1300));
    for word in ["local-address 192.0.2.1", "udp-encapsulation"] {
        let error = wrong(&format!("{transport}set interfaces secgw sgw0 sa to-b {word}\n"));
        assert!(error.reason.contains("is for mode tunnel"), "{error}");
    }
    for (encryption, bytes, hash) in [("aes192ctr", 28, "sha256"), ("3des", 24, "aesxcbc")] {
        let (key, hash_key) = ("ab".repeat(bytes), "cd".repeat(if hash == "aesxcbc" { 16 } else { 32 }));
        let text = GATEWAY
            .replace("from-b encryption aes256", &format!("from-b encryption {encryption}"))
            .replace(
                "from-b key 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f",
                &format!("from-b key {key}"),
            )
            .replace("from-b hash sha1", &format!("from-b hash {hash}"))
            .replace(
                "from-b hash-key 000102030405060708090a0b0c0d0e0f10111213",
                &format!("from-b hash-key {hash_key}"),
            );
        let read = gateway(&text);
        let sa = read.sas.iter().find(|sa| sa.spi == 1006).expect("it is there");
        assert!(sa.protection.transform().is_some(), "{}", sa.protection.name());
    }
}
