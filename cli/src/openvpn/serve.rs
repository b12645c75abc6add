//! The loop of the process: the interface, its signals, and how both begin and end.

mod waiting;

use super::asks::{self, Managed, Next};
use super::background::Caller;
use super::files::Directives;
use super::process;
use super::signals::{Asked, Signals};
use super::status_file::StatusFile;
use crate::pid_file::PidFile;
use crate::privilege;
use crate::{Failure, Outcome, dns, login, scripts};
use config::openvpn::settings::NULL;
use crypto::Cipher;
use crypto::choice::Choice;
use gateway::api::{self, Shown};
use gateway::dns::NameServers;
use gateway::ipsec;
use gateway::openvpn::convert::Plan;
use gateway::openvpn::login::LoginSettings;
use gateway::openvpn::management::Board;
use gateway::openvpn::runner::{Current, RunError, Runner};
use gateway::openvpn::scripts::{Programs, Scripts};
use gateway::openvpn::settings::{Role, Settings};
use gateway::openvpn::status::Format;
use gateway::service::View;
use gateway::tunnel_interface::Options;
use gateway::unix_socket::SocketError;
use gateway::wireguard::api::Interfaces;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use sd_notify::NotifyState;
use std::collections::BTreeSet;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Interval, timeout};
use waiting::Held;

/// How long the start waits for a port that another program has; after that, it is tried again beside all else.
const LISTENING: Duration = Duration::from_secs(5);

/// Finds the engines of data packets.
pub(super) type Engines = fn() -> Result<Arc<Choice>, Failure>;

/// The fastest engines of this machine.
pub(super) fn engines() -> Result<Arc<Choice>, Failure> {
    let ciphers = [Cipher::Aes256Gcm, Cipher::Aes192Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];
    let engines = crate::engines::choice(&ciphers.map(Into::into));
    crate::engines::maintain(&engines)?;
    Ok(engines)
}

/// Serves until the end. `files`: what may be read again.
pub(super) fn start(
    mut plan: Plan,
    directives: Directives,
    files: &BTreeSet<PathBuf>,
    board: Arc<Board>,
    caller: &mut Caller,
    engines: Engines,
) -> Outcome {
    let pid_file = process::prepare(&plan.process)?;
    // It is kept until the end of the process, which has the interface then.
    let (name, _reserved) = own_name(&plan.name)?;
    ask_user(&mut plan, &board)?;
    // While this process may still start one that keeps its rights.
    let mut programs = plan.programs.clone();
    process::give_programs(&plan.process, &mut programs)?;
    let runner = if programs.by_hook.is_empty() { None } else { Some(scripts::start()?) };
    let name_servers = dns::start(&plan.settings)?;
    let runtime = privilege::runtime()?;
    // While this process may make it: the user may have no right to its folder.
    let status = StatusFile::open(&plan.log);
    let listener = asks::bind(plan.management.as_ref(), &plan.process)?;
    let prepared = runtime.block_on(prepare_api(&name));
    caller.leave_terminal()?;
    process::become_modest(&plan.process, files)?;
    process::report(&plan.remarks);
    for text in &plan.log.echo {
        tracing::info!("ECHO: {text}");
        board.echo(text);
    }
    privilege::raise_descriptors();
    let scripts = runner.map_or(Ok(Scripts::default()), |socket| Scripts::start(socket, &programs))?;
    let name_servers = name_servers.map(NameServers::start).transpose()?;
    let engines = engines()?;
    let current = Arc::new(Current::default());
    runtime.block_on(async {
        // Clients ask every daemon for WireGuard and IPsec.
        let others: Vec<Arc<dyn View>> = vec![
            Arc::clone(&current) as Arc<dyn View>,
            Arc::new(Interfaces::default()),
            Arc::new(ipsec::api::Peers::absent()),
            Arc::new(gateway::openvpn::api::Interfaces::default()),
        ];
        match prepared.and_then(api::Prepared::listen) {
            Ok(listener) => drop(tokio::spawn(api::serve(listener, Shown::new(engines.clone(), others)))),
            Err(error) => tracing::warn!("postern show will not find {name}: {error}"),
        }
        let programs = plan.programs.clone();
        let signals = Signals::new()?;
        let login = login(&mut plan.settings).cloned().unwrap_or_default();
        let told = Arc::clone(&board);
        let managed = Managed::new(board, listener, plan.management.clone(), &login)?;
        let served = Served {
            name,
            directives,
            engines,
            current,
            signals,
            programs,
            scripts,
            name_servers,
            login,
            status,
            managed,
            pid_file,
        };
        let outcome = Box::pin(served.run(plan, caller)).await;
        asks::finish(&told, &outcome).await;
        outcome
    })
}

/// Makes the socket of the API. Another network namespace may have an interface of this name, and its process a socket.
async fn prepare_api(name: &str) -> Result<api::Prepared, SocketError> {
    match api::prepare(&api::path(name)).await {
        Err(SocketError::Busy(path)) => {
            let namespace = std::fs::metadata("/proc/thread-self/ns/net");
            let number = namespace.map_err(|error| SocketError::Io { path, error })?.ino();
            api::prepare(&api::path(&format!("{name}@{number}"))).await
        }
        made => made,
    }
}

/// The name of the interface.
fn own_name(wanted: &str) -> Result<(String, Option<UnixDatagram>), Failure> {
    match wanted {
        "tun" => free_name().map(|(name, reserved)| (name, Some(reserved))),
        // Several may run at once.
        NULL => Ok((format!("{NULL}{}", std::process::id()), None)),
        name => Ok((name.to_owned(), None)),
    }
}

/// Asks the user of a client, or has the management interface ask later.
fn ask_user(plan: &mut Plan, board: &Arc<Board>) -> Outcome {
    let asks_there = plan.management.as_ref().is_some_and(|management| management.query_passwords);
    match login(&mut plan.settings) {
        Some(login) if asks_there => asks::ask_there(board, login),
        _ => login::ask(&mut plan.settings)?,
    }
    Ok(())
}

/// What outlives the interface.
struct Served {
    name: String,
    directives: Directives,
    engines: Arc<Choice>,
    current: Arc<Current>,
    signals: Signals,
    /// The programs of the files, which their process has been told.
    programs: Programs,
    scripts: Scripts,
    name_servers: Option<NameServers>,
    /// What the user was asked for, and has answered.
    login: LoginSettings,
    status: Option<StatusFile>,
    managed: Managed,
    pid_file: Option<PidFile>,
}

/// What a client says about its user.
fn login(settings: &mut Settings) -> Option<&mut LoginSettings> {
    match &mut settings.role {
        Role::Client(client) => Some(&mut client.login),
        Role::Server(_) => None,
    }
}

/// How the interface ended.
enum Ended {
    /// Serve this instead.
    Anew(Box<Plan>),
    /// The process ends, for this reason in OpenVPN's words.
    Over(&'static str),
}

impl Served {
    async fn run(mut self, plan: Plan, caller: &mut Caller) -> Outcome {
        let mut next = plan;
        self.managed.board.state("CONNECTING", ",,,,,");
        loop {
            if next.is_key_locked {
                match self.unlock(next.process.remap_usr1.as_deref(), caller).await? {
                    Some(plan) => next = *plan,
                    None => return Ok(()),
                }
                continue;
            }
            if self.managed.board.holds() {
                match self.hold(next.process.remap_usr1.as_deref(), caller).await? {
                    Held::Released => {}
                    Held::Anew(plan) => {
                        next = *plan;
                        continue;
                    }
                    Held::Over => return Ok(()),
                }
            }
            let Plan { mut settings, process, .. } = next;
            settings.scripts = self.scripts.clone();
            dns::give(&mut settings, self.name_servers.as_ref());
            let runner = Runner::start(
                &self.name,
                settings,
                self.engines.clone(),
                Options::default(),
                self.managed.told(),
            );
            let mut runner = runner?;
            self.current.set(&runner);
            if let Err(error) = runner.begin().await {
                runner.end("error").await?;
                return Err(error.into());
            }
            let listening = timeout(LISTENING, runner.listen()).await.unwrap_or(Ok(()));
            let ready = listening.map_err(Failure::from).and_then(|()| self.write_pid());
            if let Err(error) = ready {
                runner.end("error").await?;
                return Err(error);
            }
            tracing::info!("interface {} is ready", self.name);
            caller.release()?;
            let _ = sd_notify::notify(&[NotifyState::Ready]);
            let ended = self.serve(&mut runner, process.remap_usr1.as_deref()).await;
            let signal = match &ended {
                Ok(Ended::Anew(_)) => "sighup",
                Ok(Ended::Over(signal)) => signal,
                Err(_) => "error",
            };
            let closed = runner.end(signal).await;
            match ended? {
                Ended::Anew(plan) => next = *plan,
                Ended::Over(_) => return Ok(closed?),
            }
            closed?;
        }
    }

    /// Serves one interface until it ends, or until a signal ends it.
    async fn serve(&mut self, runner: &mut Runner, remap: Option<&str>) -> Result<Ended, Failure> {
        let mut interval = StatusFile::interval(self.status.as_ref());
        loop {
            let format = self.format();
            let asked = tokio::select! {
                ended = runner.run() => {
                    return match ended {
                        Ok(()) => Ok(Ended::Over("error")),
                        Err(error @ RunError::Over(_, signal)) => {
                            tracing::info!("{error}");
                            Ok(Ended::Over(signal))
                        }
                        Err(error) => Err(error.into()),
                    };
                }
                () = tick(interval.as_mut()) => {
                    if let Some(file) = &mut self.status {
                        file.write(&runner.status(file.format).await);
                    }
                    continue;
                }
                ask = self.managed.next() => match self.take(ask, Some(runner), format).await {
                    Next::Signal(asked) => asked.remapped(remap),
                    Next::Nothing | Next::Release => continue,
                },
                asked = self.signals.next() => asked.remapped(remap),
            };
            match asked {
                Asked::End(signal) => {
                    let _ = sd_notify::notify(&[NotifyState::Stopping]);
                    tracing::info!("a signal was received, process exiting");
                    self.managed.board.state("EXITING", "SIGTERM,,,,,");
                    return Ok(Ended::Over(signal));
                }
                Asked::Reconnect => {
                    tracing::info!("SIGUSR1: sessions begin again");
                    self.managed.board.state("RECONNECTING", "SIGUSR1,,,,,");
                    runner.restart();
                }
                Asked::Reread => {
                    if let Some(plan) = self.hung_up().await {
                        return Ok(Ended::Anew(plan));
                    }
                }
                Asked::Status => {
                    runner.status(format).await.lines().for_each(|line| tracing::info!("{line}"));
                }
            }
        }
    }

    /// Writes the pid file, for programs that wait for it.
    fn write_pid(&mut self) -> Outcome {
        self.pid_file.as_mut().map_or(Ok(()), PidFile::write)
    }

    /// The format of `status-version`.
    fn format(&self) -> Format {
        self.status.as_ref().map_or(Format::default(), |file| file.format)
    }
}

/// The next tick; never without an interval.
async fn tick(interval: Option<&mut Interval>) {
    match interval {
        Some(interval) => _ = interval.tick().await,
        None => std::future::pending().await,
    }
}

/// The first free `tunN`, as in OpenVPN. The socket keeps it from another process of ours that starts at the same time.
fn free_name() -> Result<(String, UnixDatagram), Failure> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let reserve = |name: String| {
        if netdevice::name_to_index(&socket, &name).is_ok() {
            return None;
        }
        // Names of this kind are those of a network namespace, as names of interfaces are.
        let address = SocketAddr::from_abstract_name(format!("postern {name}")).ok()?;
        UnixDatagram::bind_addr(&address).ok().map(|taken| (name, taken))
    };
    let name = (0..256).map(|number| format!("tun{number}")).find_map(reserve);
    name.ok_or_else(|| {
        "there are 256 interfaces tun0 to tun255\n  fix: write dev NAME and dev-type tun".into()
    })
}
