//! Keeps the OpenVPN interfaces what the configuration says they are. One that changes is made again; the others are not touched.
//!
//! ```text
//! not there ── prepare: it is made ────────────────────> served
//! served ── switch: it ends, and is made again ────────> served
//! served ── remove ────────────────────────────────────> not there
//! ```

use super::api::Interfaces;
use super::closed;
use super::served::{Served, ServiceError, Settings as Unserved};
use super::tree;
use crate::daemon::needs::Needs;
use crate::host::Host;
use crate::host::wants::Wants;
use crate::resolver;
use crate::service::{
    Context, Phase, Planned, Policy, Refusal, Refused, Requirements, Service, Step, View, Work,
};
use config::settings::OpenVpn;
use config::settings::openvpn::Mode;
use config::{Path, Settings};
use crypto::Cipher;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where OpenVPN is configured.
const PATH: [&str; 2] = ["interfaces", "openvpn"];

/// A step for an interface, with what is needed to undo it.
enum Intent {
    /// It is made.
    Create(Option<OpenVpn>, Left),
    /// It is made again; its settings of before once that is done.
    Change { wanted: Option<OpenVpn>, before: Option<OpenVpn>, left: Left },
    /// It keeps its sessions, and has another description.
    Describe(Option<String>),
    /// It keeps its sessions, and tells clients something else; its other settings, which are those of before once that is done.
    Adopt(Option<OpenVpn>),
    /// It goes; its settings afterwards, if it was served.
    Remove(Option<OpenVpn>, Left),
}

/// What there was of an interface besides itself.
struct Left {
    /// Whether the configuration had it.
    was_configured: bool,
    /// What the host was to have for it.
    wants: Option<Wants>,
}

/// The interfaces.
#[derive(Default)]
pub struct OpenVpnService {
    served: BTreeMap<String, Served>,
    /// All that the last configuration has.
    configured: BTreeSet<String>,
    /// Interfaces that should be there and are not: a host name has no address now, or they could not be made again.
    missing: BTreeMap<String, OpenVpn>,
    /// What is planned, by the names of the interfaces.
    intents: BTreeMap<String, Intent>,
    shown: Interfaces,
}

impl Service for OpenVpnService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let interfaces = &settings.openvpn;
        let mut needs = Needs::default();
        for (name, interface) in interfaces {
            needs
                .forwarded
                .extend(tree::forwarded(interface).into_iter().map(|prefix| (name.clone(), prefix)));
        }
        let ciphers = [Cipher::Aes256Gcm, Cipher::Aes192Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];
        let ciphers = ciphers.into_iter().filter(|_| !interfaces.is_empty());
        Requirements {
            served: vec![(interfaces.len(), "OpenVPN interface")],
            ports: interfaces.values().filter_map(bound).collect(),
            ciphers: ciphers.map(Into::into).collect(),
            needs,
        }
    }

    fn wants(&self, settings: &Settings) -> BTreeMap<String, Wants> {
        closed::all(settings)
    }

    fn check(&self, settings: &Settings) -> (Vec<String>, Refused) {
        let (mut warnings, mut refused) = (Vec::new(), Refused::new());
        for (name, wanted) in &settings.openvpn {
            match tree::settings(name, &path_of(name), wanted, tree::UNRESOLVED) {
                Ok(accepted) => warnings.extend(accepted.warnings),
                Err(error) => _ = refused.insert(path_of(name), Refusal::new(error, false)),
            }
        }
        (warnings, refused)
    }

    fn warnings(&self, settings: &Settings) -> Vec<String> {
        let resolvers = resolver::of_this_machine();
        let interfaces = settings.openvpn.iter();
        interfaces.filter_map(|(name, wanted)| closed::cut_off(name, wanted, &resolvers)).collect()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, context: &'a Context) -> Work<'a, Planned> {
        let planned = self.plan_interfaces(std::mem::take(&mut settings.openvpn), &context.host);
        Box::pin(std::future::ready(planned))
    }

    fn carry_out<'a>(&'a mut self, step: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some(mut intent) = self.intents.remove(step.path.last()) else { return Ok(()) };
            let done = self.carry_out_on(step.path.last(), &mut intent, context).await;
            self.intents.insert(step.path.last().to_owned(), intent);
            done
        })
    }

    fn undo<'a>(
        &'a mut self,
        step: &'a Step,
        policy: Policy,
        context: &'a Context,
    ) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(intent) = self.intents.remove(step.path.last()) else { return Ok(()) };
            let undone = self.undo_on(step.path.last(), intent, policy, context).await;
            undone.map_err(|error| Refusal::new(error, true))
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        self.intents.clear();
        Box::pin(std::future::ready(()))
    }

    fn maintain<'a>(&'a mut self, context: &'a Context) -> Work<'a, ()> {
        Box::pin(async {
            for (name, settings) in self.missing.clone() {
                match self.create(&name, settings, context).await {
                    Ok(()) => tracing::info!("interface {name} is there now"),
                    Err(error) => tracing::debug!("{error}"),
                }
            }
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        self.missing.keys().map(|name| path_of(name)).collect()
    }

    fn serves(&self) -> bool {
        !self.served.is_empty()
    }

    fn interface_removed(&mut self, name: &str) -> Option<Path> {
        self.shown.hide(name);
        self.served.remove(name).map(|_| path_of(name))
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {
        for (name, served) in std::mem::take(&mut self.served) {
            self.shown.hide(&name);
            served.abort();
        }
    }
}

impl OpenVpnService {
    fn plan_interfaces(&mut self, settings: BTreeMap<String, OpenVpn>, host: &Host) -> Planned {
        self.intents.clear();
        let mut planned = Planned::default();
        let left = |was_configured, name: &str| Left { was_configured, wants: host.wanted(name) };
        for name in self.configured.iter().filter(|name| !settings.contains_key(*name)) {
            let port = self.served.get(name).and_then(|served| bound(&served.settings));
            planned.steps.push(step(name, Phase::Remove, port, None));
            self.intents.insert(name.clone(), Intent::Remove(None, left(true, name)));
        }
        for (name, wanted) in settings {
            // Names are looked up when it is made: that may take long.
            if let Err(error) = tree::settings(&name, &path_of(&name), &wanted, tree::UNRESOLVED) {
                planned.refused.insert(path_of(&name), Refusal::new(error, false));
                continue;
            }
            let left = left(self.configured.contains(&name), &name);
            let after = bound(&wanted);
            let intent = match self.served.get(&name).map(|served| &served.settings) {
                Some(before) if *before == wanted => continue,
                Some(before) if is_described_otherwise(before, &wanted) => {
                    planned.steps.push(step(&name, Phase::Switch, None, None));
                    Intent::Describe(wanted.description)
                }
                Some(before) if is_for_clients(before, &wanted) => {
                    planned.steps.push(step(&name, Phase::Switch, None, None));
                    Intent::Adopt(Some(wanted))
                }
                Some(before) => {
                    let before = bound(before);
                    let [freed, needed] = [before, after].map(|port| port.filter(|_| before != after));
                    planned.steps.push(step(&name, Phase::Switch, freed, needed));
                    Intent::Change { wanted: Some(wanted), before: None, left }
                }
                None => {
                    planned.steps.push(step(&name, Phase::Prepare, None, after));
                    Intent::Create(Some(wanted), left)
                }
            };
            self.intents.insert(name, intent);
        }
        planned
    }

    async fn carry_out_on(
        &mut self,
        name: &str,
        intent: &mut Intent,
        context: &Context,
    ) -> Result<(), Refusal> {
        match intent {
            Intent::Create(wanted, _) => match wanted.take() {
                Some(wanted) => self.begin(name, wanted, context).await,
                None => Ok(()),
            },
            Intent::Change { wanted, before, .. } => {
                *before = self.end(name).await;
                match wanted.take() {
                    Some(wanted) => self.begin(name, wanted, context).await,
                    None => Ok(()),
                }
            }
            Intent::Describe(description) => {
                self.describe(name, description);
                Ok(())
            }
            // A file has changed since it was planned.
            Intent::Adopt(settings) => self.adopt(name, settings).map_err(|error| Refusal::new(error, false)),
            Intent::Remove(settings, _) => {
                *settings = self.end(name).await.or_else(|| self.missing.remove(name));
                self.configured.remove(name);
                context.host.set_absent(name, None);
                Ok(())
            }
        }
    }

    async fn undo_on(
        &mut self,
        name: &str,
        intent: Intent,
        policy: Policy,
        context: &Context,
    ) -> Result<(), ServiceError> {
        match intent {
            Intent::Create(_, left) => {
                self.end(name).await;
                self.missing.remove(name);
                // What it is for stays closed where the rest of the configuration is in force.
                if policy == Policy::AllOrNothing {
                    if !left.was_configured {
                        self.configured.remove(name);
                    }
                    context.host.set_absent(name, left.wants);
                }
            }
            Intent::Change { before, left, .. } => {
                self.end(name).await;
                self.missing.remove(name);
                context.host.set_absent(name, left.wants.map(|wants| wants.without_interface()));
                if let Some(before) = before {
                    self.missing.insert(name.to_owned(), before.clone());
                    self.create(name, before, context).await?;
                }
            }
            Intent::Describe(mut description) => self.describe(name, &mut description),
            Intent::Adopt(mut settings) => self.adopt(name, &mut settings)?,
            Intent::Remove(settings, left) => {
                self.configured.insert(name.to_owned());
                context.host.set_absent(name, left.wants.map(|wants| wants.without_interface()));
                if let Some(settings) = settings {
                    self.missing.insert(name.to_owned(), settings.clone());
                    self.create(name, settings, context).await?;
                }
            }
        }
        Ok(())
    }

    /// Makes an interface. A host name without an address is looked up again from time to time.
    async fn begin(&mut self, name: &str, wanted: OpenVpn, context: &Context) -> Result<(), Refusal> {
        let again = wanted.clone();
        match self.create(name, wanted, context).await {
            Ok(()) => Ok(()),
            // Its settings were right when it was planned: only a name can be missing.
            Err(error @ ServiceError::Refused(_)) => {
                self.missing.insert(name.to_owned(), again);
                Err(Refusal::unfinished(error))
            }
            Err(error) => Err(Refusal::new(error, false)),
        }
    }

    /// What an interface is for is closed before it is made.
    async fn create(&mut self, name: &str, wanted: OpenVpn, context: &Context) -> Result<(), ServiceError> {
        self.configured.insert(name.to_owned());
        let closed = closed::of(name, &wanted, context.host.wanted(name));
        context.host.set_absent(name, Some(closed.configured.and(&closed.left)));
        let served = Served::create(name, path_of(name), wanted, closed, context).await?;
        self.missing.remove(name);
        self.shown.show(&served);
        self.served.insert(name.to_owned(), served);
        Ok(())
    }

    /// Ends an interface, if it is there; what it was.
    async fn end(&mut self, name: &str) -> Option<OpenVpn> {
        self.shown.hide(name);
        Some(self.served.remove(name)?.end().await)
    }

    /// Exchanges the settings of an interface for others that end no session. If they are refused, those of before stay, and there is
    /// nothing to undo.
    fn adopt(&mut self, name: &str, settings: &mut Option<OpenVpn>) -> Result<(), ServiceError> {
        let (Some(served), Some(other)) = (self.served.get_mut(name), settings.take()) else { return Ok(()) };
        let change = tree::for_clients(name, &path_of(name), &other).map_err(Unserved::from)?;
        if let Some(change) = change {
            served.interface.adopt(change);
        }
        *settings = Some(std::mem::replace(&mut served.settings, other));
        self.shown.show(served);
        Ok(())
    }

    fn describe(&mut self, name: &str, description: &mut Option<String>) {
        if let Some(served) = self.served.get_mut(name) {
            std::mem::swap(&mut served.settings.description, description);
            self.shown.show(served);
        }
    }
}

/// Whether only what clients of a server are told is different: its sessions go on.
fn is_for_clients(before: &OpenVpn, after: &OpenVpn) -> bool {
    let (description, profile) = (after.description.clone(), Arc::clone(&after.profile));
    after.mode == Mode::Server
        && OpenVpn { description, profile, ..before.clone() } == *after
        && before.profile.differs_for_clients_only(&after.profile)
}

fn is_described_otherwise(before: &OpenVpn, after: &OpenVpn) -> bool {
    OpenVpn { description: after.description.clone(), ..before.clone() } == *after
}

fn path_of(name: &str) -> Path {
    Path::new(PATH.into_iter().chain([name]))
}

fn step(name: &str, phase: Phase, frees: Option<u16>, needs: Option<u16>) -> Step {
    Step::of_interface(path_of(name), phase, frees, needs)
}

/// The UDP port that an interface with these settings has, unless the kernel chooses it.
fn bound(settings: &OpenVpn) -> Option<u16> {
    settings.port.filter(|_| settings.is_udp)
}
