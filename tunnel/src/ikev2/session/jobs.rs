//! Key exchanges of a session, which are [`Job`](crate::ikev2::job::Job)s.
//!
//! ```text
//! local request        generate ──> request is sent ... answer ──> agree ──> answer is handled
//! request of the peer  checked ──> exchange ──> checked again, and answered
//! ```
//! All state stays in the session. Meanwhile the peer may send its request again, which is ignored; other events may
//! change what the request is about, which is why it is checked again; and a request that arrives while an answer
//! waits for its secret is handled after that answer, as it was sent.

use super::Session;
use super::entry::{Answering, Making, Procedure};
use super::requests::Asked;
use crate::ikev2::channel::Incoming;
use crate::ikev2::context::Context;
use crate::ikev2::job::{Exchanged, Output, Work};
use crate::ikev2::nat::Path;
use crypto::exchange::{ExchangeError, Group, PrivateShare};
use std::sync::Arc;

impl Session {
    /// Generates the share of a local request in the current IKE SA; the request is sent with it.
    pub(super) fn generate(&mut self, procedure: Procedure, group: Group, context: &mut Context<'_>) {
        let Some(spi) = self.current().map(super::IkeSa::spi) else {
            return self.release_procedure(procedure, context);
        };
        let random = context.random.fork();
        let job = context.start(self.id, true, Work::Generate { group, random });
        self.wait_for(spi, procedure, Making { job, answer: None });
    }

    /// Agrees on the secret of a local request with its answer.
    pub(super) fn agree_with(
        &mut self,
        spi: u64,
        procedure: Procedure,
        share: Arc<PrivateShare>,
        (incoming, public): (&Incoming, &[u8]),
        context: &mut Context<'_>,
    ) {
        let job = context.start(self.id, true, Work::Agree { share, public: public.to_vec() });
        self.wait_for(spi, procedure, Making { job, answer: Some(incoming.clone()) });
    }

    fn wait_for(&mut self, spi: u64, procedure: Procedure, making: Making) {
        if let Some(ike) = self.ike_mut(spi) {
            (ike.procedure, ike.making) = (Some(procedure), Some(making));
        }
    }

    /// Computes the key exchange of a request of the peer.
    pub(super) fn exchange(
        &mut self,
        asked: Asked<'_>,
        group: Group,
        public: &[u8],
        context: &mut Context<'_>,
    ) {
        let work = Work::Exchange { group, random: context.random.fork(), public: public.to_vec() };
        let job = Some(context.start(self.id, true, work));
        let (incoming, path) = (asked.incoming.clone(), asked.path);
        if let Some(ike) = self.ike_mut(asked.spi) {
            ike.answering = Some(Answering { job, incoming, path });
        }
    }

    /// Handles a new request of the peer, unless it has to wait.
    pub(super) fn take_request(
        &mut self,
        spi: u64,
        incoming: Incoming,
        path: Path,
        context: &mut Context<'_>,
    ) {
        let Some(ike) = self.ike_mut(spi) else { return };
        if ike.is_agreeing() {
            ike.answering = Some(Answering { job: None, incoming, path });
            return;
        }
        self.handle_request(Asked { spi, incoming: &incoming, path, exchanged: None }, context);
    }

    /// Handles the output of the job with this number; none if what waited for it has ended.
    pub(in crate::ikev2) fn handle_finished(
        &mut self,
        number: u64,
        output: Output,
        context: &mut Context<'_>,
    ) {
        match output {
            Output::Generated(share) => self.handle_generated(number, share, context),
            Output::Agreed(secret) => {
                if let Some((spi, making, procedure)) = self.take_making(number)
                    && let Some(incoming) = making.answer
                {
                    self.conclude(spi, procedure, (&incoming, Some(secret)), context);
                    // The request may be to rekey the SA that was just replaced: the deletion of that SA begins first.
                    self.pump(context);
                    self.handle_postponed(spi, context);
                }
            }
            Output::Exchanged(exchanged) => {
                self.handle_exchanged(number, exchanged.as_ref().map_err(|error| *error), context);
            }
            Output::Signed(_) | Output::Verified(_) | Output::Compared(_) => {}
        }
        self.pump(context);
    }

    /// The procedure that waits for a job, and its IKE SA.
    fn take_making(&mut self, number: u64) -> Option<(u64, Making, Procedure)> {
        self.ikes.iter_mut().find_map(|ike| {
            let making = ike.making.take_if(|making| making.job == number)?;
            Some((ike.spi(), making, ike.procedure.take()?))
        })
    }

    /// Sends the local request whose share was generated, unless the peer has done the same meanwhile.
    fn handle_generated(&mut self, number: u64, share: PrivateShare, context: &mut Context<'_>) {
        let Some((spi, _, procedure)) = self.take_making(number) else { return };
        let share = Some(Arc::new(share));
        match procedure {
            Procedure::CreateChild(mut request) => {
                let is_gone = request.replaces.is_some_and(|old| !self.is_live(old));
                if is_gone || request.has_rival() {
                    return context.release_child_spi(request.spi);
                }
                request.share = share;
                self.send_create(spi, request, context);
            }
            Procedure::RekeyIke(mut rekeying) => {
                if let Some(rival) = rekeying.rival {
                    context.release_ike_spi(rekeying.spi);
                    return self.succeed(spi, rival.spi, context);
                }
                rekeying.share = share;
                self.send_rekeying(spi, rekeying, context);
            }
            other => self.release_procedure(other, context),
        }
    }

    /// Answers the request of the peer whose key exchange was computed.
    fn handle_exchanged(
        &mut self,
        number: u64,
        exchanged: Result<&Exchanged, ExchangeError>,
        context: &mut Context<'_>,
    ) {
        let found = self.ikes.iter_mut().find_map(|ike| {
            let answering = ike.answering.take_if(|answering| answering.job == Some(number))?;
            Some((ike.spi(), answering))
        });
        if let Some((spi, Answering { incoming, path, .. })) = found {
            self.handle_request(
                Asked { spi, incoming: &incoming, path, exchanged: Some(exchanged) },
                context,
            );
        }
    }

    /// Handles the request that has waited until the answer to a local one was handled.
    fn handle_postponed(&mut self, spi: u64, context: &mut Context<'_>) {
        let waiting = self.ike_mut(spi).and_then(|ike| ike.answering.take_if(|it| it.job.is_none()));
        if let Some(Answering { incoming, path, .. }) = waiting {
            self.take_request(spi, incoming, path, context);
        }
    }
}
