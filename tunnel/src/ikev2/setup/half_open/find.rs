//! Which connection serves an initiator: that of its identities, and of a profile its instance.

use super::{HalfOpen, Refusal, Request};
use crate::ikev2::action::Action;
use crate::ikev2::auth::rounds::Authenticated;
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Incoming;
use crate::ikev2::config::Connection;
use crate::ikev2::context::Context;
use crate::ikev2::identity::{self, Identity};
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::instances::Found;
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Payloads, ProposalSpi};
use crate::ikev2::proposal::{IkeOffer, describe_all};
use std::sync::Arc;

impl HalfOpen {
    /// Finds the connection that matches both identities and the selected algorithms.
    pub(super) fn find(
        &self,
        incoming: &Incoming,
        context: &Context<'_>,
    ) -> Result<(ConnectionId, Arc<Connection>), Box<Refusal>> {
        let payloads = Payloads::parse(incoming.first, &incoming.chain).map_err(Refusal::malformed)?;
        let refuse = |cause| Box::new(Refusal::new(notify::AUTHENTICATION_FAILED, None, cause));
        let Some(id) = &payloads.id_i else {
            return Err(refuse(Cause::Misbehaved("its IKE_AUTH lacks an identity")));
        };
        // A request for a Child SA has all of these payloads, or none (RFC 6023).
        let parts = [payloads.sa.is_some(), payloads.ts_i.is_some(), payloads.ts_r.is_some()];
        if parts.contains(&true) && parts.contains(&false) {
            let cause = Cause::Misbehaved("its IKE_AUTH lacks algorithms or selectors");
            return Err(Box::new(Refusal::new(notify::INVALID_SYNTAX, None, cause)));
        }
        let Some(identity) = identity::read(id) else {
            return Err(refuse(Cause::Misbehaved("its identity type is not supported")));
        };
        // Section 2.16: IKE_AUTH without AUTH asks for EAP.
        if payloads.auth.is_none() {
            return Err(self.refuse_eap(&identity, context));
        }
        let asked = payloads.id_r.as_ref().map(identity::read);
        // A connection that names the identity precedes those that accept any.
        let candidates = context.connections.on(self.path);
        let found = candidates.of(&identity).find(|(_, config)| self.fits(config, &identity, asked.as_ref()));
        let found = found.map(|(id, config)| (id, Arc::clone(config)));
        found.ok_or_else(|| self.unfit(&identity, asked.flatten(), context))
    }

    /// Why no connection matches an identity: another local identity, other algorithms, or an unknown identity.
    fn unfit(&self, identity: &Identity, asked: Option<Identity>, context: &Context<'_>) -> Box<Refusal> {
        let candidates = context.connections.on(self.path);
        let (connection, cause) = match (candidates.of(identity).next(), asked) {
            (Some((id, config)), Some(asked)) if asked != config.local_identity => {
                let (asked, ours) = (asked.to_string(), config.local_identity.to_string());
                (Some(id), Cause::OtherName { asked, ours })
            }
            (Some((id, config)), _) if !config.ike.iter().any(|offer| offer.allows(&self.init.suite)) => {
                let ours = describe_all(&IkeOffer::propose(&config.ike, ProposalSpi::None));
                let theirs = vec![self.init.suite.to_string()];
                (Some(id), Cause::NoProposal { of: "IKE".to_owned(), ours, theirs })
            }
            _ => (None, Cause::NoSuchPeer { identity: identity.to_string() }),
        };
        Box::new(Refusal::new(notify::AUTHENTICATION_FAILED, connection, cause))
    }

    fn refuse_eap(&self, identity: &Identity, context: &Context<'_>) -> Box<Refusal> {
        let candidates = context.connections.on(self.path);
        let first = candidates.of(identity).next();
        let meant = first.filter(|(_, config)| config.remote_identity.is_some() || candidates.count() == 1);
        let cause = Cause::AsksEap { identity: identity.to_string() };
        Box::new(Refusal::new(notify::AUTHENTICATION_FAILED, meant.map(|(id, _)| id), cause))
    }

    /// Whether a connection matches these identities and the selected algorithms: the algorithms may have been
    /// selected for another connection before the identities were known.
    fn fits(&self, config: &Connection, identity: &Identity, asked: Option<&Option<Identity>>) -> bool {
        let is_theirs = config.remote_identity.as_ref().is_none_or(|expected| expected == identity);
        let is_ours = match asked {
            None => true,
            Some(None) => false,
            Some(Some(asked)) => *asked == config.local_identity,
        };
        is_theirs && is_ours && config.ike.iter().any(|offer| offer.allows(&self.init.suite))
    }

    /// The connection that serves the authenticated peer: the configured one, or its instance of a profile.
    pub(super) fn serve(
        &self,
        request: &Request,
        peer: &Authenticated,
        context: &mut Context<'_>,
    ) -> Result<ConnectionId, Box<Refusal>> {
        let (profile, identity) = (request.connection, peer.identity());
        if !request.config.is_profile() {
            return Ok(profile);
        }
        match context.registry.instances.enter(profile, identity, self.id) {
            Found::Known(instance) => Ok(instance),
            Found::Added(instance) => {
                let identity = identity.clone();
                context.out.push(Action::AddInstance { profile, instance, identity });
                Ok(instance)
            }
            Found::Full => {
                let cause = Cause::TooManyInstances { identity: identity.to_string() };
                Err(Box::new(request.refusal(cause)))
            }
        }
    }
}
