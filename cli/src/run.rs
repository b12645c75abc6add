//! `postern run`: the gateway, as its configuration file says.

use crate::{Failure, Outcome, privilege, wireguard};
use clap::Args;
use config::{ConfigError, Settings, Tree, diff};
use crypto::engine::aws_lc::AwsLc;
use gateway::api;
use gateway::control::daemon::Daemon;
use sd_notify::NotifyState;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The configuration: lines of `set`, in the words of VyOS
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Where the API listens
    #[arg(long, value_name = "SOCKET", default_value = "/run/postern/postern.sock")]
    api: PathBuf,
    /// Only say whether the configuration is right
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    wireguard::log();
    let (tree, settings) = read(&arguments.config)?;
    if arguments.check {
        println!(
            "{}: {} WireGuard interfaces, nothing wrong",
            arguments.config.display(),
            settings.wireguard.len()
        );
        return Ok(());
    }
    privilege::drop_unneeded(privilege::Needs { other_namespaces: false })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(arguments, tree, settings))
}

async fn serve(arguments: Arguments, mut tree: Tree, settings: Settings) -> Outcome {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut reload = signal(SignalKind::hangup())?;
    let (events, mut removed) = mpsc::unbounded_channel();
    let mut daemon = Daemon::new(Arc::new(AwsLc), events);
    if let Some(error) = daemon.apply(settings).await.into_iter().next() {
        daemon.stop();
        return Err(error.into());
    }
    // Whoever finds the socket finds a gateway that serves.
    let listener = match api::bind(&arguments.api).await {
        Ok(listener) => listener,
        Err(error) => {
            daemon.stop();
            return Err(error.into());
        }
    };
    tokio::spawn(api::serve(listener, daemon.shown()));
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    tracing::info!("{} is in force", arguments.config.display());
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(gone) = removed.recv() => daemon.forget(&gone.0),
            _ = reload.recv() => {
                if let Ok(reloading) = NotifyState::monotonic_usec_now() {
                    let _ = sd_notify::notify(&[NotifyState::Reloading, reloading]);
                }
                load(&arguments.config, &mut tree, &mut daemon).await;
                let _ = sd_notify::notify(&[NotifyState::Ready]);
            }
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    daemon.stop();
    Ok(())
}

/// Reads the file again and applies what has changed in it; if it is wrong, everything stays.
async fn load(path: &Path, tree: &mut Tree, daemon: &mut Daemon) {
    let (new, settings) = match read(path) {
        Ok(read) => read,
        Err(error) => return tracing::error!("the configuration stays as it was: {error}"),
    };
    for change in diff::diff(tree, &new) {
        tracing::info!("{change}");
    }
    for error in daemon.apply(settings).await {
        tracing::error!("{error}");
    }
    *tree = new;
    tracing::info!("{} is in force", path.display());
}

fn read(path: &Path) -> Result<(Tree, Settings), Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let checked = config::parse(&text).and_then(|tree| Settings::new(&tree).map(|checked| (tree, checked)));
    let (tree, (settings, warnings)) = checked.map_err(|errors| explain(path, &text, &errors))?;
    for warning in warnings {
        tracing::warn!("{}: {warning}", path.display());
    }
    Ok((tree, settings))
}

fn explain(path: &Path, text: &str, errors: &[ConfigError]) -> String {
    let file = path.display().to_string();
    let shown: Vec<String> = errors.iter().map(|error| error.in_text(&file, text).to_string()).collect();
    format!("the configuration is wrong\n{}", shown.join("\n"))
}
