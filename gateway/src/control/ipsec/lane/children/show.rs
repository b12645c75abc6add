//! What the API says of peers and their tunnels.

use super::{Children, Connected, Installed};
use crate::api::model;
use crate::control::ipsec::status;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tunnel::Time;
use tunnel::esp::{Mode, TrafficSelector};
use tunnel::ikev2::message::{Proposal, ProposalSpi};
use tunnel::ikev2::proposal::{EspOffer, IkeOffer, describe};
use tunnel::ikev2::{ChildStatus, Details, SessionStatus, Start};

impl Children {
    /// All peers, with what IKE says of its sessions.
    pub(in super::super) fn status(&self, sessions: &[SessionStatus]) -> Vec<model::IpsecPeer> {
        self.connections.values().map(|connected| self.show(connected, sessions)).collect()
    }

    fn show(&self, connected: &Connected, sessions: &[SessionStatus]) -> model::IpsecPeer {
        let (settings, established) = (&connected.settings, connected.established.as_ref());
        let now = self.shared.clock.monotonic();
        let local = established.and_then(|it| it.endpoint.local).or(settings.local);
        let remote = established.map(|it| it.endpoint.remote.ip()).or(settings.remote);
        let session = established.and_then(|it| {
            let found = sessions.binary_search_by_key(&it.session, |status| status.session).ok()?;
            sessions.get(found)
        });
        let details = session.and_then(|session| session.details.as_ref());
        let children = details.map_or(&[][..], |details| &details.children);
        model::IpsecPeer {
            name: settings.name.clone(),
            up: established.is_some(),
            local_address: local.map(|address| address.to_string()),
            remote_address: remote.map(|address| address.to_string()),
            local_id: settings.local_identity.to_string(),
            remote_id: established
                .map(|it| it.identity.clone())
                .or_else(|| settings.remote_identity.as_ref().map(ToString::to_string)),
            suite: established.map(|it| it.suite.clone()),
            uptime: established.map(|it| (now - it.since).as_secs()),
            lifetime: settings.lifetime.as_secs(),
            proposals: texts(&IkeOffer::propose(&settings.ike, ProposalSpi::None)),
            connection_type: connection_type(settings.start).to_owned(),
            ike: session
                .zip(details)
                .and_then(|(session, details)| ike(session.session.number(), details, now)),
            tunnels: (0..connected.tunnels.len())
                .map(|child| self.show_tunnel(connected, child, children))
                .collect(),
            failure: connected.failure.clone(),
        }
    }

    fn show_tunnel(&self, connected: &Connected, child: usize, timers: &[ChildStatus]) -> model::IpsecTunnel {
        let (tunnel, configured) = (&connected.tunnels[child], &connected.settings.children[child]);
        let traffic = tunnel.traffic();
        let selectors = |selectors: &[TrafficSelector]| selectors.iter().map(status::text).collect();
        let (now, sending) = (self.shared.clock.monotonic(), tunnel.peer.sending.load_full());
        let show = |sa: &Installed| {
            let timers = timers.iter().find(|timers| timers.inbound == sa.spi);
            model::IpsecSa {
                spi_in: sa.spi,
                spi_out: sa.outbound.receiver,
                suite: sa.suite.clone(),
                uptime: (now - sa.since).as_secs(),
                sending: sending.as_ref().is_some_and(|it| Arc::ptr_eq(it, &sa.outbound)),
                rekeying_in: timers.and_then(|timers| Some((timers.rekey_at? - now).as_secs())),
                expires_in: timers.map(|timers| (timers.expires - now).as_secs()),
            }
        };
        model::IpsecTunnel {
            name: configured.name.clone(),
            number: tunnel.plan.tunnel,
            mode: if configured.mode == Mode::Transport { "transport" } else { "tunnel" }.to_owned(),
            in_udp: tunnel.peer.tunnel().is_some_and(|it| it.in_udp.load(Ordering::Relaxed)),
            proposals: texts(&EspOffer::propose(&configured.esp, 0)),
            local: selectors(&traffic.local),
            remote: selectors(&traffic.remote),
            received_bytes: tunnel.peer.received.bytes(),
            sent_bytes: tunnel.peer.sent.bytes(),
            received_packets: tunnel.peer.received.packets(),
            sent_packets: tunnel.peer.sent.packets(),
            sas: tunnel.sas.iter().map(show).collect(),
        }
    }
}

fn texts(proposals: &[Proposal]) -> Vec<String> {
    proposals.iter().map(describe).collect()
}

/// Who begins, as VyOS calls it.
fn connection_type(start: Start) -> &'static str {
    match start {
        Start::Initiate => "initiate",
        Start::OnTraffic => "trap",
        Start::Respond => "none",
    }
}

/// The IKE SA that is in use.
fn ike(number: u64, details: &Details, now: Time) -> Option<model::IpsecIke> {
    let ike = details.ikes.iter().find(|ike| ike.is_current)?;
    Some(model::IpsecIke {
        number,
        initiated: details.initiated,
        spi_initiator: format!("{:016x}", ike.spis.initiator),
        spi_responder: format!("{:016x}", ike.spis.responder),
        local: details.path.local.to_string(),
        remote: details.path.remote.to_string(),
        nat: details.nat.is_present(),
        rekeying_in: ike.rekey_at.map(|at| (at - now).as_secs()),
        expires_in: (ike.expires - now).as_secs(),
    })
}
