//! `postern run`: the gateway, as its configuration file says.

use crate::engines;
#[cfg(feature = "https")]
use crate::https;
use crate::place::{API, CONFIG, state_of};
use crate::privilege::{self, Needs};
use crate::service_user::User;
use crate::{Outcome, agentx, alerter, archiver, dhcp, dns, log, machine, only_one, service_user};
use clap::Args;
use config::Settings;
use crypto::choice::{Choice, Subject};
use gateway::daemon;
use gateway::daemon::file::{ConfigFile, Read};
use gateway::daemon::order::{Order, Orders};
use gateway::daemon::serve::{Event, Start, serve};
use gateway::health::Connection as AlertConnection;
use gateway::helper::Connection;
use gateway::host::occupied;
use gateway::machine::Connection as MachineConnection;
use gateway::secgw::Opener;
#[cfg(feature = "secgw")]
use gateway::secgw::dpdk;
use sd_notify::NotifyState;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct Arguments {
    /// The configuration: lines of `set`, in the words of VyOS
    #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Where the API listens
    #[arg(long, value_name = "SOCKET", default_value = API)]
    api: PathBuf,
    /// Where revisions of the configuration are kept: /var/lib/postern; for another file than the default one, a folder in it
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Become this user, and keep the rights to configure networks: `postern`, if there is one and root starts it
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Validate the configuration and exit
    #[arg(long)]
    check: bool,
    /// When stopped, release the protected prefixes instead of leaving them blocked until the next start
    #[arg(long)]
    open_at_exit: bool,
    /// Change nothing of the machine: no tuning, tasks, logging, SNMP or name servers
    #[arg(long)]
    no_machine: bool,
    /// Start no process for `service https`, `service metrics` and `service page`: the API is on the Unix socket only
    #[arg(long)]
    no_https: bool,
    /// Start no process for the receivers and the log of `service health`
    #[arg(long)]
    no_alerts: bool,
    /// How the log is written to standard error
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: log::Format,
    #[command(flatten)]
    allowed: machine::Allowed,
    #[command(flatten)]
    copies: archiver::Folders,
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    let state = arguments.state.clone().unwrap_or_else(|| state_of(&arguments.config));
    run_with(arguments, Some(state), engines::choice)
}

/// For measurements: what the path costs when nothing is encrypted.
#[cfg(feature = "bench")]
pub(crate) fn run_without_cipher(config: PathBuf, api: PathBuf) -> Outcome {
    let none = |_: &[Subject]| crate::bench::without_cipher();
    let arguments = Arguments {
        config,
        api,
        state: None,
        user: None,
        check: false,
        open_at_exit: false,
        no_machine: true,
        no_https: true,
        no_alerts: true,
        log_format: log::Format::Text,
        allowed: machine::Allowed::default(),
        copies: archiver::Folders::default(),
    };
    run_with(arguments, None, none)
}

/// The engines that a gateway with such ciphers uses.
type Engines = fn(&[Subject]) -> Arc<Choice>;

fn run_with(arguments: Arguments, state: Option<PathBuf>, engines: Engines) -> Outcome {
    log::choose(arguments.log_format);
    log::start()?;
    let user = service_user::wanted(arguments.user.as_deref())?;
    // The systemd unit already starts the daemon as that user.
    let own = (!rustix::process::geteuid().is_root()).then(|| rustix::process::getegid().as_raw());
    let group = user.as_ref().map(User::gid).or(own);
    let file = ConfigFile::new(arguments.config.clone(), group);
    let read = file.read()?;
    if arguments.check {
        file.check(&read.settings)?;
        println!("{}: {}, nothing wrong", arguments.config.display(), counted(&read.settings));
        return Ok(());
    }
    let _claimed = only_one::claim(user.as_ref())?;
    occupied::look(daemon::requirements(&read.settings).ports.into_iter());
    service_user::report(user.as_ref());
    // While this process may still start one that keeps its rights.
    let machine = if arguments.no_machine {
        MachineConnection::Off
    } else {
        machine::helper(&arguments.allowed, &arguments.config, user.as_ref())?
    };
    let https = match state.as_deref().filter(|_| !arguments.no_https) {
        #[cfg(feature = "https")]
        Some(state) => https::start(
            https::Daemon { api: &arguments.api, state, config: &arguments.config },
            user.as_ref(),
        )?,
        _ => Connection::Off,
    };
    let alerts = match state.as_deref().filter(|_| !arguments.no_alerts) {
        Some(state) => alerter::start(state, &arguments.allowed, user.as_ref())?,
        None => AlertConnection::Off,
    };
    let snmp = if arguments.no_machine {
        Connection::Off
    } else {
        agentx::start(&arguments.api, &arguments.allowed.master(), user.as_ref())?
    };
    let dhcp = if arguments.no_machine { Connection::Off } else { dhcp::start(user.as_ref())? };
    let sets_names = !arguments.no_machine && rustix::process::geteuid().is_root();
    let name_servers = sets_names.then(|| dns::of_daemon(arguments.allowed.root())).transpose()?;
    // It ends with this process, whose end of the pipe it waits for.
    let _archiver = match state.as_deref().filter(|_| rustix::process::geteuid().is_root()) {
        Some(state) => Some(archiver::start(state, &arguments.api, &arguments.copies, user.as_ref())?),
        None => None,
    };
    let opener = opener(&read.settings, user.as_ref())?;
    privilege::drop_unneeded(Needs {
        raw_sockets: true,
        file: Some(&arguments.config),
        state: state.as_deref(),
        user: user.as_ref(),
        keys: true,
        ..Needs::default()
    })?;
    let runtime = privilege::runtime()?;
    let outcome = runtime.block_on(start(
        arguments,
        state,
        file,
        read,
        (machine, https, alerts, snmp, dhcp, name_servers, opener),
        engines,
    ));
    // Do not wait for a name server that does not answer.
    runtime.shutdown_background();
    outcome
}

/// Who opens Ethernet ports: the daemon does not keep the rights to, and a commit may bring the first ones. DPDK has a thread of its own.
#[cfg(feature = "secgw")]
fn opener(settings: &Settings, user: Option<&User>) -> io::Result<Option<Opener>> {
    let becomes = |thread| {
        let user = user.cloned();
        move || take_user(user.as_ref(), thread)
    };
    if let Err(error) = dpdk::start_configured(settings, becomes("DPDK")) {
        tracing::error!("interfaces secgw: ports with driver dpdk stay closed: {error}");
    }
    Opener::start(becomes("the opener of ports")).map(Some)
}

#[cfg(not(feature = "secgw"))]
#[expect(clippy::unnecessary_wraps, reason = "the thread that opens ports may not start")]
fn opener(_: &Settings, _: Option<&User>) -> io::Result<Option<Opener>> {
    Ok(None)
}

/// The calling thread becomes a user, if there is one to become.
#[cfg(feature = "secgw")]
fn take_user(user: Option<&User>, thread: &str) {
    if let Some(Err(error)) = user.map(service_user::become_user) {
        tracing::warn!("the thread of {thread}: {error}");
    }
}

/// What a configuration has, in numbers.
fn counted(settings: &Settings) -> String {
    let served = daemon::requirements(settings).served;
    let some = served.iter().filter(|(number, _)| *number > 0);
    let counted: Vec<String> = some
        .map(|(number, what)| format!("{number} {what}{}", if *number == 1 { "" } else { "s" }))
        .collect();
    if counted.is_empty() { "nothing to serve".to_owned() } else { counted.join(", ") }
}

/// The processes and the thread that have rights or duties of their own.
type Helpers = (
    MachineConnection,
    Connection,
    AlertConnection,
    Connection,
    Connection,
    Option<UnixStream>,
    Option<Opener>,
);

async fn start(
    arguments: Arguments,
    state: Option<PathBuf>,
    file: ConfigFile,
    read: Read,
    (machine, https, alerts, snmp, dhcp, name_servers, opener): Helpers,
    engines: Engines,
) -> Outcome {
    let (orders, inbox) = Orders::channel();
    forward_signals(orders.clone())?;
    privilege::raise_descriptors();
    let engines = |ciphers: &[Subject]| {
        let engines = engines(ciphers);
        engines::maintain(&engines)?;
        Ok(engines)
    };
    let Arguments { api, open_at_exit, .. } = arguments;
    let start = Start {
        file,
        read,
        state,
        api,
        machine,
        https,
        alerts,
        snmp,
        dhcp,
        name_servers,
        opener,
        open_at_exit,
        engines,
        tell: tell_systemd,
    };
    // It is large, and is moved otherwise.
    Ok(Box::pin(serve(start, orders, inbox)).await?)
}

/// Makes orders of signals.
fn forward_signals(orders: Orders) -> Outcome {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => orders.stop(),
                _ = interrupt.recv() => orders.stop(),
                // Where too many wait already, they are for the same.
                _ = hangup.recv() => {
                    let _ = orders.give(Order::Reload(None));
                }
            }
        }
    });
    Ok(())
}

/// Tells systemd, if that has started the daemon.
fn tell_systemd(event: Event) {
    let state = match event {
        Event::Ready => vec![NotifyState::Ready],
        Event::Reloading => match NotifyState::monotonic_usec_now() {
            Ok(since) => vec![NotifyState::Reloading, since],
            Err(_) => return,
        },
        Event::Stopping => vec![NotifyState::Stopping],
    };
    let _ = sd_notify::notify(&state);
}
