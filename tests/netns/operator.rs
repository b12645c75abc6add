//! What an operator types at first, and what is wrong on a machine that is not prepared.

use crate::daemon::{Site, key_pair, lines, started};
use crate::support::{PATIENCE, answers, postern, sites, skip, unavailable};
use lab::{Lab, has_program, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::process::{Command, Output};

/// Runs the gateway in the foreground, where it must refuse to start, and returns what it says.
fn refused(lab: &Lab, site: &Site, more: &[&str]) -> String {
    let Output { status, stderr, .. } = site.command(lab).args(more).output().expect("it runs");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success() && said.contains("fix: "), "{said}");
    said
}

#[test]
fn an_empty_file_is_no_configuration_unless_it_says_so() {
    let Some(mut lab) = sites() else { return };
    let mut site = Site::new(&lab, "a", "");
    for text in ["", "\n", "set system acceleration qat\n"] {
        std::fs::write(&site.file, text).expect("a file");
        for more in [&[][..], &["--check"]] {
            let said = refused(&lab, &site, more);
            assert!(said.contains("no interface and no peer") && said.contains("allow-empty"), "{said}");
        }
    }
    std::fs::write(&site.file, "set system allow-empty\n").expect("a file");
    site.start(&mut lab);
}

#[test]
fn acceleration_without_a_device_is_warned_of() {
    if crypto::choice::find().has_accelerator() {
        return unavailable("this machine has an accelerator");
    }
    let Some(mut lab) = sites() else { return };
    let mut site = Site::new(&lab, "a", "");
    let checked = |text: &str| {
        std::fs::write(&site.file, format!("set system allow-empty\n{text}")).expect("a file");
        let arguments =
            [OsStr::new("run"), OsStr::new("--check"), OsStr::new("--config"), site.file.as_os_str()];
        let Output { status, stderr, .. } =
            Command::new(postern()).args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&stderr).into_owned();
        assert!(status.success(), "{said}");
        said
    };
    let warning = "system acceleration qat has no effect: this machine has no usable accelerator";
    assert!(!checked("").contains(warning));
    let said = checked("set system acceleration qat\n");
    assert!(said.contains(warning) && said.contains("postern doctor crypto"), "{said}");
    assert!(said.contains("on the PCI bus") && said.contains("/dev/crypto"), "what was looked for: {said}");
    site.start(&mut lab);
    let log = std::fs::read_to_string(&site.log).expect("it logs");
    assert!(log.contains(warning), "a daemon says so too: {log}");
}

/// A verb, and how it ends.
fn ask(site: &Site, words: &[&str]) -> (Option<i32>, String) {
    let output =
        Command::new(postern()).args(words).arg("--api").arg(&site.socket).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_reload_says_what_became_of_it() {
    let Some((lab, a, _b, publics)) = started() else { return };
    assert_eq!(ask(&a, &["reload"]), (Some(0), "nothing has changed\n".to_owned()));
    a.write(&lines(0, &publics[1], &["mtu 1300"]));
    let (code, said) = ask(&a, &["reload"]);
    assert!(code == Some(0) && said.contains("+ interfaces wireguard wg0 mtu 1300\n"), "{code:?} {said}");
    let addresses = lab.ip("a", "address show wg0").expect("it is there");
    assert!(addresses.contains("mtu 1300"), "it is in force when the verb ends: {addresses}");
    a.write(&lines(0, &publics[1], &["adress 10.0.0.1/8"]));
    let (code, said) = ask(&a, &["reload"]);
    assert!(
        code == Some(1) && said.contains("did you mean address?") && said.contains("is unchanged"),
        "{said}"
    );
    // What is refused in part, by another program's port.
    let taken = lab.take("a", "0.0.0.0:51999").expect("free");
    a.write(&lines(0, &publics[1], &["port 51999"]));
    let (code, said) = ask(&a, &["reload", "--json"]);
    let json: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((code, json["outcome"].as_str()), (Some(1), Some("partly-in-force")), "{said}");
    let errors = json["errors"].to_string();
    assert!(
        errors.contains("UDP port 51999 is in use") && errors.contains("fix: choose another port"),
        "{errors}"
    );
    let (_, said) = ask(&a, &["status"]);
    assert!(
        said.contains("  the last reload, ") && said.contains("Not in force: interfaces wireguard wg0"),
        "{said}"
    );
    drop(taken);
    assert_eq!(ask(&a, &["reload"]).0, Some(0));
    a.signal(Signal::TERM);
    wait_until(PATIENCE, || !a.socket.exists()).expect("it ends");
    let (code, said) = ask(&a, &["reload"]);
    assert!(code == Some(2) && said.contains("no daemon answers at") && said.contains("fix: "), "{said}");
    for command in [&["status"][..], &["explain", "vpn", "ipsec", "peer", "other"], &["show", "drops"]] {
        assert_eq!(ask(&a, command).0, Some(2), "{command:?}");
    }
}

#[test]
fn a_status_says_what_is_up_and_what_the_kernel_does_not_forward() {
    let Some((lab, a, b, publics)) = started() else { return };
    for end in [&a, &b] {
        assert!(ask(end, &["status"]).1.contains("net.ipv4.ip_forward is 0"), "it is not set");
    }
    let log = std::fs::read_to_string(&a.log).expect("it logs");
    assert!(log.contains("fix: set system ip forwarding"), "{log}");
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    lab.run("a", "sysctl", &["-w", "net.ipv4.ip_forward=1"]).expect("sysctl");
    // The handshake thread learns from the data path that the keys are in use.
    let _ = wait_until(PATIENCE, || ask(&a, &["status"]).0 == Some(0));
    let (code, said) = ask(&a, &["status"]);
    assert!(code == Some(0) && !said.contains("ip_forward"), "{code:?} {said}");
    assert!(said.contains("WireGuard wg0: up, port 51820, 1 of 1 peers up\n  other  up "), "{said}");
    assert!(
        said.contains(&*a.file.to_string_lossy()) && said.contains("Engines: chacha20-poly1305 by "),
        "{said}"
    );
    // A peer that should answer and does not.
    let unauthenticated = format!("peer stranger public-key {}", key_pair().1);
    let more = [
        unauthenticated.as_str(),
        "peer stranger allowed-ips 10.99.0.0/16",
        "peer stranger address 192.168.77.9",
        "peer stranger port 51820",
        "peer stranger persistent-keepalive 5",
    ];
    a.write(&lines(0, &publics[1], &more));
    assert_eq!(ask(&a, &["reload"]).0, Some(0));
    let (code, said) = ask(&a, &["status", "--json"]);
    let json: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let daemon = &json["daemons"][0];
    assert_eq!((code, &json["up"], &daemon["wireguard"][0]["up"]), (Some(1), &false.into(), &true.into()));
    let states = daemon["wireguard"][0]["peers"].as_array().expect("a list").iter();
    let states: Vec<(&str, &str)> =
        states.filter_map(|peer| Some((peer["name"].as_str()?, peer["state"].as_str()?))).collect();
    assert_eq!(states, [("other", "up"), ("stranger", "down")], "{said}");
}

#[test]
fn a_second_daemon_in_a_namespace_is_refused_and_changes_nothing() {
    let Some(mut lab) = sites() else { return };
    let mut first = Site::new(&lab, "a", &key_pair().0);
    first.write(&lines(0, &key_pair().1, &[]));
    first.start(&mut lab);
    let second = Site::new(&lab, "a", &key_pair().0);
    second.write(&lines(0, &key_pair().1, &[]));
    let error = refused(&lab, &second, &[]);
    assert!(
        error.contains("another postern run") && error.contains("serves this network namespace"),
        "{error}"
    );
    assert!(lab.ip("a", "link show wg0").is_ok() && !first.logged().contains("put back"));
}

#[test]
fn a_name_that_another_interface_has_is_said_with_what_it_is() {
    let Some(mut lab) = sites() else { return };
    let mut site = Site::new(&lab, "a", &key_pair().0);
    site.write(&lines(0, &key_pair().1, &[]));
    let mut made = 0;
    for (kind, said) in [
        ("dummy", "it is of the kind dummy\n  fix: ip link delete wg0"),
        (
            "wireguard",
            "it is a WireGuard interface of the kernel\n  fix: if wg-quick made it: wg-quick down wg0",
        ),
    ] {
        // Not every kernel has all kinds.
        if lab.ip("a", &format!("link add wg0 type {kind}")).is_err() {
            continue;
        }
        made += 1;
        let error = refused(&lab, &site, &[]);
        assert!(error.contains("interface wg0 exists already") && error.contains(said), "{error}");
        lab.ip("a", "link delete wg0").expect("it is there");
    }
    if lab.ip("a", "tuntap add wg0 mode tap").is_ok() {
        made += 1;
        let error = refused(&lab, &site, &[]);
        assert!(error.contains("another program made it") && error.contains("ip link delete wg0"), "{error}");
        lab.ip("a", "link delete wg0").expect("it is there");
    }
    if made == 0 {
        skip("this kernel makes no interface that could be in the way");
    }
    site.start(&mut lab);
}

#[test]
fn a_level_of_the_log_is_right_or_refused() {
    let Some(lab) = sites() else { return };
    let site = Site::new(&lab, "a", "");
    std::fs::write(&site.file, "set system allow-empty\n").expect("a file");
    let check = |level: &str| {
        let mut command = Command::new(postern());
        command.args(["run", "--check", "--config"]).arg(&site.file).env("LOG_LEVEL", level);
        let output = command.output().expect("it runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(
        check("loud")
            .contains("LOG_LEVEL=\"loud\" is not a log level\n  fix: LOG_LEVEL=error, warn, info or debug")
    );
}

#[test]
fn the_journal_gets_priorities_in_the_place_of_levels() {
    use std::os::unix::fs::MetadataExt;
    if std::path::Path::new("/run/systemd/journal/socket").exists() {
        return unavailable("the journal of this machine would get the lines");
    }
    let Some(lab) = sites() else { return };
    let site = Site::new(&lab, "a", &key_pair().0);
    site.write(&lines(0, &key_pair().1, &[]));
    std::fs::set_permissions(&site.file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("ours");
    let log = std::fs::File::create(&site.log).expect("a file");
    let run = |stream: String| {
        let mut command = Command::new(postern());
        command.args(["run", "--check", "--config"]).arg(&site.file).env("JOURNAL_STREAM", stream);
        let stderr = log.try_clone().expect("a descriptor");
        assert!(command.stderr(stderr).status().expect("it runs").success());
        let said = std::fs::read_to_string(&site.log).expect("it logs");
        log.set_len(0).expect("it is ours");
        said.trim_start_matches('\0').to_owned()
    };
    let it = log.metadata().expect("it is there");
    let said = run(format!("{}:{}", it.dev(), it.ino()));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("<4>") && lines[0].contains("it has secrets"), "{said}");
    assert!(lines[1].starts_with("<4>  fix: chmod 600"), "{said}");
    let said = run("1:1".to_owned());
    assert!(said.contains(" WARN ") && !said.contains("<4>"), "{said}");
}

/// What `wg show dump` shows, except the bytes received from a peer and sent to it: a handshake may be sent at any time.
fn without_counters(dump: &str) -> Vec<Vec<&str>> {
    let mut rows: Vec<Vec<&str>> = dump.lines().map(|row| row.split('\t').collect()).collect();
    for row in &mut rows[1..] {
        row.drain(5..7);
    }
    rows
}

#[test]
fn wg_sees_what_the_gateway_serves_and_changes_nothing() {
    let Some(mut lab) = sites() else { return };
    if !has_program("wg") {
        return unavailable("wg is not installed");
    }
    // Not wg0: the folder of these sockets is the same for all tests.
    let [name, next] = [1, 2].map(|end| format!("wg{}{end}", std::process::id()));
    let (private, public) = key_pair();
    let mut site = Site::new(&lab, "a", &private);
    let of = |name: &str, lines: &[String]| -> String {
        lines.iter().map(|line| format!("set interfaces wireguard {name} {line}\n")).collect()
    };
    let private = format!("private-key {private}");
    let (_, other) = key_pair();
    let text = of(&name, &[&lines(0, &other, &[])[..], std::slice::from_ref(&private)].concat());
    std::fs::write(&site.file, &text).expect("a file");
    site.start(&mut lab);
    let wg = |words: &[&str]| lab.run("a", "wg", words);
    assert!(wg(&["show", "interfaces"]).expect("it shows").split_whitespace().any(|found| found == name));
    let dump = wg(&["show", &name, "dump"]).expect("it shows");
    let rows: Vec<Vec<&str>> = dump.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((rows[0][1], rows[0][2]), (&*public, "51820"), "{dump}");
    assert_eq!((rows[1][0], rows[1][2]), (&*other, "192.168.77.2:51820"), "{dump}");
    assert!(rows[1][3].contains("10.50.0.0/16"), "{dump}");
    let error = wg(&["set", &name, "listen-port", "51999"]).expect_err("read-only").to_string();
    assert!(error.contains("Operation not permitted"), "{error}");
    assert!(wg(&["set", &name, "peer", &other, "remove"]).is_err());
    let after = wg(&["show", &name, "dump"]).expect("it shows");
    assert_eq!(without_counters(&after), without_counters(&dump));
    let log = std::fs::read_to_string(&site.log).expect("it logs");
    assert!(log.contains("fix: change the configuration file, which postern status names"), "{log}");
    // An open connection does not keep an interface.
    let socket = format!("/var/run/wireguard/{name}.sock");
    let _idle = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
    let peer = [format!("peer b public-key {other}"), "peer b allowed-ips 10.50.0.0/16".to_owned()];
    let second = [&[private, "port 51821".to_owned()][..], &peer].concat();
    std::fs::write(&site.file, of(&next, &second)).expect("a file");
    assert_eq!(ask(&site, &["reload"]).0, Some(0));
    wait_until(PATIENCE, || lab.ip("a", &format!("link show {name}")).is_err()).expect("it goes");
    wait_until(PATIENCE, || !std::path::Path::new(&socket).exists()).expect("its socket goes");
    assert!(wg(&["show", &next]).expect("it shows").contains("listening port: 51821"));
    site.signal(Signal::TERM);
    let socket = format!("/var/run/wireguard/{next}.sock");
    wait_until(PATIENCE, || !std::path::Path::new(&socket).exists()).expect("its socket goes");
}

#[test]
fn what_serves_ike_already_is_named() {
    let Some(lab) = sites() else { return };
    let site = Site::new(&lab, "a", "");
    let taken = lab.take("a", "0.0.0.0:500").expect("free");
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/ipsec-site-a.conf"));
    std::fs::write(&site.file, text.expect("it is there")).expect("a file");
    let said = refused(&lab, &site, &[]);
    let us = format!("(process ID {})", std::process::id());
    assert!(said.contains("UDP port 500 is in use by ") && said.contains(&us), "{said}");
    assert!(said.contains("fix: run one program for IPsec only, or stop it: kill "), "{said}");
    drop(taken);
}

#[test]
fn existing_names_are_completed() {
    let Some((_lab, a, _b, _)) = started() else { return };
    let offered = |words: &[&str]| {
        let mut command = Command::new(postern());
        command.arg("complete").arg("--api").arg(&a.socket).arg("--").args(words);
        let Output { status, stdout, .. } = command.output().expect("it runs");
        assert!(status.success());
        String::from_utf8_lossy(&stdout).into_owned()
    };
    assert_eq!(offered(&["explain", "interfaces", "wireguard", ""]), "wg0\tThe WireGuard interface\n");
    let peer = "other\tName or public key of the peer\n";
    assert_eq!(offered(&["explain", "interfaces", "wireguard", "wg0", "peer", "o"]), peer);
    assert_eq!(offered(&["explain", "interfaces", "wireguard", "wg1", "peer", ""]), "");
}
