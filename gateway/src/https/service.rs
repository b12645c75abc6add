//! Keeps what the server serves what the configuration says: the API, or metrics.
//!
//! ```text
//! carry out  what is no longer listened on is closed, what is new is bound; the server gets sockets, keys, certificate
//! undo       the same for what was before
//! maintain   what could not be undone is tried again
//! ```

use super::api::Shown;
use super::listeners::{ListenError, Listeners};
use super::model;
use super::process::{OrderError, Process};
use super::wire::{self, Listener};
use crate::host::wants::Wants;
use crate::service::{
    Context, LeftOut, Phase, Planned as Plan, Policy, Refusal, Refused, Requirements, Service, Step, View,
    Work,
};
use base64ct::{Base64, Encoding};
use config::settings::https::ServerCertificate;
use config::{Path, Settings};
use crypto::SecretBytes;
use crypto::random::System;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use zeroize::Zeroizing;

/// Bytes of the salt of keys.
const SALT: usize = 32;

/// How often a port that is in use is tried again, and after which time.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// A part of what the server serves.
pub trait Part: Default + 'static {
    /// Its settings.
    type Settings: PartialEq + 'static;
    /// Its word below `service`.
    const NAME: &'static str;
    /// What the log calls it.
    const ABOUT: &'static str;
    /// Its place in the API of the daemon.
    const PLACE: &'static str;

    /// Whether it is configured.
    fn is_wanted(settings: &Settings) -> bool;
    /// Takes its settings, if it is configured.
    fn take(settings: &mut Settings) -> Option<Self::Settings>;
    /// Where it listens.
    fn listen(settings: &Self::Settings) -> &BTreeMap<SocketAddr, Vec<IpNet>>;
    /// The names of its keys.
    fn keys(settings: &Self::Settings) -> Vec<String>;
    /// Has the server serve it on these sockets, or not at all. The fingerprint of its certificate.
    fn order<'a>(
        process: &'a mut Process,
        wanted: Option<(&'a Self::Settings, Vec<Listener>)>,
        salt: &'a SecretBytes,
        sockets: Vec<BorrowedFd<'a>>,
    ) -> Work<'a, Result<Option<String>, OrderError>>;
    /// The fingerprint of its certificate that the server has reported last.
    fn fingerprint(process: &Process) -> Option<String>;
    /// What the API says of it.
    fn answer(shown: model::Https) -> axum::response::Response;
}

/// A part of what the server serves, as the daemon keeps it.
pub struct ServedPart<P: Part> {
    /// What is served.
    served: Option<Arc<P::Settings>>,
    planned: Option<Planned<P>>,
    /// Whether it could not be undone.
    is_waiting: bool,
    listeners: Listeners,
    /// The salt, which is new with each start.
    salt: SecretBytes,
    shown: Shown<P>,
}

/// A change that is planned.
struct Planned<P: Part> {
    wanted: Option<Arc<P::Settings>>,
    /// What was served before.
    before: Option<Arc<P::Settings>>,
    /// Whether it was begun.
    is_begun: bool,
}

impl<P: Part> Default for ServedPart<P> {
    fn default() -> Self {
        Self {
            served: None,
            planned: None,
            is_waiting: false,
            listeners: Listeners::default(),
            salt: SecretBytes::random(SALT, &mut System::default()),
            shown: Shown::default(),
        }
    }
}

/// What is refused of a part, if the program has no HTTPS server.
fn left_out<P: Part>(settings: &Settings) -> Refused {
    let is_left_out = !cfg!(feature = "https") && P::is_wanted(settings);
    LeftOut::refuse(is_left_out.then(path::<P>), "https")
}

impl<P: Part> Service for ServedPart<P> {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let count = usize::from(P::is_wanted(settings));
        Requirements { served: vec![(count, P::ABOUT)], ..Requirements::default() }
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn check(&self, settings: &Settings) -> (Vec<String>, Refused) {
        (Vec::new(), left_out::<P>(settings))
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Plan> {
        let refused = left_out::<P>(settings);
        let wanted = P::take(settings).map(Arc::new).filter(|_| refused.is_empty());
        let mut plan = Plan { steps: Vec::new(), refused };
        if wanted != self.served || self.is_waiting {
            let phase = if wanted.is_none() { Phase::Remove } else { Phase::Switch };
            plan.steps.push(Step { path: path::<P>(), phase, frees: Vec::new(), needs: Vec::new() });
            self.planned = Some(Planned { wanted, before: self.served.clone(), is_begun: false });
        }
        Box::pin(std::future::ready(plan))
    }

    fn carry_out<'a>(&'a mut self, _: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some(planned) = &mut self.planned else { return Ok(()) };
            planned.is_begun = true;
            let wanted = planned.wanted.clone();
            self.serve(wanted.as_deref(), context).await?;
            self.served = wanted;
            Ok(())
        })
    }

    fn undo<'a>(&'a mut self, _: &'a Step, _: Policy, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some(planned) = self.planned.take().filter(|planned| planned.is_begun) else { return Ok(()) };
            self.served.clone_from(&planned.before);
            self.serve(planned.before.as_deref(), context).await
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        self.planned = None;
        Box::pin(std::future::ready(()))
    }

    fn maintain<'a>(&'a mut self, context: &'a Context) -> Work<'a, ()> {
        Box::pin(async {
            self.follow(&*context.https.lock().await);
            if self.is_waiting {
                let served = self.served.clone();
                match self.serve(served.as_deref(), context).await {
                    Ok(()) => tracing::info!("service {} is in force", P::NAME),
                    Err(error) => tracing::debug!("{error}"),
                }
            }
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        self.is_waiting.then(path::<P>).into_iter().collect()
    }

    fn serves(&self) -> bool {
        self.served.is_some()
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {}
}

fn path<P: Part>() -> Path {
    Path::new(["service", P::NAME])
}

impl<P: Part> ServedPart<P> {
    /// Notes that the server has another certificate, or that it has ended.
    fn follow(&mut self, process: &Process) {
        if self.is_waiting || self.served.is_none() {
            return;
        }
        if process.has_ended() {
            self.is_waiting = true;
            tracing::error!("{}", OrderError::Ended);
            return;
        }
        if let Some(fingerprint) = P::fingerprint(process)
            && self.shown.renew(&fingerprint)
        {
            tracing::info!("{} has a new certificate, SHA-256 {fingerprint}", P::ABOUT);
        }
    }

    /// Has the server do what is wanted.
    async fn serve(&mut self, wanted: Option<&P::Settings>, context: &Context) -> Result<(), Refusal> {
        let outcome = self.order(wanted, context).await;
        let is_served = outcome.is_ok() && wanted.is_some();
        self.is_waiting = outcome.is_err();
        self.shown.show(model::Https {
            is_served,
            addresses: self.listeners.addresses().map(|it| it.to_string()).collect(),
            keys: wanted.map(P::keys).unwrap_or_default(),
            fingerprint: outcome.as_ref().ok().cloned().flatten(),
            problem: outcome.as_ref().err().map(ToString::to_string),
        });
        let fingerprint = outcome?;
        if is_served {
            let addresses: Vec<String> = self.listeners.addresses().map(|it| it.to_string()).collect();
            let certificate = fingerprint.map(|it| format!(", certificate SHA-256 {it}")).unwrap_or_default();
            tracing::info!("{} at {}{certificate}", P::ABOUT, addresses.join(", "));
        }
        Ok(())
    }

    async fn order(
        &mut self,
        wanted: Option<&P::Settings>,
        context: &Context,
    ) -> Result<Option<String>, Refusal> {
        let refused = |error| Refusal::new(error, false);
        let mut process = context.https.lock().await;
        if process.has_ended() {
            self.listeners.keep(|_| false);
            process.let_go();
            return if wanted.is_some() { Err(refused(OrderError::Ended)) } else { Ok(None) };
        }
        let is_kept = |address: &SocketAddr| wanted.is_some_and(|it| P::listen(it).contains_key(address));
        if self.listeners.keep(is_kept) || wanted.is_none() {
            // The server lets go of them, too: one for all addresses keeps one for a single address from being bound.
            let before = self.served.clone();
            let rest = before.as_deref().filter(|_| wanted.is_some());
            self.tell(&mut process, rest).await.map_err(refused)?;
        }
        let Some(wanted) = wanted else { return Ok(None) };
        for address in P::listen(wanted).keys() {
            self.bind(*address).await.map_err(|error| Refusal::new(error, false))?;
        }
        self.tell(&mut process, Some(wanted)).await.map_err(refused)
    }

    /// Binds an address. The server of a daemon that was killed may have it for a moment.
    async fn bind(&mut self, address: SocketAddr) -> Result<(), ListenError> {
        for _ in 0..TRIES {
            match self.listeners.bind(P::NAME, address) {
                Err(error) if error.is_in_use() => sleep(PAUSE).await,
                bound => return bound,
            }
        }
        self.listeners.bind(P::NAME, address)
    }

    /// Tells the server what to serve on the sockets that are bound.
    async fn tell(
        &self,
        process: &mut Process,
        wanted: Option<&P::Settings>,
    ) -> Result<Option<String>, OrderError> {
        let clients = |settings: &P::Settings, address: SocketAddr| {
            P::listen(settings).get(&address).into_iter().flatten().map(ToString::to_string).collect()
        };
        let wanted = wanted.map(|settings| {
            let addresses = self.listeners.addresses();
            let listeners =
                addresses.map(|address| Listener { address, clients: clients(settings, address) });
            (settings, listeners.collect())
        });
        P::order(process, wanted, &self.salt, self.listeners.sockets()).await
    }
}

/// The salted hash of a key, as the server has it.
pub(super) fn hash(salt: &SecretBytes, key: &SecretBytes) -> String {
    Base64::encode_string(&wire::hash(salt.expose(), key.expose()))
}

/// A certificate with its key, as the server has it.
pub(super) fn certificate(certificate: &ServerCertificate) -> wire::Certificate {
    wire::Certificate {
        chain: certificate.chain.iter().map(|one| Base64::encode_string(one)).collect(),
        private_key: Zeroizing::new(Base64::encode_string(certificate.private_key.expose())).as_str().into(),
    }
}
