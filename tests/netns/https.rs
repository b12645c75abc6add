//! The API over HTTPS of a running daemon: VyOS's client library, requests by hand, and clients that mean harm.

use crate::support::{PATIENCE, skip};
use crate::transactions::Router;
use lab::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

const KEY: &str = "a long secret of a client";
const ADDRESS: &str = "192.168.77.1";
const PORT: &str = "8443";

/// A daemon that serves the API on the outer link, by a commit.
fn serving() -> Option<Router> {
    let router = Router::new()?;
    assert!(connect(&router, "b").is_err(), "it is off unless it is configured");
    router.commits(&[
        &format!("set service https api keys id test key '{KEY}'"),
        &format!("set service https listen-address {ADDRESS}"),
        &format!("set service https port {PORT}"),
    ]);
    Some(router)
}

fn connect(router: &Router, from: &str) -> std::io::Result<TcpStream> {
    let address: SocketAddr = format!("{ADDRESS}:{PORT}").parse().expect("an address");
    router.lab.enter(from, || TcpStream::connect_timeout(&address, PATIENCE)).expect("a namespace")
}

/// Runs one of our programs for Python at the other site.
fn run(router: &Router, python: &str, program: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/netns/https").join(program);
    let folder = folder.display().to_string();
    let said = router.lab.run("b", python, &[&folder, ADDRESS, PORT, KEY]);
    said.unwrap_or_else(|error| panic!("{error}\n{}", router.site.logged()))
}

fn pyvyos() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/pyvyos/bin/python");
    if python.exists() {
        return Some(python);
    }
    skip("pyvyos is missing: make setup");
    None
}

/// The process that serves, which is a child of a child of the daemon.
fn server(router: &Router) -> Option<Pid> {
    let socket = router.site.socket.display().to_string();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).find_map(|id| {
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        (line.contains(&socket) && line.contains("--server")).then(|| Pid::from_raw(id))?
    })
}

#[test]
fn requests_of_every_shape_are_answered_and_wrong_ones_refused() {
    let Some(router) = serving() else { return };
    if !lab::has_program("python3") {
        return skip("needs python3");
    }
    assert!(run(&router, "python3", "by_hand.py").contains("wrong_keys right"));
    let log = router.site.logged();
    assert!(!log.contains(KEY) && !log.contains("guess-"), "{log}");
    assert!(log.contains("192.168.77.2 test POST /configure 200"), "{log}");
    assert!(log.contains("192.168.77.2 sends wrong keys, and must wait"), "{log}");
    assert!(!log.contains("192.168.77.2 - "), "requests without a key must not fill it: {log}");
    // What one source does is no other's fault.
    let own = router
        .lab
        .command("a", "curl")
        .args(["-sk", "--form", "data={\"op\": \"exists\", \"path\": []}"])
        .arg("--form")
        .arg(format!("key={KEY}"))
        .arg(format!("https://{ADDRESS}:{PORT}/retrieve"))
        .output()
        .expect("curl runs");
    let answer: serde_json::Value = serde_json::from_slice(&own.stdout).expect("JSON");
    assert_eq!(answer, json!({ "success": true, "data": true, "error": null }));
    // Deleted, it ends.
    router.commits(&["delete service https"]);
    wait_until(PATIENCE, || connect(&router, "b").is_err()).expect("it is off again");
}

#[test]
fn the_client_library_of_vyos_configures_shows_saves_and_loads() {
    let Some(python) = pyvyos() else { return };
    let Some(router) = serving() else { return };
    assert_eq!(run(&router, &python.display().to_string(), "pyvyos_client.py"), "right\n");
    let saved = std::fs::read_to_string(&router.site.file).expect("saved");
    assert!(saved.contains("by pyvyos") && !saved.contains("51999"), "{saved}");
}

#[test]
fn half_open_connections_of_one_source_do_not_block_another() {
    let Some(router) = serving() else { return };
    let mut open = Vec::new();
    for _ in 0..600 {
        open.push(connect(&router, "b"));
    }
    let info =
        router.lab.run("a", "curl", &["-sk", "--max-time", "30", &format!("https://{ADDRESS}:{PORT}/info")]);
    assert!(info.expect("it answers").contains("Postern"));
    assert!(open.iter().filter(|stream| stream.is_ok()).count() > 500);
}

#[test]
fn a_server_that_is_killed_is_started_again_and_the_daemon_goes_on() {
    let Some(router) = serving() else { return };
    let before = server(&router).expect("it serves");
    kill_process(before, Signal::KILL).expect("it is there");
    wait_until(PATIENCE, || server(&router).is_some_and(|now| now != before)).expect("it comes back");
    let answers = || {
        let asked = router.lab.run(
            "b",
            "curl",
            &["-sk", "--max-time", "5", &format!("https://{ADDRESS}:{PORT}/info")],
        );
        asked.is_ok_and(|text| text.contains("Postern"))
    };
    wait_until(PATIENCE, answers).expect("it answers");
    assert_eq!(router.get("service/https")["is_served"], true);
}

/// The other process, which starts the one that serves.
fn supervisor(server: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.as_raw_nonzero())).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Pid::from_raw(parent.trim().parse().ok()?)
}

#[test]
fn processes_that_nothing_starts_again_are_reported() {
    let Some(router) = serving() else { return };
    let serves = server(&router).expect("it serves");
    let supervises = supervisor(serves).expect("it has a parent");
    kill_process(supervises, Signal::KILL).expect("it is there");
    kill_process(serves, Signal::KILL).expect("it is there");
    wait_until(PATIENCE, || router.get("service/https")["is_served"] == false).expect("it is noticed");
    let shown = router.get("service/https");
    assert!(shown["problem"].as_str().is_some_and(|why| why.contains("fix: restart the daemon")), "{shown}");
    assert!(router.site.logged().contains("the processes of the HTTPS server have ended"));
    assert!(connect(&router, "b").is_err(), "clients must not wait for an answer");
    router.commits(&["delete service https"]);
}

#[test]
fn a_connection_of_a_client_that_may_no_longer_connect_is_refused() {
    let Some(router) = serving() else { return };
    if !lab::has_program("python3") {
        return skip("needs python3");
    }
    let program = "import http.client, json, ssl, sys\n\
        address, port, key = sys.argv[1:]\n\
        connection = http.client.HTTPSConnection(address, int(port), timeout=60, context=ssl._create_unverified_context())\n\
        path = ['service', 'https', 'allow-client', 'address', '192.0.2.0/24']\n\
        for body in [json.dumps({'op': 'set', 'path': path}), json.dumps({'op': 'delete', 'path': path})]:\n\
        \x20   connection.request('POST', '/configure', body, {'X-API-Key': key, 'Content-Type': 'application/json'})\n\
        \x20   answer = connection.getresponse()\n\
        \x20   answer.read()\n\
        \x20   print(answer.status)\n";
    let said = router.lab.run("b", "python3", &["-c", program, ADDRESS, PORT, KEY]).expect("it runs");
    assert_eq!(said, "200\n403\n");
}

#[test]
fn a_link_to_a_file_elsewhere_is_not_read() {
    let Some(router) = serving() else { return };
    let outside = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(outside.path(), "set system host-name outside\n").expect("ours");
    let folder = router.site.state.join("config");
    std::os::unix::fs::symlink(outside.path(), folder.join("link")).expect("the server has made the folder");
    let form = format!("data={}", json!({ "op": "load", "file": "/config/link" }));
    let (key, url) = (format!("key={KEY}"), format!("https://{ADDRESS}:{PORT}/config-file"));
    let said = router.lab.run("b", "curl", &["-sk", "--form", &form, "--form", &key, &url]);
    let said = said.expect("an answer");
    assert!(said.contains("Permission denied"), "{said}\n{}", router.site.logged());
}

#[test]
fn a_port_that_is_taken_and_a_key_that_is_missing_are_refused_at_the_commit() {
    let Some(router) = Router::new() else { return };
    let address = format!("{ADDRESS}:{PORT}");
    let taken = router.lab.enter("a", || std::net::TcpListener::bind(&address)).expect("a namespace");
    let _taken = taken.expect("it is free");
    let (status, answer) = router.commit(&[
        &format!("set service https api keys id test key '{KEY}'"),
        &format!("set service https listen-address {ADDRESS}"),
        &format!("set service https port {PORT}"),
    ]);
    assert_eq!((status, &answer["errors"][0]["path"]), (422, &json!("service https")), "{answer}");
    assert!(answer.to_string().contains("another program has this port"), "{answer}");
    let (status, answer) = router.commit(&["set service https api"]);
    assert!(status == 422 && answer.to_string().contains("there is no key"), "{answer}");
}
