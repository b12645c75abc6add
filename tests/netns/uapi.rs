//! `postern wireguard`, driven over its socket and by the real `wg` and `wg-quick`.

use crate::support::{PATIENCE, answers, daemon, lab, occurrences, postern, sites, skip, unavailable};
use lab::wireguard::{Daemon, Gateway, converse};
use lab::{Lab, has_program, run, wait_until};
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const KEY: &str = "0101010101010101010101010101010101010101010101010101010101010101";

fn peer(number: u32) -> String {
    format!("{number:08x}{}", "ab".repeat(28))
}

fn one() -> Option<(Lab, Gateway)> {
    let mut lab = lab(&["a"])?;
    let interface = lab.interface("u");
    let gateway = Gateway::start(&mut lab, &daemon(), "a", &interface).expect("it serves");
    Some((lab, gateway))
}

fn socket(gateway: &Gateway) -> PathBuf {
    Path::new("/var/run/wireguard").join(format!("{}.sock", gateway.interface))
}

fn peers(gateway: &Gateway) -> Vec<String> {
    let text = gateway.get().expect("it answers");
    text.lines().filter_map(|line| line.strip_prefix("public_key=")).map(str::to_owned).collect()
}

fn allowed(gateway: &Gateway) -> usize {
    gateway.get().expect("it answers").lines().filter(|line| line.starts_with("allowed_ip=")).count()
}

#[test]
fn what_is_set_can_be_got() {
    let Some((_lab, gateway)) = one() else { return };
    gateway
        .set(&format!(
            "private_key={KEY}\nlisten_port=12912\nfwmark=7\npublic_key={}\npreshared_key={KEY}\n\
             endpoint=[2001:db8::1]:9\npersistent_keepalive_interval=25\nallowed_ip=10.0.0.1/8\nallowed_ip=fd00::/8\n",
            peer(1)
        ))
        .expect("accepted");
    let text = gateway.get().expect("it answers");
    for line in [
        // Clamped, as X25519 uses it.
        "private_key=0001010101010101010101010101010101010101010101010101010101010141",
        "listen_port=12912",
        "fwmark=7",
        "endpoint=[2001:db8::1]:9",
        "persistent_keepalive_interval=25",
        "allowed_ip=10.0.0.0/8",
        "allowed_ip=fd00::/8",
        "protocol_version=1",
        "errno=0",
    ] {
        assert!(text.lines().any(|said| said == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn a_peer_with_our_own_public_key_is_passed_over_and_named() {
    let Some(mut lab) = lab(&["a"]) else { return };
    let interface = lab.interface("u");
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut command = lab.command("a", postern());
    command.args(["wireguard", "--foreground", &interface]).env("LOG_LEVEL", "info").stdout(Stdio::null());
    command.stderr(log.reopen().expect("a file"));
    let process = lab.start(&mut command).expect("it starts");
    let gateway = Gateway { process, interface, namespace: "a".to_owned() };
    wait_until(PATIENCE, || socket(&gateway).exists() && gateway.get().is_ok()).expect("it serves");
    let own = crypto::PrivateKey::new(crypto::Secret::new([1; 32])).public();
    let (hexadecimal, said) =
        (base16ct::lower::encode_string(&own.0), || std::fs::read_to_string(log.path()).expect("it logs"));
    let warning = format!("there is no peer {own}: that is the public key of the interface itself");
    gateway.set(&format!("public_key={hexadecimal}\npublic_key={}\n", peer(1))).expect("accepted");
    assert!(!said().contains(&warning), "it may be any key yet");
    gateway.set(&format!("private_key={KEY}\n")).expect("accepted");
    assert_eq!((peers(&gateway), said().matches(&warning).count()), (vec![peer(1)], 1));
    gateway.set(&format!("public_key={hexadecimal}\nallowed_ip=10.0.0.0/8\n")).expect("accepted");
    assert_eq!((peers(&gateway), said().matches(&warning).count()), (vec![peer(1)], 2));
    assert!(said().contains("fix: wg set"), "{}", said());
    gateway.set(&format!("public_key={hexadecimal}\nremove=true\n")).expect("accepted");
    assert_eq!(said().matches(&warning).count(), 2, "who removes it knows");
}

#[test]
fn peers_are_replaced_updated_and_removed_as_asked() {
    let Some((_lab, gateway)) = one() else { return };
    gateway.set(&format!("public_key={}\npublic_key={}\n", peer(1), peer(2))).expect("accepted");
    assert_eq!(peers(&gateway), [peer(1), peer(2)]);
    gateway
        .set(&format!("public_key={}\nupdate_only=true\nallowed_ip=10.0.0.0/8\n", peer(3)))
        .expect("accepted");
    assert_eq!(peers(&gateway).len(), 2, "it is not there, so nothing is done");
    gateway.set(&format!("public_key={}\nremove=true\n", peer(1))).expect("accepted");
    assert_eq!(peers(&gateway), [peer(2)]);
    gateway.set(&format!("replace_peers=true\npublic_key={}\n", peer(4))).expect("accepted");
    assert_eq!(peers(&gateway), [peer(4)]);
}

#[test]
fn prefixes_move_between_peers_and_can_be_taken_away() {
    let Some((_lab, gateway)) = one() else { return };
    let (a, b) = (peer(1), peer(2));
    gateway
        .set(&format!("public_key={a}\nallowed_ip=10.0.0.0/8\nallowed_ip=10.1.0.0/16\n"))
        .expect("accepted");
    gateway.set(&format!("public_key={b}\nallowed_ip=10.0.0.0/8\n")).expect("accepted");
    let text = gateway.get().expect("it answers");
    let (of_a, of_b) = text.split_once(&b).expect("b is there");
    assert!(of_a.contains("10.1.0.0/16") && !of_a.contains("10.0.0.0/8") && of_b.contains("10.0.0.0/8"));
    gateway
        .set(&format!("public_key={a}\nallowed_ip=-10.0.0.0/8\nallowed_ip=-10.1.0.0/16\n"))
        .expect("accepted");
    assert_eq!(allowed(&gateway), 1, "what is b's is not a's to give away");
    gateway
        .set(&format!("public_key={b}\nreplace_allowed_ips=true\nallowed_ip=10.9.0.0/16\n"))
        .expect("accepted");
    assert_eq!(allowed(&gateway), 1);
}

#[test]
fn our_own_key_is_no_peer() {
    let Some((_lab, gateway)) = one() else { return };
    gateway.set(&format!("public_key={}\n", peer(1))).expect("accepted");
    gateway.set(&format!("private_key={KEY}\n")).expect("accepted");
    let ours = "a4e09292b651c278b9772c569f5fa9bb13d906b46ab68c9df9dc2b4409f8a209";
    gateway.set(&format!("public_key={ours}\nallowed_ip=10.0.0.0/8\n")).expect("accepted");
    assert_eq!((peers(&gateway), allowed(&gateway)), (vec![peer(1)], 0));
}

#[test]
fn a_wrong_request_changes_nothing_and_tells_the_error_number() {
    let Some((_lab, gateway)) = one() else { return };
    gateway.set(&format!("public_key={}\n", peer(1))).expect("accepted");
    let ask = |request: &str| converse(&gateway.interface, request).expect("it answers");
    assert_eq!(ask(&format!("set=1\npublic_key={}\nallowed_ip=10.0.0.0/99\n\n", peer(2))), "errno=-22\n");
    assert_eq!(ask("set=1\nreplace_peers=true\nlisten_port=99999\n\n"), "errno=-22\n");
    assert_eq!(ask("set=1\nnonsense\n\n"), "errno=-71\n");
    assert_eq!(peers(&gateway), [peer(1)]);
}

#[test]
fn a_port_that_is_taken_is_refused_and_the_old_one_kept() {
    let Some((lab, gateway)) = one() else { return };
    lab.ip("a", &format!("link set {} up", gateway.interface)).expect("it is there");
    gateway.set("listen_port=12912\n").expect("accepted");
    let port = || gateway.value("listen_port").expect("it answers");
    let bound = || lab.run("a", "ss", &["-ulnH", "sport = :12912"]).is_ok_and(|text| !text.trim().is_empty());
    wait_until(PATIENCE, bound).expect("the interface is up, so the port is bound");
    let taken = lab.take("a", "0.0.0.0:12913").expect("free");
    assert_eq!(
        converse(&gateway.interface, "set=1\nlisten_port=12913\n\n").expect("it answers"),
        "errno=-98\n"
    );
    assert_eq!(port().as_deref(), Some("12912"));
    drop(taken);
    gateway.set("listen_port=12913\n").expect("free now");
    gateway.set("listen_port=0\n").expect("any");
    assert!(!["0", "12913"].contains(&port().expect("chosen").as_str()));
}

#[test]
fn sixty_five_thousand_prefixes_fit_into_one_request() {
    let Some((_lab, gateway)) = one() else { return };
    let mut request = format!("public_key={}\n", peer(1));
    for a in 1..=255 {
        for b in 0..=255 {
            writeln!(request, "allowed_ip={a}.{b}.0.0/16").expect("a string grows");
        }
    }
    gateway.set(&request).expect("accepted");
    assert_eq!(allowed(&gateway), 255 * 256);
    // All of them at once to another peer.
    gateway.set(&request.replace(&peer(1), &peer(2))).expect("accepted");
    assert_eq!(allowed(&gateway), 255 * 256);
    gateway.set(&format!("public_key={}\nremove=true\n", peer(2))).expect("accepted");
    assert_eq!(allowed(&gateway), 0);
}

#[test]
fn several_requests_may_share_a_connection() {
    use std::io::{Read, Write};
    let Some((_lab, gateway)) = one() else { return };
    let mut stream = std::os::unix::net::UnixStream::connect(socket(&gateway)).expect("it listens");
    stream.write_all(b"set=1\nfwmark=1\n\nget=1\n\nset=1\nfwmark=x\n\nput=1\n\n").expect("it reads");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("it answers");
    assert_eq!(said, "errno=0\n\nfwmark=1\nerrno=0\n\nerrno=-22\n\nerrno=-71\n\n");
}

#[test]
fn the_daemon_ends_with_its_interface_its_socket_or_a_signal() {
    let Some(mut lab) = lab(&["a"]) else { return };
    for (number, how) in ["link", "socket", "signal"].iter().enumerate() {
        let interface = lab.interface(&format!("e{number}"));
        let gateway = Gateway::start(&mut lab, &daemon(), "a", &interface).expect("it serves");
        let path = socket(&gateway);
        match *how {
            "link" => drop(lab.ip("a", &format!("link delete {interface}")).expect("it is there")),
            "socket" => std::fs::remove_file(&path).expect("it is there"),
            _ => lab.kill(gateway.process, rustix::process::Signal::TERM),
        }
        let gone = || *how == "signal" || lab.ended(gateway.process).is_some();
        wait_until(PATIENCE, gone).unwrap_or_else(|error| panic!("{how}: {error}"));
        assert!(!path.exists() && !Path::new(&format!("/run/postern/{interface}.sock")).exists(), "{how}");
        assert!(lab.ip("a", &format!("link show {interface}")).is_err(), "{how}");
    }
}

#[test]
fn a_name_that_cannot_be_served_is_refused_with_the_reason() {
    let Some((lab, gateway)) = one() else { return };
    for (name, reason) in [
        (gateway.interface.as_str(), "served by another process"),
        ("much-too-long-a-name", "cannot be the name of an interface"),
        ("../../tmp/x", "cannot be the name of an interface"),
        ("..", "cannot be the name of an interface"),
        ("a b", "cannot be the name of an interface"),
        ("", "cannot be the name of an interface"),
        ("lo", "exists already: it is a device of this machine"),
    ] {
        let said =
            lab.run("a", &postern().to_string_lossy(), &["wireguard", name]).expect_err(name).to_string();
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn a_name_that_is_a_path_touches_nothing_there() {
    let Some(lab) = lab(&["a"]) else { return };
    let name = format!("../../tmp/p{}", std::process::id());
    // Where the socket of an interface with that name would be.
    let file = PathBuf::from(format!("/var/run/wireguard/{name}.sock"));
    std::fs::create_dir_all("/var/run/wireguard").expect("a directory");
    std::fs::write(&file, "precious").expect("a file");
    let said = lab.run("a", &postern().to_string_lossy(), &["wireguard", &name]).expect_err("refused");
    let left = std::fs::read(&file);
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!(left.expect("it is there"), b"precious", "{said}");
    assert!(said.to_string().contains("cannot be the name of an interface"), "{said}");
}

#[test]
fn a_hangup_ends_it_cleanly_unless_it_is_ignored() {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("every process has it");
    if u64::from_str_radix(ignored.trim(), 16).expect("hexadecimal") & 1 != 0 {
        return unavailable("hangups are ignored here, which is inherited: run it without nohup");
    }
    let Some(mut lab) = lab(&["a"]) else { return };
    let interface = lab.interface("h");
    let gateway = Gateway::start(&mut lab, &daemon(), "a", &interface).expect("it serves");
    let api = PathBuf::from(format!("/run/postern/{interface}.sock"));
    wait_until(PATIENCE, || api.exists()).expect("it serves");
    lab.kill(gateway.process, rustix::process::Signal::HUP);
    assert!(!socket(&gateway).exists() && !api.exists(), "nothing is left behind");
    assert!(lab.ip("a", &format!("link show {interface}")).is_err());
    // As nohup starts it.
    let mut command = lab.command("a", "sh");
    command.env("LOG_LEVEL", "error");
    command.args(["-c", "trap '' HUP; exec \"$0\" wireguard -f \"$1\""]).arg(postern()).arg(&interface);
    let process = lab.start(&mut command).expect("it starts");
    wait_until(PATIENCE, || api.exists()).expect("it serves");
    let pid = rustix::process::Pid::from_raw(process.id() as i32).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("it lives");
    std::thread::sleep(Duration::from_millis(200));
    assert!(lab.ended(process).is_none() && converse(&interface, "get=1\n\n").is_ok());
}

#[test]
fn in_the_background_it_survives_the_terminal() {
    let Some(lab) = lab(&["a"]) else { return };
    let interface = lab.interface("t");
    let mut command = lab.command("a", postern());
    command.args(["wireguard", &interface]).process_group(0);
    let mut child = command.spawn().expect("it starts");
    assert!(child.wait().expect("it ends").success());
    // A terminal that closes says so to the groups of its session; none may be left in this one.
    let group = rustix::process::Pid::from_raw(child.id() as i32).expect("a process id");
    let said = rustix::process::kill_process_group(group, rustix::process::Signal::HUP);
    assert!(said.is_err(), "the daemon has left");
    assert!(converse(&interface, "get=1\n\n").expect("it serves").ends_with("errno=0\n"));
    lab.ip("a", &format!("link delete {interface}")).expect("it is there");
    let socket = PathBuf::from(format!("/var/run/wireguard/{interface}.sock"));
    wait_until(PATIENCE, || !socket.exists()).expect("it ends");
}

#[test]
fn a_file_may_be_called_as_the_verb_is() {
    let Some(lab) = lab(&["a"]) else { return };
    let interface = lab.interface("v");
    let folder = tempfile::tempdir().expect("a directory");
    let mut command = lab.command("a", postern());
    command.args(["wireguard", &interface, "--capture-inside", "wireguard"]).current_dir(&folder);
    let output = command.output().expect("it runs");
    let captured = folder.path().join("wireguard").exists();
    assert!(output.status.success() && captured, "{}", String::from_utf8_lossy(&output.stderr));
    lab.ip("a", &format!("link delete {interface}")).expect("it is there");
}

#[test]
fn every_gateway_gives_up_the_rights_that_it_does_not_need() {
    let Some(mut lab) = lab(&["a"]) else { return };
    // Bits of linux/capability.h: NET_BIND_SERVICE, NET_ADMIN, SYS_ADMIN.
    let needed = 1u64 << 10 | 1 << 12 | 1 << 21;
    for (name, daemon) in [("p", daemon()), ("n", Daemon::PosternWithoutCipher(postern()))] {
        let interface = lab.interface(name);
        let gateway = Gateway::start(&mut lab, &daemon, "a", &interface).expect("it serves");
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", gateway.process.id())).expect("it lives");
        let kept = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).expect("it is there");
        let kept = u64::from_str_radix(kept.trim(), 16).expect("a number");
        assert_eq!(kept & !needed, 0, "{}: {kept:x}", daemon.name());
    }
}

#[test]
fn no_text_of_a_key_stays_in_memory() {
    let Some((_lab, gateway)) = one() else { return };
    let (private, shared) = ("5a".repeat(31) + "40", "a7".repeat(32));
    let mut request = format!("private_key={private}\npublic_key={}\npreshared_key={shared}\n", peer(1));
    for number in 0..20_000 {
        writeln!(request, "allowed_ip=10.{}.{}.0/24", number / 256, number % 256).expect("a string grows");
    }
    gateway.set(&request).expect("accepted");
    assert!(gateway.get().expect("it answers").contains(&shared));
    gateway.set(&format!("private_key {private}\n")).expect_err("wrong");
    for key in [&private, &shared] {
        // The daemon erases the last request when it has sent its answer.
        let erased = || occurrences(gateway.process, key) == 0;
        wait_until(PATIENCE, erased).expect("no copy is left");
    }
}

#[test]
fn a_set_that_ends_with_its_connection_is_done() {
    use std::io::{Read, Write};
    let Some((_lab, gateway)) = one() else { return };
    let mut stream = std::os::unix::net::UnixStream::connect(socket(&gateway)).expect("it listens");
    stream.write_all(b"set=1\nfwmark=9\n").expect("it reads");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("it answers");
    assert_eq!(said, "errno=0\n\n");
    assert_eq!(gateway.value("fwmark").expect("it answers").as_deref(), Some("9"));
}

#[test]
fn in_the_background_it_serves_before_the_command_returns() {
    let Some(lab) = lab(&["a"]) else { return };
    let interface = lab.interface("d");
    lab.run("a", &postern().to_string_lossy(), &["wireguard", &interface]).expect("it starts");
    assert!(converse(&interface, "get=1\n\n").expect("it serves").ends_with("errno=0\n"));
    lab.ip("a", &format!("link delete {interface}")).expect("it is there");
    let socket = PathBuf::from(format!("/var/run/wireguard/{interface}.sock"));
    wait_until(PATIENCE, || !socket.exists()).expect("it ends");
}

#[test]
fn wg_drives_it() {
    let Some((lab, gateway)) = one() else { return };
    if !has_program("wg") {
        return skip("needs wg");
    }
    let wg = |arguments: &[&str]| lab.run("a", "wg", arguments);
    let keys = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&keys, "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n").expect("a file");
    let (name, file) = (gateway.interface.as_str(), keys.path().to_string_lossy().into_owned());
    let public = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
    wg(&[
        "set",
        name,
        "private-key",
        &file,
        "listen-port",
        "5",
        "peer",
        public,
        "allowed-ips",
        "10.0.0.0/8,fd00::/8",
    ])
    .expect("accepted");
    wg(&["set", name, "peer", public, "endpoint", "[::1]:7", "persistent-keepalive", "20"])
        .expect("accepted");
    let dump = wg(&["show", name, "dump"]).expect("it answers");
    assert!(
        dump.contains("[::1]:7\tfd00::/8,10.0.0.0/8") || dump.contains("[::1]:7\t10.0.0.0/8,fd00::/8"),
        "{dump}"
    );
    let configuration = wg(&["showconf", name]).expect("it answers");
    std::fs::write(&keys, &configuration).expect("a file");
    wg(&["setconf", name, &file]).expect("what it showed it takes");
    wg(&["syncconf", name, &file]).expect("what it showed it takes");
    wg(&["set", name, "peer", public, "remove"]).expect("accepted");
    assert!(!wg(&["show", name, "dump"]).expect("it answers").contains(public));
}

#[test]
fn wg_quick_brings_a_tunnel_up_and_down() {
    let Some(lab) = sites() else { return };
    if Path::new("/sys/module/wireguard").exists() {
        return unavailable("wg-quick would use the WireGuard of this kernel");
    }
    if !has_program("wg-quick") {
        return skip("needs wg-quick");
    }
    let directory = tempfile::tempdir().expect("a directory");
    // wg-quick takes the name of a program without arguments.
    let program = directory.path().join("postern-wireguard");
    std::os::unix::fs::symlink(postern(), &program).expect("a link");
    let keys: Vec<(String, String)> = (0..2)
        .map(|_| {
            let private = run("wg", ["genkey"]).expect("wg works").trim().to_owned();
            let public = run("sh", ["-c", &format!("echo {private} | wg pubkey")]).expect("wg works");
            (private, public.trim().to_owned())
        })
        .collect();
    let mut configurations = Vec::new();
    for (end, site) in ["a", "b"].iter().enumerate() {
        let interface = lab.interface(&format!("q{end}"));
        let path = directory.path().join(format!("{interface}.conf"));
        // Everything goes through the tunnel: wg-quick's own rules and marks are put to the test.
        let text = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = 51820\nAddress = 10.66.0.{}/24\nMTU = 1400\n\
             [Peer]\nPublicKey = {}\nEndpoint = 192.168.77.{}:51820\nAllowedIPs = 0.0.0.0/0\n",
            keys[end].0,
            end + 1,
            keys[1 - end].1,
            2 - end
        );
        std::fs::write(&path, text).expect("a file");
        configurations.push((*site, interface, path));
    }
    let quick = |site: &str, verb: &str, path: &Path| {
        let mut command = lab.command(site, "wg-quick");
        command.args([verb, &path.to_string_lossy()]).env("WG_QUICK_USERSPACE_IMPLEMENTATION", &program);
        let output = command.process_group(0).output().expect("it runs");
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for (site, _, path) in &configurations {
        quick(site, "up", path);
    }
    assert!(answers(&lab, "a", "10.66.0.2") && answers(&lab, "b", "10.66.0.1"));
    for (site, _, path) in &configurations {
        quick(site, "down", path);
    }
    for (site, interface, _) in &configurations {
        assert!(lab.ip(site, &format!("link show {interface}")).is_err(), "{site} is clean");
    }
}
