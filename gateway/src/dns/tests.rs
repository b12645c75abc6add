//! The helper on a folder that stands for a machine.

use super::helper::Helper;
use super::*;
use config::openvpn::settings::DnsServer;
use lab::files::Files;
use std::os::unix::fs::symlink;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

fn request(interface: &str, server: &str) -> Request {
    let servers = vec![(server.parse().expect("literal"), None)];
    Request {
        interface: interface.to_owned(),
        servers,
        search: vec!["corp.example".to_owned()],
        ..Request::default()
    }
}

/// Serves requests to the end, or drops the helper as if it was killed; returns the answers.
fn serve(files: &Files, requests: &[Request]) -> Vec<Answer> {
    let lines: Vec<String> =
        requests.iter().map(|it| serde_json::to_string(it).expect("serializable") + "\n").collect();
    let mut answers = Vec::new();
    let helper = Helper::start(files.path().to_owned(), |name| name.starts_with("tun"));
    helper.serve(lines.concat().as_bytes(), &mut answers).expect("memory");
    let text = String::from_utf8(answers).expect("JSON");
    text.lines().map(|line| serde_json::from_str(line).expect("an answer")).collect()
}

fn conf(files: &Files) -> String {
    files.read("etc/resolv.conf").unwrap_or_default()
}

/// Looks at the file before each read: requests are carried out between reads.
struct Look<'a>(&'a [u8], &'a Files, &'a mut Vec<String>);
impl io::Read for Look<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.2.push(conf(self.1));
        self.0.read(to)
    }
}

#[test]
fn resolv_conf_is_replaced_and_put_back_with_its_link() {
    let files = Files::default();
    files.write("run/stub.conf", "nameserver 192.0.2.53\n", 0o644);
    std::fs::create_dir_all(files.at("etc")).expect("a folder");
    symlink("../run/stub.conf", files.at("etc/resolv.conf")).expect("a link");
    let mut seen = Vec::new();
    let helper = Helper::start(files.path().to_owned(), |name| name.starts_with("tun"));
    let line = serde_json::to_string(&request("tun0", "10.8.0.1")).expect("serializable") + "\n";
    let mut answers = Vec::new();
    helper.serve(Look(line.as_bytes(), &files, &mut seen), &mut answers).expect("memory");
    let ours = "# postern openvpn: name servers of tun0\nnameserver 10.8.0.1\nsearch corp.example\n";
    assert_eq!(seen.last().map(String::as_str), Some(ours), "{}", String::from_utf8_lossy(&answers));
    assert_eq!(conf(&files), "nameserver 192.0.2.53\n");
    assert!(files.at("etc/resolv.conf").is_symlink() && files.names("etc") == ["resolv.conf"]);
    assert_eq!(
        files.read("run/stub.conf").as_deref(),
        Some("nameserver 192.0.2.53\n"),
        "nothing is written through it"
    );
}

#[test]
fn what_a_killed_process_left_is_put_back_at_the_next_start() {
    let files = Files::default();
    files.write("etc/resolv.conf", "# postern openvpn: name servers of tun0\nnameserver 10.8.0.1\n", 0o644);
    files.write("etc/resolv.conf.before-tun0", "nameserver 192.0.2.53\n", 0o644);
    files.write("sys/class/net/tun0/mtu", "1500", 0o644);
    assert!(serve(&files, &[]).is_empty());
    assert!(conf(&files).contains("10.8.0.1"), "the interface is there: its process runs");
    std::fs::remove_dir_all(files.at("sys")).expect("it is there");
    serve(&files, &[]);
    assert_eq!((conf(&files).as_str(), files.names("etc").len()), ("nameserver 192.0.2.53\n", 1));
    // It was killed between the two steps.
    std::fs::rename(files.at("etc/resolv.conf"), files.at("etc/resolv.conf.before-tun0")).expect("ours");
    serve(&files, &[]);
    assert_eq!(conf(&files), "nameserver 192.0.2.53\n");
}

#[test]
fn a_file_that_another_program_has_written_meanwhile_stays() {
    let files = Files::default();
    files.write("etc/resolv.conf", "nameserver 203.0.113.53\n", 0o644);
    files.write("etc/resolv.conf.before-tun0", "nameserver 192.0.2.53\n", 0o644);
    serve(&files, &[]);
    assert_eq!(conf(&files), "nameserver 203.0.113.53\n");
}

/// A program that writes its arguments and its input to a log.
fn program(files: &Files, name: &str) {
    let log = files.named("log");
    files.write(
        &format!("usr/bin/{name}"),
        &format!("#!/bin/sh\necho \"{name} $*\" >> {log}\ncat >> {log}\n"),
        0o755,
    );
}

#[test]
fn resolved_and_resolvconf_are_told_if_they_are_there() {
    let files = Files::default();
    files.write("etc/resolv.conf", "nameserver 192.0.2.53\n", 0o644);
    program(&files, "resolvconf");
    serve(&files, &[request("tun0", "10.8.0.1")]);
    let told = files.read("log").unwrap_or_default();
    assert!(
        told.starts_with("resolvconf -a tun0.postern\n# postern")
            && told.ends_with("resolvconf -d tun0.postern\n"),
        "{told}"
    );
    std::fs::remove_file(files.at("log")).expect("it is there");
    program(&files, "resolvectl");
    files.write("run/systemd/resolve/io.systemd.Resolve", "", 0o644);
    let split = Request {
        domains: vec!["corp.example".to_owned()],
        search: Vec::new(),
        server_name: Some("dns.example".to_owned()),
        over_tls: true,
        servers: vec![([10, 8, 0, 1].into(), Some(853))],
        ..request("tun0", "10.8.0.1")
    };
    serve(&files, &[request("tun0", "10.8.0.1"), split]);
    let expected = "resolvectl dns tun0 10.8.0.1\nresolvectl domain tun0 corp.example ~.\n\
                    resolvectl revert tun0\nresolvectl dns tun0 10.8.0.1:853#dns.example\nresolvectl domain tun0 ~corp.example\n\
                    resolvectl dnsovertls tun0 yes\nresolvectl revert tun0\n";
    assert_eq!(files.read("log").as_deref(), Some(expected));
    assert_eq!(conf(&files), "nameserver 192.0.2.53\n");
}

#[test]
fn a_program_that_hangs_is_ended_and_named() {
    let files = Files::default();
    files.write("usr/bin/resolvconf", "#!/bin/sh\nexec sleep 600\n", 0o755);
    let mut helper = Helper::start(files.path().to_owned(), |name| name.starts_with("tun"));
    let begun = std::time::Instant::now();
    let told = helper.set(request("tun0", "10.8.0.1")).expect_err("it hangs");
    assert!(told.ends_with("resolvconf -a tun0.postern: it did not end within 3 seconds"), "{told}");
    assert!(begun.elapsed() < PATIENCE, "the end of the daemon waits for it");
}

#[tokio::test]
async fn the_end_waits_for_the_helper_and_keeps_nothing_else_waiting() {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    theirs.set_nonblocking(true).expect("a socket");
    let name_servers = NameServers::start(ours).expect("a thread");
    name_servers.set(request("tun0", "10.8.0.1")).expect("it is sent");
    let is_answered = std::cell::Cell::new(false);
    // The helper answers both requests in the only thread of the runtime, which the end must not block.
    let theirs = tokio::net::UnixStream::from_std(theirs).expect("a socket");
    let helper = async {
        let (requests, mut answers) = theirs.into_split();
        let mut requests = tokio::io::BufReader::new(requests).lines();
        for _ in 0..2 {
            requests.next_line().await.expect("a socket").expect("a request");
        }
        answers.write_all(b"{\"Done\":\"\"}\n").await.expect("a socket");
        tokio::time::sleep(Duration::from_millis(50)).await;
        is_answered.set(true);
        answers.write_all(b"{\"Done\":\"\"}\n").await.expect("a socket");
        (requests, answers)
    };
    let end = async {
        name_servers.put_back("tun0").await;
        assert!(is_answered.get(), "the first answer is to the other request");
    };
    let begun = std::time::Instant::now();
    let (_open, ()) = tokio::join!(helper, end);
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn the_servers_of_a_lease_get_no_names_that_a_tunnel_is_for() {
    let files = Files::default();
    files.write("sys/class/net/eth0", "", 0o600);
    program(&files, "resolvectl");
    files.write("run/systemd/resolve/io.systemd.Resolve", "", 0o644);
    // The domain of the lease is a text of the DHCP server: it may be that of the network behind the tunnel.
    serve(&files, &[request("tun0", "10.8.0.1"), request("eth0", "203.0.113.1")]);
    let told = files.read("log").unwrap_or_default();
    let of = |interface: &str| {
        let words: Vec<&str> = told.lines().filter(|line| line.contains(interface)).collect();
        words.join("\n")
    };
    let expected =
        "resolvectl dns eth0 203.0.113.1\nresolvectl default-route eth0 yes\nresolvectl revert eth0";
    assert_eq!(of("eth0"), expected);
    assert!(of("tun0").contains("resolvectl domain tun0 corp.example ~.\n"), "{told}");
}

#[test]
fn what_is_no_name_reaches_no_file_and_no_command_line() {
    let search = ["a.example", "$(reboot)", "a;b", "a b", "a\nnameserver 203.0.113.1", "-x", "", "~."];
    let dns = Dns {
        dhcp: vec![[10, 8, 0, 1].into()],
        search: search.map(str::to_owned).to_vec(),
        ..Dns::default()
    };
    let (clean, wrong) = Request::of("tun0", &dns);
    assert_eq!((clean.search, wrong.len()), (vec!["a.example".to_owned()], search.len() - 1));
    let files = Files::default();
    files.write("etc/resolv.conf", "nameserver 192.0.2.53\n", 0o644);
    let hostile = [
        Request { search: vec!["a\nb".to_owned()], ..request("tun0", "10.8.0.1") },
        Request { dnssec: Some("--help".to_owned()), ..request("tun0", "10.8.0.1") },
        request("../tun0", "10.8.0.1"),
        request("-a", "10.8.0.1"),
    ];
    for answer in serve(&files, &hostile) {
        assert_eq!(answer, Answer::Failed("the request is malformed".to_owned()));
    }
    assert_eq!(files.names("etc"), ["resolv.conf"]);
}

#[test]
fn only_an_interface_that_is_there_gets_name_servers() {
    let files = Files::default();
    files.write("etc/resolv.conf", "nameserver 192.0.2.53\n", 0o644);
    program(&files, "resolvconf");
    let refused = Answer::Failed("eth0 is no interface with name servers".to_owned());
    assert_eq!(serve(&files, &[request("eth0", "203.0.113.1")]), [refused]);
    assert_eq!(files.read("log"), None);
    // Each interface has its own.
    let nothing = Request { interface: "tun1".to_owned(), ..Request::default() };
    serve(&files, &[request("tun0", "10.8.0.1"), request("tun1", "10.8.0.1"), nothing]);
    let told = files.read("log").unwrap_or_default();
    let told: Vec<&str> = told.lines().filter(|line| line.starts_with("resolvconf")).collect();
    let expected = ["-a tun0", "-a tun1", "-d tun1", "-d tun0"].map(|it| format!("resolvconf {it}.postern"));
    assert_eq!(told, expected);
}

#[test]
fn those_of_a_tunnel_count_before_those_of_other_interfaces_which_wait() {
    let files = Files::default();
    files.write("etc/resolv.conf", "nameserver 192.0.2.53\n", 0o644);
    for link in ["eth0", "eth1", "lo"] {
        files.write(&format!("sys/class/net/{link}"), "", 0o600);
    }
    let mut helper = Helper::start(files.path().to_owned(), |name| name.starts_with("tun"));
    let now = || files.read("etc/resolv.conf").unwrap_or_default();
    let nothing = |name: &str| Request { interface: name.to_owned(), ..Request::default() };
    helper.set(request("eth0", "203.0.113.1")).expect("it is there");
    assert!(now().contains("203.0.113.1"));
    assert!(
        helper.set(request("eth1", "203.0.113.2")).expect("it waits").contains("those of eth0: these wait")
    );
    assert!(now().contains("203.0.113.1"));
    helper.set(request("tun0", "10.8.0.1")).expect("it counts more");
    assert!(now().contains("10.8.0.1") && !now().contains("203.0.113.1"));
    helper.set(nothing("eth1")).expect("it waits no more");
    helper.set(nothing("tun0")).expect("put back");
    assert!(now().contains("203.0.113.1"), "{}", now());
    helper.set(nothing("eth0")).expect("put back");
    assert_eq!(now(), "nameserver 192.0.2.53\n");
    helper.set(request("lo", "203.0.113.1")).expect_err("the loopback has none");
}

#[test]
fn a_second_interface_does_not_replace_the_file_of_the_first() {
    let files = Files::default();
    files.write("etc/resolv.conf", "nameserver 192.0.2.53\n", 0o644);
    let answers = serve(&files, &[request("tun0", "10.8.0.1"), request("tun1", "10.8.0.2")]);
    let [Answer::Done(_), Answer::Failed(told)] = &answers[..] else { panic!("{answers:?}") };
    assert!(told.contains("/etc/resolv.conf has those of tun0"), "{told}");
    assert_eq!((conf(&files).as_str(), files.names("etc").len()), ("nameserver 192.0.2.53\n", 1));
}

/// Two processes, each with a helper of its own, and a tunnel in each.
fn two_processes(files: &Files) -> [Helper; 2] {
    files.write("etc/resolv.conf", "nameserver 192.0.2.53\n", 0o644);
    ["tun0", "tun1"].map(|interface| {
        files.write(&format!("sys/class/net/{interface}"), "", 0o600);
        let mut helper = Helper::start(files.path().to_owned(), |name| name.starts_with("tun"));
        helper.set(request(interface, "10.8.0.1")).expect("a folder");
        helper
    })
}

#[test]
fn the_original_comes_back_in_whatever_order_two_processes_end() {
    for order in [[0, 1], [1, 0]] {
        let files = Files::default();
        let mut helpers = two_processes(&files);
        for at in order {
            let nothing = Request { interface: format!("tun{at}"), ..Request::default() };
            helpers[at].set(nothing).expect("put back");
        }
        assert_eq!(conf(&files), "nameserver 192.0.2.53\n", "{order:?}");
        assert_eq!(files.names("etc"), ["resolv.conf"], "{order:?}");
    }
}

#[test]
fn new_servers_of_the_first_of_two_processes_leave_the_original_alone() {
    let files = Files::default();
    let mut helpers = two_processes(&files);
    helpers[0].set(request("tun0", "10.8.0.77")).expect("a folder");
    assert!(conf(&files).contains("of tun1"), "{}", conf(&files));
    let nothing = |at: usize| Request { interface: format!("tun{at}"), ..Request::default() };
    helpers[1].set(nothing(1)).expect("put back");
    assert!(conf(&files).contains("10.8.0.77"), "{}", conf(&files));
    helpers[0].set(nothing(0)).expect("put back");
    assert_eq!(conf(&files), "nameserver 192.0.2.53\n");
}

#[test]
fn the_first_server_that_can_be_used_is_taken() {
    let server = |priority, address: [u8; 4], transport: Option<&str>| DnsServer {
        priority,
        addresses: vec![(address.into(), None)],
        transport: transport.map(str::to_owned),
        ..DnsServer::default()
    };
    let servers = vec![server(1, [10, 8, 0, 1], Some("DoH")), server(2, [10, 8, 0, 2], None)];
    let dns = Dns { servers, dhcp: vec![[10, 8, 0, 3].into()], ..Dns::default() };
    assert_eq!(Request::of("tun0", &dns).0.servers, [([10, 8, 0, 2].into(), None)]);
    let dns = Dns { servers: Vec::new(), ..dns };
    assert_eq!(Request::of("tun0", &dns).0.servers, [([10, 8, 0, 3].into(), None)]);
}

/// Ends with the error of a peer that was killed with something unread.
struct Reset<'a>(&'a [u8]);
impl io::Read for Reset<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() { Err(io::ErrorKind::ConnectionReset.into()) } else { self.0.read(to) }
    }
}

#[test]
fn what_a_killed_daemon_had_set_is_put_back_though_it_read_no_answer() {
    let files = Files::default();
    files.write("etc/resolv.conf", "nameserver 192.0.2.53\n", 0o644);
    let line = serde_json::to_string(&request("tun0", "10.8.0.1")).expect("serializable") + "\n";
    let mut answers = Vec::new();
    let helper = Helper::start(files.path().to_owned(), |name| name.starts_with("tun"));
    helper.serve(Reset(line.as_bytes()), &mut answers).expect("memory");
    assert!(!answers.is_empty());
    assert_eq!(conf(&files), "nameserver 192.0.2.53\n");
}
