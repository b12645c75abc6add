//! The table compared with a search of all rules in turn.

use super::*;
use ipnet::{Ipv4Net, Ipv6Net};
use proptest::collection::vec;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

/// Bytes of all but the rows, at most, for each rule.
const REST_OF_A_RULE: usize = 8 << 10;

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(is_v4: bool, number: u128) -> IpAddr {
    if is_v4 { IpAddr::V4((number as u32).into()) } else { IpAddr::V6(number.into()) }
}

fn matches(rule: &Rule, flow: &FiveTuple) -> bool {
    let inside =
        |net: IpNet, number| net.addr().is_ipv4() == flow.is_v4 && net.contains(&address(flow.is_v4, number));
    inside(rule.source, flow.source)
        && inside(rule.destination, flow.destination)
        && rule.source_ports.contains(flow.source_port)
        && rule.destination_ports.contains(flow.destination_port)
        && rule.protocol.contains(flow.protocol)
}

/// The rule of the highest priority, of equal ones the first.
fn one_by_one(rules: &[Rule], flow: &FiveTuple) -> Option<RuleIndex> {
    let matching = (0..).map(RuleIndex).zip(rules).filter(|(_, rule)| matches(rule, flow));
    matching.max_by_key(|&(index, rule)| (rule.priority, Reverse(index))).map(|(index, _)| index)
}

/// Addresses that often fall into each other's prefixes: few values in the bytes.
fn any_address() -> impl Strategy<Value = u128> {
    let byte = prop_oneof![6 => 0..3_u8, 1 => any::<u8>()];
    vec(byte, 16).prop_map(|bytes| u128::from_be_bytes(bytes.try_into().expect("16 bytes")))
}

fn any_net(is_v4: bool) -> impl Strategy<Value = IpNet> {
    let width = if is_v4 { 32 } else { 128 };
    // Without a mask, an address of the file has length 0 and bits behind it.
    let length = prop_oneof![1 => Just(0), 1 => Just(width), 4 => 0..=width];
    (any_address(), length)
        .prop_map(move |(number, length)| IpNet::new(address(is_v4, number), length).expect("a length"))
}

fn any_ports() -> impl Strategy<Value = Ports> {
    let port = prop_oneof![4 => 0..6_u16, 1 => 254..258_u16, 1 => 65530..=65535_u16, 1 => any::<u16>()];
    prop_oneof![
        2 => Just(Ports::ALL),
        1 => Just(Ports::default()),
        // Ranges that end before they begin are among them: they match nothing.
        4 => (port.clone(), port).prop_map(|(low, high)| Ports { low, high }),
    ]
}

fn any_protocol() -> impl Strategy<Value = Protocol> {
    let mask = prop_oneof![Just(0), Just(255), any::<u8>()];
    (prop_oneof![Just(6), Just(17), any::<u8>()], mask).prop_map(|(value, mask)| Protocol { value, mask })
}

prop_compose! {
    fn any_rule()(is_v4 in any::<bool>())(
        priority in 1..5,
        source in any_net(is_v4),
        destination in any_net(is_v4),
        source_ports in any_ports(),
        destination_ports in any_ports(),
        protocol in any_protocol(),
    ) -> Rule {
        Rule { priority, source, destination, source_ports, destination_ports, protocol }
    }
}

/// A packet near a corner of a rule.
fn near(rule: &Rule, noise: [u128; 2], corner: [bool; 2], protocol: Option<u8>) -> FiveTuple {
    let is_v4 = rule.source.addr().is_ipv4();
    let width = if is_v4 { 32 } else { 128 };
    let inside = |net: IpNet, noise: u128| {
        let free = width - u32::from(net.prefix_len());
        number(net.network()) | noise & 1_u128.checked_shl(free).map_or(u128::MAX, |end| end - 1)
    };
    let end = |ports: Ports, high: bool| if high { ports.high } else { ports.low.wrapping_sub(1) };
    FiveTuple {
        is_v4,
        protocol: protocol.unwrap_or(rule.protocol.value),
        source_port: end(rule.source_ports, corner[0]),
        destination_port: end(rule.destination_ports, corner[1]),
        source: inside(rule.source, noise[0]),
        destination: inside(rule.destination, noise[1]),
    }
}

/// Packets near the corners of rules.
fn packets(rules: &[Rule], count: usize) -> Vec<FiveTuple> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    (0..count)
        .map(|_| {
            let rule = &rules[random.random_range(0..rules.len())];
            let noise = [random.random::<u128>() & random.random::<u128>(), random.random()];
            near(rule, noise, random.random(), None)
        })
        .collect()
}

fn agrees(table: &Access, rules: &[Rule], packets: &[FiveTuple]) {
    for packet in packets {
        assert_eq!(table.find(packet), one_by_one(rules, packet), "{packet:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_finds_what_a_search_of_all_rules_finds(
        rules in vec(any_rule(), 1..150),
        aimed in vec((any::<prop::sample::Index>(), any::<[u128; 2]>(), any::<[bool; 2]>(), any::<Option<u8>>()), 40),
        // From one block to blocks of the smallest size.
        most_rows in prop_oneof![Just(MOST_ROWS), 0..4096_usize],
    ) {
        let packets: Vec<FiveTuple> = aimed
            .into_iter()
            .map(|(index, noise, corner, protocol)| near(index.get(&rules), noise, corner, protocol))
            .collect();
        agrees(&Access::within(&rules, most_rows), &rules, &packets);
    }
}

fn v4(number: u32, length: u8) -> IpNet {
    Ipv4Net::new(number.into(), length).expect("a length").into()
}

fn rule(priority: i32) -> Rule {
    let (source, destination) = (v4(0, 0), v4(0, 0));
    let (ports, protocol) = (Ports::ALL, Protocol::default());
    Rule { priority, source, destination, source_ports: ports, destination_ports: ports, protocol }
}

#[test]
fn the_larger_priority_wins_and_of_equal_ones_the_first_rule() {
    let rules = [rule(1), rule(3), rule(3), rule(2)];
    assert_eq!(Access::build(&rules).find(&packets(&rules, 1)[0]), Some(RuleIndex(1)));
    assert_eq!(Access::build(&[]).find(&packets(&rules, 1)[0]), None);
}

#[test]
fn a_rule_of_two_families_matches_no_packet() {
    let both = Rule { source: Ipv6Net::default().into(), ..rule(1) };
    let packets = [true, false].map(|is_v4| FiveTuple {
        is_v4,
        protocol: 6,
        source_port: 1,
        destination_port: 1,
        source: 1,
        destination: 1,
    });
    agrees(&Access::build(&[both]), &[both], &packets);
}

/// Nested port ranges, crossed: each cut of a decision tree divides few of them, and each pair is a class of its own in
/// a table of products.
fn crossed(count: u16) -> Vec<Rule> {
    (0..count)
        .map(|at| Rule {
            source: v4(u32::from(at % 2) << 31, 1 + (at % 31) as u8),
            destination: v4(u32::from(at) * 0x0001_0001, 32),
            source_ports: Ports { low: at, high: u16::MAX - at },
            destination_ports: Ports { low: count - at, high: u16::MAX / 2 + at },
            ..rule(i32::from(at) + 1)
        })
        .collect()
}

#[test]
fn hostile_rules_stay_within_the_memory_and_are_found() {
    let rules = crossed(3000);
    let whole = Access::build(&rules);
    assert_eq!(whole.v4.blocks.len(), 1);
    let rows = 6 * rules.len() * rules.len() / 8;
    assert!(whole.memory() < rows + rules.len() * REST_OF_A_RULE, "{} bytes", whole.memory());
    let packets = packets(&rules, 300);
    agrees(&whole, &rules, &packets);
    // A third of what the rows need: blocks in place of growth.
    let most = 1 << 20;
    let cut = Access::within(&rules, most);
    assert!(cut.v4.blocks.len() > 1, "one block in {} bytes", cut.memory());
    assert!(cut.memory() < most + rules.len() * REST_OF_A_RULE, "{} bytes", cut.memory());
    assert!(cut.memory() < whole.memory(), "{} bytes, and {} in one block", cut.memory(), whole.memory());
    agrees(&cut, &rules, &packets);
}

#[test]
fn ten_thousand_hostile_rules_stay_within_the_stated_memory() {
    let rules = crossed(10_000);
    let table = Access::build(&rules);
    assert!(table.memory() < MOST_ROWS + rules.len() * REST_OF_A_RULE, "{} bytes", table.memory());
    agrees(&table, &rules, &packets(&rules, 50));
}
