//! Keeps the interfaces what the configuration says they are: only those that changed are touched.
//!
//! If a step is refused, that interface goes back to what it was.

use super::api::Interfaces;
use super::interface::Interface;
use super::labels::Labels;
use super::uapi_server::Window;
use super::update::UpdateError;
use super::{plan, requirements};
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::wants::Wants;
use crate::host::{self, Host};
use crate::service::{Context, Refusal, Refused, Requirements, Service, View, Work};
use crate::tunnel_interface::{InterfaceError, Options};
use config::settings::WireGuard;
use config::{Path, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a configuration of WireGuard could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The interface could not be made.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Keys, port or mark were refused.
    #[error("interface {0}: {1}")]
    Update(String, UpdateError),
    /// Link, address, route or rule were refused.
    #[error("interface {0}: {1}")]
    Network(String, NetlinkError),
}

/// Where WireGuard is configured.
const PATH: [&str; 2] = ["interfaces", "wireguard"];

/// How long an interface that goes down may take to let go of its port: its handshake thread has a low priority.
const RELEASE: Duration = Duration::from_secs(2);

/// A running interface, and what was made of it.
struct Running {
    interface: Arc<Interface>,
    settings: WireGuard,
    wants: Wants,
    /// Whether it is what `settings` says: not if a step back was refused too.
    is_known: bool,
    /// Where `wg` sees it.
    window: Option<Window>,
}

/// The interfaces.
#[derive(Default)]
pub struct WireGuardService {
    running: BTreeMap<String, Running>,
    /// All that the last configuration has. Of those that were refused or deleted, only what they are for is closed.
    configured: BTreeSet<String>,
    shown: Interfaces,
}

impl Service for WireGuardService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        requirements::requirements(settings)
    }

    fn wants(&self, settings: &Settings) -> BTreeMap<String, Wants> {
        settings.wireguard.iter().map(|(name, link)| (name.clone(), plan::wants(link))).collect()
    }

    fn configure<'a>(&'a mut self, settings: &'a mut Settings, context: &'a Context) -> Work<'a, Refused> {
        Box::pin(self.apply(std::mem::take(&mut settings.wireguard), context))
    }

    fn maintain(&mut self) -> Work<'_, ()> {
        Box::pin(async {
            for running in self.running.values_mut() {
                running.open_window().await;
            }
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        BTreeSet::new()
    }

    fn serves(&self) -> bool {
        !self.running.is_empty()
    }

    fn interface_removed(&mut self, name: &str) {
        self.shown.hide(name);
        self.running.remove(name);
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {
        for name in self.running.keys() {
            self.shown.hide(name);
        }
        self.running.clear();
    }
}

impl WireGuardService {
    /// Makes the interfaces what `settings` says. Those that were refused are not there, or as they were before.
    async fn apply(&mut self, settings: BTreeMap<String, WireGuard>, context: &Context) -> Refused {
        let configured: BTreeSet<String> = settings.keys().cloned().collect();
        let before = std::mem::replace(&mut self.configured, configured.clone());
        for name in before.difference(&configured) {
            self.remove(name, &context.host);
        }
        let mut refused = Refused::new();
        for (name, wanted) in settings {
            if let Err(error) = self.apply_interface(&name, wanted, context).await {
                let path = Path::new(PATH.into_iter().chain([&*name]));
                refused.insert(path, Refusal::new(error, false));
            }
        }
        refused
    }

    /// Addresses and routes go with the interface, and all else that was for it.
    fn remove(&mut self, name: &str, host: &Host) {
        self.shown.hide(name);
        self.running.remove(name);
        if let Err(error) = host.set(name, None) {
            tracing::warn!("{error}");
        }
    }

    async fn apply_interface(
        &mut self,
        name: &str,
        wanted: WireGuard,
        context: &Context,
    ) -> Result<(), ServiceError> {
        let Some(running) = self.running.get_mut(name) else {
            return self.create(name, wanted, context).await;
        };
        if running.settings == wanted && running.is_known {
            return Ok(());
        }
        let interface = Arc::clone(&running.interface);
        let labels = Labels::new(&wanted);
        running.change_to(wanted, &context.host).await?;
        self.shown.show(interface, labels);
        Ok(())
    }

    /// What is refused takes the interface with it, and that its addresses and routes. What it is for is closed before.
    async fn create(&mut self, name: &str, wanted: WireGuard, context: &Context) -> Result<(), ServiceError> {
        let wants = plan::wants(&wanted);
        let refused = |error| ServiceError::Network(name.to_owned(), error);
        context.host.set(name, Some(wants.without_interface())).map_err(refused)?;
        let created = create_interface(name, &wanted, &wants, context).await;
        if created.is_err() {
            // The interface is gone: only what closes is wanted.
            context.host.set(name, Some(wants.without_interface())).map_err(refused)?;
        }
        let interface = created?;
        self.shown.show(Arc::clone(&interface), Labels::new(&wanted));
        let mut running = Running { interface, settings: wanted, wants, is_known: true, window: None };
        running.open_window().await;
        self.running.insert(name.to_owned(), running);
        Ok(())
    }
}

impl Running {
    /// Lets `wg` see the interface. Where that cannot be, as when another network namespace has one of the same name, it is
    /// tried again later.
    async fn open_window(&mut self) {
        if self.window.as_ref().is_some_and(Window::is_open) {
            return;
        }
        match Window::open(&self.interface).await {
            Ok(window) => self.window = Some(window),
            // Said once.
            Err(error) if self.window.is_none() => {
                tracing::warn!("wg does not see {}: {error}", self.interface.name());
                self.window = Some(Window::closed());
            }
            Err(_) => {}
        }
    }

    /// Makes the interface what `wanted` says, or leaves it what it was.
    async fn change_to(&mut self, wanted: WireGuard, host: &Host) -> Result<(), ServiceError> {
        if wanted.port != self.settings.port || self.settings.disable {
            check_port(self.interface.name(), &wanted, RELEASE).await?;
        }
        let wants = plan::wants(&wanted);
        let mut updated = false;
        let changed = self.go(host, &wanted, &wants, &mut updated).await;
        if let Err(error) = changed {
            let back = self.go_back(host, &wanted, &wants, updated).await;
            self.is_known &= back.is_ok();
            if let Err(error) = back {
                tracing::error!("going back to the previous configuration: {error}");
            }
            return Err(error);
        }
        (self.settings, self.wants, self.is_known) = (wanted, wants, true);
        Ok(())
    }

    /// Adds, changes, then takes away. The handshake thread comes last: what it learns of its peers cannot be undone.
    async fn go(
        &self,
        host: &Host,
        wanted: &WireGuard,
        wants: &Wants,
        updated: &mut bool,
    ) -> Result<(), ServiceError> {
        let name = self.interface.name();
        let refused = |error| ServiceError::Network(name.to_owned(), error);
        // While it is down it learns nothing, and it must know port and mark before it goes up.
        if self.settings.disable {
            self.update(self.is_known.then_some(&self.settings), wanted).await?;
            *updated = true;
        }
        set_link(name, wanted).map_err(refused)?;
        host.set(name, Some(self.wants.and(wants))).map_err(refused)?;
        if !*updated {
            self.update(self.is_known.then_some(&self.settings), wanted).await?;
            *updated = true;
        }
        host.change(name, &self.wants, wants).map_err(refused)?;
        self.interface.set_offloads(&wanted.disabled_offloads)?;
        self.interface.set_segment_sizes(wanted.adjust_mss);
        Ok(())
    }

    /// Undoes what was done on the way to `wanted`. The kernel may have dropped more than it was told to: all is compared.
    async fn go_back(
        &self,
        host: &Host,
        wanted: &WireGuard,
        wants: &Wants,
        updated: bool,
    ) -> Result<(), ServiceError> {
        let name = self.interface.name();
        let refused = |error| ServiceError::Network(name.to_owned(), error);
        if updated {
            self.update(Some(wanted), &self.settings).await?;
        }
        set_link(name, &self.settings).map_err(refused)?;
        host.change(name, wants, &self.wants).map_err(refused)
    }

    async fn update(&self, before: Option<&WireGuard>, after: &WireGuard) -> Result<(), ServiceError> {
        let update = plan::update(before, after);
        let name = self.interface.name();
        self.interface.update(update).await.map_err(|error| ServiceError::Update(name.to_owned(), error))
    }
}

async fn create_interface(
    name: &str,
    wanted: &WireGuard,
    wants: &Wants,
    context: &Context,
) -> Result<Arc<Interface>, ServiceError> {
    let options = Options { without: wanted.disabled_offloads.clone(), ..Options::default() };
    check_port(name, wanted, Duration::ZERO).await?;
    let interface =
        Arc::new(Interface::create(name, context.engines.clone(), options, context.events.clone())?);
    interface.set_segment_sizes(wanted.adjust_mss);
    let update = plan::update(None, wanted);
    interface.update(update).await.map_err(|error| ServiceError::Update(name.to_owned(), error))?;
    let refused = |error| ServiceError::Network(name.to_owned(), error);
    set_link(name, wanted).map_err(refused)?;
    context.host.set(name, Some(wants.clone())).map_err(refused)?;
    Ok(interface)
}

/// Gives an interface its MTU, and puts it up or down.
fn set_link(name: &str, settings: &WireGuard) -> Result<(), NetlinkError> {
    let mtu = LinkChange { mtu: Some(settings.mtu), ..LinkChange::default() };
    host::change_link(name, &[mtu, LinkChange { up: Some(!settings.disable), ..LinkChange::default() }])
}

/// Refuses a port that another program has, before anything is changed.
async fn check_port(name: &str, settings: &WireGuard, patience: Duration) -> Result<(), ServiceError> {
    let Some(port) = settings.port.filter(|_| !settings.disable) else { return Ok(()) };
    let deadline = Instant::now() + patience;
    while UdpSocket::bind(("0.0.0.0", port)).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
        if Instant::now() >= deadline {
            return Err(ServiceError::Update(name.to_owned(), UpdateError::port_in_use(port)));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_grammar_names_the_offloads_that_there_are() {
        assert_eq!(config::schema::OFFLOADS, port::Offloads::NAMES);
    }
}
