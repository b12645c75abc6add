//! Rules, routes and packets from a seed. Rules have the features that ClassBench (Taylor and Turner, 2007) found in the
//! access lists of providers: prefixes in few sites, few source ports, known destination ports, some fields that are any.

use crate::Outcome;
use gateway::secgw::access::{FiveTuple, Ports, Protocol, Rule};
use gateway::secgw::routes::RouteIndex;
use ipnet::IpNet;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::net::IpAddr;

/// Lengths of IPv4 prefixes in rules; those of IPv6 are 32 longer.
const RULE_LENGTHS: [u8; 12] = [16, 20, 24, 24, 24, 26, 28, 30, 32, 32, 32, 32];
/// Lengths of routes as in full tables of 2026: mostly /24, mostly /48.
const LENGTHS_V4: [u8; 16] = [14, 16, 17, 18, 19, 20, 21, 22, 22, 23, 24, 24, 24, 24, 24, 24];
const LENGTHS_V6: [u8; 8] = [29, 32, 36, 40, 44, 48, 48, 48];
/// Destination ports of services.
const SERVICES: [u16; 8] = [22, 25, 53, 80, 123, 161, 443, 8080];
/// Rules for each site.
const RULES_OF_A_SITE: usize = 20;
/// Next hops of a table of routes.
const NEXT_HOPS: u32 = 64;

/// Rules of one family. The first has the highest priority.
pub(super) fn rules(seed: u64, is_v4: bool, count: usize) -> Outcome<Vec<Rule>> {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let sites: Vec<u32> =
        (0..count.div_ceil(RULES_OF_A_SITE)).map(|_| random.random_range(0x0100..0xdfff) << 16).collect();
    // A single rule is a usual one.
    let (any_source, any_destination) = if count == 1 { (0.0, 0.0) } else { (0.1, 0.05) };
    (0..count)
        .map(|rule| {
            Ok(Rule {
                priority: (count - rule) as i32,
                source: net(random, is_v4, &sites, any_source)?,
                destination: net(random, is_v4, &sites, any_destination)?,
                source_ports: ports(random, 0.9),
                destination_ports: ports(random, 0.3),
                protocol: [(6, 255), (6, 255), (17, 255), (0, 0)]
                    .map(|(value, mask)| Protocol { value, mask })[random.random_range(0..4)],
            })
        })
        .collect()
}

fn net(random: &mut ChaCha8Rng, is_v4: bool, sites: &[u32], any: f64) -> Outcome<IpNet> {
    let is_any = random.random_bool(any);
    let length = RULE_LENGTHS[random.random_range(0..RULE_LENGTHS.len())];
    let number = sites[random.random_range(0..sites.len())] | random.random_range(0..1 << 16);
    let (address, length) = if is_v4 {
        (IpAddr::V4(number.into()), length)
    } else {
        (IpAddr::V6((0x2001_0db8_u128 << 96 | u128::from(number) << 64).into()), length + 32)
    };
    Ok(IpNet::new(address, if is_any { 0 } else { length })?.trunc())
}

fn ports(random: &mut ChaCha8Rng, any: f64) -> Ports {
    if random.random_bool(any) {
        return Ports::ALL;
    }
    match random.random_range(0..10) {
        0..6 => {
            let port = SERVICES[random.random_range(0..SERVICES.len())];
            Ports { low: port, high: port }
        }
        6..8 => Ports { low: 1024, high: u16::MAX },
        _ => {
            let low = random.random_range(1..60_000);
            Ports { low, high: low + random.random_range(0..500) }
        }
    }
}

/// Packets, each within a random one of the rules.
pub(super) fn packets(seed: u64, rules: &[Rule], count: usize) -> Vec<FiveTuple> {
    let random = &mut ChaCha8Rng::seed_from_u64(seed.wrapping_add(1));
    let port = |random: &mut ChaCha8Rng, ports: Ports| random.random_range(ports.low..=ports.high);
    (0..count)
        .map(|_| {
            let rule = &rules[random.random_range(0..rules.len())];
            FiveTuple {
                is_v4: rule.source.addr().is_ipv4(),
                protocol: if rule.protocol.mask == 0 { 6 } else { rule.protocol.value },
                source_port: port(random, rule.source_ports),
                destination_port: port(random, rule.destination_ports),
                source: address(random, rule.source),
                destination: address(random, rule.destination),
            }
        })
        .collect()
}

/// Routes of one family, in the blocks that are in use: 1.0.0.0 to 223.255.255.255, and 2000::/6.
pub(super) fn routes(seed: u64, is_v4: bool, count: usize) -> Outcome<Vec<(IpNet, RouteIndex)>> {
    let random = &mut ChaCha8Rng::seed_from_u64(seed.wrapping_add(2));
    (0..count)
        .map(|_| {
            let net = if is_v4 {
                let number: u32 = random.random_range(0x0100_0000..0xe000_0000);
                IpNet::new(IpAddr::V4(number.into()), LENGTHS_V4[random.random_range(0..LENGTHS_V4.len())])?
            } else {
                // Providers have blocks side by side: a /32 in few /16.
                let number = 0x2000_u128 << 112
                    | random.random_range(0..1024_u128) << 112
                    | random.random::<u128>() >> 16;
                IpNet::new(IpAddr::V6(number.into()), LENGTHS_V6[random.random_range(0..LENGTHS_V6.len())])?
            };
            Ok((net.trunc(), RouteIndex(random.random_range(0..NEXT_HOPS))))
        })
        .collect()
}

/// Addresses as numbers, each within a random one of the routes.
pub(super) fn inside(seed: u64, routes: &[(IpNet, RouteIndex)], count: usize) -> Vec<u128> {
    let random = &mut ChaCha8Rng::seed_from_u64(seed.wrapping_add(3));
    (0..count)
        .map(|_| {
            let (net, _) = routes[random.random_range(0..routes.len())];
            address(random, net)
        })
        .collect()
}

/// A random address of a network.
fn address(random: &mut ChaCha8Rng, net: IpNet) -> u128 {
    let (number, free) = match net.network() {
        IpAddr::V4(address) => (address.to_bits().into(), 32 - net.prefix_len()),
        IpAddr::V6(address) => (address.to_bits(), 128 - net.prefix_len()),
    };
    number | random.random::<u128>().checked_shr(128 - u32::from(free)).unwrap_or(0)
}
