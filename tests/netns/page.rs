//! The status page of a running daemon: as a browser without script reads it, with a script, and with ten thousand peers.

mod browser;
mod many;

use crate::daemon::{Site, started};
use crate::support::{PATIENCE, tcp_arrives_whole};
use crate::transactions::Router;
use lab::wait_until;
use rustix::process::Signal;

const PLACE: &str = "http://127.0.0.1:9587";
const TOKEN: &str = "a long secret of a reader";

/// The answer to a request: its status and its text. Cookies are kept in a file.
fn ask(router: &Router, path: &str, more: &[&str]) -> Option<(u16, String)> {
    ask_from(router, "a", PLACE, path, more)
}

/// The same to another address of the page.
fn ask_from(router: &Router, from: &str, place: &str, path: &str, more: &[&str]) -> Option<(u16, String)> {
    let jar = router.site.state.join("cookies").display().to_string();
    let url = format!("{place}{path}");
    let fixed = ["-sk", "--max-time", "20", "-b", &jar, "-c", &jar, "-w", "\n%{http_code}", &url];
    let said = router.lab.run(from, "curl", &[&fixed[..], more].concat()).ok()?;
    let (text, status) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim()));
    Some((status.parse().expect("a status"), text.to_owned()))
}

/// Two sites with a tunnel between them that has carried something, of which the first serves the page.
fn served(edits: &[&str]) -> Option<(Router, Site)> {
    let (lab, a, b, [a_public, b_public]) = started()?;
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
    let keys = [(a.private.clone(), a_public), (b.private.clone(), b_public)];
    let router = Router { lab, site: a, keys };
    let token = format!("set service page token '{TOKEN}'");
    router.commits(&[&[&*token][..], edits].concat());
    Some((router, b))
}

#[test]
fn a_reader_logs_in_and_sees_a_tunnel_die_with_its_cause() {
    let Some((lab, a, b, [a_public, b_public])) = started() else { return };
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
    let other = b.process.expect("it was started");
    let keys = [(a.private.clone(), a_public), (b.private.clone(), b_public)];
    let mut router = Router { lab, site: a, keys };
    assert!(ask(&router, "/", &[]).is_none(), "it is off unless it is configured");
    router.commits(&[&format!("set service page token '{TOKEN}'")]);
    assert_eq!(ask(&router, "/", &[]).expect("an answer").0, 303, "it asks for the token");
    let field = |token: &str| format!("token={token}");
    let login =
        |token: &str| ask(&router, "/login", &["--data-urlencode", &field(token)]).expect("an answer");
    assert_eq!(login("a guess").0, 401);
    assert_eq!(login(TOKEN).0, 303);
    let (status, text) = ask(&router, "/", &[]).expect("an answer");
    assert!(status == 200 && text.contains("<strong>other</strong>"), "{text}");
    assert!(text.contains("role=\"row\" class=\"up\">"), "{text}");
    for secret in [TOKEN, &*router.keys[0].0, &*router.keys[1].0] {
        assert!(!text.contains(secret), "no secret is shown");
    }
    let rebound = ask(&router, "/", &["-H", "Host: rebound.example"]).expect("an answer");
    assert!(rebound.0 == 421 && !rebound.1.contains("other"), "{}", rebound.1);
    b.signal(Signal::KILL);
    wait_until(PATIENCE, || router.lab.ended(other).is_some()).expect("it ends");
    let is_down = || {
        let (_, text) = ask(&router, "/", &[]).expect("an answer");
        text.contains("role=\"row\" class=\"down\">") && text.contains("class=\"cause\"")
    };
    // Without traffic nobody misses it.
    let ping = || _ = router.lab.run("a", "ping", &["-c", "1", "-W", "1", "10.66.0.2"]);
    let shown = wait_until(2 * PATIENCE, || {
        ping();
        is_down()
    });
    shown.expect("it is shown as down, with its cause");
    router.commits(&["delete service page"]);
    wait_until(PATIENCE, || ask(&router, "/", &[]).is_none()).expect("it is off again");
}

const REMOTE: &str = "https://192.168.77.1:9587";
const TUNNEL: &str = "/tunnel?protocol=wireguard&interface=wg0&peer=other";

#[test]
fn each_view_is_read_over_tls_and_tells_how_a_tunnel_died() {
    let edits = ["set service page listen-address 192.168.77.1", "set service page tls"];
    let Some((mut router, other)) = served(&edits) else { return };
    let field = format!("token={TOKEN}");
    let get = |router: &Router, path: &str, more: &[&str]| {
        ask_from(router, "b", REMOTE, path, more).expect("an answer")
    };
    assert_eq!(get(&router, "/events/", &[]).0, 401);
    assert_eq!(get(&router, "/login", &["--data-urlencode", &field]).0, 303);
    let secrets =
        [TOKEN.to_owned(), router.keys[0].0.clone(), router.keys[1].0.clone(), router.keys[1].1.clone()];
    let shown = |router: &Router, path: &str| {
        let (status, text) = get(router, path, &[]);
        assert_eq!(status, 200, "{path}: {text}");
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "no key is shown: {path}");
        text
    };
    assert!(shown(&router, "/").contains("<tr id=\"t"));
    // The facts are up to a second old, and the handshake is younger.
    wait_until(PATIENCE, || {
        let text = shown(&router, TUNNEL);
        text.contains("class=\"condition up\"") && text.contains(" ago</td>")
    })
    .expect("it is up");
    let text = shown(&router, TUNNEL);
    for said in
        ["class=\"condition up\"", "192.168.77.2:51820", "chacha20-poly1305", "10.50.0.0/16", " ago</td>"]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("not known"), "the engine is known: {text}");
    // The graph has its first points some seconds after the start.
    let history = || router.get("facts/history")["interfaces"][0]["sent_bits_per_second"].clone();
    let carried = |history: &serde_json::Value| {
        history
            .as_array()
            .is_some_and(|all| all.iter().any(|rate| rate.as_f64().is_some_and(|it| it > 10_000.0)))
    };
    wait_until(PATIENCE, || {
        tcp_arrives_whole(&router.lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
        carried(&history())
    })
    .expect("the history has what was carried");
    let text = shown(&router, "/performance");
    for said in ["wg0, sending", "wg0, receiving", "<svg ", "wg0 out", "chacha20-poly1305", "aws-lc"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let text = shown(&router, "/drops?all=yes");
    assert!(
        text.contains("bad-tag") && text.contains("inside-queue-full") && text.contains("reasons"),
        "{text}"
    );
    let text = shown(&router, "/health");
    for said in ["<h1>Health</h1>", "tunnel-down", "memory-low", "clock-unsynchronised", "postern doctor"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let process = other.process.expect("it was started");
    other.signal(Signal::KILL);
    wait_until(PATIENCE, || router.lab.ended(process).is_some()).expect("it ends");
    let died = wait_until(2 * PATIENCE, || {
        _ = router.lab.run("a", "ping", &["-c", "1", "-W", "1", "10.66.0.2"]);
        shown(&router, TUNNEL).contains("class=\"condition down\"")
    });
    died.expect("it is shown as down");
    let text = shown(&router, TUNNEL);
    assert!(text.contains("class=\"cause\"") && text.contains("class=\"fix\""), "{text}");
    let is_alert = || shown(&router, "/health").contains("The tunnel wg0 other is down.");
    wait_until(PATIENCE, is_alert).expect("health has it too");
    // curl takes what comes until its time is over, which it calls an error.
    let mut curl = router.lab.command("b", "curl");
    let jar = router.site.state.join("cookies");
    curl.args(["-skN", "--max-time", "4", "-b"]).arg(jar).arg(format!("{REMOTE}/events{TUNNEL}"));
    let events = String::from_utf8(curl.output().expect("curl runs").stdout).expect("text");
    assert!(events.contains("event: parts\ndata: [{\"id\":\"condition\""), "{events}");
    assert!(secrets.iter().all(|secret| !events.contains(secret)), "no key is sent");
}

#[test]
fn a_login_outlives_a_restart_and_ends_with_another_token() {
    let Some((mut router, _other)) = served(&[]) else { return };
    let field = format!("token={TOKEN}");
    assert_eq!(ask(&router, "/login", &["--data-urlencode", &field]).expect("an answer").0, 303);
    let status = |router: &Router| ask(router, "/", &[]).map(|(status, _)| status);
    assert_eq!(status(&router), Some(200));
    router.crash();
    wait_until(PATIENCE, || status(&router).is_some()).expect("it is served again");
    assert_eq!(status(&router), Some(200), "after a crash");
    router.site.signal(Signal::TERM);
    router.ended();
    router.start();
    wait_until(PATIENCE, || status(&router).is_some()).expect("it is served again");
    assert_eq!(status(&router), Some(200), "after it was ended");
    router.commits(&["set service page token 'another long secret of a reader'"]);
    wait_until(PATIENCE, || status(&router) == Some(303)).expect("the session has ended");
}
