//! Programs about the interface: `up`, `route-up`, `ipchange`, `route-pre-down` and `down`, one after the other.
//!
//! ```text
//! server: start ─────────────────────> up ── route-up ── Completed ─ ... ─ route-pre-down ── down
//! client: server found ── ipchange ── up ── routes ── route-up ── Completed ─ ... ─ route-pre-down ── down
//! site:   start ── up ── route-up ── peer found ── ipchange ── Completed ─ ... ─ route-pre-down ── down
//! ```
//! The owner of the interface takes the next [`Step`] when the one before is done, so that a program delays no packet and no other
//! task.

#[cfg(test)]
mod tests;

use super::options::Network;
use super::scripts::addressing::{Addressing, default_gateway};
use super::scripts::environment::OF_PEER;
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
    /// `up-delay`: a site runs `up` when its peer is found.
    pub is_delayed: bool,
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
    /// `route-pre-down` has run, and `down` has not.
    Closing,
}

/// A step that waits, and the stage from when it begins.
type Planned = (Step, Option<Stage>);

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
    steps: VecDeque<Planned>,
    running: Option<Hook>,
    /// The stage after all steps that wait.
    stage: Stage,
    /// The stage of the steps that have begun.
    reached: Stage,
    /// Whether the network of a client is in the kernel.
    is_set: bool,
    /// Whether `up` runs before there is a session: of a site.
    is_early: bool,
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
            reached: Stage::Down,
            is_set: false,
            is_early: false,
        }
    }

    /// The interface of a server is there.
    pub(super) fn begin(&mut self) {
        self.tell();
        self.start();
        self.complete();
    }

    /// The network of a site is in the kernel before its peer answers, and stays there. `told`: what programs are told of it.
    pub(super) fn begin_site(&mut self, told: &Addressing) {
        self.is_set = true;
        self.is_early = !self.programs.is_delayed;
        self.addressing.clone_from(told);
        self.start_early();
    }

    fn start_early(&mut self) {
        if self.is_early {
            self.tell();
            self.start();
        }
    }

    /// A server has proved who it is. `about`: its certificates and addresses.
    pub(super) fn found(&mut self, server: SocketAddr, about: &Environment) {
        self.server = Some(server.ip().to_canonical());
        // The last one may have had another version of IP, and a longer chain.
        self.environment.forget(&OF_PEER);
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
                self.steps.push_back((Step::Addresses(network.clone()), None));
                self.run(Hook::Up, Context::Init);
                self.steps.push_back((Step::Network(network), None));
                self.tell_routes();
                self.stage = Stage::Up;
            }
            Stage::Down => {
                self.steps.push_back((Step::Network(network), None));
                self.start();
            }
            Stage::Up | Stage::Closing => self.steps.push_back((Step::Network(network), None)),
            Stage::Paused => {
                self.run(Hook::Up, Context::Restart);
                self.steps.push_back((Step::Network(network), None));
                self.stage = Stage::Up;
            }
        }
        self.is_set = true;
        self.complete();
    }

    /// Without `up`, this is when the interface is up.
    fn complete(&mut self) {
        self.steps.push_back((Step::Completed, Some(Stage::Up)));
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
            self.start_early();
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
        self.stage = self.reached;
        // Only the end of a session whose `up` has begun is needed: it is told the network of that session.
        for (step, reaches) in std::mem::take(&mut self.steps) {
            match (self.stage, reaches) {
                (Stage::Up | Stage::Paused, Some(stage @ (Stage::Closing | Stage::Down)))
                | (Stage::Closing, Some(stage @ Stage::Down)) => {
                    self.stage = stage;
                    self.steps.push_back((step, reaches));
                }
                _ => {}
            }
        }
        self.environment.set("signal", signal);
        if matches!(self.stage, Stage::Up | Stage::Paused) {
            self.run(Hook::RoutePreDown, Context::Init);
        }
        if self.stage != Stage::Down && self.programs.is_down_first {
            self.run(Hook::Down, Context::Init);
            self.stage = Stage::Down;
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
        self.environment.forget(&["ifconfig_", "route_", "dns_", "foreign_option_", "signal"]);
        self.addressing.tell(&mut self.environment, default_gateway(), self.server);
        self.environment.set("tun_mtu", self.addressing.mtu.unwrap_or(self.mtu));
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
        let reaches = match (hook, context) {
            (Hook::Up, _) => Some(Stage::Up),
            (Hook::RoutePreDown, _) => Some(Stage::Closing),
            (Hook::Down, Context::Init) => Some(Stage::Down),
            (Hook::Down, Context::Restart) => Some(Stage::Paused),
            _ => None,
        };
        self.steps.push_back((Step::Run(Box::new(request)), reaches));
    }

    /// The next step, unless a program runs.
    pub(super) fn next(&mut self) -> Option<Step> {
        if self.running.is_some() {
            return None;
        }
        let (step, reaches) = self.steps.pop_front()?;
        self.reached = reaches.unwrap_or(self.reached);
        Some(step)
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
            (self.stage, self.reached) = (Stage::Down, Stage::Down);
            return Err(Failed(hook.directive(), reason));
        }
        tracing::warn!("interface {}: {}: {reason}", self.interface, hook.directive());
        Ok(())
    }
}
