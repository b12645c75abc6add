//! `postern run`: keeps the interfaces what the configuration says they are.
//!
//! A new configuration is applied interface by interface. If a step is refused, that interface goes back to what it was,
//! and the error is reported.

use super::carrier::{InterfaceError, Options, Removed};
use super::interface::Interface;
use super::ipsec;
use super::ipsec::service::{Service, ServiceError};
use super::needs::Needs;
use super::netlink::{LinkChange, Netlink, NetlinkError, Route, Way};
use super::plan::{self, Network};
use super::rules::{self, Rules};
use super::uapi_server::Window;
use super::update::UpdateError;
use crate::api::model::Refused;
use crate::api::{Labels, PeerLabels, Shown};
use config::Settings;
use config::settings::WireGuard;
use crypto::Engine;
use crypto::choice::{Choice, Rules as EngineRules};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};
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
    /// IPsec.
    #[error(transparent)]
    Ipsec(#[from] ServiceError),
}

impl ApplyError {
    /// Whether it may go away without anybody's doing.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Ipsec(error) if error.is_temporary())
    }
}

/// How long an interface that goes down may take to let go of its port: its lane yields to others.
const RELEASE: Duration = Duration::from_secs(2);

/// A running interface, and what was made of it.
struct Running {
    interface: Arc<Interface>,
    settings: WireGuard,
    network: Network,
    /// Whether it is what `settings` says: not if a step back was refused too.
    is_known: bool,
    /// Where `wg` sees it.
    window: Option<Window>,
}

/// What the configuration decides about crypto engines.
pub fn engine_rules(
    config::settings::Crypto { pinned, accelerators }: config::settings::Crypto,
) -> EngineRules {
    EngineRules { pinned, accelerators }
}

/// The daemon.
pub struct Daemon {
    engines: Arc<Choice>,
    events: mpsc::UnboundedSender<Removed>,
    running: BTreeMap<String, Running>,
    ipsec: Service,
    rules: Rules,
    shown: Shown,
}

impl Daemon {
    /// A daemon without interfaces. That one was deleted by somebody else is told to `events`.
    pub fn new(engines: Arc<Choice>, events: mpsc::UnboundedSender<Removed>) -> Self {
        if let Ok(mut netlink) = Netlink::open()
            && let Err(error) = rules::remove_stale(&mut netlink)
        {
            tracing::warn!("{error}");
        }
        let shown = Shown::new(Arc::clone(&engines));
        Self {
            engines,
            events,
            running: BTreeMap::new(),
            ipsec: Service::default(),
            rules: Rules::default(),
            shown,
        }
    }

    /// What the API shows.
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Makes everything what `settings` says. What was refused, by its place in the configuration, is what it was before.
    pub async fn apply(&mut self, settings: Settings) -> BTreeMap<String, ApplyError> {
        let needs = Needs::new(&settings);
        self.engines.set_rules(engine_rules(settings.crypto));
        if settings.ipsec.peers.is_empty() {
            self.ipsec.clear_stale();
        }
        let gone: Vec<String> =
            self.running.keys().filter(|name| !settings.wireguard.contains_key(*name)).cloned().collect();
        for name in gone {
            self.remove(&name);
        }
        let mut refused = BTreeMap::new();
        for (name, wanted) in settings.wireguard {
            if let Err(error) = self.apply_interface(&name, wanted).await {
                refused.insert(format!("interfaces wireguard {name}"), error);
            }
        }
        let engines: Arc<dyn Engine> = self.engines.clone();
        let of_ipsec = self.ipsec.apply(settings.ipsec, &engines, &self.events, &mut self.rules).await;
        refused.extend(of_ipsec.into_iter().map(|(place, error)| (place, error.into())));
        self.shown.set_refused(refused.iter().map(|(place, error)| shown_refusal(place, error)).collect());
        for advice in needs.warnings() {
            tracing::warn!("{}\n  fix: {}", advice.what, advice.fix);
        }
        self.shown.set_needs(needs);
        self.shown.show_ipsec(self.ipsec.gateway());
        refused
    }

    /// Looks again at what could not be served, and where those are who do not answer.
    pub async fn tend(&mut self) {
        self.ipsec.tend().await;
        self.shown.keep_refused(|refused| {
            let peer = refused.place.strip_prefix("vpn ipsec site-to-site peer ");
            !refused.is_temporary || peer.is_none_or(|peer| self.ipsec.is_pending(peer))
        });
        for running in self.running.values_mut() {
            running.open_window().await;
        }
    }

    /// Forgets an interface that somebody else has deleted; it is made again with the next configuration.
    pub fn forget(&mut self, name: &str) {
        tracing::warn!("interface {name} was deleted; reload the configuration to have it again");
        if name == ipsec::NAME {
            tracing::warn!("until then nothing is sent to the networks behind IPsec peers");
            self.shown.show_ipsec(None);
            self.ipsec.lose();
        } else {
            self.remove(name);
        }
    }

    /// Ends everything and leaves nothing behind.
    pub fn stop(&mut self) {
        let names: Vec<String> = self.running.keys().cloned().collect();
        for name in names {
            self.remove(&name);
        }
        self.stop_ipsec();
    }

    fn stop_ipsec(&mut self) {
        self.shown.show_ipsec(None);
        self.ipsec.stop(&mut self.rules);
    }

    /// Addresses and routes go with the interface; rules do not.
    fn remove(&mut self, name: &str) {
        self.shown.hide(name);
        if self.running.remove(name).is_none() {
            return;
        }
        let Ok(mut netlink) = Netlink::open() else { return };
        if let Err(error) = self.rules.change(&mut netlink, name, &BTreeSet::new()) {
            tracing::warn!("{error}");
        }
    }

    async fn apply_interface(&mut self, name: &str, wanted: WireGuard) -> Result<(), ApplyError> {
        let Some(running) = self.running.get_mut(name) else { return self.create(name, wanted).await };
        if running.settings == wanted && running.is_known {
            return Ok(());
        }
        let interface = Arc::clone(&running.interface);
        let labels = labels_of(&wanted);
        running.change_to(wanted, &mut self.rules).await?;
        self.shown.show(interface, labels);
        Ok(())
    }

    /// What is refused takes the interface with it, and that its addresses and routes; rules come last.
    async fn create(&mut self, name: &str, wanted: WireGuard) -> Result<(), ApplyError> {
        let options = Options { without: wanted.disabled_offloads.clone(), ..Options::default() };
        check_port(name, &wanted, Duration::ZERO).await?;
        let interface =
            Arc::new(Interface::create(name, self.engines.clone(), options, self.events.clone())?);
        let update = plan::update(None, &wanted);
        interface.update(update).await.map_err(|error| ApplyError::Update(name.to_owned(), error))?;
        let network = Network::new(&wanted);
        let mut netlink = Netlink::open()?;
        let set = add_network(&mut netlink, name, &wanted, &Network::default(), &network);
        let set = set.and_then(|()| self.rules.change(&mut netlink, name, &network.rules));
        set.map_err(|error| ApplyError::Network(name.to_owned(), error))?;
        self.shown.show(Arc::clone(&interface), labels_of(&wanted));
        let mut running = Running { interface, settings: wanted, network, is_known: true, window: None };
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
    async fn change_to(&mut self, wanted: WireGuard, rules: &mut Rules) -> Result<(), ApplyError> {
        if wanted.port != self.settings.port || self.settings.disable {
            check_port(self.interface.name(), &wanted, RELEASE).await?;
        }
        let network = Network::new(&wanted);
        let mut netlink = Netlink::open()?;
        let mut updated = false;
        let changed = self.go(&mut netlink, rules, &wanted, &network, &mut updated).await;
        if let Err(error) = changed {
            let back = self.go_back(&mut netlink, rules, &wanted, &network, updated).await;
            self.is_known &= back.is_ok();
            if let Err(error) = back {
                tracing::error!("going back to the previous configuration: {error}");
            }
            return Err(error);
        }
        (self.settings, self.network, self.is_known) = (wanted, network, true);
        Ok(())
    }

    /// Adds, changes, then takes away. The lane comes late: what it has learned of its peers cannot be given back.
    async fn go(
        &self,
        netlink: &mut Netlink,
        rules: &mut Rules,
        wanted: &WireGuard,
        network: &Network,
        updated: &mut bool,
    ) -> Result<(), ApplyError> {
        let name = self.interface.name();
        let refused = |error| ApplyError::Network(name.to_owned(), error);
        // While it is down it learns nothing, and it must know port and mark before it goes up.
        if self.settings.disable {
            self.update(self.is_known.then_some(&self.settings), wanted).await?;
            *updated = true;
        }
        add_network(netlink, name, wanted, &self.network, network).map_err(refused)?;
        if !*updated {
            self.update(self.is_known.then_some(&self.settings), wanted).await?;
            *updated = true;
        }
        rules.change(netlink, name, &network.rules).map_err(refused)?;
        remove_network(netlink, name, wanted, &self.network, network).map_err(refused)?;
        Ok(self.interface.set_offloads(&wanted.disabled_offloads)?)
    }

    /// Undoes what was done on the way to `wanted`. The kernel may have dropped more than it was told to: all is set.
    async fn go_back(
        &self,
        netlink: &mut Netlink,
        rules: &mut Rules,
        wanted: &WireGuard,
        network: &Network,
        updated: bool,
    ) -> Result<(), ApplyError> {
        let name = self.interface.name();
        let refused = |error| ApplyError::Network(name.to_owned(), error);
        if updated {
            self.update(Some(wanted), &self.settings).await?;
        }
        add_network(netlink, name, &self.settings, &Network::default(), &self.network).map_err(refused)?;
        rules.change(netlink, name, &self.network.rules).map_err(refused)?;
        remove_network(netlink, name, &self.settings, network, &self.network).map_err(refused)
    }

    async fn update(&self, before: Option<&WireGuard>, after: &WireGuard) -> Result<(), ApplyError> {
        let update = plan::update(before, after);
        let name = self.interface.name();
        self.interface.update(update).await.map_err(|error| ApplyError::Update(name.to_owned(), error))
    }
}

/// A refusal as the API shows it.
fn shown_refusal(place: &str, error: &ApplyError) -> Refused {
    Refused { place: place.to_owned(), why: error.to_string(), is_temporary: error.is_temporary() }
}

/// The names that `show` uses.
fn labels_of(settings: &WireGuard) -> Labels {
    let peers = settings.peers.iter().map(|(name, peer)| {
        (peer.public_key, PeerLabels { name: name.clone(), description: peer.description.clone() })
    });
    Labels { description: settings.description.clone(), peers: peers.collect() }
}

/// Refuses a port that somebody else has, before anything is changed.
async fn check_port(name: &str, settings: &WireGuard, patience: Duration) -> Result<(), ApplyError> {
    let Some(port) = settings.port.filter(|_| !settings.disable) else { return Ok(()) };
    let deadline = Instant::now() + patience;
    while UdpSocket::bind(("0.0.0.0", port)).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
        if Instant::now() >= deadline {
            return Err(ApplyError::Update(name.to_owned(), UpdateError::port_in_use(port)));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Lets the kernel know what is new of an interface.
fn add_network(
    netlink: &mut Netlink,
    name: &str,
    settings: &WireGuard,
    before: &Network,
    after: &Network,
) -> Result<(), NetlinkError> {
    let index = netlink.link(name)?.index;
    netlink.set_link(index, LinkChange { mtu: Some(settings.mtu), ..LinkChange::default() })?;
    // Also those that it should have: the kernel takes IPv6 addresses when an interface goes down.
    for &address in &after.addresses {
        netlink.add_address(index, address)?;
    }
    if !settings.disable {
        netlink.set_link(index, LinkChange { up: Some(true), ..LinkChange::default() })?;
    }
    for &(prefix, table) in after.routes.difference(&before.routes) {
        netlink.add_route(Route { prefix, table, way: Way::Link { index, source: None } })?;
    }
    Ok(())
}

/// Lets the kernel forget what is no longer true of an interface.
fn remove_network(
    netlink: &mut Netlink,
    name: &str,
    settings: &WireGuard,
    before: &Network,
    after: &Network,
) -> Result<(), NetlinkError> {
    let index = netlink.link(name)?.index;
    if settings.disable {
        netlink.set_link(index, LinkChange { up: Some(false), ..LinkChange::default() })?;
    }
    for &(prefix, table) in before.routes.difference(&after.routes) {
        netlink.remove_route(Route { prefix, table, way: Way::Link { index, source: None } })?;
    }
    if before.addresses.is_subset(&after.addresses) {
        return Ok(());
    }
    for &address in before.addresses.difference(&after.addresses) {
        netlink.remove_address(index, address)?;
    }
    // With an address the kernel takes the later ones of its network, and with the last IPv4 address the routes.
    add_network(netlink, name, settings, &Network::default(), after)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_grammar_names_the_offloads_that_there_are() {
        assert_eq!(config::schema::OFFLOADS, port::Offloads::NAMES);
    }
}
