//! An interface with its addresses and routes, until it is gone: what a program serves that has one interface and no daemon.

mod asking;
mod current;
mod look_ups;
mod managed;

use super::client_network::{ClientError, ClientNetwork, Closed, set_mtu};
use super::control_thread::{Chosen, Report, Snapshot};
use super::interface::Interface;
use super::lifecycle::{Failed, Lifecycle, Step};
use super::management::Board;
use super::named_routes::Known;
use super::names::{self, Name};
use super::routing;
use super::scripts::Answer as ProgramAnswer;
use super::settings::{Remote, Role, Settings, remotes};
use super::status::{self, Format, Inside};
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::wants::Wants;
use crate::host::{self, Host, HostHandle, Own};
use crate::resolver;
use crate::rights::Rights;
use crate::tunnel_interface::{InterfaceError, Options, Removed};
use asking::{Answered, Asking};
use crypto::Engine;
pub use current::Current;
use ipnet::IpNet;
use look_ups::RouteNames;
use managed::Managed;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::Interval;

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
    /// The network of a client cannot be.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server does not want us.
    #[error(
        "interface {0}: the server refused the authentication{1}\n  fix: see the user name and the password, or the certificate; auth-retry nointeract tries again"
    )]
    Refused(String, String),
    /// A program without which the interface cannot be used has failed.
    #[error("interface {0}: {1}")]
    Program(String, Failed),
    /// A limit ends it, or a failure after which it is not to try again: the reason in OpenVPN's words.
    #[error("interface {0} ends: {1}")]
    Over(String, &'static str),
    /// The user did not answer.
    #[error("{0}")]
    Unanswered(String),
    /// No server answers.
    #[error("interface {0}: no server has answered in the attempts of connect-retry-max")]
    GaveUp(String),
}

/// A served interface.
pub struct Runner {
    interface: Arc<Interface>,
    host: HostHandle,
    /// Ends with it, unless a daemon has the host.
    own_host: Option<Host>,
    /// Programs about the interface.
    lifecycle: Lifecycle,
    /// Of a client.
    network: ClientNetwork,
    /// The servers of a client, or the peer of a server, site to site; none while they are looked up.
    names: Option<Vec<Name>>,
    /// When the names of such a peer are looked up again: nothing else tells that it has moved.
    look_ups: Option<Interval>,
    /// Names of routes of a client.
    route_names: RouteNames,
    /// Asks the user of a client.
    asking: Asking,
    /// What the management interface is told; none without one.
    managed: Option<Managed>,
    answer: mpsc::UnboundedSender<Answer>,
    answers: mpsc::UnboundedReceiver<Answer>,
    has_clients: bool,
    /// Whether its sockets were bound.
    listens: bool,
    removed: mpsc::UnboundedReceiver<Removed>,
    reports: mpsc::UnboundedReceiver<Report>,
}

/// What threads have found that may take long.
enum Answer {
    /// What the user has answered.
    User(Answered),
    /// The addresses of servers.
    Servers(Vec<Name>),
    /// The addresses of names of routes.
    Routes(Known),
    /// A program has ended.
    Program(ProgramAnswer),
    /// The server that the management interface has named, if it has an address.
    Other(Option<Remote>),
}

/// What the kernel is to have for a server; a client's server says that later.
fn own(settings: &Settings) -> Wants {
    let Role::Server(server) = &settings.role else { return Wants::default() };
    let (programs, network) = (&settings.programs, &server.network);
    let addresses = network.own().filter(|_| !programs.leaves_addresses);
    wants(addresses, network.routes.iter().copied().filter(|_| !programs.leaves_routes))
}

/// The table and the mark of an interface.
fn own_number(name: &str, settings: &Settings) -> Own {
    let (number, mark) = (routing::number(name), settings.udp.options.fwmark);
    Own { table: number, mark: if mark == 0 { number } else { mark } }
}

fn wants(addresses: impl IntoIterator<Item = IpNet>, routes: impl IntoIterator<Item = IpNet>) -> Wants {
    let routes: BTreeSet<(IpNet, u32)> = routes.into_iter().map(|route| (route, MAIN)).collect();
    Wants { addresses: addresses.into_iter().collect(), routes, ..Wants::default() }
}

impl Runner {
    /// Makes the interface, and puts it up. `management`: what is told, and whether the tunnel is (`management-up-down`).
    pub fn start(
        name: &str,
        settings: Settings,
        engine: Arc<dyn Engine>,
        options: Options,
        management: Option<(Arc<Board>, bool)>,
    ) -> Result<Self, RunError> {
        let own = own(&settings);
        let host = Host::start_for_one(own_number(name, &settings))?;
        let runner = Self::beside(name, settings, engine, options, host.handle(), None)?;
        let managed = management.map(|management| Managed::new(management, name, own.addresses.iter()));
        Ok(Self { own_host: Some(host), managed, ..runner })
    }

    /// Makes the interface of a daemon, which has the host. `closed` stays closed without the interface.
    pub fn beside(
        name: &str,
        mut settings: Settings,
        engine: Arc<dyn Engine>,
        options: Options,
        host: HostHandle,
        closed: Option<Closed>,
    ) -> Result<Self, RunError> {
        let (events, removed) = mpsc::unbounded_channel();
        let (report, reports) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let has_clients = matches!(&settings.role, Role::Server(server) if server.site.is_none());
        let site = settings.site().map(|own| own.network(&[]));
        let own_number = own_number(name, &settings);
        let name_servers = match &mut settings.role {
            Role::Client(client) => client.name_servers.take(),
            Role::Server(_) => None,
        };
        let mut lifecycle =
            Lifecycle::new(name, settings.mtu, settings.scripts.clone(), settings.programs.clone());
        let (wants, mtu) = (own(&settings), settings.mtu);
        let up = LinkChange { up: Some(true), queue_length: settings.queue, ..LinkChange::default() };
        let is_null = settings.is_null;
        let mut network = ClientNetwork::new(name, own_number, name_servers, closed);
        network.set_null(is_null);
        let (mut prompt, mut names) = (None, None);
        if let Role::Client(client) = &settings.role {
            prompt.clone_from(&client.login.prompt);
            names = Some(client.names.clone());
            network.add_servers(&host, client.remotes.iter().map(|remote| remote.address.ip()))?;
        }
        if !has_clients {
            settings.set_mark(own_number.mark);
        }
        let mut look_ups = None;
        if let Role::Server(server) = &settings.role
            && let Some(site) = &server.site
        {
            network.add_servers(&host, remotes(&site.names).iter().map(|remote| remote.address.ip()))?;
            names = Some(site.names.clone());
            look_ups = look_ups::of(name, &site.names);
        }
        let interface = Arc::new(Interface::create(name, settings, engine, options, events, report)?);
        if !is_null {
            set_mtu(name, mtu)?;
            host::change_link(name, &[up])?;
            network.begin(&host, wants)?;
        }
        let named = site.as_ref().map(|site| site.named.hosts()).unwrap_or_default();
        if let Some(site) = site.filter(|_| !is_null) {
            // Before the peer answers: packets for its networks must not leave in clear.
            lifecycle.begin_site(&site.told);
            network.configure(&host, site)?;
        }
        let own_host = None;
        let mut runner = Self {
            interface,
            host,
            own_host,
            lifecycle,
            network,
            names,
            look_ups,
            route_names: RouteNames::default(),
            asking: Asking::new(prompt),
            managed: None,
            answer,
            answers,
            has_clients,
            listens: false,
            removed,
            reports,
        };
        runner.look_up_routes(named);
        Ok(runner)
    }

    /// Runs the programs of a server or a site that is set up, which then begins to serve. `up` of a client waits for the server.
    ///
    /// # Errors
    /// `up` has failed.
    pub async fn begin(&mut self) -> Result<(), RunError> {
        if self.has_clients {
            self.lifecycle.begin();
        }
        self.proceed()?;
        while self.lifecycle.is_busy()
            && let Some(answer) = self.answers.recv().await
        {
            self.handle_answer(answer)?;
        }
        self.interface.release();
        Ok(())
    }

    /// Waits until the sockets are bound.
    pub async fn listen(&mut self) -> Result<(), RunError> {
        while !self.listens {
            tokio::select! {
                _ = self.removed.recv() => return Ok(()),
                Some(report) = self.reports.recv() => self.handle_report(report)?,
                Some(answer) = self.answers.recv() => self.handle_answer(answer)?,
            }
        }
        Ok(())
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
        if self.has_clients {
            status::of_server(&snapshot, format, now)
        } else {
            status::of_client(&snapshot, inside(self.interface.name()), now)
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
                () = look_ups::tick(self.look_ups.as_mut()) => self.look_up(),
                Some(report) = self.reports.recv() => self.handle_report(report)?,
                Some(answer) = self.answers.recv() => {
                    self.handle_answer(answer)?;
                }
            }
        }
    }

    fn handle_report(&mut self, report: Report) -> Result<(), RunError> {
        match report {
            Report::Found { server, about } => {
                self.lifecycle.found(server, &about);
                self.proceed()
            }
            Report::Configured(network) => {
                self.managed.iter_mut().for_each(|managed| managed.assigned(network.addresses.iter()));
                self.look_up_routes(network.named.hosts());
                self.lifecycle.configure(network);
                self.proceed()
            }
            Report::Listens => {
                self.listens = true;
                Ok(())
            }
            Report::Over(signal) => Err(RunError::Over(self.interface.name().to_owned(), signal)),
            Report::Disconnected(signal) => {
                self.lifecycle.disconnected(signal);
                self.proceed()
            }
            Report::Reconnects(reason) => {
                self.managed.iter_mut().for_each(|managed| managed.reconnects(reason));
                self.look_up();
                Ok(())
            }
            Report::GaveUp => Err(RunError::GaveUp(self.interface.name().to_owned())),
            Report::Asks(question) => {
                let answer = self.answer.clone();
                // The program may have ended.
                self.asking.ask(question, move |it| _ = answer.send(Answer::User(it)));
                Ok(())
            }
            other @ (Report::Client(_)
            | Report::Stage(_)
            | Report::Holds
            | Report::Connects(_)
            | Report::Failed(_)
            | Report::Token(_)
            | Report::Info(_)
            | Report::Echo(_)) => {
                self.tell_management(other);
                Ok(())
            }
            Report::Refused(reason) => {
                let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
                Err(RunError::Refused(self.interface.name().to_owned(), reason))
            }
        }
    }

    /// Does what comes next, until a program runs.
    fn proceed(&mut self) -> Result<(), RunError> {
        while let Some(step) = self.lifecycle.next() {
            match step {
                Step::Addresses(network) => {
                    self.network.configure(&self.host, network.with_addresses_alone())?;
                }
                Step::Network(network) => self.network.configure(&self.host, *network)?,
                Step::Run(request) => {
                    let answer = self.answer.clone();
                    // The program may have ended.
                    let on_answer = move |it| _ = answer.send(Answer::Program(it));
                    self.lifecycle.start_program(&request, on_answer);
                }
                Step::Completed => {
                    tracing::info!("{COMPLETED}");
                    self.managed.iter_mut().for_each(Managed::connected);
                }
            }
        }
        Ok(())
    }

    fn handle_answer(&mut self, answer: Answer) -> Result<(), RunError> {
        match answer {
            Answer::Program(answer) => {
                self.lifecycle.answered(answer).map_err(|error| self.failed(error))?;
                self.proceed()?;
            }
            Answer::Other(Some(remote)) => {
                self.network.add_servers(&self.host, [remote.address.ip()])?;
                self.interface.choose(Chosen::Other(remote));
            }
            Answer::Routes(known) => {
                if let Some(others) = self.route_names.ended(&known) {
                    self.look_up_routes(others);
                }
                self.network.learn(&self.host, known)?;
            }
            Answer::Other(None) => self.interface.choose(Chosen::Skip(1)),
            Answer::User(answered) => {
                if let Some(credentials) = self.asking.take(answered) {
                    self.interface.answer(credentials.map_err(RunError::Unanswered)?);
                }
            }
            Answer::Servers(names) => {
                let remotes = remotes(&names);
                self.names = Some(names);
                // Before the first packet to one of them: it must not go into the tunnel.
                self.network.add_servers(&self.host, remotes.iter().map(|remote| remote.address.ip()))?;
                self.interface.set_servers(remotes);
            }
        }
        Ok(())
    }

    /// Looks up the names of servers, unless that is being done.
    fn look_up(&mut self) {
        let Some(mut names) = self.names.take_if(|names| names.iter().any(Name::is_host_name)) else {
            return;
        };
        let answer = self.answer.clone();
        std::thread::spawn(move || {
            Rights::None.keep();
            names::look_up_all(&mut names, resolver::addresses);
            let _ = answer.send(Answer::Servers(names));
        });
    }

    fn look_up_routes(&mut self, hosts: Vec<String>) {
        let answer = self.answer.clone();
        // The program may have ended.
        self.route_names.want(hosts, move |known| _ = answer.send(Answer::Routes(known)));
    }

    fn failed(&self, error: Failed) -> RunError {
        RunError::Program(self.interface.name().to_owned(), error)
    }

    /// Tells the peers, and removes the interface with all that it has in the kernel. `signal`: why, in OpenVPN's words.
    ///
    /// # Errors
    /// `down` has failed.
    pub async fn end(mut self, signal: &str) -> Result<(), RunError> {
        let mut ended = Ok(());
        while self.lifecycle.is_running()
            && let Some(answer) = self.answers.recv().await
        {
            if let Answer::Program(answer) = answer {
                ended = self.lifecycle.answered(answer);
            }
        }
        self.lifecycle.before_end(signal);
        if self.lifecycle.is_busy() {
            self.interface.stop_serving();
            ended = ended.and(drive(&mut self.lifecycle).await);
        }
        let name = self.interface.name().to_owned();
        let Self { interface, own_host, network, mut lifecycle, managed, .. } = self;
        network.end().await;
        if let Some(managed) = managed {
            managed.end();
        }
        drop(interface);
        if let Some(host) = own_host {
            host.end(true);
        }
        lifecycle.after_end();
        let last = drive(&mut lifecycle).await;
        ended.and(last).map_err(|error| RunError::Program(name, error))
    }
}

/// Runs all programs of the end.
async fn drive(lifecycle: &mut Lifecycle) -> Result<(), Failed> {
    let mut ended = Ok(());
    while let Some(step) = lifecycle.next() {
        let Step::Run(request) = step else { continue };
        let (send, mut answer) = mpsc::unbounded_channel();
        lifecycle.start_program(&request, move |it| _ = send.send(it));
        if let Some(answer) = answer.recv().await {
            ended = ended.and(lifecycle.answered(answer));
        }
    }
    ended
}

/// What the kernel has counted: it sends what the interface reads.
fn inside(name: &str) -> Inside {
    let count = |counter: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{name}/statistics/{counter}"));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    Inside { read: count("tx_bytes"), written: count("rx_bytes") }
}
