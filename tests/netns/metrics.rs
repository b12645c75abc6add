//! Metrics of a running daemon: as curl reads them, over TLS, by clients that mean harm, and as a real Prometheus scrapes them.

mod prometheus;

use crate::daemon::{Site, started};
use crate::ipsec;
use crate::support::{PATIENCE, answers, postern, tcp_arrives_whole};
use crate::transactions::Router;
use lab::wait_until;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};

const LOCAL: &str = "http://127.0.0.1:9586/metrics";
const REMOTE: &str = "https://192.168.77.1:9586/metrics";
const TOKEN: &str = "a long secret of a scraper";

/// Two sites with a tunnel between them that has carried something, of which the first serves metrics.
fn scraped(edits: &[&str]) -> Option<(Router, Site)> {
    let (lab, a, b, [a_public, b_public]) = started()?;
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
    let keys = [(a.private.clone(), a_public), (b.private.clone(), b_public)];
    let router = Router { lab, site: a, keys };
    assert!(scrape(&router, "a", LOCAL, &[]).is_none(), "they are off unless they are configured");
    router.commits(edits);
    Some((router, b))
}

/// The answer to a scrape: its status, its headers in lower case, and its text.
fn scrape(router: &Router, from: &str, url: &str, more: &[&str]) -> Option<(u16, String, String)> {
    let fixed = ["-sk", "--max-time", "20", "-D", "-", url];
    let said = router.lab.run(from, "curl", &[&fixed[..], more].concat()).ok()?;
    let (head, text) = said.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Some((status, head.to_lowercase(), text.to_owned()))
}

/// The samples of a scrape by their series.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line| {
        let (series, value): (&str, &str) = str::rsplit_once(line, ' ').expect("a value");
        (series, value.parse().expect("a number"))
    };
    lines.map(sample).collect()
}

fn local(router: &Router) -> String {
    let (status, _, text) = scrape(router, "a", LOCAL, &[]).expect("an answer");
    assert_eq!(status, 200, "{text}");
    text
}

const PEER: &str = r#"{protocol="wireguard",interface="wg0",peer="other"}"#;

#[test]
fn loopback_serves_what_the_tunnel_has_carried_and_is_gone_when_it_is_deleted() {
    let Some((router, _b)) = scraped(&["set service metrics"]) else { return };
    let (status, head, text) = scrape(&router, "a", LOCAL, &[]).expect("an answer");
    assert_eq!(status, 200, "{text}");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    let before = samples(&text);
    let of = |name: &str| before[&*format!("{name}{PEER}")];
    assert!(
        (of("postern_tunnel_up") - 1.0).abs() < f64::EPSILON && of("postern_tunnel_failed") < 0.5,
        "{text}"
    );
    assert!(of("postern_tunnel_sent_bytes_total") > 1e6, "{text}");
    assert!(of("postern_tunnel_received_packets_total") > 10.0, "{text}");
    assert!(of("postern_tunnel_handshakes_total") >= 1.0, "{text}");
    assert!(text.contains(r#"reason="inside-queue-full""#), "losses of the kernel: {text}");
    assert!(text.contains("thread=\"wg0 out\"") && text.contains("wireguard_sent_bytes_total{"), "{text}");
    assert!((before["postern_config_generation"] - router.revision() as f64).abs() < 0.5, "{text}");
    // More traffic is seen a second later.
    tcp_arrives_whole(&router.lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
    let sent = format!("postern_tunnel_sent_bytes_total{PEER}");
    let has_moved = || samples(&local(&router))[&*sent] > before[&*sent] + 1e6;
    wait_until(PATIENCE, has_moved).expect("the counter moves");
    // The same by the program.
    let socket = router.site.socket.display().to_string();
    let shown = std::process::Command::new(postern()).args(["show", "metrics", "--api", &socket]).output();
    let shown = String::from_utf8(shown.expect("it runs").stdout).expect("text");
    let series = |text: &str| samples(text).into_keys().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(series(&shown), series(&local(&router)));
    router.commits(&["delete service metrics"]);
    wait_until(PATIENCE, || scrape(&router, "a", LOCAL, &[]).is_none()).expect("it is off again");
}

#[test]
fn scrapes_are_compressed_for_those_who_ask_and_other_requests_are_refused() {
    let Some((router, _b)) = scraped(&["set service metrics"]) else { return };
    let (_, head, text) = scrape(&router, "a", LOCAL, &["--compressed"]).expect("an answer");
    assert!(head.contains("content-encoding: gzip") && text.contains("postern_tunnel_up{"), "{head}\n{text}");
    let status = |url, more: &[&str]| scrape(&router, "a", url, more).expect("an answer").0;
    assert_eq!(status("http://127.0.0.1:9586/", &[]), 404);
    assert_eq!(status("http://127.0.0.1:9586/v1/status", &[]), 404, "it is no way to the API");
    assert_eq!(status(LOCAL, &["-X", "POST", "-d", "a=b"]), 405);
    assert!(connect(&router, "b", "192.168.77.1:9586").is_err(), "only loopback is listened on");
    router.commits(&["set service metrics peers off"]);
    let text = local(&router);
    assert!(!text.contains("peer=") && text.contains("postern_tunnels{"), "{text}");
    router.commits(&["set service metrics peers down-only", "set service metrics disable-wireguard-names"]);
    let text = local(&router);
    assert!(!text.contains("peer=") && !text.contains("wireguard_sent"), "{text}");
}

#[test]
fn clients_that_hang_do_not_keep_others_from_their_scrape() {
    let Some((router, _b)) = scraped(&["set service metrics"]) else { return };
    let idle: Vec<_> = (0..100).map(|_| connect(&router, "a", "127.0.0.1:9586")).collect();
    assert!(idle.iter().filter(|stream| stream.is_ok()).count() > 50);
    assert!(local(&router).contains("postern_tunnel_up{"));
    assert!(answers(&router.lab, "a", "10.66.0.2"), "and the tunnel carries");
}

fn connect(router: &Router, from: &str, address: &str) -> std::io::Result<TcpStream> {
    let address: SocketAddr = address.parse().expect("an address");
    router.lab.enter(from, || TcpStream::connect_timeout(&address, PATIENCE)).expect("a namespace")
}

#[test]
fn another_address_needs_tls_and_a_token_and_checks_both() {
    let Some((router, _b)) = scraped(&[]) else { return };
    let (status, answer) = router.commit(&["set service metrics listen-address 192.168.77.1"]);
    let said = answer.to_string();
    assert!(status == 422 && said.contains("without TLS") && said.contains("without a token"), "{said}");
    router.commits(&[
        "set service metrics listen-address 192.168.77.1",
        "set service metrics tls",
        &format!("set service metrics token '{TOKEN}'"),
    ]);
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let asked = |more: &[&str]| scrape(&router, "b", REMOTE, more).expect("an answer");
    let (status, head, text) = asked(&[]);
    assert!(
        status == 401 && head.contains("www-authenticate: bearer") && !text.contains("postern_tunnel"),
        "{text}"
    );
    assert_eq!(asked(&["-H", "Authorization: Bearer a long guess of a stranger"]).0, 401);
    let (status, _, text) = asked(&["-H", &bearer]);
    assert!(status == 200 && text.contains("postern_tunnel_up{"), "{text}");
    let plain = scrape(&router, "b", &REMOTE.replace("https", "http"), &["-H", &bearer]).expect("an answer");
    assert_eq!(plain.0, 400, "no token is taken in clear");
    let shown = router.get("service/metrics");
    let fingerprint = shown["fingerprint"].as_str().expect("one").to_owned();
    assert_eq!((&shown["is_served"], &shown["has_token"]), (&json!(true), &json!(true)), "{shown}");
    let log = router.site.logged();
    assert!(
        log.contains(&format!("metrics endpoint at 192.168.77.1:9586, certificate SHA-256 {fingerprint}")),
        "{log}"
    );
    assert!(!log.contains(TOKEN) && !log.contains("a long guess"), "{log}");
    // It can be pinned.
    let pin = router.site.state.join("https/metrics/certificate.pem").display().to_string();
    let pinned = ["-s", "--max-time", "20", "--cacert", &pin, "-H", &bearer, REMOTE];
    assert!(router.lab.run("b", "curl", &pinned).expect("it verifies").contains("postern_tunnel_up{"));
    // Who guesses must wait, and others need not.
    let guesses = (0..12)
        .map(|guess| asked(&["-H", &format!("Authorization: Bearer a long guess of a stranger {guess}")]).0);
    assert!(guesses.collect::<Vec<_>>().contains(&429));
    let own = scrape(&router, "a", REMOTE, &["-H", &bearer]).expect("an answer");
    assert_eq!(own.0, 200, "{}", own.2);
    router.commits(&["set service metrics allow-client address 192.0.2.0/24"]);
    assert!(scrape(&router, "a", REMOTE, &["-H", &bearer]).is_none(), "it is none of them");
}

#[test]
fn the_api_and_metrics_are_served_beside_each_other_and_change_alone() {
    let Some((router, _b)) = scraped(&["set service metrics"]) else { return };
    router.commits(&[
        "set service https api keys id test key 'a long secret of a client'",
        "set service https listen-address 192.168.77.1",
        "set service https port 8443",
    ]);
    let info = || {
        let said =
            router.lab.run("b", "curl", &["-sk", "--max-time", "20", "https://192.168.77.1:8443/info"]);
        said.is_ok_and(|said| said.contains("Postern"))
    };
    let certificate = router.get("service/https")["fingerprint"].clone();
    assert!(info() && local(&router).contains("postern_tunnel_up{"));
    router.commits(&["set service metrics peers off"]);
    assert!(info() && !local(&router).contains("peer="));
    assert_eq!(router.get("service/https")["fingerprint"], certificate);
    router.commits(&["delete service https"]);
    assert!(!info() && local(&router).contains("postern_tunnels{"));
    router.commits(&["delete service metrics"]);
    assert!(scrape(&router, "a", LOCAL, &[]).is_none());
    // A port of another program is refused with what to do, and nothing has changed.
    let taken = router.lab.enter("a", || std::net::TcpListener::bind("127.0.0.1:9586")).expect("a namespace");
    let _taken = taken.expect("it is free");
    let (status, answer) = router.commit(&["set service metrics"]);
    let said = answer.to_string();
    assert!(status == 422 && said.contains("set service metrics port 8443"), "{said}");
}

#[test]
fn ipsec_tunnels_have_the_same_families_and_their_series_go_on_over_new_keys() {
    let Some((lab, [a, _b])) = ipsec::started(|_, text| text) else { return };
    a.comes_up("other");
    a.comes_up("second");
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 1 << 20).expect("the tunnel carries");
    let before = a.says("show metrics");
    let labels = r#"{protocol="ipsec",interface="ipsec0",peer="other",tunnel="1"}"#;
    let of = |text: &str, name: &str| samples(text)[&*format!("{name}{labels}")];
    assert!(of(&before, "postern_tunnel_up") > 0.5, "{before}");
    assert!(of(&before, "postern_tunnel_sent_bytes_total") > 1e6, "{before}");
    assert!(of(&before, "postern_tunnel_received_packets_total") > 10.0, "{before}");
    let spis = a.spis("other");
    a.says("reset vpn ipsec site-to-site peer other");
    let is_new = || a.spis("other").first().is_some_and(|spi| !spis.contains(spi));
    wait_until(PATIENCE, is_new).expect("it has new keys");
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 1 << 20).expect("the tunnel carries");
    let sent = "postern_tunnel_sent_bytes_total";
    let goes_on = || of(&a.says("show metrics"), sent) > of(&before, sent) + 1e6;
    wait_until(PATIENCE, goes_on).expect("its bytes are those of all keys");
    let series = |text: &str| samples(text).into_keys().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(series(&a.says("show metrics")), series(&before), "new keys make no new series");
}
