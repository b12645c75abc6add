//! Keeps the HTTPS server what the configuration says.
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
use super::wire::{self, Service as Wanted};
use crate::host::wants::Wants;
use crate::service::{
    Context, Phase, Planned as Plan, Policy, Refusal, Requirements, Service, Step, View, Work,
};
use base64ct::{Base64, Encoding};
use config::settings::Https;
use config::{Path, Settings};
use crypto::SecretBytes;
use crypto::random::System;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Bytes of the salt of keys.
const SALT: usize = 32;

/// How often a port that is in use is tried again, and after which time.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// The API for other machines.
#[derive(Default)]
pub struct HttpsService {
    /// What is served.
    served: Option<Arc<Https>>,
    planned: Option<Planned>,
    /// Whether it could not be undone.
    is_waiting: bool,
    listeners: Listeners,
    /// The salt, which is new with each start.
    salt: Option<SecretBytes>,
    shown: Shown,
}

/// A change that is planned.
struct Planned {
    wanted: Option<Arc<Https>>,
    /// What was served before.
    before: Option<Arc<Https>>,
    /// Whether it was begun.
    is_begun: bool,
}

impl Service for HttpsService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let count = usize::from(settings.https.is_some());
        Requirements { served: vec![(count, "API over HTTPS")], ..Requirements::default() }
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Plan> {
        let wanted = settings.https.take().map(Arc::new);
        let mut plan = Plan::default();
        if wanted != self.served || self.is_waiting {
            let phase = if wanted.is_none() { Phase::Remove } else { Phase::Switch };
            plan.steps.push(Step { path: path(), phase, frees: Vec::new(), needs: Vec::new() });
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
                    Ok(()) => tracing::info!("service https is in force"),
                    Err(error) => tracing::debug!("{error}"),
                }
            }
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        self.is_waiting.then(path).into_iter().collect()
    }

    fn serves(&self) -> bool {
        self.served.is_some()
    }

    fn interface_removed(&mut self, _: &str) -> bool {
        false
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {}
}

fn path() -> Path {
    Path::new(["service", "https"])
}

impl HttpsService {
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
        if let Some(fingerprint) = process.fingerprint()
            && self.shown.renew(&fingerprint)
        {
            tracing::info!("API over HTTPS has a new certificate, SHA-256 {fingerprint}");
        }
    }

    /// Has the server do what is wanted.
    async fn serve(&mut self, wanted: Option<&Https>, context: &Context) -> Result<(), Refusal> {
        let outcome = self.order(wanted, context).await;
        let is_served = outcome.is_ok() && wanted.is_some();
        self.is_waiting = outcome.is_err();
        self.shown.show(model::Https {
            is_served,
            addresses: self.listeners.addresses().map(|it| it.to_string()).collect(),
            keys: wanted.iter().flat_map(|it| it.keys.keys().cloned()).collect(),
            fingerprint: outcome.as_ref().ok().cloned().flatten(),
            problem: outcome.as_ref().err().map(ToString::to_string),
        });
        let fingerprint = outcome?;
        if is_served {
            let addresses: Vec<String> = self.listeners.addresses().map(|it| it.to_string()).collect();
            let fingerprint = fingerprint.unwrap_or_default();
            tracing::info!("API over HTTPS at {}, certificate SHA-256 {fingerprint}", addresses.join(", "));
        }
        Ok(())
    }

    async fn order(&mut self, wanted: Option<&Https>, context: &Context) -> Result<Option<String>, Refusal> {
        let refused = |error| Refusal::new(error, false);
        let mut process = context.https.lock().await;
        if process.has_ended() {
            // Clients of a socket that no process accepts from would wait.
            self.listeners.keep(|_| false);
            return if wanted.is_some() { Err(refused(OrderError::Ended)) } else { Ok(None) };
        }
        let is_kept = |address: &SocketAddr| wanted.is_some_and(|it| it.listen.contains_key(address));
        if self.listeners.keep(is_kept) || wanted.is_none() {
            // The server lets go of them, too: one for all addresses keeps one for a single address from being bound.
            let before = self.served.clone();
            let rest = before.filter(|_| wanted.is_some()).map(|before| self.wire(&before));
            process.order(rest, &self.listeners.sockets()).await.map_err(refused)?;
        }
        let Some(wanted) = wanted else { return Ok(None) };
        for address in wanted.listen.keys() {
            self.bind(*address).await.map_err(|error| Refusal::new(error, false))?;
        }
        let service = self.wire(wanted);
        process.order(Some(service), &self.listeners.sockets()).await.map_err(refused)
    }

    /// Binds an address. The server of a daemon that was killed may have it for a moment.
    async fn bind(&mut self, address: SocketAddr) -> Result<(), ListenError> {
        for _ in 0..TRIES {
            match self.listeners.bind(address) {
                Err(error) if error.is_in_use() => sleep(PAUSE).await,
                bound => return bound,
            }
        }
        self.listeners.bind(address)
    }

    /// What the server is told, for the sockets that are bound.
    fn wire(&mut self, https: &Https) -> Wanted {
        let salt = self.salt.get_or_insert_with(|| SecretBytes::random(SALT, &mut System::default()));
        let hash = |key: &SecretBytes| Base64::encode_string(&wire::hash(salt.expose(), key.expose()));
        let listener = |address: SocketAddr| wire::Listener {
            address,
            clients: https.listen.get(&address).into_iter().flatten().map(ToString::to_string).collect(),
        };
        Wanted {
            listeners: self.listeners.addresses().map(listener).collect(),
            salt: Base64::encode_string(salt.expose()),
            keys: https.keys.iter().map(|(id, key)| wire::Key { id: id.clone(), hash: hash(key) }).collect(),
            certificate: https.certificate.as_ref().map(|it| wire::Certificate {
                chain: it.chain.iter().map(|one| Base64::encode_string(one)).collect(),
                private_key: zeroize::Zeroizing::new(Base64::encode_string(it.private_key.expose()))
                    .as_str()
                    .into(),
            }),
            lifetime_days: https.lifetime_days,
            names: https.names.clone(),
            tls12: https.versions.tls12,
            tls13: https.versions.tls13,
            is_strict: https.is_strict,
        }
    }
}
