use super::*;

fn read(lines: &[&str]) -> Result<(Settings, Vec<String>), String> {
    let text: String = lines.iter().map(|line| format!("set {line}\n")).collect();
    let read = crate::parse(&text).and_then(|tree| Settings::new(&tree));
    read.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

const SITE: [&str; 16] = [
    "firewall global-options state-policy established action accept",
    "firewall global-options state-policy related action accept",
    "firewall global-options state-policy invalid action drop",
    "firewall zone LAN member interface eth1",
    "firewall zone LAN member interface wg0",
    "firewall zone LAN default-action reject",
    "firewall zone LAN intra-zone-filtering action drop",
    "firewall zone WAN member interface eth0",
    "firewall zone WAN from LAN firewall name OUT",
    "firewall zone WAN from LAN firewall ipv6-name OUT6",
    "firewall ipv4 name OUT default-action accept",
    "firewall ipv6 name OUT6 default-log",
    "firewall ipv6 name OUT6 rule 5 action accept",
    "firewall ipv6 name OUT6 rule 5 protocol ipv6-icmp",
    "firewall ipv6 name OUT6 rule 5 icmpv6 type-name echo-request",
    "firewall ipv6 name OUT6 rule 5 destination address 2001:db8::/32",
];

#[test]
fn zones_and_rule_sets_are_read_in_the_words_of_vyos() {
    let more = [
        "firewall ipv4 name OUT rule 10 action reject",
        "firewall ipv4 name OUT rule 10 protocol tcp_udp",
        "firewall ipv4 name OUT rule 10 destination port 25,137-139",
        "firewall ipv4 name OUT rule 10 source address !10.2.0.0/24",
        "firewall ipv4 name OUT rule 10 state new",
        "firewall ipv4 name OUT rule 10 state invalid",
        "firewall ipv4 name OUT rule 10 inbound-interface name eth*",
        "firewall ipv4 name OUT rule 10 log",
        "firewall ipv4 name OUT rule 20 action drop",
        "firewall ipv4 name OUT rule 20 disable",
    ];
    let (settings, warnings) = read(&[&SITE[..], &more].concat()).expect("right");
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(!settings.is_empty());
    let firewall = settings.firewall;
    assert_eq!(firewall.states[&State::Invalid], Action::Drop);
    let (lan, wan) = (&firewall.zones["LAN"], &firewall.zones["WAN"]);
    assert_eq!((lan.members.len(), lan.default_action, lan.drops_within), (2, Action::Reject, true));
    assert_eq!((wan.default_action, wan.is_local, wan.drops_within), (Action::Drop, false, false));
    let out = wan.set_from("LAN", false).expect("a rule set");
    let set = &firewall.sets[&out];
    assert_eq!((set.default_action, set.rules.len()), (Action::Accept, 1), "one is disabled");
    let rule = &set.rules[&10];
    assert_eq!((rule.action, rule.log), (Action::Reject, true));
    assert_eq!(rule.states, [State::New, State::Invalid].into());
    assert_eq!(rule.packets.protocol_names(), "tcp_udp");
    assert_eq!(rule.packets.source.to_string(), "!10.2.0.0/24");
    assert_eq!(rule.packets.inbound.as_ref().map(ToString::to_string).as_deref(), Some("eth*"));
    let out6 = &firewall.sets[&wan.set_from("LAN", true).expect("a rule set")];
    assert_eq!((out6.rules[&5].icmp, out6.default_action, out6.default_log), (Some(128), Action::Drop, true));
}

#[test]
fn what_contradicts_itself_is_refused_with_a_fix() {
    for (line, said) in [
        (
            "zone GUEST member interface eth1",
            "firewall zone LAN member interface eth1: firewall zone GUEST has it, too",
        ),
        ("zone GUEST default-action drop", "set firewall zone GUEST member interface IF"),
        ("zone GUEST member interface lo", "the loopback is this machine"),
        ("zone LAN local-zone", "the zone of this machine has no interfaces"),
        ("zone WAN from LAM firewall name OUT", "did you mean LAN?"),
        ("zone WAN from WAN firewall name OUT", "is the zone itself"),
        ("zone LAN from WAN firewall name IN", "there is no ipv4 name IN"),
        ("zone LAN from WAN firewall ipv6-name OUT", "did you mean OUT6?"),
        ("zone LAN from WAN", "set firewall zone LAN from WAN firewall name NAME"),
        (
            "ipv4 name OUT rule 10 protocol tcp",
            "set firewall ipv4 name OUT rule 10 action accept, drop or reject",
        ),
        ("ipv6 name OUT6 rule 5 destination port 80", "set firewall ipv6 name OUT6 rule 5 protocol tcp_udp"),
        ("ipv4 name OUT rule 0 action drop", "1 to 999999"),
        ("ipv4 name OUT rule 10 source address 2001:db8::1", "an IPv4 address"),
        ("ipv6 name OUT6 rule 5 source address 10.0.0.1", "an IPv6 address"),
        ("ipv4 name OUT rule 10 source group network-group A", "there are no groups"),
        ("zone LAN interface eth7", "member interface IF"),
        ("ipv4 input filter default-action drop", "local-zone"),
        ("name OUT default-action drop", "set firewall ipv4 name NAME"),
        ("zone LAN default-action accept", "drop"),
    ] {
        let line = format!("firewall {line}");
        let refused = read(&[&SITE[..], &[line.as_str()]].concat()).expect_err(&line);
        assert!(refused.contains(said), "{line}: {refused}");
    }
    let type_of_udp = [
        "firewall ipv4 name OUT rule 1 action drop",
        "firewall ipv4 name OUT rule 1 icmp type-name echo-request",
    ];
    let refused = read(&[&SITE[..], &type_of_udp].concat()).expect_err("no ICMP");
    assert!(refused.contains("set firewall ipv4 name OUT rule 1 protocol icmp"), "{refused}");
    let two = [
        "firewall zone A local-zone",
        "firewall zone B local-zone",
        "firewall zone B intra-zone-filtering action accept",
    ];
    let refused = read(&[&SITE[..], &two].concat()).expect_err("two machines");
    assert!(refused.contains("firewall zone A is it already") && refused.contains("to itself"), "{refused}");
    let bridge = ["interfaces bridge br0 member interface eth1"];
    let refused = read(&[&SITE[..], &bridge].concat()).expect_err("a member of a bridge");
    assert!(refused.contains("and name br0"), "{refused}");
}

const TUNNEL: [&str; 4] = [
    "interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=",
    "interfaces wireguard wg0 port 51820",
    "interfaces wireguard wg0 peer b public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    "interfaces wireguard wg0 peer b allowed-ips 10.1.0.0/16",
];

#[test]
fn a_machine_that_nobody_reaches_any_more_is_warned_of() {
    let warned = |more: &[&str]| read(&[&SITE[..], &TUNNEL, more].concat()).expect("right").1;
    assert!(warned(&[]).is_empty(), "without a zone of its own, the machine is reached: {:?}", warned(&[]));
    let local = [
        "firewall zone ME local-zone",
        "firewall zone ME from LAN firewall name IN",
        "firewall zone WAN from ME firewall name OUT",
        "firewall ipv4 name IN default-action drop",
        "firewall ipv4 name IN rule 10 action accept",
        "firewall ipv4 name IN rule 10 protocol tcp",
    ];
    let port = |port| vec![["firewall ipv4 name IN rule 10 destination port ", port].concat()];
    let with = |lines: &[String]| {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        warned(&[&local[..], &lines].concat())
    };
    let kept_out = with(&port("80"));
    assert_eq!(kept_out.len(), 1, "{kept_out:?}");
    assert!(
        kept_out[0].contains("no rule lets in new connections to SSH (TCP port 22), wg0 (UDP port 51820)"),
        "{kept_out:?}"
    );
    let only_tunnel = with(&port("20-30"));
    assert!(only_tunnel[0].contains("to wg0 (UDP port 51820); to let"), "{only_tunnel:?}");
    let mut all = port("22");
    let wg0 = "firewall ipv4 name IN rule 20";
    all.extend(["action accept", "protocol udp", "destination port 51820"].map(|it| format!("{wg0} {it}")));
    assert_eq!(with(&all), Vec::<String>::new());
    // An earlier rule takes it away again.
    all.extend(["action drop", "protocol udp"].map(|it| format!("firewall ipv4 name IN rule 15 {it}")));
    assert!(with(&all)[0].contains("to wg0 (UDP port 51820); to let"));
    let mut mute: Vec<&str> = all[..4].iter().map(String::as_str).chain(local).collect();
    mute.retain(|line| !line.contains("from ME"));
    let warnings = warned(&mute);
    assert!(
        warnings.len() == 1 && warnings[0].contains("no tunnel of this machine can begin"),
        "{warnings:?}"
    );
}

#[test]
fn a_machine_whose_answers_are_dropped_is_warned_of() {
    let zones = [
        "firewall global-options state-policy related action accept",
        "firewall zone LAN member interface eth1",
        "firewall zone ME local-zone",
        "firewall zone ME from LAN firewall name IN",
        "firewall ipv4 name IN rule 10 action accept",
        "firewall ipv4 name IN rule 10 protocol tcp",
        "firewall ipv4 name IN rule 10 destination port 22",
    ];
    let warned = |more: &[&str]| read(&[&zones[..], more].concat()).expect("right").1;
    let said = "firewall zone ME from LAN: the answers of SSH (TCP port 22) to LAN are dropped";
    let alone = warned(&[]);
    assert!(alone.len() == 1 && alone[0].contains(said), "{alone:?}");
    let established = "firewall global-options state-policy established action";
    assert!(warned(&[&format!("{established} accept")]).is_empty());
    assert_eq!(warned(&[&format!("{established} drop")]).len(), 1);
    let back = [
        "firewall zone LAN from ME firewall name BACK",
        "firewall ipv4 name BACK rule 10 action accept",
        "firewall ipv4 name BACK rule 10 protocol tcp",
    ];
    assert!(warned(&back).is_empty());
    assert_eq!(warned(&[&back[..], &["firewall ipv4 name BACK rule 10 state new"]].concat()).len(), 1);
    assert!(warned(&[&back[..], &["firewall ipv4 name BACK rule 10 state established"]].concat()).is_empty());
}

#[test]
fn tunnels_without_a_zone_errors_that_are_dropped_and_sets_without_a_use_are_warned_of() {
    let lines: Vec<&str> = SITE.into_iter().filter(|line| !line.contains("wg0")).chain(TUNNEL).collect();
    let warnings = read(&lines).expect("right").1;
    assert!(warnings.len() == 1 && warnings[0].contains("member interface wg0"), "{warnings:?}");
    let lines: Vec<&str> = SITE
        .into_iter()
        .filter(|line| !line.contains("related"))
        .map(|it| {
            if it.ends_with("OUT default-action accept") {
                "firewall ipv4 name OUT default-action drop"
            } else {
                it
            }
        })
        .collect();
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.contains("rule 5")).collect();
    let warnings = read(&lines).expect("right").1;
    assert!(
        warnings.len() == 1 && warnings[0].contains("state-policy related action accept"),
        "{warnings:?}"
    );
    let warnings = read(&["firewall ipv4 name A default-action drop"]).expect("right").1;
    assert_eq!(warnings, ["firewall ipv4 name A has no effect: no zone names it"]);
}
