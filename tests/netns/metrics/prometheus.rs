//! A real Prometheus, which scrapes a real daemon over TLS while the tunnel carries traffic; and the alerts and the dashboard that
//! we ship, of which it is asked every expression.

use super::{TOKEN, scraped};
use crate::daemon::Site;
use crate::support::{PATIENCE, skip, tcp_arrives_whole};
use crate::transactions::Router;
use lab::wait_until;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const RULES: &str = include_str!("../../../examples/prometheus/postern.rules.yml");
const DASHBOARD: &str = include_str!("../../../examples/grafana/postern.json");
/// The time over which Grafana computes rates, for scrapes once a second.
const RATE_INTERVAL: &str = "10s";

/// The daemon at one site and Prometheus at the other.
struct Scraped {
    router: Router,
    other: Site,
    _folder: TempDir,
}

fn program() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/prometheus/prometheus");
    if program.exists() {
        return Some(program);
    }
    skip("Prometheus is missing: make setup");
    None
}

impl Scraped {
    fn start() -> Option<Self> {
        let program = program()?;
        let (mut router, other) = scraped(&[
            "set service metrics listen-address 192.168.77.1",
            "set service metrics tls",
            &format!("set service metrics token '{TOKEN}'"),
            "set interfaces wireguard wg0 threads 4",
        ])?;
        let folder = tempfile::tempdir().expect("a folder");
        let certificate = router.site.state.join("https/metrics/certificate.pem");
        let rules = folder.path().join("postern.rules.yml");
        std::fs::write(&rules, RULES).expect("ours");
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n  - job_name: postern\n    scheme: https\n    authorization: {{credentials: '{TOKEN}'}}\n    \
             tls_config: {{ca_file: '{}', server_name: 192.168.77.1}}\n    static_configs: [{{targets: ['192.168.77.1:9586']}}]\n",
            rules.display(),
            certificate.display()
        );
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, configuration).expect("ours");
        let mut command = router.lab.command("b", program);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.args(["--web.listen-address=127.0.0.1:9090", "--log.level=error"]).stdout(Stdio::null());
        router.lab.start(&mut command).expect("it starts");
        let scraped = Self { router, other, _folder: folder };
        wait_until(PATIENCE, || scraped.has("up{job=\"postern\"} == 1")).unwrap_or_else(|error| {
            panic!("{error}: {:?}\n{}", scraped.ask("targets", &[]), scraped.router.site.logged())
        });
        Some(scraped)
    }

    /// The answer of the API of Prometheus.
    fn ask(&self, place: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let mut arguments = vec!["-s".to_owned(), "--max-time".to_owned(), "20".to_owned(), "-G".to_owned()];
        for (name, value) in parameters {
            arguments.extend(["--data-urlencode".to_owned(), format!("{name}={value}")]);
        }
        arguments.push(format!("http://127.0.0.1:9090/api/v1/{place}"));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = self.router.lab.run("b", "curl", &arguments).map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
        if answer["status"] == "success" { Ok(answer["data"].clone()) } else { Err(said) }
    }

    /// The samples that a query gives.
    fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let data = self.ask("query", &[("query", query)])?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    fn has(&self, query: &str) -> bool {
        self.query(query).is_ok_and(|samples| !samples.is_empty())
    }

    /// Does something while the tunnel carries traffic in both directions.
    fn under_traffic<T>(&self, work: impl FnOnce() -> T) -> T {
        let (lab, is_over) = (&self.router.lab, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let traffic = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    tcp_arrives_whole(lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
                    tcp_arrives_whole(lab, "b", "a", "10.66.0.1", 1 << 20).expect("the tunnel carries");
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
            });
            // Else a failure would leave the traffic going.
            let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            is_over.store(true, Ordering::Relaxed);
            traffic.join().expect("it carries");
            worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// The types of the families that `show metrics` prints.
fn families(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

#[test]
fn prometheus_has_every_name_with_type_and_help_and_sees_values_move() {
    let Some(scraped) = Scraped::start() else { return };
    let socket = scraped.router.site.socket.display().to_string();
    let shown = std::process::Command::new(crate::support::postern())
        .args(["show", "metrics", "--api", &socket])
        .output()
        .expect("it runs");
    let shown = String::from_utf8(shown.stdout).expect("text");
    let metadata = scraped.ask("targets/metadata", &[]).expect("an answer");
    let known: BTreeMap<&str, &str> = metadata
        .as_array()
        .expect("a list")
        .iter()
        .filter(|it| it["help"].as_str().is_some_and(|help| !help.is_empty()))
        .filter_map(|it| Some((it["metric"].as_str()?, it["type"].as_str()?)))
        .collect();
    assert_eq!(known, families(&shown));
    assert!(known.len() > 30 && known["postern_tunnel_received_bytes"] == "counter", "{known:?}");
    let peer = "{protocol=\"wireguard\",interface=\"wg0\",peer=\"other\",job=\"postern\"}";
    scraped.under_traffic(|| {
        for counter in [
            "postern_tunnel_received_bytes_total",
            "postern_tunnel_sent_packets_total",
            "wireguard_sent_bytes_total",
        ] {
            let labels = if counter.starts_with("wireguard") { "{friendly_name=\"other\"}" } else { peer };
            let moves = format!("rate({counter}{labels}[{RATE_INTERVAL}]) > 0");
            wait_until(PATIENCE, || scraped.has(&moves)).unwrap_or_else(|error| panic!("{error}: {moves}"));
        }
    });
    assert!(scraped.has(&format!("postern_tunnel_up{peer} == 1")));
    assert!(scraped.has("count(postern_dropped_packets_total) > 100"), "all reasons are there, at 0 too");
}

/// The expressions of our alerts.
fn alerts(scraped: &Scraped) -> Vec<(String, String)> {
    let rules = scraped.ask("rules", &[]).expect("an answer");
    let groups = rules["groups"].as_array().cloned().unwrap_or_default();
    let of_group = |group: &Value| group["rules"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    groups.iter().flat_map(of_group).map(|rule| (text(&rule["name"]), text(&rule["query"]))).collect()
}

/// All strings of these members in a document.
fn members<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get(name).and_then(Value::as_str));
            object.values().for_each(|value| members(value, name, found));
        }
        Value::Array(values) => values.iter().for_each(|value| members(value, name, found)),
        _ => {}
    }
}

/// The metrics that an expression names.
fn names(expression: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter: char| !is_part(letter));
    words
        .filter(|word| ["postern_", "process_", "wireguard_"].iter().any(|it| word.starts_with(it)))
        .collect()
}

#[test]
fn every_expression_of_the_alerts_and_the_dashboard_is_answered() {
    let Some(scraped) = Scraped::start() else { return };
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut expressions = Vec::new();
    members(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() > 30, "{expressions:?}");
    scraped.under_traffic(|| {
        for expression in &expressions {
            let asked = expression.replace("$__rate_interval", RATE_INTERVAL).replace("$instance", ".*");
            let mut said = Ok(Vec::new());
            let has_result = || {
                said = scraped.query(&asked);
                said.as_ref().is_ok_and(|samples| !samples.is_empty())
            };
            let answered = wait_until(PATIENCE, has_result);
            answered.unwrap_or_else(|error| panic!("{error}: {asked} gives no result: {said:?}"));
        }
    });
    let alerts = alerts(&scraped);
    assert_eq!(alerts.len(), RULES.matches("- alert: ").count(), "{alerts:?}");
    let known = scraped.ask("label/__name__/values", &[]).expect("an answer");
    let known: BTreeSet<&str> = known.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    for (alert, expression) in &alerts {
        let samples = scraped.query(expression).unwrap_or_else(|error| panic!("{alert}: {error}"));
        assert!(samples.is_empty(), "{alert} fires on a healthy gateway: {samples:?}");
        let unknown: Vec<_> = names(expression).into_iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{alert} names metrics that there are not: {unknown:?}");
    }
}

#[test]
fn a_peer_that_dies_raises_an_alert() {
    let Some(scraped) = Scraped::start() else { return };
    scraped.other.signal(Signal::KILL);
    // What is sent to it is not answered, and neither are handshakes.
    let ping = ["-c", "200", "-i", "0.2", "-W", "1", "-q", "10.66.0.2"];
    let mut pinging =
        scraped.router.lab.command("a", "ping").args(ping).stdout(Stdio::null()).spawn().expect("ping");
    let pending = || {
        let alerts = scraped.ask("alerts", &[]).unwrap_or_default();
        let alerts = alerts["alerts"].as_array().cloned().unwrap_or_default();
        alerts
            .iter()
            .any(|it| it["labels"]["alertname"] == "PosternTunnelDown" && it["labels"]["peer"] == "other")
    };
    let raised = wait_until(2 * PATIENCE, pending);
    pinging.kill().expect("it runs");
    pinging.wait().expect("it ends");
    raised.unwrap_or_else(|error| panic!("{error}: {:?}", scraped.query("postern_tunnel_failed")));
    assert!(scraped.has("postern_tunnel_up == 0") && scraped.has("postern_tunnels{state=\"down\"} == 1"));
}
