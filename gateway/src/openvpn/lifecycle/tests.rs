//! The order of programs, and what runs at the end.

use super::*;
use crate::openvpn::options::Own;
use crate::openvpn::scripts::{Program, Programs};
use std::os::unix::net::UnixStream;

const ALL: [Hook; 5] = [Hook::Up, Hook::Down, Hook::RouteUp, Hook::RoutePreDown, Hook::IpChange];

struct Bed {
    lifecycle: Lifecycle,
    _process: UnixStream,
}

impl Bed {
    fn new(hooks: &[Hook], programs: InterfacePrograms) -> Self {
        let (ours, process) = UnixStream::pair().expect("sockets");
        let program = Program { path: "/bin/true".into(), arguments: Vec::new(), owner: None };
        let by_hook = hooks.iter().map(|hook| (*hook, program.clone())).collect();
        let scripts = Scripts::start(ours, &Programs { by_hook, ..Programs::default() }).expect("threads");
        Self { lifecycle: Lifecycle::new("tun7", 1500, scripts, programs), _process: process }
    }

    /// The steps that follow; each program succeeds.
    fn steps(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(step) = self.lifecycle.next() {
            found.push(match step {
                Step::Addresses(_) => "addresses".to_owned(),
                Step::Network(_) => "network".to_owned(),
                Step::Completed => "completed".to_owned(),
                Step::Run(request) => {
                    self.lifecycle.start_program(&request, |_| {});
                    assert!(self.lifecycle.next().is_none(), "it waits for the program");
                    self.succeeds();
                    let words = std::iter::once(request.hook.directive().to_owned());
                    words.chain(request.arguments).collect::<Vec<_>>().join(" ")
                }
            });
        }
        found
    }

    fn connects(&mut self, address: &str) -> Vec<String> {
        self.connect(address);
        self.steps()
    }

    fn connect(&mut self, address: &str) {
        let mut about = Environment::default();
        about.set("trusted_ip", "192.0.2.1");
        about.set("trusted_port", 1194);
        self.lifecycle.found("192.0.2.1:1194".parse().expect("literal"), &about);
        self.lifecycle.configure(network(address));
    }

    /// Does what comes before this program, which begins.
    fn begins(&mut self, hook: Hook) {
        loop {
            let Some(step) = self.lifecycle.next() else { panic!("{hook:?} is to run") };
            let Step::Run(request) = step else { continue };
            self.lifecycle.start_program(&request, |_| {});
            if request.hook == hook {
                return;
            }
            self.succeeds();
        }
    }

    fn succeeds(&mut self) {
        let answer = Answer { outcome: Outcome::Ended(0), files: Vec::new() };
        self.lifecycle.answered(answer).expect("success");
    }

    fn ends(&mut self) -> Vec<String> {
        self.lifecycle.before_end("sigterm");
        let mut steps = self.steps();
        steps.push("removed".to_owned());
        self.lifecycle.after_end();
        steps.extend(self.steps());
        steps
    }
}

fn network(address: &str) -> Box<Network> {
    let options = ["topology subnet".to_owned(), format!("ifconfig {address} 255.255.255.0")];
    Box::new(Own { mtu_max: 1600, ..Own::default() }.network(&options))
}

const FOUND: &str = "ipchange [AF_INET]192.0.2.1 1194";
const UP: &str = "up tun7 1500 0 10.9.0.2 255.255.255.0 init";
const DOWN: &str = "down tun7 1500 0 10.9.0.2 255.255.255.0 init";
const PRE_DOWN: &str = "route-pre-down tun7 1500 0 10.9.0.2 255.255.255.0 init";

#[test]
fn programs_of_a_client_run_in_openvpns_order() {
    let mut bed = Bed::new(&ALL, InterfacePrograms::default());
    let all = [FOUND, "addresses", UP, "network", "route-up", "completed"];
    assert_eq!(bed.connects("10.9.0.2"), all);
    bed.lifecycle.disconnected("ping-restart");
    assert_eq!(bed.lifecycle.environment.value("signal"), Some("ping-restart"));
    assert_eq!(bed.steps(), [PRE_DOWN, DOWN]);
    // The routes are still there: they are not taken away for `up`.
    assert_eq!(bed.connects("10.9.0.2"), [FOUND, "network", UP, "route-up", "completed"]);
    assert_eq!(bed.lifecycle.environment.value("signal"), None);
    assert_eq!(bed.ends(), [PRE_DOWN, "removed", DOWN]);
    assert_eq!(bed.ends(), ["removed"]);
}

#[test]
fn with_persist_tun_another_connection_runs_programs_only_for_another_network() {
    let programs = InterfacePrograms { persists: true, is_down_first: true, ..InterfacePrograms::default() };
    let mut bed = Bed::new(&ALL, programs);
    bed.connects("10.9.0.2");
    bed.lifecycle.disconnected("sigusr1");
    assert!(bed.steps().is_empty());
    assert_eq!(bed.connects("10.9.0.2"), [FOUND, "network", "completed"]);
    let other = bed.connects("10.9.0.3");
    assert_eq!(other[..4], [FOUND, PRE_DOWN, DOWN, "network"]);
    assert_eq!(other[4..], ["up tun7 1500 0 10.9.0.3 255.255.255.0 init", "route-up", "completed"]);
    let ended = bed.ends();
    assert!(ended[0].starts_with("route-pre-down") && ended[1].starts_with("down"), "{ended:?}");
    assert_eq!(ended[2..], ["removed"]);
}

#[test]
fn with_up_restart_up_and_down_run_for_each_connection() {
    let programs = InterfacePrograms { persists: true, has_restarts: true, ..InterfacePrograms::default() };
    let mut bed = Bed::new(&ALL, programs);
    bed.connects("10.9.0.2");
    bed.lifecycle.disconnected("sigusr1");
    assert_eq!(bed.steps(), [DOWN.replace("init", "restart")]);
    let restart = UP.replace("init", "restart");
    assert_eq!(bed.connects("10.9.0.2"), [FOUND, &restart, "network", "completed"]);
}

#[test]
fn a_failed_up_or_down_is_an_error_and_others_are_not() {
    for (hook, is_error) in [(Hook::Up, true), (Hook::Down, true), (Hook::RouteUp, false)] {
        let mut bed = Bed::new(&[hook], InterfacePrograms::default());
        bed.lifecycle.run(hook, Context::Init);
        let Some(Step::Run(request)) = bed.lifecycle.next() else { panic!("it is to run") };
        bed.lifecycle.start_program(&request, |_| {});
        let answer = Answer { outcome: Outcome::Ended(1), files: Vec::new() };
        assert_eq!(bed.lifecycle.answered(answer).is_err(), is_error, "{hook:?}");
    }
}

#[test]
fn down_runs_once_for_an_up_that_has_begun() {
    for (running, at_end) in [
        (Hook::Up, vec![PRE_DOWN, DOWN, "removed"]),
        (Hook::RoutePreDown, vec![DOWN, "removed"]),
        (Hook::Down, vec!["removed"]),
    ] {
        let mut bed = Bed::new(&ALL, InterfacePrograms::default());
        bed.connect("10.9.0.2");
        if running == Hook::Up {
            bed.begins(running);
            bed.lifecycle.disconnected("ping-restart");
        } else {
            bed.steps();
            bed.lifecycle.disconnected("ping-restart");
            bed.begins(running);
        }
        // It connects again at once, and gets another network.
        bed.connect("10.9.0.3");
        bed.succeeds();
        assert_eq!(bed.ends(), at_end, "{running:?}");
        assert_eq!(bed.ends(), ["removed"], "{running:?}");
    }
}

#[test]
fn down_runs_at_the_end_without_up_and_after_ipchange() {
    let mut bed = Bed::new(&[Hook::Down], InterfacePrograms::default());
    bed.connects("10.9.0.2");
    assert_eq!(bed.ends(), ["removed", DOWN]);
    let mut bed = Bed::new(&ALL, InterfacePrograms { persists: true, ..InterfacePrograms::default() });
    bed.connects("10.9.0.2");
    bed.connect("10.9.0.2");
    bed.begins(Hook::IpChange);
    bed.succeeds();
    assert_eq!(bed.ends(), [PRE_DOWN, "removed", DOWN]);
}

#[test]
fn up_of_a_site_runs_before_there_is_a_session_unless_it_is_delayed() {
    let sited = |programs| {
        let mut bed = Bed::new(&ALL, programs);
        let network = network("10.9.0.2");
        bed.lifecycle.begin_site(&network.told);
        bed
    };
    let mut bed = sited(InterfacePrograms::default());
    assert_eq!(bed.steps(), [UP, "route-up"]);
    assert_eq!(bed.connects("10.9.0.2"), [FOUND, "network", "completed"]);
    // As a restart in OpenVPN.
    bed.lifecycle.disconnected("ping-restart");
    assert_eq!(bed.steps(), [PRE_DOWN, DOWN, UP, "route-up"]);
    assert_eq!(bed.connects("10.9.0.2"), [FOUND, "network", "completed"]);
    assert_eq!(bed.ends(), [PRE_DOWN, "removed", DOWN]);
    let mut bed = sited(InterfacePrograms { is_delayed: true, ..InterfacePrograms::default() });
    assert!(bed.steps().is_empty());
    assert_eq!(bed.connects("10.9.0.2"), [FOUND, "network", UP, "route-up", "completed"]);
    bed.lifecycle.disconnected("ping-restart");
    assert_eq!(bed.steps(), [PRE_DOWN, DOWN]);
}

#[test]
fn variables_of_the_last_server_are_forgotten() {
    let mut bed = Bed::new(&[Hook::IpChange], InterfacePrograms::default());
    let mut found = |server: &str, variables: &[(&str, &str)]| {
        let mut about = Environment::default();
        for (name, value) in variables {
            about.set(name, value);
        }
        bed.lifecycle.found(server.parse().expect("literal"), &about);
        let told = |name: &str| bed.lifecycle.environment.value(name).is_some();
        assert_eq!(told("X509_1_CN"), variables.iter().any(|(name, _)| *name == "X509_1_CN"));
        assert!(told("dev"));
        bed.steps()
    };
    let first = [("trusted_ip", "192.0.2.1"), ("trusted_port", "1194"), ("X509_1_CN", "authority")];
    assert_eq!(found("192.0.2.1:1194", &first), [FOUND]);
    let second = [("trusted_ip6", "2001:db8::1"), ("trusted_port", "1195")];
    assert_eq!(found("[2001:db8::1]:1195", &second), ["ipchange [AF_INET6]2001:db8::1 1195"]);
}

#[test]
fn what_has_not_begun_at_the_end_is_left_out() {
    let mut bed = Bed::new(&ALL, InterfacePrograms::default());
    bed.lifecycle.begin();
    assert_eq!(bed.ends(), ["removed"]);
}
