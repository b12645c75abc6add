//! `postern run`: the gateway, as its configuration file says.

use crate::engines;
use crate::privilege::{self, Needs};
use crate::service_user::User;
use crate::{Failure, Outcome, log, service_user, whole};
use clap::Args;
use config::{ConfigError, Settings, Text, Tree, diff};
use crypto::choice::Choice;
use crypto::engine::none;
use crypto::machine::Machine;
use gateway::api::model::{ReloadOutcome, Reloaded};
use gateway::api::{self, Reload};
use gateway::daemon::{self, Daemon};
use gateway::host::Host;
use gateway::host::occupied;
use gateway::service::Refused;
use sd_notify::NotifyState;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// Beyond this many, errors are only counted: mending the first ones comes first.
const ERRORS_SHOWN: usize = 20;
/// How often it is looked again at what could not be served, and where those are who do not answer.
const MAINTENANCE: Duration = Duration::from_secs(15);

/// The default socket of the API.
pub(crate) const API: &str = "/run/postern/postern.sock";

#[derive(Args)]
pub(crate) struct Arguments {
    /// The configuration: lines of `set`, in the words of VyOS
    #[arg(short, long, value_name = "FILE", default_value = "/etc/postern/postern.conf")]
    config: PathBuf,
    /// Where the API listens
    #[arg(long, value_name = "SOCKET", default_value = API)]
    api: PathBuf,
    /// Become this user, and keep the rights to configure networks: `postern`, if there is one and root starts it
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Validate the configuration and exit
    #[arg(long)]
    check: bool,
    /// When stopped, release the protected prefixes instead of leaving them blocked until the next start
    #[arg(long)]
    open_at_exit: bool,
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    run_with(arguments, |settings| engines::choice(&daemon::requirements(settings).ciphers))
}

/// For measurements: what the path costs when nothing is encrypted.
pub(crate) fn run_without_cipher(config: PathBuf, api: PathBuf) -> Outcome {
    let none = |_: &Settings| Arc::new(Choice::among(vec![Arc::new(none::None)]));
    run_with(Arguments { config, api, user: None, check: false, open_at_exit: false }, none)
}

/// The engines that a gateway with such settings uses.
type Engines = fn(&Settings) -> Arc<Choice>;

fn run_with(arguments: Arguments, engines: Engines) -> Outcome {
    log::start()?;
    let user = service_user::wanted(arguments.user.as_deref())?;
    // The systemd unit already starts the daemon as that user.
    let own = (!rustix::process::geteuid().is_root()).then(|| rustix::process::getegid().as_raw());
    let group = user.as_ref().map(User::gid).or(own);
    let Read { tree, settings, ends } = read(&arguments.config, group, false)?;
    if arguments.check {
        check(&arguments.config, &settings)?;
        println!("{}: {}, nothing wrong", arguments.config.display(), counted(&settings));
        return Ok(());
    }
    occupied::look(daemon::requirements(&settings).ports.into_iter());
    service_user::report(user.as_ref());
    privilege::drop_unneeded(Needs {
        raw_sockets: true,
        file: Some(&arguments.config),
        user: user.as_ref(),
        keys: true,
        ..Needs::default()
    })?;
    let runtime = privilege::runtime()?;
    let in_force = InForce { text: config::print::text(&tree), ends, group };
    drop(tree);
    let outcome = runtime.block_on(serve(arguments, in_force, settings, engines));
    // Do not wait for a name server that does not answer.
    runtime.shutdown_background();
    outcome
}

/// Finds what would be refused when it is served, as far as that can be known before.
fn check(path: &Path, settings: &Settings) -> Outcome {
    let (warnings, refused) = daemon::check(settings);
    for warning in warnings {
        tracing::warn!("{}: {warning}", path.display());
    }
    if refused.is_empty() {
        return Ok(());
    }
    let refused = refused.values().map(ToString::to_string).collect();
    Err(format!("{} cannot be served as it is\n{}", path.display(), shown(refused)).into())
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

async fn serve(arguments: Arguments, mut in_force: InForce, settings: Settings, engines: Engines) -> Outcome {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut reload = signal(SignalKind::hangup())?;
    let (events, mut removed) = mpsc::unbounded_channel();
    privilege::raise_descriptors();
    // First, before steps that take time or may fail.
    let host = Host::start(daemon::wanted(&settings))?;
    let engines = engines(&settings);
    engines::maintain(&engines)?;
    let mut daemon = Daemon::new(engines, events, host);
    let Some(mut refused) = unless_ended(daemon.apply(settings), &mut terminate, &mut interrupt).await else {
        daemon.stop(arguments.open_at_exit);
        return Ok(());
    };
    // An interface or peer that fails must not stop the others.
    if !daemon.serves()
        && let Some((_, error)) = refused.pop_first()
    {
        daemon.give_up();
        return Err(error.into());
    }
    leave_out(&refused, &mut in_force.text);
    let mut maintenance = tokio::time::interval(MAINTENANCE);
    maintenance.set_missed_tick_behavior(MissedTickBehavior::Delay);
    maintenance.tick().await;
    // Whoever finds the socket finds a gateway that serves.
    let listener = match api::bind(&arguments.api).await {
        Ok(listener) => listener,
        Err(error) => {
            daemon.give_up();
            return Err(error.into());
        }
    };
    let mut orders = daemon.shown().serves(&arguments.config);
    tokio::spawn(api::serve(listener, daemon.shown()));
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    tracing::info!("{} is in force", arguments.config.display());
    port::heap::give_back();
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(gone) = removed.recv() => daemon.forget(&gone.0),
            _ = maintenance.tick() => {
                if unless_ended(daemon.maintain(), &mut terminate, &mut interrupt).await.is_none() {
                    break;
                }
            }
            order = ordered(&mut reload, &mut orders) => {
                if let Ok(reloading) = NotifyState::monotonic_usec_now() {
                    let _ = sd_notify::notify(&[NotifyState::Reloading, reloading]);
                }
                let loading = load(&arguments.config, &mut in_force, &mut daemon);
                let Some(reloaded) = unless_ended(loading, &mut terminate, &mut interrupt).await else { break };
                daemon.shown().has_reloaded(&reloaded);
                port::heap::give_back();
                let _ = sd_notify::notify(&[NotifyState::Ready]);
                if let Some(reply) = order {
                    let _ = reply.send(reloaded);
                }
            }
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    daemon.stop(arguments.open_at_exit);
    Ok(())
}

/// Runs a step that may wait for a name server, unless a signal ends the daemon first.
async fn unless_ended<T>(
    work: impl Future<Output = T>,
    terminate: &mut Signal,
    interrupt: &mut Signal,
) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    }
}

/// A request to read the configuration again: SIGHUP, or an API call that waits for the result.
async fn ordered(signal: &mut Signal, orders: &mut mpsc::Receiver<Reload>) -> Option<Reload> {
    tokio::select! {
        _ = signal.recv() => None,
        Some(reply) = orders.recv() => Some(reply),
    }
}

/// The configuration in force.
struct InForce {
    text: Text,
    /// Whether the last line of its file ended with a newline.
    ends: bool,
    /// The group of the daemon's user, which may read the file.
    group: Option<u32>,
}

/// Logs what failed at the start. What is not retried by itself is taken out of the configuration in force.
fn leave_out(refused: &Refused, in_force: &mut Text) {
    let mut tree = in_force.as_str().ok().and_then(|text| config::parse(text).ok()).unwrap_or_default();
    for (path, error) in refused {
        if error.is_temporary() {
            tracing::warn!("{error}\n  retried every {} seconds", MAINTENANCE.as_secs());
            continue;
        }
        tracing::error!("{error}\n  {path} is not served, and what it protects stays blocked");
        tree.take_over(path, &Tree::default());
    }
    *in_force = config::print::text(&tree);
}

/// Reads the file again and applies what has changed in it; if it is wrong, everything stays.
async fn load(path: &Path, in_force: &mut InForce, daemon: &mut Daemon) -> Reloaded {
    let (file, group, ended) = (path.to_owned(), in_force.group, in_force.ends);
    // This may wait for a program that is writing the file.
    let read = privilege::reading(move || read(&file, group, ended)).await;
    let Read { mut tree, settings, ends } = match read.and_then(|read| read) {
        Ok(read) => read,
        Err(error) => {
            tracing::error!("the configuration is unchanged: {error}");
            return Reloaded::new(ReloadOutcome::Refused, Vec::new(), vec![error.to_string()]);
        }
    };
    // We have printed it ourselves; were it not read, all of the new one would be told as new.
    let old = in_force.text.as_str().ok().and_then(|text| config::parse(text).ok()).unwrap_or_default();
    let changes: Vec<String> = diff::diff(&old, &tree).iter().map(ToString::to_string).collect();
    for change in &changes {
        tracing::info!("{change}");
    }
    let refused = daemon.apply(settings).await;
    for (refused_path, error) in &refused {
        tracing::error!("{error}");
        tree.take_over(refused_path, &old);
    }
    *in_force = InForce { text: config::print::text(&tree), ends, group: in_force.group };
    let names: Vec<String> = refused.keys().map(ToString::to_string).collect();
    if names.is_empty() {
        tracing::info!("{} is in force", path.display());
        return Reloaded::new(ReloadOutcome::InForce, changes, Vec::new());
    }
    let place = format!("{} is not in force for {}, which is unchanged", path.display(), names.join(", "));
    tracing::error!("{place}\n  fix: see above, then reload again");
    let errors = refused.values().map(ToString::to_string).chain([place]);
    Reloaded::new(ReloadOutcome::PartlyInForce, changes, errors.collect())
}

/// A configuration as read from its file.
pub(crate) struct Read {
    tree: Tree,
    pub(crate) settings: Settings,
    /// Whether the last line of the file ends with a newline.
    ends: bool,
}

/// `must_end`: the file in force ended with a newline, so a file without one is truncated.
pub(crate) fn read(path: &Path, group: Option<u32>, must_end: bool) -> Result<Read, Failure> {
    let text = whole::read(path)?;
    let text = text.as_str().map_err(|error| format!("{}: {error}", path.display()))?;
    let ends = whole::ends_its_last_line(text);
    if must_end && !ends {
        return Err(format!("{}: {}", path.display(), whole::cut_off(path)).into());
    }
    let checked = config::parse(text).and_then(|tree| Settings::new(&tree).map(|checked| (tree, checked)));
    let (tree, (settings, warnings)) = checked.map_err(|errors| explain(path, text, &errors))?;
    if settings.is_empty() && !settings.allows_empty {
        return Err(whole::empty(path).into());
    }
    let accelerators = settings.crypto.accelerators.then(no_accelerator).flatten();
    let cut_off = (!ends).then(|| whole::cut_off(path));
    let of_machine = [exposed(path, group, &tree), accelerators, cut_off];
    let of_machine = of_machine.into_iter().flatten().chain(daemon::warnings(&settings));
    for warning in warnings.into_iter().chain(of_machine) {
        tracing::warn!("{}: {warning}", path.display());
    }
    Ok(Read { tree, settings, ends })
}

/// The warning if accelerators are allowed but none can be used.
fn no_accelerator() -> Option<String> {
    (!crypto::choice::find().has_accelerator()).then(|| {
        format!(
            "system acceleration qat has no effect: this machine has no usable accelerator, so software encrypts\n  \
             looked for: {}\n  details: postern doctor crypto",
            Machine::here().accelerators_found()
        )
    })
}

/// The warning if a file with secrets can be read by users other than its owner and the daemon's group.
fn exposed(path: &Path, group: Option<u32>, tree: &Tree) -> Option<String> {
    // What cannot be asked for has just been read, and is no file on a disk.
    let metadata = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    let mode = metadata.permissions().mode() & 0o777;
    let others = if Some(metadata.gid()) == group { 0o037 } else { 0o077 };
    let is_open = mode & others != 0 && config::print::has_secrets(tree);
    is_open.then(|| {
        format!(
            "it has secrets, and others than its owner may use it (mode {mode:04o})\n  fix: chmod 600 {}",
            path.display()
        )
    })
}

fn explain(path: &Path, text: &str, errors: &[ConfigError]) -> String {
    let file = path.display().to_string();
    let errors = errors.iter().map(|error| error.in_text(&file, text).to_string()).collect();
    format!("the configuration is wrong\n{}", shown(errors))
}

fn shown(mut errors: Vec<String>) -> String {
    let more = errors.len().saturating_sub(ERRORS_SHOWN);
    errors.truncate(ERRORS_SHOWN);
    errors.extend((more > 0).then(|| format!("and {more} more")));
    errors.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn secrets_that_others_may_read_are_warned_of() {
        let path = std::env::temp_dir().join(format!("postern-exposed-{}", std::process::id()));
        std::fs::write(&path, "").expect("a file");
        let secret = config::parse("set vpn ipsec authentication psk a secret 'a b'").expect("right");
        let none = config::parse("set interfaces wireguard wg0 mtu 1400").expect("right");
        let said_with = |group, mode, tree: &Tree| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            exposed(&path, group, tree)
        };
        let said = |mode, tree: &Tree| said_with(None, mode, tree);
        let warning = said(0o644, &secret).unwrap_or_default();
        assert!(warning.contains("(mode 0644)") && warning.contains("\n  fix: chmod 600 "), "{warning}");
        assert_eq!((said(0o600, &secret), said(0o644, &none)), (None, None));
        let ours = Some(std::fs::metadata(&path).expect("it is there").gid());
        assert_eq!(said_with(ours, 0o640, &secret), None, "the daemon's own group");
        assert!(said_with(ours, 0o644, &secret).is_some() && said(0o640, &secret).is_some());
        std::fs::remove_file(&path).expect("it is there");
    }
}
