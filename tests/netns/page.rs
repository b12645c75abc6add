//! The status page of a running daemon, as a browser without script reads it.

use crate::daemon::started;
use crate::support::{PATIENCE, tcp_arrives_whole};
use crate::transactions::Router;
use lab::wait_until;
use rustix::process::Signal;

const PLACE: &str = "http://127.0.0.1:9587";
const TOKEN: &str = "a long secret of a reader";

/// The answer to a request: its status and its text. Cookies are kept in a file.
fn ask(router: &Router, path: &str, more: &[&str]) -> Option<(u16, String)> {
    let jar = router.site.state.join("cookies").display().to_string();
    let url = format!("{PLACE}{path}");
    let fixed = ["-s", "--max-time", "20", "-b", &jar, "-c", &jar, "-w", "\n%{http_code}", &url];
    let said = router.lab.run("a", "curl", &[&fixed[..], more].concat()).ok()?;
    let (text, status) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim()));
    Some((status.parse().expect("a status"), text.to_owned()))
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
    assert!(text.contains("<tr role=\"row\" class=\"up\">"), "{text}");
    for secret in [TOKEN, &*router.keys[0].0, &*router.keys[1].0] {
        assert!(!text.contains(secret), "no secret is shown");
    }
    let rebound = ask(&router, "/", &["-H", "Host: rebound.example"]).expect("an answer");
    assert!(rebound.0 == 421 && !rebound.1.contains("other"), "{}", rebound.1);
    b.signal(Signal::KILL);
    wait_until(PATIENCE, || router.lab.ended(other).is_some()).expect("it ends");
    let is_down = || {
        let (_, text) = ask(&router, "/", &[]).expect("an answer");
        text.contains("<tr role=\"row\" class=\"down\">") && text.contains("class=\"cause\"")
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
