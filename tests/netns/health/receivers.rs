//! Receivers of alerts: a webhook, a program, a log, and one that never answers.

use crate::daemon::{Site, lines};
use crate::support::{PATIENCE, answers, postern};
use crate::transactions::Router;
use lab::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A folder of programs that root alone can change, as folders for temporary files are not.
struct Scripts(PathBuf);

impl Scripts {
    /// With a program that writes down what it is given.
    fn new() -> Self {
        let folder = PathBuf::from(format!("/run/postern-scripts-{}", std::process::id()));
        let (out, program) = (folder.join("out"), folder.join("alert.sh"));
        fs::create_dir_all(&out).expect("root may");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("ours");
        fs::set_permissions(&out, Permissions::from_mode(0o777)).expect("ours");
        let out = out.display();
        let text = format!(
            "#!/bin/sh\nf={out}/$POSTERN_RULE-$POSTERN_STATUS\n{{ id -u; env; cat; }} > $f.part && mv $f.part $f\n"
        );
        fs::write(&program, text).expect("ours");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("ours");
        Self(folder)
    }

    fn written(&self, name: &str) -> String {
        let file = self.0.join("out").join(name);
        wait_until(PATIENCE, || file.exists()).unwrap_or_else(|error| panic!("{name}: {error}"));
        fs::read_to_string(file).expect("text")
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Answers each request, and passes its header `Authorization` and its body on.
fn serve(listener: &TcpListener, sender: &Sender<(String, Value)>) {
    for stream in listener.incoming().flatten() {
        let Some(request) = read(stream) else { continue };
        if sender.send(request).is_err() {
            return;
        }
    }
}

fn read(stream: TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut token) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            if line.trim_end().is_empty() {
                break;
            }
            continue;
        };
        match &*name.to_lowercase() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => value.clone_into(&mut token),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    Some((token, serde_json::from_slice(&body).ok()?))
}

/// The next message of a rule with this status.
fn next(messages: &Receiver<(String, Value)>, status: &str) -> (String, Value) {
    let is_it =
        |it: &(String, Value)| it.1["groupLabels"]["alertname"] == "tunnel-down" && it.1["status"] == status;
    let mut all = std::iter::from_fn(|| messages.recv_timeout(Duration::from_secs(60)).ok());
    all.find(is_it).unwrap_or_else(|| panic!("it is never {status}"))
}

/// What became of the messages to a receiver.
pub(super) fn receiver(router: &Router, name: &str) -> Value {
    let health = router.get("health");
    let receivers = health["receivers"].as_array().expect("a list");
    receivers.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{health:#}")).clone()
}

#[test]
fn a_tunnel_that_dies_is_told_to_all_receivers_and_one_that_is_silent_delays_nobody() {
    let Some(mut router) = Router::stopped() else { return };
    let scripts = Scripts::new();
    let mut b = Site::new(&router.lab, "b", &router.keys[1].0);
    b.write(&lines(1, &router.keys[0].1, &[]));
    let folder = scripts.0.to_str().expect("text");
    let verb = ["run", "--scripts", folder];
    router.site.start_with(&mut router.lab, &verb, "info", PATIENCE).expect("it starts");
    b.start(&mut router.lab);
    wait_until(PATIENCE, || answers(&router.lab, "a", "10.66.0.2")).expect("a tunnel");
    let bind = || TcpListener::bind("127.0.0.1:0");
    let [hook, silent] =
        [(), ()].map(|()| router.lab.enter("a", bind).expect("a namespace").expect("a port"));
    let url = |listener: &TcpListener| format!("http://{}/alerts", listener.local_addr().expect("bound"));
    let program = scripts.0.join("alert.sh");
    router.commits(&[
        "set service health rule tunnel-down duration 1",
        &format!("set service health alert a-silent webhook {}", url(&silent)),
        &format!("set service health alert hook webhook {}", url(&hook)),
        "set service health alert hook token secret",
        &format!("set service health alert program exec {}", program.display()),
        "set service health log",
    ]);
    let (sender, messages) = channel();
    std::thread::spawn(move || serve(&hook, &sender));
    let process = b.process.expect("it was started");
    b.signal(Signal::KILL);
    wait_until(PATIENCE, || router.lab.ended(process).is_some()).expect("it ends");
    let (token, firing) = with_traffic(&router, || next(&messages, "firing"));
    assert_eq!(
        (&*token, &firing["version"], &firing["receiver"]),
        ("Bearer secret", &json!("4"), &json!("hook"))
    );
    let alert = &firing["alerts"][0];
    assert_eq!(
        (&alert["labels"]["subject"], &alert["labels"]["severity"]),
        (&json!("wg0 other"), &json!("critical"))
    );
    let remedy = "postern explain interfaces wireguard wg0 peer other";
    assert_eq!(
        (&alert["annotations"]["remedy"], &alert["endsAt"]),
        (&json!(remedy), &json!("0001-01-01T00:00:00Z"))
    );
    // The program is run by a user with no rights, in an environment of its own.
    let said = scripts.written("tunnel-down-firing");
    let (user, rest) = said.split_once('\n').expect("lines");
    assert!(user != "0" && rest.contains("POSTERN_TEXT=firing: The tunnel wg0 other is down."), "{said}");
    assert!(rest.contains("\"alertname\":\"tunnel-down\"") && !rest.contains("LOG_LEVEL"), "{said}");
    // One receiver has not answered yet: others have heard, and the configuration changes.
    let has_heard = || receiver(&router, "hook")["delivered"].as_u64() >= Some(1);
    wait_until(PATIENCE, has_heard).unwrap_or_else(|error| panic!("{error}: {}", receiver(&router, "hook")));
    let untold = receiver(&router, "a-silent");
    assert!(untold["delivered"] == 0 && untold["failed"] == 0, "{untold}");
    router.commits(&["set interfaces wireguard wg0 mtu 1400"]);
    assert_eq!(router.mtu(), 1400);
    is_in_metrics(&router, 2);
    b.start(&mut router.lab);
    wait_until(2 * PATIENCE, || answers(&router.lab, "a", "10.66.0.2")).expect("it is back");
    let (_, resolved) = next(&messages, "resolved");
    let fingerprint = |message: &Value| message["alerts"][0]["fingerprint"].clone();
    assert_eq!(fingerprint(&resolved), fingerprint(&firing));
    assert!(scripts.written("tunnel-down-resolved").contains("POSTERN_COUNT=0"));
    is_in_metrics(&router, 0);
    let log = log_of(&router.site.state);
    for line in ["firing", "resolved"] {
        let line = format!("{line} critical tunnel-down: The tunnel wg0 other is down.\n");
        assert!(log.contains(&line), "{log}");
    }
    // The silent one is given up at once with its lines.
    router.commits(&["delete service health"]);
    wait_until(PATIENCE, || router.get("health")["receivers"] == json!([])).expect("nobody is told");
}

/// Does something while packets are sent that nobody answers: without them, no one misses the peer.
fn with_traffic<T>(router: &Router, act: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = router.lab.run("a", "ping", &["-c", "1", "-W", "1", "10.66.0.2"]);
            }
        });
        // A thread that waits for the end of a test that has failed would wait for ever.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn is_in_metrics(router: &Router, state: u8) {
    let wanted = format!("postern_health_rule_state{{rule=\"tunnel-down\",severity=\"critical\"}} {state}\n");
    let shown = || {
        let mut command = Command::new(postern());
        let said =
            command.args(["show", "metrics", "--api"]).arg(&router.site.socket).output().expect("it runs");
        String::from_utf8_lossy(&said.stdout).contains(&wanted)
    };
    wait_until(PATIENCE, shown).unwrap_or_else(|error| panic!("{wanted}: {error}"));
}

/// What was logged on all days.
fn log_of(state: &Path) -> String {
    let files = fs::read_dir(state.join("health")).expect("a folder").flatten();
    files.map(|file| fs::read_to_string(file.path()).expect("text")).collect()
}

#[test]
fn a_program_outside_the_folders_of_programs_is_refused_by_the_commit() {
    let Some(router) = Router::new() else { return };
    let (status, answer) = router.commit(&["set service health alert a exec /bin/sh"]);
    let said = answer.to_string();
    assert!(status == 422 && said.contains("alerts run programs in /config/scripts only"), "{status} {said}");
    let (status, answer) = router.commit(&["set service health alert a webhook ftp://192.0.2.1/"]);
    let said = answer.to_string();
    assert!(status == 422 && said.contains("does not begin with http:// or https://"), "{status} {said}");
    router.commits(&["set service health alert a exec /config/scripts/not-there.sh"]);
    assert_eq!(router.get("health")["receivers"][0]["way"], "exec");
}
