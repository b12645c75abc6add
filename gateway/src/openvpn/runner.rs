//! An interface with its addresses and routes, until it is gone: what a program serves that has one interface and no daemon.

use super::control_thread::{Report, Snapshot};
use super::interface::Interface;
use super::login::{Prompt, Question};
use super::options::Network;
use super::settings::{Role, Settings};
use super::status::{self, Format, Inside};
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::wants::Wants;
use crate::host::{self, Host, HostHandle};
use crate::rights::Rights;
use crate::service::View;
use crate::tunnel_interface::{Counters, InterfaceError, Options, Removed};
use axum::Router;
use crypto::Engine;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tunnel::openvpn::key_method::Credentials;

/// The main routing table (linux/rtnetlink.h).
const MAIN: u32 = 254;

/// The line of OpenVPN that scripts wait for.
const COMPLETED: &str = "Initialization Sequence Completed";

/// Why an interface could not be served.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The interface could not be made.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The kernel refused addresses or routes.
    #[error(transparent)]
    Network(#[from] NetlinkError),
    /// Traffic that the server wants in the tunnel would leave in clear.
    #[error(
        "interface {0}: the server's option \"{1}\" is not served, and its traffic would leave in clear\n  fix: do not push it to this client"
    )]
    Unprotected(String, String),
    /// The server does not want us.
    #[error(
        "interface {0}: the server refused the authentication{1}\n  fix: see the user name and the password, or the certificate; auth-retry nointeract tries again"
    )]
    Refused(String, String),
    /// The user did not answer.
    #[error("{0}")]
    Unanswered(String),
    /// The packets of the tunnel would enter the tunnel.
    #[error(
        "interface {0}: the route {1} leads to the server itself\n  fix: push, or write, routes without its address"
    )]
    Covers(String, IpNet),
}

/// A served interface.
pub struct Runner {
    interface: Arc<Interface>,
    host: HostHandle,
    /// Ends with it, unless a daemon has the host.
    own_host: Option<Host>,
    /// What stays closed without the interface; `None` of a program that leaves nothing behind.
    closed: Option<Wants>,
    wants: Wants,
    /// Routes of a client's own configuration.
    routes: Vec<IpNet>,
    /// The servers of a client.
    remotes: Vec<IpAddr>,
    /// Asks the user of a client.
    prompt: Option<Prompt>,
    answer: mpsc::UnboundedSender<Answer>,
    answers: mpsc::UnboundedReceiver<Answer>,
    is_client: bool,
    removed: mpsc::UnboundedReceiver<Removed>,
    reports: mpsc::UnboundedReceiver<Report>,
}

/// What the user has answered, or why not.
type Answer = Result<Credentials, String>;

/// What the API shows: the counters of the interface that is served now.
#[derive(Default)]
pub struct Current(Mutex<Weak<Interface>>);

impl Current {
    /// Shows this one from now on.
    pub fn set(&self, runner: &Runner) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&runner.interface);
    }
}

impl View for Current {
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        current.into_iter().map(|interface| interface as Arc<dyn Counters>).collect()
    }

    fn routes(&self) -> Router {
        Router::new()
    }
}

/// What the kernel is to have for a server; a client's server says that later.
fn own(settings: &Settings) -> Wants {
    let Role::Server(server) = &settings.role else { return Wants::default() };
    wants(server.network.own(), server.network.routes.iter().copied())
}

/// The same, with what stays closed without the interface: what a daemon has closed, and its routes.
fn guarded(wants: Wants, closed: Option<&Wants>) -> Wants {
    let Some(closed) = closed else { return wants };
    let mut both = wants.and(closed);
    both.closed.extend(wants.routes.into_iter().filter(|(route, _)| route.prefix_len() != 0));
    both
}

fn wants(addresses: impl IntoIterator<Item = IpNet>, routes: impl IntoIterator<Item = IpNet>) -> Wants {
    let routes: BTreeSet<(IpNet, u32)> = routes.into_iter().map(|route| (route, MAIN)).collect();
    Wants { addresses: addresses.into_iter().collect(), routes, ..Wants::default() }
}

impl Runner {
    /// Makes the interface, and puts it up.
    pub fn start(
        name: &str,
        settings: Settings,
        engine: Arc<dyn Engine>,
        options: Options,
    ) -> Result<Self, RunError> {
        let host = Host::start(BTreeMap::new())?;
        let runner = Self::beside(name, settings, engine, options, host.handle(), None)?;
        if !runner.is_client {
            tracing::info!("{COMPLETED}");
        }
        Ok(Self { own_host: Some(host), ..runner })
    }

    /// Makes the interface of a daemon, which has the host. `closed` stays closed without the interface.
    pub fn beside(
        name: &str,
        settings: Settings,
        engine: Arc<dyn Engine>,
        options: Options,
        host: HostHandle,
        closed: Option<Wants>,
    ) -> Result<Self, RunError> {
        let (events, removed) = mpsc::unbounded_channel();
        let (report, reports) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let is_client = matches!(settings.role, Role::Client(_));
        let (wants, mtu) = (guarded(own(&settings), closed.as_ref()), settings.mtu);
        let (routes, remotes, prompt) = match &settings.role {
            Role::Client(client) => (
                client.routes.clone(),
                client.remotes.iter().map(|remote| remote.address.ip().to_canonical()).collect(),
                client.login.prompt.clone(),
            ),
            Role::Server(_) => Default::default(),
        };
        let interface = Arc::new(Interface::create(name, settings, engine, options, events, report)?);
        set_mtu(name, mtu)?;
        host::change_link(name, &[LinkChange { up: Some(true), ..LinkChange::default() }])?;
        host.set(name, Some(wants.clone()))?;
        Ok(Self {
            interface,
            host,
            own_host: None,
            closed,
            wants,
            routes,
            remotes,
            prompt,
            answer,
            answers,
            is_client,
            removed,
            reports,
        })
    }

    /// The interface.
    pub fn interface(&self) -> Arc<Interface> {
        Arc::clone(&self.interface)
    }

    /// Begins the sessions again: a client connects again, a server tells its clients to do so.
    pub fn restart(&self) {
        self.interface.restart();
    }

    /// The status in OpenVPN's words.
    pub async fn status(&self, format: Format) -> String {
        let snapshot = self.snapshot().await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.is_client {
            status::of_client(&snapshot, inside(self.interface.name()), now)
        } else {
            status::of_server(&snapshot, format, now)
        }
    }

    /// The sessions at the moment.
    pub async fn snapshot(&self) -> Snapshot {
        self.interface.snapshot().await
    }

    /// Serves until another program deletes the interface, or the server of a client asks for what is not served.
    pub async fn run(&mut self) -> Result<(), RunError> {
        loop {
            tokio::select! {
                _ = self.removed.recv() => return Ok(()),
                Some(report) = self.reports.recv() => self.handle_report(report)?,
                Some(answer) = self.answers.recv() => {
                    self.interface.answer(answer.map_err(RunError::Unanswered)?);
                }
            }
        }
    }

    fn handle_report(&mut self, report: Report) -> Result<(), RunError> {
        match report {
            // No management interface is there to be asked.
            Report::Asked(_) => Ok(()),
            Report::Configured(network) => self.configure(network),
            Report::Asks(question) => {
                self.ask(question);
                Ok(())
            }
            Report::Refused(reason) => {
                let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
                Err(RunError::Refused(self.interface.name().to_owned(), reason))
            }
        }
    }

    /// Asks the user, in a thread of its own: a blocking task of the runtime would delay the end of the program.
    fn ask(&self, question: Question) {
        let answer = self.answer.clone();
        let Some(prompt) = self.prompt.clone() else {
            // Without a way to ask, the configuration was refused.
            let _ = answer.send(Err("no one can be asked for the password".to_owned()));
            return;
        };
        std::thread::spawn(move || {
            Rights::None.keep();
            // The program may have ended.
            let _ = answer.send(prompt(&question));
        });
    }

    /// Takes the network that a server has given us.
    fn configure(&mut self, network: Network) -> Result<(), RunError> {
        let name = self.interface.name();
        if let Some(option) = network.unprotected() {
            return Err(RunError::Unprotected(name.to_owned(), option.to_owned()));
        }
        let routes: Vec<IpNet> = network.routes.iter().chain(&self.routes).copied().collect();
        let covers = |route: &&IpNet| self.remotes.iter().any(|remote| route.contains(remote));
        if let Some(route) = routes.iter().find(covers) {
            return Err(RunError::Covers(name.to_owned(), *route));
        }
        let mtu = network.mtu.map_or(Ok(()), |mtu| set_mtu(name, mtu));
        let wants = guarded(wants(network.addresses, routes), self.closed.as_ref());
        let changed = self.host.change(name, &self.wants, &wants);
        self.wants = wants;
        if let Err(error) = mtu.and(changed) {
            tracing::error!("interface {name}: {error}");
        }
        tracing::info!("{COMPLETED}");
        Ok(())
    }

    /// Tells the peers, and removes the interface with all that it has in the kernel.
    pub fn end(self) {
        let Self { interface, own_host, .. } = self;
        drop(interface);
        if let Some(host) = own_host {
            host.end(true);
        }
    }
}

/// What the kernel has counted: it sends what the interface reads.
fn inside(name: &str) -> Inside {
    let count = |counter: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{name}/statistics/{counter}"));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    Inside { read: count("tx_bytes"), written: count("rx_bytes") }
}

fn set_mtu(name: &str, mtu: u32) -> Result<(), NetlinkError> {
    host::change_link(name, &[LinkChange { mtu: Some(mtu), ..LinkChange::default() }])
}
