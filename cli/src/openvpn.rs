//! `postern openvpn-interface`: one OpenVPN interface from a JSON file, for tests and benchmarks.

use crate::privilege::{self, Needs};
use crate::{Outcome, engines, log, service_user};
use clap::Args;
use crypto::Cipher;
use crypto::choice::Choice;
use gateway::api::{self, Shown};
use gateway::ipsec;
use gateway::openvpn::file;
use gateway::openvpn::runner::Runner;
use gateway::openvpn::settings::Settings;
use gateway::service::View;
use gateway::tunnel_interface::Options;
use gateway::wireguard::api::Interfaces;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The settings
    file: PathBuf,
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    log::start()?;
    let (name, settings) = file::read(&arguments.file)?;
    let user = service_user::wanted(None)?;
    privilege::drop_unneeded(Needs { user: user.as_ref(), keys: true, ..Needs::default() })?;
    privilege::raise_descriptors();
    let runtime = privilege::runtime()?;
    let ciphers = [Cipher::Aes256Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];
    let engines = engines::choice(&ciphers.map(Into::into));
    engines::maintain(&engines)?;
    runtime.block_on(serve(&name, settings, engines))
}

async fn serve(name: &str, settings: Settings, engines: Arc<Choice>) -> Outcome {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut runner = Runner::start(name, settings, engines.clone(), Options::default())?;
    // Clients ask every daemon for WireGuard and IPsec.
    let others: Vec<Arc<dyn View>> =
        vec![runner.view(), Arc::new(Interfaces::default()), Arc::new(ipsec::api::Peers::absent())];
    match api::bind(&api::path(name)).await {
        Ok(listener) => drop(tokio::spawn(api::serve(listener, Shown::new(engines, others)))),
        Err(error) => tracing::warn!("postern show will not find {name}: {error}"),
    }
    tracing::info!("interface {name} is ready");
    tokio::select! {
        () = runner.run() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    runner.end();
    Ok(())
}
