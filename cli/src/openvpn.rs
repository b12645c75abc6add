//! `postern openvpn`: one interface from OpenVPN's own files and command line.

use crate::privilege::{self, Needs};
use crate::{Failure, Outcome, engines, log, login, scripts, service_user};
use clap::Args;
use config::import::{Disk, Files};
use config::openvpn::{Refusal, load};
use crypto::Cipher;
use crypto::choice::Choice;
use gateway::api::{self, Shown};
use gateway::ipsec;
use gateway::openvpn::convert::{Plan, Sources, convert};
use gateway::openvpn::runner::Runner;
use gateway::openvpn::scripts::Scripts;
use gateway::openvpn::settings::Settings;
use gateway::service::View;
use gateway::tunnel_interface::Options;
use gateway::wireguard::api::Interfaces;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Validates instead of serving. OpenVPN has no such option.
const CHECK: &str = "--check";

#[derive(Args)]
#[command(after_help = "\
Served: UDP and TCP, a server with the topology subnet or a client, certificates, tls-auth, tls-crypt, tls-crypt-v2, AES-GCM and \
ChaCha20-Poly1305, keepalive, push, client-config-dir, routes, mssfix, tun-mtu.

Not served yet: scripts, the management interface, DNS, redirect-gateway, and more. Each directive \
that is not served is refused with what to do.")]
pub(crate) struct Arguments {
    /// Validate the configuration and exit; stands before or behind the directives
    #[arg(long)]
    check: bool,
    /// A file, or OpenVPN's directives with two dashes: --config FILE
    #[arg(value_name = "DIRECTIVE", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    directives: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    log::start()?;
    let Arguments { mut check, mut directives } = arguments;
    directives.retain(|word| {
        check |= word == CHECK;
        word != CHECK
    });
    let Plan { name, mut settings, remarks, programs } = plan(&directives)?;
    for remark in remarks {
        if remark.is_warning {
            tracing::warn!("{remark}");
        } else {
            tracing::info!("{remark}");
        }
    }
    if check {
        println!("interface {name}: nothing wrong");
        return Ok(());
    }
    login::ask(&mut settings)?;
    // While this process may still start one that keeps its rights.
    let runner = if programs.by_hook.is_empty() { None } else { Some(scripts::start()?) };
    let user = service_user::wanted(None)?;
    service_user::report(user.as_ref());
    privilege::drop_unneeded(Needs { user: user.as_ref(), keys: true, ..Needs::default() })?;
    privilege::raise_descriptors();
    if let Some(socket) = runner {
        settings.scripts = Scripts::start(socket, &programs)?;
    }
    let runtime = privilege::runtime()?;
    let ciphers = [Cipher::Aes256Gcm, Cipher::Aes192Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];
    let engines = engines::choice(&ciphers.map(Into::into));
    engines::maintain(&engines)?;
    let name = if name == "tun" { free_name()? } else { name };
    runtime.block_on(serve(&name, settings, engines))
}

/// What is to be served; else all that is refused.
fn plan(directives: &[String]) -> Result<Plan, Failure> {
    let files: &dyn Files = &Disk { root: PathBuf::from("/") };
    let sources = Sources { files, resolve: &resolve };
    let plan = load(directives, files).and_then(|loaded| convert(loaded, &sources));
    plan.map_err(|refusals| {
        let lines: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
        lines.join("\n").into()
    })
}

fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

/// The first free `tunN`, as in OpenVPN.
fn free_name() -> Result<String, Failure> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let is_free = |name: &String| netdevice::name_to_index(&socket, name).is_err();
    let name = (0..256).map(|number| format!("tun{number}")).find(is_free);
    name.ok_or_else(|| {
        "there are 256 interfaces tun0 to tun255\n  fix: write dev NAME and dev-type tun".into()
    })
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
    let ended = tokio::select! {
        ended = runner.run() => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    runner.end();
    Ok(ended?)
}
