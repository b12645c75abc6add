//! Applies the configuration to the gateway: only changed peers are touched.
//!
//! ```text
//! no peers ── prepare: the gateway is made ── switch: its peers come ──> served
//! served ── prepare ── switch: peers change, come and go ──────────────> served
//! served ── remove ────────────────────────────────────────────────────> no peers
//! ```

use super::api::Peers;
use super::connections;
use super::connections::Plan;
use super::look_up::{Wanted, is_named, plan_all, where_it_is};
use super::network;
use super::revocation;
use super::revocation::Revocations;
use super::served::{Change, Served, ServiceError};
use super::{Gateway, NAME, path_of, requirements, resolver};
use crate::host::Host;
use crate::host::networks::Networks;
use crate::host::wants::Wants;
use crate::service::{
    Context, Phase, Planned, Policy, Refusal, Refused, Requirements, Service, Step, View, Work,
};
use crate::tunnel_interface::end;
use config::settings::IpSec;
use config::settings::ipsec::Peer;
use config::{Path, Settings};
use crypto::pki::Evidence;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Where a peer is configured.
fn path_of_peer(peer: &str) -> Path {
    path_of(["site-to-site", "peer", peer])
}

/// A planned change of the gateway, with the state to undo it.
enum Intent {
    /// It serves other peers, or its first ones.
    Change(Change),
    /// It ends, as there are no peers to serve; what it is to protect is closed.
    End(End),
}

/// The end of the gateway, or no start.
struct End {
    /// What is closed afterwards.
    networks: Networks,
    /// The wanted state of the host before.
    before: Option<Wants>,
    /// What was served; known once it has ended.
    settings: Option<IpSec>,
}

/// A gateway that should be there and is not.
#[derive(Clone)]
struct Missing {
    settings: IpSec,
    /// What the host was to have.
    wants: Option<Wants>,
}

/// The gateway, if there are peers.
#[derive(Default)]
pub struct IpsecService {
    served: Option<Served>,
    /// What was served until the gateway ended, if it could not be started again when that was undone.
    missing: Option<Missing>,
    intent: Option<Intent>,
    /// Whether the gateway was told to change its peers, and may not have done so yet.
    is_unsettled: bool,
    /// Fetches revocation status, if a peer needs it.
    revocations: Option<Revocations>,
    shown: Peers,
}

impl Service for IpsecService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        requirements::requirements(settings)
    }

    fn wants(&self, settings: &Settings) -> BTreeMap<String, Wants> {
        let wants = network::wants(network::networks(&settings.ipsec), false);
        wants.map(|wants| (NAME.to_owned(), wants)).into_iter().collect()
    }

    fn check(&self, settings: &Settings) -> (Vec<String>, Refused) {
        let (mut warnings, mut refused) = (Vec::new(), Refused::new());
        for (name, peer) in &settings.ipsec.peers {
            match connections::check(name, peer) {
                Ok(warning) => warnings.extend(warning),
                Err(error) => _ = refused.insert(path_of_peer(name), ServiceError::from(error).into()),
            }
        }
        (warnings, refused)
    }

    fn warnings(&self, settings: &Settings) -> Vec<String> {
        resolver::cut_off(settings).into_iter().collect()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, context: &'a Context) -> Work<'a, Planned> {
        Box::pin(self.plan_change(std::mem::take(&mut settings.ipsec), &context.host))
    }

    fn carry_out<'a>(&'a mut self, step: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some(mut intent) = self.intent.take() else { return Ok(()) };
            let done = self.carry_out_on(step.phase, &mut intent, context).await;
            self.intent = Some(intent);
            self.shown.show(self.gateway());
            done.map_err(Refusal::from)
        })
    }

    fn undo<'a>(
        &'a mut self,
        step: &'a Step,
        policy: Policy,
        context: &'a Context,
    ) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(mut intent) = self.intent.take() else { return Ok(()) };
            let undone = self.undo_on(step.phase, &mut intent, policy, context).await;
            self.intent = Some(intent);
            self.shown.show(self.gateway());
            undone.map_err(|error| Refusal::new(error, true))
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        Box::pin(async {
            self.intent = None;
            if self.served.is_some() {
                self.missing = None;
            }
            match (&self.served, &self.revocations) {
                (Some(served), Some(revocations)) => revocations.watch(&served.settings, None),
                (Some(_), None) => {}
                (None, _) => self.revocations = None,
            }
            // What is in force has its policies: the first packet finds them.
            if let Some(served) = self.served.as_ref().filter(|_| std::mem::take(&mut self.is_unsettled)) {
                served.gateway.settle().await;
            }
        })
    }

    fn maintain<'a>(&'a mut self, context: &'a Context) -> Work<'a, ()> {
        Box::pin(async {
            self.begin_missing(context).await;
            self.look_again().await;
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        let pending = self.served.iter().flat_map(|served| &served.pending);
        let missing = self.missing.iter().map(|_| path_of([]));
        pending.map(|peer| path_of_peer(peer)).chain(missing).collect()
    }

    fn serves(&self) -> bool {
        self.served.is_some()
    }

    fn interface_removed(&mut self, name: &str) -> Option<Path> {
        if name != NAME || self.served.is_none() {
            return None;
        }
        tracing::warn!("{NAME} is gone: nothing is sent to the networks behind IPsec peers");
        self.shown.show(None);
        self.served = None;
        Some(path_of([]))
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {
        self.shown.show(None);
        self.served = None;
        self.revocations = None;
    }
}

impl IpsecService {
    fn gateway(&self) -> Option<Arc<Gateway>> {
        self.served.as_ref().map(|served| Arc::clone(&served.gateway))
    }

    /// Ends the gateway, if there is one; what it served.
    async fn end(&mut self) -> Option<IpSec> {
        self.shown.show(None);
        let Served { gateway, settings, .. } = self.served.take()?;
        end(gateway).await;
        Some(settings)
    }

    /// Plans the way to `settings`. Peers that are refused are not served, or as they were before.
    async fn plan_change(&mut self, mut settings: IpSec, host: &Host) -> Planned {
        self.intent = None;
        let mut refused = Refused::new();
        if let Err(error) = self.learn_revocations(&settings) {
            refused.insert(path_of([]), ServiceError::from(error).into());
            return Planned { steps: Vec::new(), refused };
        }
        // Also of peers that are refused: what they are to protect stays closed.
        let wanted = network::networks(&settings);
        let (plans, pending) = self.plan_peers(&mut settings, &mut refused).await;
        let networks = wanted.and(network::networks(&settings));
        let before = host.wanted(NAME);
        let is_new = self.served.is_none();
        let (phases, intent) = if settings.peers.is_empty() {
            let changes = !is_new || before != network::wants(networks.clone(), false);
            let phase = if is_new { Phase::Prepare } else { Phase::Remove };
            let end = End { networks, before, settings: None };
            (if changes { vec![phase] } else { Vec::new() }, Intent::End(end))
        } else {
            let remotes = BTreeMap::new();
            let change =
                Change { settings, pending, remotes, plans, networks, before, is_new, is_switched: false };
            // Also if all is served: another program may have changed the link.
            let switch = (!self.is_served(&change)).then_some(Phase::Switch);
            let phases = [Phase::Prepare].into_iter().chain(switch).collect();
            (phases, Intent::Change(change))
        };
        self.intent = Some(intent);
        let begins = is_new && matches!(self.intent, Some(Intent::Change(_)));
        let ports = |is_meant: bool| if is_meant { requirements::ports().to_vec() } else { Vec::new() };
        let step = |phase| Step {
            path: path_of([]),
            phase,
            frees: ports(phase == Phase::Remove),
            needs: ports(begins && phase == Phase::Prepare),
        };
        Planned { steps: phases.into_iter().map(step).collect(), refused }
    }

    /// Whether all is as a change would make it.
    fn is_served(&self, change: &Change) -> bool {
        self.served.as_ref().is_some_and(|served| {
            change.plans.is_empty()
                && (&served.settings, &served.pending) == (&change.settings, &change.pending)
                && change.before == change.wants()
        })
    }

    async fn carry_out_on(
        &mut self,
        phase: Phase,
        intent: &mut Intent,
        context: &Context,
    ) -> Result<(), ServiceError> {
        match intent {
            Intent::Change(change) if phase == Phase::Prepare => {
                let served = match &mut self.served {
                    Some(served) => served,
                    none => none.insert(Served::create(&change.settings, context)?),
                };
                served.prepare(change, context)
            }
            Intent::Change(change) => {
                self.is_unsettled = true;
                self.served.as_mut().map_or(Ok(()), |served| served.switch(change, context))
            }
            Intent::End(end) => {
                let missing = self.missing.take().map(|missing| missing.settings);
                end.settings = self.end().await.or(missing);
                let closed = context.host.set(NAME, network::wants(end.networks.clone(), false));
                if end.settings.is_none() {
                    return Ok(closed?);
                }
                closed.unwrap_or_else(|error| tracing::warn!("{error}"));
                Ok(())
            }
        }
    }

    async fn undo_on(
        &mut self,
        phase: Phase,
        intent: &mut Intent,
        policy: Policy,
        context: &Context,
    ) -> Result<(), ServiceError> {
        match intent {
            Intent::Change(change) if phase == Phase::Switch => {
                self.switch_back(change).await;
                let prepared = change.prepared();
                Ok(context.host.set(NAME, prepared)?)
            }
            Intent::Change(change) if change.is_new => {
                self.end().await;
                let closed = || network::wants(change.networks.clone(), false);
                let wants = if policy == Policy::EachPath {
                    self.missing = None;
                    closed()
                } else {
                    change.before.take()
                };
                Ok(context.host.set(NAME, wants)?)
            }
            Intent::Change(change) => {
                self.served.as_ref().map_or(Ok(()), |served| served.undo_prepare(change, context))
            }
            // No gateway was ended. Under this policy the protected prefixes stay closed.
            Intent::End(End { settings: None, .. }) if policy == Policy::EachPath => Ok(()),
            Intent::End(end) => {
                context.host.set(NAME, end.before.clone())?;
                let Some(settings) = end.settings.take() else { return Ok(()) };
                let missing = Missing { settings, wants: end.before.clone() };
                self.missing = Some(missing.clone());
                self.begin_again(missing, context).await
            }
        }
    }

    /// Serves the peers of before a change that was carried out. Those that it changed are planned anew.
    async fn switch_back(&mut self, change: &mut Change) {
        if !change.is_switched {
            return;
        }
        let mut refused = Refused::new();
        let mut settings = std::mem::take(&mut change.settings);
        if let Some(served) = &mut self.served {
            served.remotes = std::mem::take(&mut change.remotes);
        }
        let (plans, pending) = self.plan_peers(&mut settings, &mut refused).await;
        (change.settings, change.plans, change.pending) = (settings, plans, pending);
        if let Some(served) = &mut self.served {
            self.is_unsettled = true;
            served.exchange(change);
        }
        for error in refused.values() {
            tracing::error!("going back to the previous configuration: {error}");
        }
    }

    /// Tries again to start the gateway that should be there.
    async fn begin_missing(&mut self, context: &Context) {
        let Some(missing) = self.missing.clone() else { return };
        match self.begin_again(missing, context).await {
            Ok(()) => tracing::info!("vpn ipsec is served again"),
            Err(error) => tracing::debug!("{error}"),
        }
        self.shown.show(self.gateway());
    }

    /// Serves peers again that were served before the gateway ended: all of them, or there is no gateway.
    async fn begin_again(&mut self, missing: Missing, context: &Context) -> Result<(), ServiceError> {
        let Missing { mut settings, wants: before } = missing;
        let mut refused = Refused::new();
        let (plans, pending) = self.plan_peers(&mut settings, &mut refused).await;
        for error in refused.values() {
            tracing::error!("going back to the previous configuration: {error}");
        }
        let networks = before.as_ref().map_or_else(Networks::default, |wants| wants.networks.clone());
        let remotes = BTreeMap::new();
        let mut change =
            Change { settings, pending, remotes, plans, networks, before, is_new: true, is_switched: false };
        let mut served = Served::create(&change.settings, context)?;
        let begun = served.prepare(&change, context).and_then(|()| served.switch(&mut change, context));
        if begun.is_ok() {
            self.served = Some(served);
            self.is_unsettled = true;
            self.missing = None;
        } else {
            end(served.gateway).await;
        }
        begun
    }

    /// Reads and fetches the revocation data that these settings, and those that are served, need.
    fn learn_revocations(&mut self, settings: &IpSec) -> io::Result<()> {
        if self.revocations.is_none() && settings.peers.values().any(|peer| revocation::is_needed(peer)) {
            self.revocations = Some(Revocations::start()?);
        }
        if let Some(revocations) = &self.revocations {
            revocations.watch(settings, self.served.as_ref().map(|served| &served.settings));
        }
        Ok(())
    }

    fn evidence(&self) -> Option<Arc<Evidence>> {
        self.revocations.as_ref().map(Revocations::evidence)
    }

    /// Plans the connections to peers that are new or changed. What is refused stays as it was, and what was not there and may
    /// be served later is pending.
    async fn plan_peers(&self, settings: &mut IpSec, refused: &mut Refused) -> (Vec<Plan>, BTreeSet<String>) {
        let before = |name: &str| {
            let served = self.served.as_ref().filter(|served| !served.pending.contains(name))?;
            served.settings.peers.get(name)
        };
        let changed: Vec<Wanted> = settings
            .peers
            .iter()
            .filter(|(name, peer)| before(name) != Some(peer))
            .map(|(name, peer)| Wanted {
                name: name.clone(),
                peer: Arc::clone(peer),
                before: before(name).cloned(),
                at: self.served.as_ref().and_then(|served| served.remotes.get(name).copied()),
                moves: false,
                evidence: self.evidence(),
            })
            .collect();
        let (mut plans, mut pending) = (Vec::new(), BTreeSet::new());
        for (name, planned) in plan_all(changed).await {
            let error = match planned {
                Ok(plan) => {
                    plans.push(plan);
                    continue;
                }
                Err(error) => ServiceError::from(error),
            };
            // What stays as it was is not tried again before the next configuration.
            let is_pending = before(&name).is_none() && error.is_temporary();
            match before(&name) {
                Some(old) => _ = settings.peers.insert(name.clone(), Arc::clone(old)),
                None if is_pending => _ = pending.insert(name.clone()),
                None => _ = settings.peers.remove(&name),
            }
            refused.insert(path_of_peer(&name), Refusal::new(error, is_pending));
        }
        (plans, pending)
    }

    /// Looks again at peers that could not be served, and for those that do not answer, whether they are elsewhere now: where
    /// their names lead, or at the next of their addresses.
    async fn look_again(&mut self) {
        let evidence = self.evidence();
        let Some(served) = &mut self.served else { return };
        let may_move = |(name, peer): &(&String, &Arc<Peer>)| {
            served.pending.contains(*name) || peer.remote_addresses.len() > 1 || is_named(peer)
        };
        let doubtful = served.settings.peers.iter().filter(may_move);
        let mut doubtful: BTreeMap<String, Arc<Peer>> =
            doubtful.map(|(name, peer)| (name.clone(), Arc::clone(peer))).collect();
        if doubtful.is_empty() {
            return;
        }
        for shown in served.gateway.status().await.into_iter().filter(|shown| shown.up) {
            doubtful.remove(&shown.name);
        }
        let wanted = doubtful.into_iter().map(|(name, peer)| {
            let at = served.remotes.get(&name).copied();
            Wanted { name, peer, before: None, at, moves: true, evidence: evidence.clone() }
        });
        for (name, planned) in plan_all(wanted.collect()).await {
            let Ok(plan) = planned else { continue };
            let was_pending = served.pending.remove(&name);
            if was_pending || plan.connection.remote != served.remotes.get(&name).copied() {
                served.remotes.extend(plan.connection.remote.map(|remote| (name.clone(), remote)));
                tracing::info!("peer {name}: {}", where_it_is(&plan));
                served.gateway.add(vec![plan]);
            }
        }
    }
}
