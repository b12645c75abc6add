//! What the protocol tells, for the log.

use super::HandshakeThread;
use crate::wireguard::callers::About;
use packet::Endpoint;
use port::Transmit;
use std::net::SocketAddr;
use tracing::Level;
use tunnel::wireguard::{Event, PeerId};

impl<T: Transmit> HandshakeThread<T> {
    /// Logs what an operator must know, in bounds: unauthenticated sources and ten thousand peers may cause it.
    pub(super) fn report(&mut self, event: Event, source: Option<Endpoint>) {
        let now = self.shared.clock.now();
        let whose = match &event {
            Event::Up(id)
            | Event::Silent(id)
            | Event::Fallback(id, _)
            | Event::Returned(id)
            | Event::Idle(id) => self.peer(*id).and_then(|peer| peer.name()),
            Event::UnknownPeer(_) | Event::NotForUs => None,
        };
        let (about, text) = match event {
            Event::Up(id) => (About::Peer, format!("{} is up", self.described(id))),
            Event::Silent(id) => (About::Peer, format!("{} does not answer", self.described(id))),
            Event::Fallback(id, next) => {
                (About::Peer, format!("{} does not answer: it is called at {next}", self.described(id)))
            }
            Event::Returned(id) => {
                (About::Peer, format!("{} answers at its first address again", self.described(id)))
            }
            Event::Idle(id) => (About::Peer, format!("{} is idle: its keys are erased", self.described(id))),
            Event::UnknownPeer(public) => {
                let Some(source) = source.filter(|it| self.callers.note(Some(public), it.remote, now)) else {
                    return;
                };
                let from = source.remote;
                (About::Caller, format!("{from} calls with the public key {public}, which no peer has"))
            }
            Event::NotForUs => {
                let Some(source) = source.filter(|it| self.callers.note(None, it.remote, now)) else {
                    return;
                };
                (About::Caller, format!("{} calls another public key than ours", source.remote))
            }
        };
        if let Some(left_out) = self.allowances.take(about, now.monotonic) {
            let (name, of) = (&self.name, about.plural());
            if left_out > 0 {
                tracing::info!("interface {name}: {left_out} lines about {of} were left out");
            }
            let (interface, peer) = (name.as_str(), whose.as_deref().map(String::as_str));
            tracing::info!(interface, peer, "interface {name}: {text}");
        }
    }

    /// Logs a handshake message at the level of debugging: its type and length, nothing of its contents.
    pub(super) fn trace(
        &self,
        id: Option<PeerId>,
        happened: &str,
        remote: Option<SocketAddr>,
        message: &[u8],
    ) {
        // Mostly no one wants it.
        if !tracing::enabled!(Level::DEBUG) {
            return;
        }
        let what = match message.first() {
            Some(1) => "handshake initiation",
            Some(2) => "handshake response",
            Some(3) => "cookie reply",
            _ => "message",
        };
        let peer = id.and_then(|id| self.peer(id)).and_then(|peer| peer.name());
        let (interface, peer) = (self.name.as_str(), peer.as_deref().map(String::as_str));
        let remote = remote.map_or_else(|| "no address".to_owned(), |remote| remote.to_string());
        tracing::debug!(
            interface,
            peer,
            "interface {interface}: {happened} {remote}: {what}, {} bytes",
            message.len()
        );
    }

    /// A peer, and where it is, for the log.
    fn described(&self, id: PeerId) -> String {
        let now = self.shared.clock.monotonic();
        let public = self.device.status(now, id).map(|status| status.public);
        let name =
            public.map(|public| self.names.get(&public).cloned().unwrap_or_else(|| public.to_string()));
        let endpoint = self.peer(id).and_then(|peer| peer.endpoint.load());
        let at = endpoint.map_or_else(String::new, |endpoint| format!(" at {}", endpoint.remote));
        format!("peer {}{at}", name.unwrap_or_default())
    }
}
