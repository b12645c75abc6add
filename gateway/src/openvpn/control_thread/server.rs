//! The side of a server: who is admitted, with which addresses.

use crate::openvpn::pool::{Exhausted, Lease, Pool};
use crate::openvpn::settings::{ServerNetwork, ServerSettings};
use crypto::pki::Certificate;
use crypto::{Engine, Random};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::sync::Arc;
use tunnel::Now;
use tunnel::openvpn::action::{Request, SessionNumber};
use tunnel::openvpn::peer_info::proto;
use tunnel::openvpn::{Outbox, Server, Verdict};

/// A server, and its clients.
pub(super) struct ServerSide {
    pub(super) core: Server,
    network: ServerNetwork,
    pool: Pool,
    /// Clients that were admitted, of which some may not be connected yet.
    admitted: BTreeMap<SessionNumber, Admitted>,
}

struct Admitted {
    name: String,
    prefixes: Vec<IpNet>,
}

/// Why a client is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("its certificate has no common name")]
    NoName,
    #[error("the common name of its certificate has changed from {0}")]
    OtherName(String),
    #[error("it is disabled")]
    Disabled,
    #[error("there are no settings for {0}")]
    NoSettings(String),
    #[error("it sends no peer ID: OpenVPN 2.4 or later is needed")]
    NoPeerId,
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

impl ServerSide {
    pub(super) fn new(settings: ServerSettings, engine: Arc<dyn Engine>, random: Box<dyn Random>) -> Self {
        let ServerSettings { core, network } = settings;
        let pool = Pool::new(&network);
        let core = Server::new(core, engine, random);
        Self { core, network, pool, admitted: BTreeMap::new() }
    }

    /// Tells all clients that they are to connect again.
    pub(super) fn stop(&mut self, now: Now, sessions: &[SessionNumber], out: &mut Outbox) {
        for session in sessions {
            self.core.disconnect(now, *session, "RESTART", out);
        }
    }

    /// A client, for the log.
    pub(super) fn name_of(&self, session: SessionNumber) -> String {
        let admitted = self.admitted.get(&session);
        admitted.map_or_else(|| "a client".to_owned(), |admitted| format!("client {}", admitted.name))
    }

    /// The common name of a client.
    pub(super) fn common_name(&self, session: SessionNumber) -> Option<&str> {
        self.admitted.get(&session).map(|admitted| admitted.name.as_str())
    }

    /// What leads to a client.
    pub(super) fn prefixes(&self, session: SessionNumber) -> Vec<IpNet> {
        self.admitted.get(&session).map(|admitted| admitted.prefixes.clone()).unwrap_or_default()
    }

    pub(super) fn closed(&mut self, session: SessionNumber) {
        self.admitted.remove(&session);
        self.pool.release(session);
    }

    /// Decides about a client, or about its new keys.
    pub(super) fn decide(&mut self, now: Now, session: SessionNumber, request: &Request, out: &mut Outbox) {
        let verdict = match self.admit(now, session, request, out) {
            Ok(push) => Verdict::Accept { push },
            Err(refused) => {
                tracing::info!("client at {} is refused: {refused}", request.address);
                Verdict::Refuse { reason: refused.to_string() }
            }
        };
        self.core.admit(now, session, request.key_id, verdict, out);
    }

    /// Admits a client; returns what it is told.
    fn admit(
        &mut self,
        now: Now,
        session: SessionNumber,
        request: &Request,
        out: &mut Outbox,
    ) -> Result<Vec<String>, Refused> {
        let name = common_name(request).ok_or(Refused::NoName)?;
        let own = self.network.clients.get(&name).cloned();
        if own.is_none() && self.network.requires_override {
            return Err(Refused::NoSettings(name));
        }
        let own = own.unwrap_or_default();
        if own.is_disabled {
            return Err(Refused::Disabled);
        }
        if request.is_renewal {
            return match self.common_name(session) {
                Some(before) if before == name => Ok(Vec::new()),
                before => Err(Refused::OtherName(before.unwrap_or_default().to_owned())),
            };
        }
        if !request.info.has(proto::DATA_V2) {
            return Err(Refused::NoPeerId);
        }
        if !self.network.duplicate_names {
            self.end_others(now, session, &name, out);
        }
        let given = Lease { v4: own.v4, v6: own.v6 };
        let lease = if given == Lease::default() { self.pool.assign(session, &name)? } else { given };
        let push = self.push(&lease).chain(own.push).collect();
        let prefixes = lease.prefixes().chain(own.behind).collect();
        self.admitted.insert(session, Admitted { name, prefixes });
        Ok(push)
    }

    /// Ends earlier sessions with a common name: the client has connected again.
    fn end_others(&mut self, now: Now, session: SessionNumber, name: &str, out: &mut Outbox) {
        let is_other =
            |(other, admitted): &(&SessionNumber, &Admitted)| **other != session && admitted.name == name;
        let others: Vec<SessionNumber> =
            self.admitted.iter().filter(is_other).map(|(other, _)| *other).collect();
        for other in others {
            self.core.replace(now, other, out);
            // Its addresses are free for the new session at once.
            self.pool.release(other);
        }
    }

    /// What a client with these addresses is told.
    fn push(&self, lease: &Lease) -> impl Iterator<Item = String> + use<> {
        let mut push = vec!["topology subnet".to_owned()];
        for own in self.network.own() {
            match (own, lease.v4, lease.v6) {
                (IpNet::V4(own), Some(address), _) => {
                    push.push(format!("route-gateway {}", own.addr()));
                    push.push(format!("ifconfig {address} {}", own.netmask()));
                }
                (IpNet::V6(own), _, Some(address)) => {
                    push.push(format!("ifconfig-ipv6 {address}/{} {}", own.prefix_len(), own.addr()));
                }
                _ => {}
            }
        }
        push.extend(self.network.push.iter().cloned());
        push.into_iter()
    }
}

/// The common name of a client's certificate, which the protocol has verified.
fn common_name(request: &Request) -> Option<String> {
    let certificate = Certificate::from_der(request.certificates.first()?).ok()?;
    certificate.subject().common_name().map(str::to_owned).filter(|name| !name.is_empty())
}
