//! Programs about the interface: what they are told by ours and by OpenVPN 2.6 is compared name by name.

use crate::openvpn_client_ends::Client;
use crate::openvpn_ends::{CLIENT_END, Program, SERVER_END};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;

/// What each program of an end was told, by `script_type`: arguments and variables.
type Told = BTreeMap<String, (String, BTreeMap<String, String>)>;

/// Variables whose values are of one process, or of the shell.
const OWN: &[&str] =
    &["daemon_pid", "daemon_start_time", "config", "PWD", "PATH", "SHLVL", "_", "folder", "verb"];
/// The same for a client at its server.
const OF_CLIENT: &[&str] = &[
    "trusted_port",
    "untrusted_port",
    "time_ascii",
    "time_unix",
    "time_duration",
    "bytes_received",
    "bytes_sent",
    "client_connect_config_file",
    "client_connect_deferred_file",
];

const LINES: &str = "script-security 2\nverb 4\nup \"{}/tell one two\"\ndown {}/tell\nroute-up {}/tell\nroute-pre-down {}/tell\n";
const SERVER: &str = "client-disconnect {}/tell\nroute 10.77.0.0 255.255.0.0\n\
    push \"route-ipv6 fd55::/64\"\npush \"dhcp-option DOMAIN example.org\"\npush \"dns server 1 address 10.9.0.1\"\n\
    push \"dns search-domains example.com\"\n";
const CLIENT: &str = "ipchange {}/tell\nroute 10.89.0.1 255.255.255.255 net_gateway 5\n";

/// A program that writes what it is told, one file for each `script_type`.
const TELL: &str = "#!/bin/sh\n(echo \"$*\"; /usr/bin/env) > \"$folder/$end.$script_type.part\"\n\
    mv \"$folder/$end.$script_type.part\" \"$folder/$end.$script_type\"\n";

/// Runs both ends; the client ends before the server.
fn told(program: Program) -> Option<[Told; 2]> {
    let mut ends = Client::sites(Program::Stock)?;
    ends.lab.ip("a", "route add default via 192.168.77.2").expect("root may");
    ends.lab.ip("b", "route add default via 192.168.77.1").expect("root may");
    let tell = ends.write("tell", TELL, 0o755);
    let folder = tell.strip_suffix("/tell").expect("ours").to_owned();
    let lines = |own: &str, end: usize| {
        format!("{LINES}{own}setenv folder {{}}\nsetenv end {end}\n").replace("{}", &folder)
    };
    ends.start(program, SERVER_END, &lines(SERVER, SERVER_END));
    let log = "Initialization Sequence Completed";
    ends.wait_for_log(SERVER_END, log);
    ends.start(program, CLIENT_END, &lines(CLIENT, CLIENT_END));
    ends.wait("it connects", |it| it.reaches("10.9.0.1"));
    ends.wait_for_log(CLIENT_END, log);
    let read = |end: usize, name: &str| std::fs::read_to_string(format!("{folder}/{end}.{name}")).ok();
    ends.kill(CLIENT_END, Signal::TERM);
    ends.wait("the client ends", |_| read(CLIENT_END, "down").is_some());
    ends.wait("the server knows", |_| read(SERVER_END, "client-disconnect").is_some());
    ends.kill(SERVER_END, Signal::TERM);
    ends.wait("the server ends", |_| read(SERVER_END, "down").is_some());
    let of = |end: usize, names: &[&str]| {
        let one = |name: &&str| {
            let text = read(end, name).unwrap_or_else(|| panic!("{name} did not run\n{}", ends.logs()));
            let (arguments, rest) = text.split_once('\n').expect("a line");
            let variables = rest.lines().filter_map(|line| line.split_once('='));
            let variables = variables.filter(|(name, _)| !OWN.contains(name) && !OF_CLIENT.contains(name));
            let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            ((*name).to_owned(), (arguments.to_owned(), variables))
        };
        names.iter().map(one).collect::<Told>()
    };
    let all = ["up", "route-up", "route-pre-down", "down"];
    let client: Vec<&str> = all.into_iter().chain(["ipchange"]).collect();
    let server: Vec<&str> = all.into_iter().chain(["client-disconnect"]).collect();
    Some([of(CLIENT_END, &client), of(SERVER_END, &server)])
}

#[test]
fn programs_are_told_by_ours_what_openvpn_tells_them() {
    let (Some(stock), Some(ours)) = (told(Program::Stock), told(Program::Ours)) else { return };
    let mut found = Vec::new();
    for (end, (stock, ours)) in stock.iter().zip(&ours).enumerate() {
        for (name, (arguments, variables)) in stock {
            let (own_arguments, own) = &ours[name];
            if !is_equal("", arguments, own_arguments) {
                found.push(format!("{end} {name}: {arguments:?}, ours {own_arguments:?}"));
            }
            let names: BTreeSet<&String> = variables.keys().chain(own.keys()).collect();
            for variable in names {
                let (theirs, own) = (variables.get(variable), own.get(variable));
                let is_same = match (theirs, own) {
                    (Some(theirs), Some(own)) => is_equal(variable, theirs, own),
                    (None, Some(_)) => is_more(name, variable),
                    _ => variable.starts_with("IV_"),
                };
                if !is_same {
                    found.push(format!("{end} {name}: {variable} is {theirs:?}, ours {own:?}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Interfaces have names of their test, certificates are new in each, and what a client says about itself differs.
fn is_equal(variable: &str, one: &str, other: &str) -> bool {
    let is_own = variable.starts_with("IV_")
        || variable.starts_with("tls_digest")
        || variable.starts_with("tls_serial");
    let without_interface = |text: &str| {
        text.split(' ')
            .filter(|word| !word.contains("oc") && !word.contains("os"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    is_own || variable == "dev" || without_interface(one) == without_interface(other)
}

/// What programs of ours are told beside that. An interface of ours is there before the server answers.
fn is_more(script: &str, variable: &str) -> bool {
    let of_interface = script == "ipchange" && ["dev", "dev_type", "tun_mtu"].contains(&variable);
    of_interface || variable == "ifconfig_pool_local_ip" || variable.starts_with("IV_")
}

#[test]
fn programs_do_the_whole_job_and_a_failing_up_ends_a_client() {
    let Some(mut ends) = Client::sites(Program::Stock) else { return };
    let up = "#!/bin/sh\nset -e\nip address add $4/24 dev $1\n";
    let routes =
        "#!/bin/sh\nset -e\nip route add $route_network_1 dev $dev\nip route add $route_network_2 dev $dev\n";
    let (up, routes) = (ends.write("up", up, 0o755), ends.write("routes", routes, 0o755));
    let gone = "#!/bin/sh\necho $script_type $signal $(id -u) >> $folder/ends\n";
    let gone = ends.write("gone", gone, 0o755);
    let folder = gone.strip_suffix("/gone").expect("ours").to_owned();
    // Programs are run by another user, too.
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).expect("ours");
    let text = || std::fs::read_to_string(format!("{folder}/ends")).unwrap_or_default();
    ends.start(Program::Stock, SERVER_END, "");
    let common = format!("script-security 2\nsetenv folder {folder}\ndown {gone}\nroute-pre-down {gone}\n");
    let noexec = format!("{common}ifconfig-noexec\nroute-noexec\nup {up}\nroute-up {routes}\n");
    ends.start(Program::Ours, CLIENT_END, &noexec);
    ends.wait("it connects", |it| it.reaches("10.9.0.1"));
    ends.wait("it has routes", |it| ["10.99.1.1", "10.99.2.1"].iter().all(|address| it.is_inside(address)));
    ends.kill(CLIENT_END, Signal::TERM);
    ends.wait("both run", |_| text() == "route-pre-down sigterm 0\ndown sigterm 0\n");
    std::fs::remove_file(format!("{folder}/ends")).expect("ours");
    let modest = format!("{common}user nobody\ngroup nogroup\nup {gone}\n");
    ends.start(Program::Ours, CLIENT_END, &modest);
    ends.wait("it connects", |it| it.reaches("10.9.0.1"));
    ends.wait("up has run", |_| text() == "up 0\n");
    // The first one runs as root, as with OpenVPN, and has made the file.
    std::fs::set_permissions(format!("{folder}/ends"), PermissionsExt::from_mode(0o666)).expect("ours");
    ends.kill(CLIENT_END, Signal::INT);
    ends.wait("all run", |_| text() == "up 0\nroute-pre-down sigint 65534\ndown sigint 65534\n");
    ends.start(Program::Ours, CLIENT_END, "script-security 2\nup /bin/false\n");
    assert_eq!(ends.status(), Some(1), "{}", ends.logs());
    assert!(ends.log(CLIENT_END).contains("up: exit status 1\n  fix: "), "{}", ends.logs());
}

#[test]
fn a_client_ends_when_it_is_idle_when_its_server_is_gone_and_when_a_handshake_fails() {
    let Some(mut ends) = Client::sites(Program::Stock) else { return };
    ends.start(Program::Stock, SERVER_END, "push \"inactive 6\"\n");
    ends.start(Program::Ours, CLIENT_END, "");
    // Pings of both ends do not count.
    assert_eq!(ends.status(), Some(0), "{}", ends.logs());
    assert!(ends.log(CLIENT_END).contains("ends: inactive"), "{}", ends.logs());
    ends.start(
        Program::Ours,
        CLIENT_END,
        "ping-exit 4\npull-filter ignore ping-restart\npull-filter ignore inactive\n",
    );
    ends.wait("it connects", |it| it.reaches("10.9.0.1"));
    ends.kill(SERVER_END, Signal::KILL);
    assert_eq!(ends.status(), Some(0), "{}", ends.logs());
    assert!(ends.log(CLIENT_END).contains("ends: ping-exit"), "{}", ends.logs());
    ends.start(Program::Ours, CLIENT_END, "tls-exit\nhand-window 2\n");
    assert_eq!(ends.status(), Some(0), "{}", ends.logs());
    assert!(ends.log(CLIENT_END).contains("ends: tls-error"), "{}", ends.logs());
    let ended = |it: &Client, reason| it.log(SERVER_END).matches(reason).count();
    ends.start(Program::Ours, SERVER_END, "session-timeout 3\n");
    ends.start(Program::Stock, CLIENT_END, "");
    ends.wait("it ends twice", |it| ended(it, "session-timeout ends the session with client client") >= 2);
}

/// A program that puts name servers into a file as those do that come with OpenVPN, and takes them out.
const RESOLVE: &str = r##"#!/bin/sh
set -e
file="$folder/resolv"
[ "$script_type" = down ] && { echo "$foreign_option_1" > "$folder/last"; rm "$file"; exit 0; }
number=1
while eval "option=\$foreign_option_$number"; [ -n "$option" ]; do
    set -- $option
    case "$1 $2" in
        "dhcp-option DNS") echo "nameserver $3" ;;
        "dhcp-option DOMAIN") echo "search $3" ;;
        *) echo "# $option" ;;
    esac
    number=$((number + 1))
done > "$file.part"
mv "$file.part" "$file"
"##;

#[test]
fn a_program_sets_the_name_servers_that_a_stock_server_pushes() {
    let Some(mut ends) = Client::sites(Program::Stock) else { return };
    let resolve = ends.write("resolve", RESOLVE, 0o755);
    let folder = resolve.strip_suffix("/resolve").expect("ours").to_owned();
    let file = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).ok();
    let lines =
        format!("script-security 2\nup {resolve}\ndown {resolve}\nsetenv folder {folder}\nup-restart\n");
    ends.start(Program::Ours, CLIENT_END, &lines);
    let answers = [
        (
            "push \"dhcp-option DNS 10.9.0.1\"\npush \"dhcp-option NTP 10.9.0.3\"\npush \"dhcp-option DNS fd09::1\"\n\
          push \"dhcp-option DOMAIN corp.example\"\n",
            "nameserver 10.9.0.1\n# dhcp-option NTP 10.9.0.3\nnameserver fd09::1\nsearch corp.example\n",
        ),
        // The next server pushes less: nothing of the first one is left.
        ("push \"dhcp-option DNS 10.9.0.9\"\n", "nameserver 10.9.0.9\n"),
    ];
    for (pushed, expected) in answers {
        ends.start(Program::Stock, SERVER_END, pushed);
        ends.wait(expected, |_| file("resolv").as_deref() == Some(expected));
        ends.wait("it connects", |it| it.reaches("10.9.0.1"));
        ends.kill(SERVER_END, Signal::KILL);
    }
    ends.kill(CLIENT_END, Signal::TERM);
    ends.wait("they are taken out", |_| file("last").is_some() && file("resolv").is_none());
    assert_eq!(file("last").as_deref(), Some("dhcp-option DNS 10.9.0.9\n"));
}
