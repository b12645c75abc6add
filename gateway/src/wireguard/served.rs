//! An interface that is served, and its way from one configuration to another.
//!
//! ```text
//! prepare  port, MTU, addresses and routes: beside what there is
//! switch   keys and peers, up or down, rules; then addresses and routes go that are no longer wanted
//! ```
//!
//! Both are undone. What that costs: packets to its old port while it has the new one, and packets to prefixes that another
//! interface has too, whose route leads here meanwhile.

use super::interface::Interface;
use super::names::{Known, Names, NotCalled};
use super::plan;
use super::uapi_server::Window;
use super::update::{Update, UpdateError};
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::wants::Wants;
use crate::host::{self, Host};
use crate::service::Context;
use crate::tunnel_interface::binding::becomes_free;
use crate::tunnel_interface::{
    InterfaceError, Options, check_processors, check_receive_threads, end, receive_threads,
};
use config::settings::WireGuard;
use std::mem::swap;
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

/// How long an interface that goes down may take to let go of its port: its handshake thread has a low priority.
const RELEASE: Duration = Duration::from_secs(2);

/// A running interface, and what was made of it.
pub(super) struct Served {
    pub(super) interface: Arc<Interface>,
    pub(super) settings: WireGuard,
    wants: Wants,
    /// Whether it is what `settings` says: not if a step back was refused too.
    is_known: bool,
    /// Where `wg` sees it.
    window: Option<Window>,
    /// Follows the names of peers.
    names: Option<Names>,
    not_called: NotCalled,
    /// What is known of them.
    pub(super) known: Known,
}

/// A change of an interface, and how far it has come.
pub(super) struct Change {
    /// What it is to be; once it is, what it was.
    pub(super) settings: WireGuard,
    wants: Wants,
    /// The port that it had, if it was to change: without one in the configuration, the one that the kernel chose.
    port: Option<u16>,
    /// The port that it has given to another interface: it has one that the kernel chose until it is prepared.
    freed_port: Option<u16>,
    /// Whether it is to be disabled: it changes its port only when it is down.
    pub(super) goes_down: bool,
    /// Whether it has the keys and peers that are wanted.
    is_updated: bool,
    /// Whether it is what was wanted.
    is_switched: bool,
}

impl Change {
    /// A change to these settings, of which nothing is done.
    pub(super) fn new(settings: WireGuard) -> Self {
        let wants = plan::wants(&settings);
        let goes_down = settings.disable;
        Self {
            settings,
            wants,
            port: None,
            freed_port: None,
            goes_down,
            is_updated: false,
            is_switched: false,
        }
    }
}

impl Served {
    /// Makes an interface. What is refused takes the interface with it, and that its addresses and routes.
    pub(super) async fn create(
        name: &str,
        wanted: WireGuard,
        known: Known,
        context: &Context,
    ) -> Result<Self, ServiceError> {
        let wants = plan::wants(&wanted);
        let (without, threads) = (wanted.disabled_offloads.clone(), wanted.threads);
        let receive_threads = receive_threads(wanted.receive_threads);
        let processors = wanted.processors.clone();
        check_processors(&processors, &format!("interfaces wireguard {name}"))?;
        let options = Options { without, threads, processors, receive_threads, ..Options::default() };
        check_port(name, &wanted).await?;
        let interface =
            Arc::new(Interface::create(name, context.engines.clone(), options, context.events.clone())?);
        let mut served = Self {
            interface,
            settings: wanted,
            wants,
            is_known: false,
            window: None,
            names: None,
            not_called: NotCalled::default(),
            known,
        };
        served.make(&context.host).await?;
        served.is_known = true;
        served.follow_names(None);
        Ok(served)
    }

    /// Ends it, with its window; what it was.
    pub(super) async fn end(self) -> WireGuard {
        let Self { interface, settings, .. } = self;
        end(interface).await;
        settings
    }

    /// Whether it is what its settings say.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Whether it is what these settings say.
    pub(super) fn is(&self, wanted: &WireGuard) -> bool {
        self.is_known && self.settings == *wanted
    }

    /// Lets `wg` see the interface. Where that cannot be, as when another network namespace has one of the same name, it is
    /// tried again later.
    pub(super) async fn open_window(&mut self) {
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

    /// Makes the link what the settings say. If that fails, the interface has just been deleted, which is reported by itself.
    pub(super) fn restore_link(&self) {
        let restored = self.set_mtu(&self.settings).and_then(|()| self.set_up(&self.settings));
        if let Err(error) = restored {
            tracing::debug!("{}: {error}", self.interface.name());
        }
    }

    /// Lets another interface have its port.
    pub(super) async fn free_port(&self, change: &mut Change) -> Result<(), ServiceError> {
        change.freed_port = self.settings.port;
        self.update(Update { listen_port: Some(0), ..Update::default() }).await
    }

    /// Undoes [`free_port`](Self::free_port), when the other interface no longer has the port.
    pub(super) async fn undo_free_port(&mut self, change: &mut Change) -> Result<(), ServiceError> {
        let Some(port) = change.freed_port.take() else { return Ok(()) };
        let back = self.update(Update { listen_port: Some(port), ..Update::default() }).await;
        self.is_known &= back.is_ok();
        back
    }

    /// Does what may be refused. Of what there is, it takes the port if that is to change.
    pub(super) async fn prepare(&self, change: &mut Change, host: &Host) -> Result<(), ServiceError> {
        let name = self.interface.name();
        let wanted = &change.settings;
        let threads = [self.settings.receive_threads, wanted.receive_threads];
        let path = format!("interfaces wireguard {name}");
        check_receive_threads(name, self.interface.receive_threads(), threads, &path)?;
        check_processors(&wanted.processors, &path)?;
        if wanted.port != self.settings.port || self.settings.disable {
            check_port(name, wanted).await?;
        }
        let refused = |error| ServiceError::Network(name.to_owned(), error);
        self.set_mtu(wanted).map_err(refused)?;
        let listen_port = self.update_to(wanted).listen_port.filter(|_| !change.goes_down);
        if listen_port.is_some() {
            change.port = Some(match self.settings.port {
                Some(port) => port,
                None => self.interface.snapshot().await.listen_port,
            });
            self.update(Update { listen_port, ..Update::default() }).await?;
        }
        let prepared = self.prepared(change);
        if prepared != self.wants || !self.is_known {
            host.set(name, Some(prepared)).map_err(refused)?;
        }
        Ok(())
    }

    /// Undoes [`prepare`](Self::prepare), however far it came. The kernel may have dropped more than it was told to: all is
    /// compared.
    pub(super) async fn undo_prepare(&mut self, change: &Change, host: &Host) -> Result<(), ServiceError> {
        let back = self.go_back(change, host).await;
        self.is_known &= back.is_ok();
        back
    }

    async fn go_back(&self, change: &Change, host: &Host) -> Result<(), ServiceError> {
        let name = self.interface.name();
        // Of the rest nothing waits for the port.
        let port = if change.port.is_some() {
            // Another interface may still have the port that this one freed.
            let listen_port = if change.freed_port.is_some() { Some(0) } else { change.port };
            self.update(Update { listen_port, ..Update::default() }).await
        } else {
            Ok(())
        };
        let refused = |error| ServiceError::Network(name.to_owned(), error);
        let mtu = self.set_mtu(&self.settings).map_err(refused);
        let wants = host.change(name, &self.prepared(change), &self.wants).map_err(refused);
        port.and(mtu).and(wants)
    }

    /// Tries again to be what its settings say, if a step back was refused.
    pub(super) async fn come_back(&mut self, host: &Host) {
        if self.is_known {
            return;
        }
        let name = self.interface.name();
        match self.make(host).await {
            Ok(()) => {
                tracing::info!("interface {name} is what it was before a change that was refused");
                self.is_known = true;
            }
            Err(error) => tracing::debug!("{error}"),
        }
    }

    /// Makes all of it what the settings say.
    async fn make(&self, host: &Host) -> Result<(), ServiceError> {
        let name = self.interface.name();
        let refused = |error| ServiceError::Network(name.to_owned(), error);
        self.update(self.update_to(&self.settings)).await?;
        self.set_mtu(&self.settings).map_err(refused)?;
        self.set_up(&self.settings).map_err(refused)?;
        self.interface.set_offloads(&self.settings.disabled_offloads)?;
        self.interface.set_threads(self.settings.threads, &self.settings.processors)?;
        self.interface.set_segment_sizes(self.settings.adjust_mss);
        host.set(name, Some(self.wants.clone())).map_err(refused)
    }

    /// Makes it what is wanted: adds, changes, then takes away. What the handshake thread learns of its peers comes late, as it
    /// cannot be undone without loss.
    pub(super) async fn switch(&mut self, change: &mut Change, host: &Host) -> Result<(), ServiceError> {
        // What a resolver answers from now on is not for what there was.
        self.names = None;
        let name = self.interface.name();
        let refused = |error| ServiceError::Network(name.to_owned(), error);
        let mut update = self.update_to(&change.settings);
        // Otherwise it has the port already.
        update.listen_port.take_if(|_| !change.goes_down);
        let mut update = Some(update);
        // While it is down it learns nothing, and it must know its mark before it goes up.
        if let Some(update) = update.take_if(|_| self.settings.disable) {
            self.update(update).await?;
            change.is_updated = true;
        }
        self.set_up(&change.settings).map_err(refused)?;
        if change.goes_down {
            self.is_down().await;
        }
        let both = self.wants.and(&change.wants);
        if both.rules != self.wants.rules || !self.is_known {
            host.set(name, Some(both)).map_err(refused)?;
        }
        if let Some(update) = update {
            self.update(update).await?;
            change.is_updated = true;
        }
        host.change(name, &self.wants, &change.wants).map_err(refused)?;
        self.interface.set_offloads(&change.settings.disabled_offloads)?;
        self.interface.set_threads(change.settings.threads, &change.settings.processors)?;
        self.interface.set_segment_sizes(change.settings.adjust_mss);
        self.exchange(change);
        self.is_known = true;
        self.follow_names(Some(&change.settings));
        Ok(())
    }

    /// Undoes [`switch`](Self::switch), however far it came: what it has then is what was prepared.
    pub(super) async fn undo_switch(&mut self, change: &mut Change, host: &Host) -> Result<(), ServiceError> {
        self.names = None;
        if change.is_switched {
            self.exchange(change);
        }
        let back = self.switch_back(change, host).await;
        self.is_known &= back.is_ok();
        self.follow_names(Some(&change.settings));
        back
    }

    async fn switch_back(&self, change: &Change, host: &Host) -> Result<(), ServiceError> {
        let name = self.interface.name();
        let refused = |error| ServiceError::Network(name.to_owned(), error);
        let mut updated = Ok(());
        if change.is_updated {
            let update = plan::update(Some(&change.settings), &self.settings, &self.known);
            let listen_port = update.listen_port.filter(|_| change.goes_down);
            updated = self.update(Update { listen_port, ..update }).await;
        }
        let up = self.set_up(&self.settings).map_err(refused);
        let offloads = self.interface.set_offloads(&self.settings.disabled_offloads);
        let threads = self.interface.set_threads(self.settings.threads, &self.settings.processors);
        self.interface.set_segment_sizes(self.settings.adjust_mss);
        let wants = host.set(name, Some(self.prepared(change))).map_err(refused);
        updated.and(up).and(offloads.and(threads).map_err(ServiceError::from)).and(wants)
    }

    /// What the host is to have for it between the two steps. The rules of a tunnel for everything come when its mark does.
    fn prepared(&self, change: &Change) -> Wants {
        Wants { rules: self.wants.rules.clone(), ..self.wants.and(&change.wants) }
    }

    fn exchange(&mut self, change: &mut Change) {
        swap(&mut self.settings, &mut change.settings);
        swap(&mut self.wants, &mut change.wants);
        change.is_switched = !change.is_switched;
    }

    /// Looks up the names of its peers from now on, those first that were elsewhere before.
    fn follow_names(&mut self, before: Option<&WireGuard>) {
        self.names = Names::follow(&self.interface, before, &self.not_called, &self.settings, &self.known);
    }

    /// What makes it what is wanted, as far as keys and peers do; of one that is not known, all.
    fn update_to(&self, wanted: &WireGuard) -> Update {
        plan::update(self.is_known.then_some(&self.settings), wanted, &self.known)
    }

    async fn update(&self, update: Update) -> Result<(), ServiceError> {
        let name = self.interface.name();
        self.interface.update(update).await.map_err(|error| ServiceError::Update(name.to_owned(), error))
    }

    fn set_mtu(&self, settings: &WireGuard) -> Result<(), NetlinkError> {
        let mtu = LinkChange { mtu: Some(settings.mtu), ..LinkChange::default() };
        host::change_link(self.interface.name(), &[mtu])
    }

    /// Returns when its thread knows that it is down, and has let go of its port.
    async fn is_down(&self) {
        let deadline = Instant::now() + RELEASE;
        while self.interface.snapshot().await.up && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Puts it up or down.
    fn set_up(&self, settings: &WireGuard) -> Result<(), NetlinkError> {
        let up = LinkChange { up: Some(!settings.disable), ..LinkChange::default() };
        host::change_link(self.interface.name(), &[up])
    }
}

/// Refuses a port that is in use: that of another interface of ours is free in a moment.
async fn check_port(name: &str, settings: &WireGuard) -> Result<(), ServiceError> {
    let Some(port) = settings.port.filter(|_| !settings.disable) else { return Ok(()) };
    let in_use = || ServiceError::Update(name.to_owned(), UpdateError::port_in_use(port));
    becomes_free(port, RELEASE).await.then_some(()).ok_or_else(in_use)
}
