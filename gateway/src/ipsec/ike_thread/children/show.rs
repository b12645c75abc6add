//! Peers and their tunnels, for the API.

use super::{Children, Connected, Installed};
use crate::ipsec::connections::{LONG, child_name};
use crate::ipsec::explain;
use crate::ipsec::model;
use crate::ipsec::proof::Proof;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tunnel::Time;
use tunnel::esp::{Mode, TrafficSelector};
use tunnel::ikev2::message::{Proposal, ProposalSpi};
use tunnel::ikev2::proposal::{EspOffer, IkeOffer, describe};
use tunnel::ikev2::{Authentication, ChildState, ConnectionId, Details, SessionId, SessionStatus, Start};

impl Children {
    /// All peers, with the sessions of IKE.
    pub(in crate::ipsec::ike_thread) fn status(&self, sessions: &[SessionStatus]) -> Vec<model::IpsecPeer> {
        let mut instances: BTreeMap<ConnectionId, usize> = BTreeMap::new();
        for profile in self.connections.values().filter_map(|connected| connected.profile) {
            *instances.entry(profile).or_default() += 1;
        }
        let show = |(id, connected): (&ConnectionId, &Connected)| {
            let is_profile = connected.profile.is_none() && connected.settings.is_profile();
            let instances = is_profile.then(|| instances.get(id).copied().unwrap_or_default());
            model::IpsecPeer { instances, ..self.show(connected, sessions) }
        };
        self.connections.iter().map(show).collect()
    }

    fn show(&self, connected: &Connected, sessions: &[SessionStatus]) -> model::IpsecPeer {
        let (settings, established) = (&connected.settings, connected.sessions.newest());
        let now = self.shared.clock.monotonic();
        let local = established.and_then(|it| it.endpoint.local).or(settings.local);
        let remote = established.map(|it| it.endpoint.remote.ip()).or(settings.remote);
        let session = established.and_then(|it| find(sessions, it.session));
        let details = session.and_then(|session| session.details.as_ref());
        let is_limited = settings.lifetime < LONG;
        model::IpsecPeer {
            name: connected.name.clone(),
            instance_of: connected.profile.map(|_| settings.name.clone()),
            instances: None,
            up: established.is_some(),
            local_address: local.map(|address| address.to_string()),
            remote_address: remote.map(|address| address.to_string()),
            local_id: settings.local_identity.to_string(),
            remote_id: established
                .map(|it| it.identity.clone())
                .or_else(|| settings.remote_identity.as_ref().map(ToString::to_string)),
            suite: established.map(|it| it.suite.to_string()),
            algorithms: established.map(|it| (&it.suite).into()),
            uptime: established.map(|it| (now - it.since).as_secs()),
            lifetime: is_limited.then_some(settings.lifetime.as_secs()),
            authentication: match settings.authentication {
                Authentication::SharedKey(_) => model::AuthenticationMethod::Secret,
                Authentication::Certificate(_) => model::AuthenticationMethod::Certificate,
                Authentication::RawKeys(_) => model::AuthenticationMethod::Key,
            },
            secret_at: match &connected.names.proof {
                Proof::Secret(words) => Some(words.trim_start_matches("set ").to_owned()),
                Proof::Certificate | Proof::Key => None,
            },
            proposals: texts(&IkeOffer::propose(&settings.ike, ProposalSpi::None)),
            connection_type: connection_type(settings.start),
            ike: session
                .zip(details)
                .and_then(|(session, details)| ike(session.session.number(), details, now, is_limited)),
            tunnels: (0..connected.tunnels.len())
                .map(|child| self.show_tunnel(connected, child, sessions))
                .collect(),
            silent: details.and_then(|it| it.silent_since).map(|since| (now - since).as_secs()),
            sends_from: details.and_then(|it| it.stray).map(|from| from.to_string()),
            // A local refusal now explains more than an earlier failure.
            failure: self.unsent.of(settings.remote).or(connected.failure.as_ref()).cloned(),
            unknown_caller: self.unknown_caller.filter(|_| established.is_none()).and_then(|(from, at)| {
                Some(explain::unknown_caller(&settings.name, from, settings.remote?, at))
            }),
        }
    }

    fn show_tunnel(
        &self,
        connected: &Connected,
        child: usize,
        sessions: &[SessionStatus],
    ) -> model::IpsecTunnel {
        let (tunnel, configured) = (&connected.tunnels[child], &connected.settings.children[child]);
        let traffic = tunnel.traffic();
        let selectors =
            |selectors: &[TrafficSelector]| selectors.iter().map(TrafficSelector::to_string).collect();
        let (now, sending) = (self.shared.clock.monotonic(), tunnel.peer.sending.load_full());
        let show = |sa: &Installed| {
            let details = find(sessions, sa.session).and_then(|session| session.details.as_ref());
            let known = details.and_then(|it| it.children.iter().find(|child| child.inbound == sa.spi));
            model::IpsecSa {
                spi_in: sa.spi,
                spi_out: sa.outbound.receiver,
                suite: sa.suite.as_ref().map(ToString::to_string).unwrap_or_default(),
                algorithms: sa.suite.as_ref().map(Into::into),
                uptime: (now - sa.since).as_secs(),
                sending: sending.as_ref().is_some_and(|it| Arc::ptr_eq(it, &sa.outbound)),
                state: state(known.map_or(ChildState::Installed, |known| known.state)),
                local: selectors(&sa.traffic.local),
                remote: selectors(&sa.traffic.remote),
                rekeying_in: known.and_then(|known| Some((known.rekey_at? - now).as_secs())),
                expires_in: known.map(|known| (known.expires - now).as_secs()),
            }
        };
        model::IpsecTunnel {
            name: child_name(&connected.name, tunnel.plan.tunnel),
            number: tunnel.plan.tunnel,
            mode: match configured.mode {
                Mode::Tunnel => model::SaMode::Tunnel,
                Mode::Transport | Mode::BumpInTheWire => model::SaMode::Transport,
            },
            in_udp: tunnel.peer.tunnel().is_some_and(|it| it.in_udp.load(Ordering::Relaxed)),
            proposals: texts(&EspOffer::propose(&configured.esp, 0)),
            local: selectors(&traffic.local),
            remote: selectors(&traffic.remote),
            received_bytes: tunnel.peer.received.bytes(),
            sent_bytes: tunnel.peer.sent.bytes(),
            received_packets: tunnel.peer.received.packets(),
            sent_packets: tunnel.peer.sent.packets(),
            unsent_packets: tunnel.peer.unsent.load(Ordering::Relaxed),
            sas: tunnel.sas.iter().map(show).collect(),
        }
    }
}

/// A session by its name; they are sorted by it.
fn find(sessions: &[SessionStatus], session: SessionId) -> Option<&SessionStatus> {
    sessions.get(sessions.binary_search_by_key(&session, |status| status.session).ok()?)
}

/// The state of an SA, in terms of the API.
fn state(state: ChildState) -> model::SaState {
    match state {
        ChildState::Installed => model::SaState::Installed,
        ChildState::Rekeyed => model::SaState::Rekeyed,
        ChildState::Deleting => model::SaState::Deleting,
    }
}

fn texts(proposals: &[Proposal]) -> Vec<String> {
    proposals.iter().map(describe).collect()
}

/// The side that initiates, in terms of VyOS.
fn connection_type(start: Start) -> model::ConnectionType {
    match start {
        Start::Initiate => model::ConnectionType::Initiate,
        Start::OnTraffic => model::ConnectionType::Trap,
        Start::Respond => model::ConnectionType::None,
    }
}

/// The IKE SA that is in use.
fn ike(number: u64, details: &Details, now: Time, is_limited: bool) -> Option<model::IpsecIke> {
    let ike = details.ikes.iter().find(|ike| ike.is_current)?;
    Some(model::IpsecIke {
        number,
        initiated: details.initiated,
        spi_initiator: format!("{:016x}", ike.spis.initiator),
        spi_responder: format!("{:016x}", ike.spis.responder),
        local: details.path.local.to_string(),
        remote: details.path.remote.to_string(),
        nat: details.nat.local,
        rekeying_in: ike.rekey_at.filter(|_| is_limited).map(|at| (at - now).as_secs()),
        expires_in: is_limited.then_some((ike.expires - now).as_secs()),
        refused_exchanges: details.refused_exchanges,
    })
}
