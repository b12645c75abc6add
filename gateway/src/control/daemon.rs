//! `postern run`: keeps the interfaces what the configuration says they are.
//!
//! A new configuration is applied interface by interface. If a step is refused, that interface goes back to what it was,
//! and the error is reported.

use super::interface::{Interface, InterfaceError, Options, Removed};
use super::netlink::{LinkChange, Netlink, NetlinkError};
use super::plan::{self, Network};
use super::update::UpdateError;
use crate::api::{Labels, Shown};
use config::Settings;
use config::settings::WireGuard;
use crypto::Engine;
use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Why a configuration could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The interface could not be made.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Keys, port or mark were refused.
    #[error("interface {0}: {1}")]
    Update(String, UpdateError),
    /// Link, address, route or rule were refused.
    #[error("interface {0}: {1}")]
    Network(String, NetlinkError),
    /// No conversation with the kernel.
    #[error("rtnetlink: {0}")]
    Netlink(#[from] io::Error),
}

/// A running interface, and what was made of it.
struct Running {
    interface: Arc<Interface>,
    settings: WireGuard,
    network: Network,
}

/// The daemon.
pub struct Daemon {
    engine: Arc<dyn Engine>,
    events: mpsc::UnboundedSender<Removed>,
    running: BTreeMap<String, Running>,
    shown: Shown,
}

impl Daemon {
    /// A daemon without interfaces. That one was deleted by somebody else is told to `events`.
    pub fn new(engine: Arc<dyn Engine>, events: mpsc::UnboundedSender<Removed>) -> Self {
        Self { engine, events, running: BTreeMap::new(), shown: Shown::default() }
    }

    /// What the API shows.
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Makes the interfaces what `settings` says, and goes on after an error with the next one.
    pub async fn apply(&mut self, settings: Settings) -> Vec<ApplyError> {
        let mut errors = Vec::new();
        let gone: Vec<String> =
            self.running.keys().filter(|name| !settings.wireguard.contains_key(*name)).cloned().collect();
        for name in gone {
            self.remove(&name);
        }
        for (name, wanted) in settings.wireguard {
            if let Err(error) = self.apply_interface(&name, wanted).await {
                errors.push(error);
            }
        }
        errors
    }

    /// Forgets an interface that somebody else has deleted; it is made again with the next configuration.
    pub fn forget(&mut self, name: &str) {
        tracing::warn!("interface {name} was deleted; reload the configuration to have it again");
        self.remove(name);
    }

    /// Ends everything and leaves nothing behind.
    pub fn stop(&mut self) {
        let names: Vec<String> = self.running.keys().cloned().collect();
        for name in names {
            self.remove(&name);
        }
    }

    /// Addresses and routes go with the interface; rules do not.
    fn remove(&mut self, name: &str) {
        self.shown.hide(name);
        let Some(running) = self.running.remove(name) else { return };
        if let Ok(mut netlink) = Netlink::open() {
            for rule in &running.network.rules {
                if let Err(error) = netlink.remove_rule(*rule) {
                    tracing::warn!("{error}");
                }
            }
        }
    }

    async fn apply_interface(&mut self, name: &str, wanted: WireGuard) -> Result<(), ApplyError> {
        let Some(running) = self.running.get_mut(name) else { return self.create(name, wanted).await };
        if running.settings == wanted {
            return Ok(());
        }
        let interface = Arc::clone(&running.interface);
        let labels = labels_of(&wanted);
        running.change_to(wanted).await?;
        self.shown.show(interface, labels);
        Ok(())
    }

    async fn create(&mut self, name: &str, wanted: WireGuard) -> Result<(), ApplyError> {
        let options = Options { without: wanted.disabled_offloads.clone(), ..Options::default() };
        check_port(name, &wanted)?;
        let interface =
            Arc::new(Interface::create(name, Arc::clone(&self.engine), options, self.events.clone())?);
        let update = plan::update(None, &wanted);
        interface.update(update).await.map_err(|error| ApplyError::Update(name.to_owned(), error))?;
        let network = Network::new(&wanted);
        set_network(name, &wanted, &Network::default(), &network)?;
        self.shown.show(Arc::clone(&interface), labels_of(&wanted));
        self.running.insert(name.to_owned(), Running { interface, settings: wanted, network });
        Ok(())
    }
}

impl Running {
    /// Makes the interface what `wanted` says, or leaves it what it was.
    async fn change_to(&mut self, wanted: WireGuard) -> Result<(), ApplyError> {
        let name = self.interface.name().to_owned();
        if wanted.port != self.settings.port {
            check_port(&name, &wanted)?;
        }
        self.interface.set_offloads(&wanted.disabled_offloads)?;
        let update = plan::update(Some(&self.settings), &wanted);
        self.interface.update(update).await.map_err(|error| ApplyError::Update(name.clone(), error))?;
        let network = Network::new(&wanted);
        if let Err(error) = set_network(&name, &wanted, &self.network, &network) {
            let back = plan::update(Some(&wanted), &self.settings);
            let undone =
                self.interface.update(back).await.map_err(|error| ApplyError::Update(name.clone(), error));
            let undone = undone.and_then(|()| set_network(&name, &self.settings, &network, &self.network));
            if let Err(error) = undone {
                tracing::error!("going back to the previous configuration: {error}");
            }
            return Err(error);
        }
        self.settings = wanted;
        self.network = network;
        Ok(())
    }
}

/// The names that `show` uses.
fn labels_of(settings: &WireGuard) -> Labels {
    let peers = settings.peers.iter().map(|(name, peer)| (peer.public_key, name.clone()));
    Labels { description: settings.description.clone(), peers: peers.collect() }
}

/// Refuses a port that somebody else has, before anything is changed.
fn check_port(name: &str, settings: &WireGuard) -> Result<(), ApplyError> {
    let Some(port) = settings.port.filter(|_| !settings.disable) else { return Ok(()) };
    match UdpSocket::bind(("0.0.0.0", port)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(ApplyError::Update(name.to_owned(), UpdateError::PortInUse(port)))
        }
        _ => Ok(()),
    }
}

/// Changes what the kernel knows of an interface from `before` to `after`.
fn set_network(
    name: &str,
    settings: &WireGuard,
    before: &Network,
    after: &Network,
) -> Result<(), ApplyError> {
    let mut netlink = Netlink::open()?;
    let changed = change_network(&mut netlink, name, settings, before, after);
    changed.map_err(|error| ApplyError::Network(name.to_owned(), error))?;
    if !after.rules.is_empty() {
        // Without it, reverse path filtering drops the answers to marked packets.
        let _ = std::fs::write("/proc/sys/net/ipv4/conf/all/src_valid_mark", "1");
    }
    Ok(())
}

fn change_network(
    netlink: &mut Netlink,
    name: &str,
    settings: &WireGuard,
    before: &Network,
    after: &Network,
) -> Result<(), NetlinkError> {
    let index = netlink.link(name)?.index;
    netlink.set_link(index, LinkChange { mtu: Some(settings.mtu), ..LinkChange::default() })?;
    for &address in before.addresses.difference(&after.addresses) {
        netlink.remove_address(index, address)?;
    }
    for &address in after.addresses.difference(&before.addresses) {
        netlink.add_address(index, address)?;
    }
    netlink.set_link(index, LinkChange { up: Some(!settings.disable), ..LinkChange::default() })?;
    for &rule in before.rules.difference(&after.rules) {
        netlink.remove_rule(rule)?;
    }
    for &(prefix, table) in before.routes.difference(&after.routes) {
        netlink.remove_route(index, prefix, table)?;
    }
    for &(prefix, table) in after.routes.difference(&before.routes) {
        netlink.add_route(index, prefix, table)?;
    }
    for &rule in after.rules.difference(&before.rules) {
        netlink.add_rule(rule)?;
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
