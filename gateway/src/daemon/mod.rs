//! `postern run`: keeps the interfaces what the configuration says they are.
//!
//! A new configuration is applied interface by interface. If a step is refused, that interface goes back to what it was,
//! and the error is reported.

pub mod needs;

use crate::api::model::Refused;
use crate::api::{Labels, PeerLabels, Shown};
use crate::host;
use crate::host::Host;
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::wants::Wants;
use crate::ipsec::service::{Service, ServiceError};
use crate::ipsec::{self, network};
use crate::tunnel_interface::{InterfaceError, Options, Removed};
use crate::wireguard::interface::Interface;
use crate::wireguard::plan;
use crate::wireguard::uapi_server::Window;
use crate::wireguard::update::UpdateError;
use config::settings::WireGuard;
use config::{Path, Settings};
use crypto::Engine;
use crypto::choice::{Choice, Rules as EngineRules};
use needs::Needs;
use std::collections::BTreeMap;
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

/// How long an interface that goes down may take to let go of its port: its slow path yields to others.
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

/// What the configuration decides about crypto engines.
pub fn engine_rules(
    config::settings::Crypto { pinned, accelerators }: config::settings::Crypto,
) -> EngineRules {
    EngineRules { pinned, accelerators }
}

/// What the host is to know for these settings, by interface.
pub fn wanted(settings: &Settings) -> BTreeMap<String, Wants> {
    let links = settings.wireguard.iter();
    let mut wanted: BTreeMap<String, Wants> =
        links.map(|(name, link)| (name.clone(), plan::wants(link))).collect();
    let networks = network::networks(&settings.ipsec);
    wanted.extend(network::wants(networks, false).map(|wants| (ipsec::NAME.to_owned(), wants)));
    wanted
}

/// The daemon.
pub struct Daemon {
    engines: Arc<Choice>,
    events: mpsc::UnboundedSender<Removed>,
    running: BTreeMap<String, Running>,
    ipsec: Service,
    host: Host,
    /// Whether nothing is to stay closed at the end.
    open_at_exit: bool,
    shown: Shown,
}

impl Daemon {
    /// A daemon without interfaces; `host` keeps closed what they will be for. That one was deleted by somebody else is told
    /// to `events`.
    pub fn new(engines: Arc<Choice>, events: mpsc::UnboundedSender<Removed>, host: Host) -> Self {
        let shown = Shown::new(Arc::clone(&engines));
        shown.set_held(host.held());
        Self {
            engines,
            events,
            running: BTreeMap::new(),
            ipsec: Service::default(),
            host,
            open_at_exit: false,
            shown,
        }
    }

    /// Whether there is any interface.
    pub fn serves(&self) -> bool {
        !self.running.is_empty() || self.ipsec.gateway().is_some()
    }

    /// What the API shows.
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Makes everything what `settings` says. What was refused, by its path in the configuration, is what it was before.
    pub async fn apply(&mut self, settings: Settings) -> BTreeMap<Path, ApplyError> {
        // A prefix may go from one tunnel to another: it is closed in between.
        self.host.hold();
        let refused = self.apply_held(settings).await;
        self.host.release();
        refused
    }

    async fn apply_held(&mut self, settings: Settings) -> BTreeMap<Path, ApplyError> {
        let needs = Needs::new(&settings);
        self.engines.set_rules(engine_rules(settings.crypto));
        self.open_at_exit = settings.open_at_exit;
        // Also those that were refused or deleted, and of which only what they are for is closed.
        let is_gone = |name: &String| name != ipsec::NAME && !settings.wireguard.contains_key(name);
        for name in self.host.interfaces().into_iter().filter(is_gone) {
            self.remove(&name);
        }
        let mut refused = BTreeMap::new();
        for (name, wanted) in settings.wireguard {
            if let Err(error) = self.apply_interface(&name, wanted).await {
                refused.insert(Path::new(["interfaces", "wireguard", &name]), error);
            }
        }
        let engines: Arc<dyn Engine> = self.engines.clone();
        let of_ipsec = self.ipsec.apply(settings.ipsec, &engines, &self.events, &self.host).await;
        refused.extend(of_ipsec.into_iter().map(|(path, error)| (path, error.into())));
        let shown = refused.iter().map(|(path, error)| (path.clone(), shown_refusal(path, error)));
        self.shown.set_refused(shown.collect());
        for advice in needs.warnings() {
            tracing::warn!("{}\n  fix: {}", advice.what, advice.fix);
        }
        self.shown.set_needs(needs);
        self.shown.show_ipsec(self.ipsec.gateway());
        refused
    }

    /// Looks again at what could not be served, and where those are who do not answer.
    pub async fn maintain(&mut self) {
        self.ipsec.maintain().await;
        let pending = self.ipsec.pending();
        self.shown.keep_refused(|path, refused| !refused.is_temporary || pending.contains(path));
        for running in self.running.values_mut() {
            running.open_window().await;
        }
    }

    /// Forgets an interface that somebody else has deleted; it is made again with the next configuration. What it was for
    /// stays closed.
    pub fn forget(&mut self, name: &str) {
        tracing::warn!("interface {name} was deleted; reload the configuration to have it again");
        if name == ipsec::NAME {
            tracing::warn!("until then nothing is sent to the networks behind IPsec peers");
            self.shown.show_ipsec(None);
            self.ipsec.lose();
        } else {
            self.shown.hide(name);
            self.running.remove(name);
        }
        if let Err(error) = self.host.close(name) {
            tracing::warn!("{error}");
        }
    }

    /// Ends everything as the configuration says, or opened: then nothing is left behind. What was protected stays closed
    /// otherwise, until the next start or `postern open`.
    pub fn stop(self, open: bool) {
        let open = open || self.open_at_exit;
        self.end(open);
    }

    /// Ends what could not be started; what it was to protect stays closed.
    pub fn give_up(self) {
        self.end(false);
    }

    fn end(mut self, open: bool) {
        let names: Vec<String> = self.running.keys().cloned().collect();
        self.shown.show_ipsec(None);
        for name in names {
            self.shown.hide(&name);
        }
        self.running.clear();
        self.ipsec.stop();
        self.host.end(open);
    }

    /// Addresses and routes go with the interface, and all else that was for it.
    fn remove(&mut self, name: &str) {
        self.shown.hide(name);
        self.running.remove(name);
        if let Err(error) = self.host.set(name, None) {
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
        running.change_to(wanted, &self.host).await?;
        self.shown.show(interface, labels);
        Ok(())
    }

    /// What is refused takes the interface with it, and that its addresses and routes. What it is for is closed before.
    async fn create(&mut self, name: &str, wanted: WireGuard) -> Result<(), ApplyError> {
        let wants = plan::wants(&wanted);
        let refused = |error| ApplyError::Network(name.to_owned(), error);
        self.host.set(name, Some(wants.without_interface())).map_err(refused)?;
        let created = self.create_interface(name, &wanted, &wants).await;
        if created.is_err() {
            // The interface is gone: only what closes is wanted.
            self.host.set(name, Some(wants.without_interface())).map_err(refused)?;
        }
        let interface = created?;
        self.shown.show(Arc::clone(&interface), labels_of(&wanted));
        let mut running = Running { interface, settings: wanted, wants, is_known: true, window: None };
        running.open_window().await;
        self.running.insert(name.to_owned(), running);
        Ok(())
    }

    async fn create_interface(
        &self,
        name: &str,
        wanted: &WireGuard,
        wants: &Wants,
    ) -> Result<Arc<Interface>, ApplyError> {
        let options = Options { without: wanted.disabled_offloads.clone(), ..Options::default() };
        check_port(name, wanted, Duration::ZERO).await?;
        let interface =
            Arc::new(Interface::create(name, self.engines.clone(), options, self.events.clone())?);
        interface.set_segment_sizes(wanted.adjust_mss);
        let update = plan::update(None, wanted);
        interface.update(update).await.map_err(|error| ApplyError::Update(name.to_owned(), error))?;
        let refused = |error| ApplyError::Network(name.to_owned(), error);
        set_link(name, wanted).map_err(refused)?;
        self.host.set(name, Some(wants.clone())).map_err(refused)?;
        Ok(interface)
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
    async fn change_to(&mut self, wanted: WireGuard, host: &Host) -> Result<(), ApplyError> {
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

    /// Adds, changes, then takes away. The slow path comes late: what it has learned of its peers cannot be given back.
    async fn go(
        &self,
        host: &Host,
        wanted: &WireGuard,
        wants: &Wants,
        updated: &mut bool,
    ) -> Result<(), ApplyError> {
        let name = self.interface.name();
        let refused = |error| ApplyError::Network(name.to_owned(), error);
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
    ) -> Result<(), ApplyError> {
        let name = self.interface.name();
        let refused = |error| ApplyError::Network(name.to_owned(), error);
        if updated {
            self.update(Some(wanted), &self.settings).await?;
        }
        set_link(name, &self.settings).map_err(refused)?;
        host.change(name, wants, &self.wants).map_err(refused)
    }

    async fn update(&self, before: Option<&WireGuard>, after: &WireGuard) -> Result<(), ApplyError> {
        let update = plan::update(before, after);
        let name = self.interface.name();
        self.interface.update(update).await.map_err(|error| ApplyError::Update(name.to_owned(), error))
    }
}

/// A refusal as the API shows it.
fn shown_refusal(path: &Path, error: &ApplyError) -> Refused {
    Refused { place: path.to_string(), why: error.to_string(), is_temporary: error.is_temporary() }
}

/// Gives an interface its MTU, and puts it up or down.
fn set_link(name: &str, settings: &WireGuard) -> Result<(), NetlinkError> {
    let mtu = LinkChange { mtu: Some(settings.mtu), ..LinkChange::default() };
    host::change_link(name, &[mtu, LinkChange { up: Some(!settings.disable), ..LinkChange::default() }])
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_grammar_names_the_offloads_that_there_are() {
        assert_eq!(config::schema::OFFLOADS, port::Offloads::NAMES);
    }
}
