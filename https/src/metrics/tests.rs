use super::*;
use gateway::api::model::{
    Bursts, CryptoEngine, CryptoTraffic, EngineState, Handoff, Offload, OffloadState, Segments, StageTime,
    Thread, Worker,
};
use gateway::facts::model::{Daemon, Drop, Process, Protocol, State, Tunnel};
use gateway::failover::model::{Group, Member};
use gateway::health::model::{Rule, Severity, State as RuleState};
use gateway::path::model::{Mtu, Path};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const ALL: Options = Options { peers: Peers::All, wireguard_names: true };

fn tunnel(protocol: Protocol, interface: &str, peer: &str, state: State) -> Tunnel {
    Tunnel {
        protocol,
        interface: interface.to_owned(),
        peer: peer.to_owned(),
        state,
        received_bytes: 100,
        sent_bytes: 200,
        received_packets: 1,
        sent_packets: 2,
        last_handshake: Some(1_800_000_000),
        ..Tunnel::default()
    }
}

fn berlin() -> Tunnel {
    Tunnel {
        public_key: Some("xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=".to_owned()),
        allowed_ips: vec!["10.2.0.0/24".to_owned(), "fd00::/64".to_owned()],
        suite: Some("chacha20-poly1305".to_owned()),
        unsent_packets: Some(3),
        handshakes: Some(4),
        ..tunnel(Protocol::WireGuard, "wg0", "berlin", State::Up)
    }
}

fn measured() -> Path {
    Path {
        loss_ratio: Some(0.25),
        rtt_seconds: Some(0.0125),
        path_mtu_bytes: Some(1320),
        mtu: Mtu::BlackHole,
        ..Path::default()
    }
}

fn engine(name: &str, state: EngineState, packets: Option<u64>) -> CryptoEngine {
    let traffic = packets.map(|packets| CryptoTraffic { packets, bytes: 1000 * packets });
    CryptoEngine {
        name: name.to_owned(),
        version: None,
        state,
        why: None,
        retry_in: None,
        accelerator: packets.is_some(),
        failures: 1,
        sealed: traffic,
        opened: traffic,
    }
}

fn rule(name: &str, severity: Severity, state: RuleState) -> Rule {
    Rule { rule: name.to_owned(), severity, state, failing: 2, ..Rule::default() }
}

/// A group whose only tunnel is up.
fn group() -> Group {
    let member = Member { interface: "wg0".to_owned(), state: State::Up, ..Member::default() };
    Group { name: "hq".to_owned(), members: vec![member], switches: 3, ..Group::default() }
}

/// Facts in which everything is known.
fn facts() -> Facts {
    let bursts = [(Some(1), 5), (Some(2), 0), (None, 1)];
    Facts {
        at: 1_800_000_100,
        moment: 5_000,
        daemon: Daemon {
            version: "0.1.0".to_owned(),
            started: 1_700_000_000,
            revision: Some(7),
            refused_parts: 1,
        },
        process: Process {
            cpu_seconds: Some(1.5),
            resident_bytes: Some(4096),
            virtual_bytes: Some(8192),
            threads: Some(9),
            open_files: Some(12),
            most_files: Some(1024),
        },
        tunnels: vec![
            Tunnel { path: Some(Box::new(measured())), ..berlin() },
            Tunnel { tunnel: Some(2), ..tunnel(Protocol::Ipsec, "ipsec0", "madrid", State::Down) },
            tunnel(Protocol::OpenVpn, "vtun0", "a \"quoted\" \\ name\n", State::Up),
        ],
        failover: vec![group()],
        drops: vec![Drop {
            interface: "wg0".to_owned(),
            reason: "bad-tag".to_owned(),
            inbound: 6,
            ..Drop::default()
        }],
        workers: vec![Worker {
            interface: "wg0".to_owned(),
            worker: "out".to_owned(),
            wake_ups: 1,
            receives: 2,
            empty_receives: 3,
            received_packets: 105,
            received_bytes: 5,
            sends: 6,
            sent_bytes: 7,
            bursts: bursts.map(|(packets, bursts)| Bursts { packets, bursts }).to_vec(),
        }],
        stages: vec![StageTime {
            interface: "wg0".to_owned(),
            direction: "out".to_owned(),
            stage: "encrypt".to_owned(),
            nanoseconds: 2_500_000,
            packets: 19,
        }],
        segments: vec![Segments {
            interface: "wg0".to_owned(),
            direction: "in".to_owned(),
            all: 2000,
            resent: 21,
        }],
        threads: [(1, 1_500_000_000), (2, 500_000_000)]
            .map(|(id, nanoseconds)| Thread {
                id,
                name: "wg0 crypto".to_owned(),
                nanoseconds,
                waited: 0,
                processors: String::new(),
            })
            .to_vec(),
        handoffs: vec![Handoff {
            interface: "wg0".to_owned(),
            crypto_threads: 2,
            handed_off: 8,
            taken_back: 9,
            waiting: 10,
        }],
        offloads: vec![Offload {
            interface: "wg0".to_owned(),
            offload: "udp-gso".to_owned(),
            does: String::new(),
            state: OffloadState::On,
            calls: 11,
            packets: 12,
            fallbacks: 13,
        }],
        engines: vec![
            engine("aws-lc", EngineState::InUse, None),
            engine("qat", EngineState::Failed, Some(14)),
            engine("af-alg", EngineState::Absent, None),
        ],
        health: vec![
            rule("tunnel-down", Severity::Critical, RuleState::Firing),
            rule("memory-low", Severity::Critical, RuleState::Unknown),
            rule("thread-busy", Severity::Warning, RuleState::Disabled),
        ],
    }
}

/// The lines of samples.
fn samples(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// The families of a text with their types.
fn families(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

#[test]
fn tunnels_have_the_names_of_the_configuration_and_nothing_that_changes_with_keys() {
    let text = text(facts(), ALL);
    let labels = r#"protocol="wireguard",interface="wg0",peer="berlin""#;
    for sample in [
        format!("postern_tunnel_up{{{labels}}} 1"),
        format!("postern_tunnel_failed{{{labels}}} 0"),
        format!("postern_tunnel_received_bytes_total{{{labels}}} 100"),
        format!("postern_tunnel_sent_bytes_total{{{labels}}} 200"),
        format!("postern_tunnel_received_packets_total{{{labels}}} 1"),
        format!("postern_tunnel_sent_packets_total{{{labels}}} 2"),
        format!("postern_tunnel_unsent_packets_total{{{labels}}} 3"),
        format!("postern_tunnel_handshakes_total{{{labels}}} 4"),
        format!("postern_tunnel_last_handshake_timestamp_seconds{{{labels}}} 1800000000"),
        r#"postern_tunnel_up{protocol="ipsec",interface="ipsec0",peer="madrid",tunnel="2"} 0"#.to_owned(),
        r#"postern_tunnel_failed{protocol="ipsec",interface="ipsec0",peer="madrid",tunnel="2"} 1"#.to_owned(),
        r#"postern_tunnels{protocol="ipsec",interface="ipsec0",state="down"} 1"#.to_owned(),
        r#"postern_tunnels{protocol="ipsec",interface="ipsec0",state="up"} 0"#.to_owned(),
    ] {
        assert!(samples(&text).contains(&&*sample), "{sample} in\n{text}");
    }
    // What is not counted has no name: no handshakes of OpenVPN.
    let handshakes = samples(&text).into_iter().filter(|it| it.starts_with("postern_tunnel_handshakes"));
    assert_eq!(handshakes.count(), 1);
    let mut later = facts();
    for tunnel in &mut later.tunnels {
        tunnel.received_bytes += 1;
        tunnel.last_handshake = Some(1_800_000_099);
    }
    let series = |text: &str| -> BTreeSet<String> {
        samples(text).iter().map(|it| it.rsplit_once(' ').expect("a value").0.to_owned()).collect()
    };
    assert_eq!(series(&text), series(&super::text(later, ALL)), "a rekey makes no new series");
}

#[test]
fn names_are_escaped() {
    let text = text(facts(), ALL);
    let peer = r#"peer="a \"quoted\" \\ name\n""#;
    assert!(
        text.contains(&format!("postern_tunnel_up{{protocol=\"openvpn\",interface=\"vtun0\",{peer}}} 1")),
        "{text}"
    );
}

#[test]
fn the_names_of_other_exporters_can_be_switched_off() {
    let labels = r#"interface="wg0",public_key="xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",allowed_ips="10.2.0.0/24,fd00::/64",friendly_name="berlin""#;
    let with = text(facts(), ALL);
    for (name, value) in [
        ("wireguard_sent_bytes_total", "200"),
        ("wireguard_received_bytes_total", "100"),
        ("wireguard_latest_handshake_seconds", "1800000000"),
    ] {
        assert!(samples(&with).contains(&&*format!("{name}{{{labels}}} {value}")), "{name} in\n{with}");
    }
    let without = text(facts(), Options { wireguard_names: false, ..ALL });
    assert!(!without.contains("wireguard_"), "{without}");
}

#[test]
fn peers_can_be_left_out_and_their_numbers_stay() {
    let peers = |peers| text(facts(), Options { peers, ..ALL });
    let down = peers(Peers::DownOnly);
    assert!(down.contains("peer=\"madrid\"") && !down.contains("berlin"), "{down}");
    let off = peers(Peers::Off);
    assert!(!off.contains("peer=") && !off.contains("wireguard_"), "{off}");
    assert!(off.contains(r#"postern_tunnels{protocol="wireguard",interface="wg0",state="up"} 1"#), "{off}");
}

#[test]
fn the_gateway_as_a_whole_is_there() {
    let text = text(facts(), ALL);
    for sample in [
        r#"postern_build_info{version="0.1.0"} 1"#,
        "postern_config_generation 7",
        "postern_config_refused_parts 1",
        "process_cpu_seconds_total 1.5",
        "process_resident_memory_bytes 4096",
        "process_start_time_seconds 1700000000",
        r#"postern_dropped_packets_total{interface="wg0",direction="inbound",reason="bad-tag"} 6"#,
        r#"postern_dropped_packets_total{interface="wg0",direction="outbound",reason="bad-tag"} 0"#,
        r#"postern_failover_member_up{group="hq",interface="wg0"} 1"#,
        r#"postern_failover_member_used{group="hq",interface="wg0"} 0"#,
        r#"postern_failover_switches_total{group="hq"} 3"#,
        r#"postern_thread_cpu_seconds_total{thread="wg0 crypto"} 2.0"#,
        r#"postern_handoff_waiting_bursts{interface="wg0"} 10"#,
        r#"postern_offload_packets_total{interface="wg0",offload="udp-gso"} 12"#,
        r#"postern_stage_seconds_total{interface="wg0",direction="out",stage="encrypt"} 0.0025"#,
        r#"postern_stage_packets_total{interface="wg0",direction="out",stage="encrypt"} 19"#,
        r#"postern_tcp_sampled_segments_total{interface="wg0",direction="in"} 2000"#,
        r#"postern_tcp_sampled_resent_segments_total{interface="wg0",direction="in"} 21"#,
        r#"postern_worker_burst_packets_sum{interface="wg0",worker="out"} 105.0"#,
        r#"postern_worker_burst_packets_bucket{le="2.0",interface="wg0",worker="out"} 5"#,
        r#"postern_worker_burst_packets_bucket{le="+Inf",interface="wg0",worker="out"} 6"#,
        r#"postern_engine_in_use{engine="aws-lc"} 1"#,
        r#"postern_engine_failed{engine="qat"} 1"#,
        r#"postern_engine_packets_total{engine="qat",direction="seal"} 14"#,
        r#"postern_tunnel_rtt_seconds{protocol="wireguard",interface="wg0",peer="berlin"} 0.0125"#,
        r#"postern_tunnel_loss_ratio{protocol="wireguard",interface="wg0",peer="berlin"} 0.25"#,
        r#"postern_tunnel_path_mtu_bytes{protocol="wireguard",interface="wg0",peer="berlin"} 1320"#,
        r#"postern_tunnel_black_hole{protocol="wireguard",interface="wg0",peer="berlin"} 1"#,
        r#"postern_health_rule_state{rule="tunnel-down",severity="critical"} 2"#,
        r#"postern_health_rule_state{rule="memory-low",severity="critical"} -1"#,
        r#"postern_health_failing{rule="tunnel-down",severity="critical"} 2"#,
    ] {
        assert!(samples(&text).contains(&sample), "{sample} in\n{text}");
    }
    assert!(!text.contains("thread-busy"), "a rule that is off: {text}");
    assert!(!text.contains("af-alg"), "an engine that is absent: {text}");
    assert!(!text.contains(r#"postern_engine_packets_total{engine="aws-lc""#), "it does not count: {text}");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn no_series_is_there_twice_and_what_is_not_known_is_left_out() {
    let text = text(facts(), ALL);
    let series: Vec<&str> =
        samples(&text).into_iter().map(|it| it.rsplit_once(' ').expect("a value").0).collect();
    assert_eq!(series.iter().collect::<BTreeSet<_>>().len(), series.len());
    let empty = super::text(Facts::default(), ALL);
    let expected = ["postern_build", "postern_config_refused_parts", "process_start_time_seconds"];
    assert_eq!(families(&empty).into_keys().collect::<Vec<_>>(), expected, "{empty}");
}

#[test]
fn every_family_is_in_the_guide_with_its_type_and_the_guide_has_no_other() {
    let guide = include_str!("../../../docs/metrics.md");
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let described: BTreeMap<&str, &str> =
        rows.filter_map(|(name, rest)| Some((name, rest.split_once(" | ")?.0))).collect();
    let text = text(facts(), ALL);
    let served: BTreeMap<String, &str> = families(&text)
        .into_iter()
        .map(|(family, kind)| match kind {
            "counter" => (format!("{family}_total"), kind),
            "info" => (format!("{family}_info"), kind),
            _ => (family.to_owned(), kind),
        })
        .collect();
    let served: BTreeMap<&str, &str> = served.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
    assert_eq!(described, served);
}

/// What a function returns, and how many milliseconds it takes.
fn timed<T>(function: impl FnOnce() -> T) -> (T, f64) {
    let begun = Instant::now();
    let returned = function();
    (returned, begun.elapsed().as_secs_f64() * 1e3)
}

/// Prints how long ten thousand peers take: `cargo test --profile testing -p postern-https --lib ten_thousand -- --ignored --nocapture`.
#[test]
#[ignore = "it measures, and checks nothing that may fail"]
fn ten_thousand_peers_are_measured() {
    let tunnels = (0..10_000_u64).map(|number| {
        // Peers that were alike would be compressed better than real ones.
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Tunnel {
            peer: format!("branch-{number}"),
            public_key: Some(format!("{:043x}=", u128::from(random) * u128::from(random))),
            received_bytes: random >> 20,
            sent_bytes: random >> 24,
            ..berlin()
        }
    });
    let facts = Facts { tunnels: tunnels.collect(), ..facts() };
    let json = serde_json::to_vec(&facts).expect("JSON");
    let mut best = [f64::INFINITY; 3];
    let mut lengths = [0; 3];
    for _ in 0..7 {
        let (read, parsed) = timed(|| serde_json::from_slice::<Facts>(&json).expect("facts"));
        let (encoded, written) = timed(|| text(read, ALL));
        let (zipped, compressed) = timed(|| page::compressed(encoded.as_bytes()));
        let times = [parsed, written, compressed];
        best = std::array::from_fn(|at| best[at].min(times[at]));
        lengths = [json.len(), encoded.len(), zipped.len()];
    }
    println!("facts {} bytes, read in {:.1} ms", lengths[0], best[0]);
    println!("text {} bytes, written in {:.1} ms", lengths[1], best[1]);
    println!("gzip {} bytes, compressed in {:.1} ms", lengths[2], best[2]);
}
