//! Programs about the interface: `up`, `route-up`, `ipchange`, `route-pre-down` and `down`, one after the other.
//!
//! ```text
//! server: start ─────────────────────> up ── route-up ── Completed ─ ... ─ route-pre-down ── down
//! client: server found ── ipchange ── up ── routes ── route-up ── Completed ─ ... ─ route-pre-down ── down
//! ```
//! The owner of the interface takes the next [`Step`] when the one before is done, so that a program delays no packet and no other
//! task.

use super::options::Network;
use super::scripts::addressing::{Addressing, default_gateway};
use super::scripts::{Answer, Environment, Hook, Outcome, Request, Scripts};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A program that begins is killed after this time: OpenVPN would wait for ever.
const BEGINNING: Duration = Duration::from_secs(300);
/// The same at the end, where a service manager waits.
const ENDING: Duration = Duration::from_secs(60);

/// What the configuration says about these programs.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct InterfacePrograms {
    /// Variables of all programs.
    pub environment: Environment,
    /// What a server tells them; a client gets it from its server.
    pub addressing: Addressing,
    /// `down-pre`.
    pub is_down_first: bool,
    /// `up-restart`.
    pub has_restarts: bool,
    /// `persist-tun`: a client that connects again runs no `down` and `up`, unless it gets another network.
    pub persists: bool,
    /// `ifconfig-noexec` of a server.
    pub leaves_addresses: bool,
    /// `route-noexec` of a server.
    pub leaves_routes: bool,
}

/// What comes next.
pub(super) enum Step {
    /// The addresses of a client are set, without its routes.
    Addresses(Box<Network>),
    /// The whole network of a client is set.
    Network(Box<Network>),
    /// A program is run.
    Run(Box<Request>),
    /// Everything is set up.
    Completed,
}

/// `script_context`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    Init,
    Restart,
}

impl Context {
    fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Restart => "restart",
        }
    }
}

/// How far the programs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `up` has not run, or `down` has.
    Down,
    Up,
    /// `down` has run for a restart, and the network stays.
    Paused,
}

/// The programs of one interface, in order.
pub(super) struct Lifecycle {
    scripts: Scripts,
    programs: InterfacePrograms,
    interface: String,
    mtu: u32,
    /// The outer address of a client's server.
    server: Option<IpAddr>,
    addressing: Addressing,
    /// What the running programs and those that follow are told.
    environment: Environment,
    steps: VecDeque<Step>,
    running: Option<Hook>,
    stage: Stage,
    /// Whether the network of a client is in the kernel.
    is_set: bool,
}

/// A program without which the interface cannot be used has failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}\n  fix: see what the program prints, and its exit status")]
pub struct Failed(&'static str, String);

impl Lifecycle {
    pub(super) fn new(interface: &str, mtu: u32, scripts: Scripts, programs: InterfacePrograms) -> Self {
        let mut environment = programs.environment.clone();
        environment.set("dev", interface);
        Self {
            scripts,
            interface: interface.to_owned(),
            mtu,
            server: None,
            addressing: programs.addressing.clone(),
            environment,
            programs,
            steps: VecDeque::new(),
            running: None,
            stage: Stage::Down,
            is_set: false,
        }
    }

    /// The interface of a server is there.
    pub(super) fn begin(&mut self) {
        self.tell();
        self.start();
        self.steps.push_back(Step::Completed);
    }

    /// The network of a site is in the kernel before its peer answers, and stays there.
    pub(super) fn network_is_set(&mut self) {
        self.is_set = true;
    }

    /// A server has proved who it is. `about`: its certificates and addresses.
    pub(super) fn found(&mut self, server: SocketAddr, about: &Environment) {
        self.server = Some(server.ip().to_canonical());
        self.environment.extend(about);
        self.run(Hook::IpChange, Context::Init);
    }

    /// A server has given us this network.
    pub(super) fn configure(&mut self, network: Box<Network>) {
        let is_same = network.told == self.addressing;
        if self.stage != Stage::Down && !is_same {
            self.end_session();
        }
        let stage = self.stage;
        self.addressing.clone_from(&network.told);
        if stage == Stage::Down {
            self.tell();
        }
        match stage {
            // Routes that are there already stay: what they lead into the tunnel must not leave in clear.
            Stage::Down if !self.is_set && self.scripts.has(Hook::Up) => {
                self.steps.push_back(Step::Addresses(network.clone()));
                self.run(Hook::Up, Context::Init);
                self.steps.push_back(Step::Network(network));
                self.tell_routes();
                self.stage = Stage::Up;
            }
            Stage::Down => {
                self.steps.push_back(Step::Network(network));
                self.start();
            }
            Stage::Up => self.steps.push_back(Step::Network(network)),
            Stage::Paused => {
                self.run(Hook::Up, Context::Restart);
                self.steps.push_back(Step::Network(network));
                self.stage = Stage::Up;
            }
        }
        self.is_set = true;
        self.steps.push_back(Step::Completed);
    }

    fn start(&mut self) {
        self.run(Hook::Up, Context::Init);
        self.tell_routes();
        self.stage = Stage::Up;
    }

    /// `route-up`.
    fn tell_routes(&mut self) {
        self.run(Hook::RouteUp, Context::Init);
    }

    /// The session of a client has ended, and another one follows. `signal`: OpenVPN's name of the reason.
    pub(super) fn disconnected(&mut self, signal: &str) {
        if self.stage != Stage::Up || (self.programs.persists && !self.programs.has_restarts) {
            return;
        }
        self.environment.set("signal", signal);
        if self.programs.persists {
            self.run(Hook::Down, Context::Restart);
            self.stage = Stage::Paused;
        } else {
            self.end_session();
        }
    }

    fn end_session(&mut self) {
        if self.stage == Stage::Up {
            self.run(Hook::RoutePreDown, Context::Init);
            self.run(Hook::Down, Context::Init);
        }
        self.stage = Stage::Down;
    }

    /// The interface is about to be removed.
    pub(super) fn before_end(&mut self, signal: &str) {
        // What has not begun is not needed any more.
        let is_up = |step: Step| matches!(step, Step::Run(request) if request.hook == Hook::Up);
        if self.steps.drain(..).any(is_up) {
            self.stage = Stage::Down;
        }
        self.environment.set("signal", signal);
        if self.stage != Stage::Down {
            self.run(Hook::RoutePreDown, Context::Init);
            if self.programs.is_down_first {
                self.run(Hook::Down, Context::Init);
                self.stage = Stage::Down;
            }
        }
    }

    /// The interface was removed.
    pub(super) fn after_end(&mut self) {
        if self.stage != Stage::Down {
            self.run(Hook::Down, Context::Init);
            self.stage = Stage::Down;
        }
    }

    /// Replaces the variables of the network.
    fn tell(&mut self) {
        let mut environment = Environment::default();
        let is_former = |name: &str| {
            let of_network = ["ifconfig_", "route_", "dns_", "foreign_option_"];
            name == "signal" || of_network.iter().any(|prefix| name.starts_with(prefix))
        };
        for (name, value) in self.environment.iter().filter(|(name, _)| !is_former(name)) {
            environment.set(name, value);
        }
        self.addressing.tell(&mut environment, default_gateway(), self.server);
        environment.set("tun_mtu", self.addressing.mtu.unwrap_or(self.mtu));
        self.environment = environment;
    }

    /// A program comes next. It is told what holds now.
    fn run(&mut self, hook: Hook, context: Context) {
        if !self.scripts.has(hook) {
            return;
        }
        let mut environment = self.environment.clone();
        if hook != Hook::IpChange {
            environment.set("script_context", context.name());
        }
        if matches!(hook, Hook::RouteUp | Hook::RoutePreDown | Hook::Down) {
            environment.set("redirect_gateway", u8::from(self.addressing.redirects));
        }
        let is_end = matches!(hook, Hook::Down | Hook::RoutePreDown);
        let mut request = Request::new(hook, environment, if is_end { ENDING } else { BEGINNING });
        request.arguments = self.arguments(hook, context);
        self.steps.push_back(Step::Run(Box::new(request)));
    }

    /// The next step, unless a program runs.
    pub(super) fn next(&mut self) -> Option<Step> {
        if self.running.is_some() { None } else { self.steps.pop_front() }
    }

    /// Whether a program runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether something is to be done, or is awaited.
    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some() || !self.steps.is_empty()
    }

    /// Runs a program; `on_answer` is called on another thread.
    pub(super) fn start_program(
        &mut self,
        request: &Request,
        on_answer: impl FnMut(Answer) + Send + 'static,
    ) {
        self.running = Some(request.hook);
        self.scripts.run(request, on_answer);
    }

    fn arguments(&self, hook: Hook, context: Context) -> Vec<String> {
        match hook {
            Hook::RouteUp => Vec::new(),
            Hook::IpChange => {
                let about = |name: &str| self.environment.value(name).unwrap_or_default().to_owned();
                match about("trusted_ip") {
                    address if address.is_empty() => {
                        vec![format!("[AF_INET6]{}", about("trusted_ip6")), about("trusted_port")]
                    }
                    address => vec![format!("[AF_INET]{address}"), about("trusted_port")],
                }
            }
            _ => {
                let mtu = self.addressing.mtu.unwrap_or(self.mtu);
                // The third one was link_mtu, which OpenVPN 2.6 does not tell any more.
                let mut arguments = vec![self.interface.clone(), mtu.to_string(), "0".to_owned()];
                arguments.extend(self.addressing.ends());
                arguments.push(context.name().to_owned());
                arguments
            }
        }
    }

    /// The program that runs has ended.
    ///
    /// # Errors
    /// As in OpenVPN, the interface cannot be used if `up` or `down` has failed.
    pub(super) fn answered(&mut self, answer: Answer) -> Result<(), Failed> {
        let Some(hook) = self.running.take() else { return Ok(()) };
        let reason = match answer.outcome {
            Outcome::Ended(0) | Outcome::Deferred => return Ok(()),
            Outcome::Ended(status) => format!("exit status {status}"),
            Outcome::Failed(reason) => reason,
        };
        if matches!(hook, Hook::Up | Hook::Down) {
            self.stage = Stage::Down;
            return Err(Failed(hook.directive(), reason));
        }
        tracing::warn!("interface {}: {}: {reason}", self.interface, hook.directive());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Own;
    use super::super::scripts::{Program, Programs};
    use super::*;
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
            let scripts =
                Scripts::start(ours, &Programs { by_hook, ..Programs::default() }).expect("threads");
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
                        let answer = Answer { outcome: Outcome::Ended(0), files: Vec::new() };
                        self.lifecycle.answered(answer).expect("success");
                        let words = std::iter::once(request.hook.directive().to_owned());
                        words.chain(request.arguments).collect::<Vec<_>>().join(" ")
                    }
                });
            }
            found
        }

        fn connects(&mut self, address: &str) -> Vec<String> {
            let mut about = Environment::default();
            about.set("trusted_ip", "192.0.2.1");
            about.set("trusted_port", 1194);
            self.lifecycle.found("192.0.2.1:1194".parse().expect("literal"), &about);
            let options = ["topology subnet".to_owned(), format!("ifconfig {address} 255.255.255.0")];
            self.lifecycle.configure(Box::new(Own { mtu_max: 1600, ..Own::default() }.network(&options)));
            self.steps()
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
        let programs =
            InterfacePrograms { persists: true, is_down_first: true, ..InterfacePrograms::default() };
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
        let programs =
            InterfacePrograms { persists: true, has_restarts: true, ..InterfacePrograms::default() };
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
    fn what_has_not_begun_at_the_end_is_left_out() {
        let mut bed = Bed::new(&ALL, InterfacePrograms::default());
        bed.lifecycle.begin();
        assert_eq!(bed.ends(), ["removed"]);
    }
}
