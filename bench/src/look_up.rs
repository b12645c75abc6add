//! `postern bench look-up`: access rules and routes of the gateway between Ethernet ports: time to build a table, its
//! memory, and time to find a packet's rule or route.

mod generate;

use crate::Outcome;
use crate::report::{Machine, median, short, table};
use gateway::secgw::access::{Access, FiveTuple, FlowCache};
use gateway::secgw::routes::{RouteIndex, Routes};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Packets looked up, again and again: more than a processor learns by heart.
const PACKETS: usize = 1 << 16;
/// Flows that a cache has met before.
const KNOWN: usize = 1 << 10;
/// Numbers of rules of each family.
const RULES: [usize; 4] = [1, 100, 1_000, 10_000];
/// Numbers of routes: of IPv4, and of IPv6.
const ROUTES: [(bool, usize); 6] =
    [(true, 1), (true, 1_000), (true, 1_000_000), (false, 1), (false, 1_000), (false, 250_000)];

/// What to measure.
pub struct Options {
    /// The seed of rules, routes and packets.
    pub seed: u64,
    /// Number of times that each table is measured.
    pub rounds: u32,
    /// Time for each measurement.
    pub time: Duration,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The seed.
    pub seed: u64,
    /// Tables of access rules.
    pub rules: Vec<Load>,
    /// Tables of routes.
    pub routes: Vec<Load>,
}

/// The result of one table.
#[derive(Debug, Serialize)]
pub struct Load {
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// Rules or routes.
    pub size: usize,
    /// Milliseconds to build the table, once.
    pub build_milliseconds: f64,
    /// Bytes of the table.
    pub bytes: usize,
    /// Nanoseconds to find one packet, of each round.
    pub single_nanoseconds: Vec<f64>,
    /// Nanoseconds to find a packet of a flow that a cache may know, of each round; for rules only.
    pub known_nanoseconds: Vec<f64>,
    /// Nanoseconds with the crate `prefix-trie`, of each round; for routes only.
    pub prefix_trie_nanoseconds: Vec<f64>,
}

impl Load {
    fn new(is_v4: bool, size: usize, built: Duration, bytes: usize) -> Self {
        Self {
            family: if is_v4 { "IPv4" } else { "IPv6" },
            size,
            build_milliseconds: built.as_secs_f64() * 1e3,
            bytes,
            single_nanoseconds: Vec::new(),
            known_nanoseconds: Vec::new(),
            prefix_trie_nanoseconds: Vec::new(),
        }
    }

    /// The row of a table; the ratio is to the median of `first`, the smallest table of its family.
    fn row(&self, first: &Self) -> Vec<String> {
        let single = median(&self.single_nanoseconds);
        let other = if self.known_nanoseconds.is_empty() {
            &self.prefix_trie_nanoseconds
        } else {
            &self.known_nanoseconds
        };
        vec![
            self.family.to_owned(),
            self.size.to_string(),
            short(self.build_milliseconds),
            (self.bytes >> 10).to_string(),
            short(single),
            short(single / median(&first.single_nanoseconds)) + "x",
            short(median(other)),
        ]
    }
}

/// Builds all tables, and measures them in alternation.
pub fn run(options: &Options) -> Outcome<Report> {
    let mut tables = Vec::new();
    for is_v4 in [true, false] {
        for count in RULES {
            tables.push(rules(options.seed, is_v4, count)?);
        }
    }
    let mut routes = Vec::new();
    for (is_v4, count) in ROUTES {
        routes.push(if is_v4 { routes_v4(options.seed, count)? } else { routes_v6(options.seed, count)? });
    }
    for _ in 0..options.rounds {
        for (load, measure) in tables.iter_mut().chain(&mut routes) {
            measure(load, options.time);
        }
    }
    let loads = |tables: Vec<(Load, Measure)>| tables.into_iter().map(|(load, _)| load).collect();
    Ok(Report { machine: Machine::here(), seed: options.seed, rules: loads(tables), routes: loads(routes) })
}

/// Measures a table once.
type Measure = Box<dyn Fn(&mut Load, Duration)>;

fn rules(seed: u64, is_v4: bool, count: usize) -> Outcome<(Load, Measure)> {
    let rules = generate::rules(seed, is_v4, count)?;
    let packets: Vec<FiveTuple> = generate::packets(seed, &rules, PACKETS);
    let begun = Instant::now();
    let access = Access::build(&rules);
    let load = Load::new(is_v4, count, begun.elapsed(), access.memory());
    let measure = move |load: &mut Load, time: Duration| {
        let single = || {
            for packet in &packets {
                black_box(access.find(packet));
            }
        };
        load.single_nanoseconds.push(nanoseconds(time, single));
        let mut cache = FlowCache::default();
        let known = || {
            for packet in packets[..KNOWN].iter().cycle().take(packets.len()) {
                black_box(cache.get_or(packet, || access.find(packet)));
            }
        };
        load.known_nanoseconds.push(nanoseconds(time, known));
    };
    Ok((load, Box::new(measure)))
}

macro_rules! routes {
    ($name:ident, $is_v4:expr, $net:ty, $number:ty, $family:path, $find:ident) => {
        fn $name(seed: u64, count: usize) -> Outcome<(Load, Measure)> {
            let list = generate::routes(seed, $is_v4, count)?;
            let numbers = generate::inside(seed, &list, PACKETS);
            let addresses: Vec<$number> = numbers.iter().map(|&number| number as $number).collect();
            let begun = Instant::now();
            let routes = Routes::build(list.iter().copied());
            let load = Load::new($is_v4, count, begun.elapsed(), routes.memory());
            let mut other: PrefixMap<$net, RouteIndex> = PrefixMap::new();
            for (net, index) in list {
                if let $family(net) = net {
                    other.insert(net, index);
                }
            }
            let measure = move |load: &mut Load, time: Duration| {
                let single = || {
                    for &address in &addresses {
                        black_box(routes.$find(address));
                    }
                };
                load.single_nanoseconds.push(nanoseconds(time, single));
                let other = || {
                    for &address in &addresses {
                        black_box(other.get_lpm(&<$net>::from(<$net as Family>::Address::from(address))));
                    }
                };
                load.prefix_trie_nanoseconds.push(nanoseconds(time, other));
            };
            Ok((load, Box::new(measure)))
        }
    };
}

/// The address of a network.
trait Family {
    type Address;
}

impl Family for Ipv4Net {
    type Address = std::net::Ipv4Addr;
}

impl Family for Ipv6Net {
    type Address = std::net::Ipv6Addr;
}

routes!(routes_v4, true, Ipv4Net, u32, IpNet::V4, find_v4);
routes!(routes_v6, false, Ipv6Net, u128, IpNet::V6, find_v6);

/// Nanoseconds of this thread's processor time a packet: the fastest pass over the packets within the time.
fn nanoseconds(time: Duration, mut pass: impl FnMut()) -> f64 {
    let begun = Instant::now();
    let mut fastest = f64::MAX;
    loop {
        let before = processor_time();
        pass();
        fastest = fastest.min(processor_time() - before);
        if begun.elapsed() >= time {
            return fastest / PACKETS as f64;
        }
    }
}

/// Nanoseconds that this thread has run.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

impl Report {
    /// As text.
    pub fn text(&self) -> String {
        let rows = |loads: &[Load]| -> Vec<Vec<String>> {
            let first = |load: &Load| loads.iter().find(|first| first.family == load.family);
            loads.iter().filter_map(|load| Some(load.row(first(load)?))).collect()
        };
        let head = |size, other| ["family", size, "build ms", "KiB", "single ns", "to the first", other];
        format!(
            "{}seed {}, medians\n\n{}\n{}",
            self.machine.head(),
            self.seed,
            table(&head("rules", "cached flow ns"), &rows(&self.rules)),
            table(&head("routes", "prefix-trie ns"), &rows(&self.routes))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_sizes_and_ratios_to_the_smallest_table() {
        let load = |size, nanoseconds| Load {
            single_nanoseconds: vec![nanoseconds; 3],
            ..Load::new(true, size, Duration::from_millis(2), 4096)
        };
        let rules = vec![load(1, 20.0), load(1000, 25.0)];
        let report = Report { machine: Machine::example(), seed: 1, rules, routes: Vec::new() };
        let text = report.text();
        let row = text.lines().find(|line| line.contains("1000")).unwrap_or_default();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells, ["IPv4", "1000", "2.00", "4", "25.0", "1.25x", "-"], "{text}");
    }

    #[test]
    fn packets_find_rules_and_routes_of_the_seed() {
        for is_v4 in [true, false] {
            let rules = generate::rules(1, is_v4, 500).expect("rules");
            let access = Access::build(&rules);
            assert!(generate::packets(1, &rules, 500).iter().all(|packet| access.find(packet).is_some()));
            let list = generate::routes(1, is_v4, 500).expect("routes");
            let routes = Routes::build(list.iter().copied());
            let numbers = generate::inside(1, &list, 500);
            let found =
                |number: u128| if is_v4 { routes.find_v4(number as u32) } else { routes.find_v6(number) };
            assert!(numbers.into_iter().all(|number| found(number).is_some()));
        }
    }
}
