//! `postern run`: keeps the interfaces what the configuration says they are.
//!
//! A new configuration is applied interface by interface. If a step is refused, that interface goes back to what it was,
//! and the error is reported.

pub mod needs;

use crate::api::Shown;
use crate::api::model::Refused;
use crate::host::Host;
use crate::host::wants::Wants;
use crate::ipsec::{self, network};
use crate::tunnel_interface::Removed;
use crate::wireguard::{self, plan};
use config::{Path, Settings};
use crypto::Engine;
use crypto::choice::{Choice, Rules as EngineRules};
use needs::Needs;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Why a configuration could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// WireGuard.
    #[error(transparent)]
    WireGuard(#[from] wireguard::service::ServiceError),
    /// IPsec.
    #[error(transparent)]
    Ipsec(#[from] ipsec::service::ServiceError),
}

impl ApplyError {
    /// Whether it may go away without anybody's doing.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Ipsec(error) if error.is_temporary())
    }
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
    wireguard: wireguard::service::Service,
    ipsec: ipsec::service::Service,
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
            wireguard: wireguard::service::Service::new(shown.clone()),
            ipsec: ipsec::service::Service::default(),
            host,
            open_at_exit: false,
            shown,
        }
    }

    /// Whether there is any interface.
    pub fn serves(&self) -> bool {
        self.wireguard.serves() || self.ipsec.gateway().is_some()
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
        let engines: Arc<dyn Engine> = self.engines.clone();
        let of_wireguard = self.wireguard.apply(settings.wireguard, &engines, &self.events, &self.host).await;
        let of_ipsec = self.ipsec.apply(settings.ipsec, &engines, &self.events, &self.host).await;
        let of_wireguard = of_wireguard.into_iter().map(|(path, error)| (path, error.into()));
        let of_ipsec = of_ipsec.into_iter().map(|(path, error)| (path, error.into()));
        let refused: BTreeMap<Path, ApplyError> = of_wireguard.chain(of_ipsec).collect();
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
        self.wireguard.maintain().await;
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
            self.wireguard.lose(name);
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
        self.shown.show_ipsec(None);
        self.wireguard.stop();
        self.ipsec.stop();
        self.host.end(open);
    }
}

/// A refusal as the API shows it.
fn shown_refusal(path: &Path, error: &ApplyError) -> Refused {
    Refused { place: path.to_string(), why: error.to_string(), is_temporary: error.is_temporary() }
}
