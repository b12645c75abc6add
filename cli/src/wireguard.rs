//! `postern wireguard`: one interface, driven by `wg` and `wg-quick` over the cross-platform socket.

use crate::privilege::{self, Needs};
use crate::{Failure, Outcome, engines, log, service_user};
use clap::Args;
use config::settings::Threads;
use crypto::Cipher;
use crypto::choice::{Choice, Rules};
use gateway::api::{self, Shown};
use gateway::ipsec;
use gateway::openvpn::api as openvpn;
use gateway::service::View;
use gateway::tunnel_interface::{Options, receive_threads};
use gateway::wireguard::api::Interfaces;
use gateway::wireguard::interface::Interface;
use gateway::wireguard::labels::Labels;
use gateway::wireguard::uapi_server;
use gateway::wireguard::uapi_server::Access;
use port::fault::Faults;
use port::pcap::Capture;
use rustix::process::setsid;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// The line that the background process sends to its parent once `wg` can be used.
const READY: &[u8] = b"ready\n";

#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// Name of the interface to create
    interface: String,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Disable these offloads, separated by commas; see `postern show offloads`
    #[arg(long, value_delimiter = ',', value_name = "OFFLOAD")]
    without: Vec<String>,
    /// Inject faults into received datagrams, for example lose=0.01,reorder=0.02,seed=7
    #[arg(long, value_name = "FAULTS")]
    fault: Option<Faults>,
    /// Write the packets inside the tunnel to a capture file
    #[arg(long, value_name = "FILE")]
    capture_inside: Option<PathBuf>,
    /// Crypto engine to prefer; the fastest by default
    #[arg(long, value_name = "NAME", value_parser = config::schema::ENGINES.to_vec())]
    engine: Option<String>,
    /// Threads that encrypt and decrypt at once, or `auto`: as many as there are processors
    #[arg(long, value_name = "NUMBER", value_parser = parse_threads)]
    threads: Option<Threads>,
    /// Threads that receive, each way, or `auto`: one for four processors; peers and flows are spread over them
    #[arg(long, value_name = "NUMBER", value_parser = parse_receive_threads)]
    receive_threads: Option<Threads>,
    /// Hand packets off to further threads also when no processor is idle, for tests
    #[arg(long, hide = true)]
    hand_off_always: bool,
    /// Write the datagrams outside the tunnel to a capture file
    #[arg(long, value_name = "FILE")]
    capture_outside: Option<PathBuf>,
    /// Run as this user with the capabilities to configure networks; by default `postern`, if it exists and root starts the daemon
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Set by the parent of a background process
    #[arg(long, hide = true)]
    tell_when_ready: bool,
}

fn parse_threads(text: &str) -> Result<Threads, String> {
    parsed(text, config::schema::THREADS)
}

fn parse_receive_threads(text: &str) -> Result<Threads, String> {
    parsed(text, config::schema::RECEIVE_THREADS)
}

fn parsed(text: &str, kind: config::schema::Type) -> Result<Threads, String> {
    kind.check(text).map(|()| text.parse().expect("it was checked"))
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    if !arguments.foreground {
        return start_in_background();
    }
    log::start()?;
    if arguments.tell_when_ready {
        setsid()?;
    }
    // Files are created with the caller's user and umask.
    let capture = |path: &Option<PathBuf>| path.as_deref().map(Capture::create).transpose();
    let captures = [capture(&arguments.capture_inside)?, capture(&arguments.capture_outside)?];
    let runtime = become_modest(arguments.user.as_deref())?;
    privilege::raise_descriptors();
    let engines = engines::choice(&[Cipher::ChaCha20Poly1305.into()]);
    if let Some(engine) = &arguments.engine {
        let pinned = [(Cipher::ChaCha20Poly1305.to_string(), engine.clone())].into();
        engines.set_rules(Rules { pinned, ..Rules::default() });
    }
    engines::maintain(&engines)?;
    runtime.block_on(serve(arguments, captures, engines))
}

/// Drops privileges that are not needed, and starts the runtime of the main thread.
fn become_modest(user: Option<&str>) -> Result<Runtime, Failure> {
    let user = service_user::wanted(user)?;
    service_user::report(user.as_ref());
    privilege::drop_unneeded(Needs {
        other_namespaces: true,
        user: user.as_ref(),
        keys: true,
        ..Needs::default()
    })?;
    Ok(privilege::runtime()?)
}

/// For measurements: the data path without encryption.
#[cfg(feature = "bench")]
pub(crate) fn serve_without_cipher(interface: String) -> Outcome {
    log::start()?;
    let runtime = become_modest(None)?;
    let receive_threads = Some(Threads::Count(1));
    let arguments = Arguments { interface, receive_threads, ..Arguments::default() };
    runtime.block_on(serve(arguments, [None, None], crate::bench::without_cipher()))
}

/// Starts this program in the background, and waits until it is ready.
fn start_in_background() -> Outcome {
    let mut child = Command::new(std::env::current_exe()?)
        // Not the name of the file, which may imply the verb.
        .arg0("postern")
        .arg("wireguard")
        .args(["--foreground", "--tell-when-ready"])
        // Our own arguments, behind the verb.
        .args(crate::command_line(std::env::args_os()).into_iter().skip(2))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    child.stdout.take().expect("it is piped").read_to_end(&mut said)?;
    if said == READY {
        return Ok(());
    }
    // The child has printed the reason on our standard error.
    std::process::exit(child.wait()?.code().unwrap_or(1));
}

async fn serve(arguments: Arguments, captures: [Option<Capture>; 2], engines: Arc<Choice>) -> Outcome {
    let (events, mut removed) = mpsc::unbounded_channel();
    let [capture_inside, capture_outside] = captures;
    let options = Options {
        without: arguments.without,
        faults: arguments.fault,
        threads: arguments.threads.unwrap_or_default(),
        receive_threads: receive_threads(arguments.receive_threads.unwrap_or_default()),
        hands_off_always: arguments.hand_off_always,
        capture_inside,
        capture_outside,
        ..Options::default()
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    let name = arguments.interface;
    let listener = uapi_server::bind(&name).await?;
    let interface = Arc::new(Interface::create(&name, engines.clone(), options, events)?);
    let interfaces = Interfaces::default();
    interfaces.show(Arc::clone(&interface), Labels::default());
    // Without peers, because clients ask every daemon for IPsec and OpenVPN.
    let others: Vec<Arc<dyn View>> = vec![
        Arc::new(interfaces),
        Arc::new(ipsec::api::Peers::absent()),
        Arc::new(openvpn::Interfaces::default()),
    ];
    let shown = Shown::new(engines, others);
    match api::bind(&api::path(&name)).await {
        Ok(listener) => drop(tokio::spawn(api::serve(listener, shown))),
        // `wg` works without the API: go on.
        Err(error) => tracing::warn!("postern show will not find {name}: {error}"),
    }
    if arguments.tell_when_ready {
        tell_ready()?;
    }
    tracing::info!("interface {name} is ready");
    tokio::select! {
        () = uapi_server::serve(listener, Arc::downgrade(&interface), Access::Full) => {}
        _ = removed.recv() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        Some(()) = async { hangup.as_mut()?.recv().await } => {}
    }
    Ok(())
}

/// Whether the process is to outlive its terminal, as nohup requests by ignoring SIGHUP. Otherwise a hangup ends it, as it ends
/// wireguard-go; a background process has no terminal.
pub(crate) fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & 1 != 0)
}

/// Lets the parent go, and with it the terminal. Errors are still shown when a level was asked for.
fn tell_ready() -> Outcome {
    std::io::stdout().write_all(READY)?;
    let nowhere = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    if std::env::var_os("LOG_LEVEL").is_none() {
        rustix::stdio::dup2_stderr(&nowhere)?;
    }
    Ok(())
}
