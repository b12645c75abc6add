//! Actions of IKE.

use super::{DS_FIELD, IkeThread, KEEPALIVE, MARKER, outside};
use crate::ipsec::explain;
use packet::DropReason;
use rustix::io::Errno;
use tunnel::ikev2::limits::IKE_PORT;
use tunnel::ikev2::{Action, Install, Outbox, Path};

impl IkeThread {
    pub(super) fn carry_out(&mut self, out: Outbox) {
        for action in out {
            match action {
                Action::Send { path, message } => self.send(path, &message),
                Action::KeepNat { path } => {
                    let refusal = self.sender.message(Some(outside(path)), &KEEPALIVE, 0);
                    self.note_sent(path, refusal);
                }
                Action::Expect { spi } => self.shared.tables.pre_sa.expect(spi),
                Action::ExpectNoMore { spi } => self.expect_no_more(spi),
                Action::Install(install) => self.install(*install),
                Action::AddInstance { profile, instance, identity } => {
                    self.children.add_instance(profile, instance, &identity);
                }
                Action::RemoveInstance { instance } => self.children.remove_instance(instance),
                Action::Use { spi } => self.children.use_sa(spi),
                Action::Retire { spi } => self.children.retire(spi),
                Action::Follow { connection, session, path } => {
                    self.children.follow(connection, session, outside(path));
                }
                Action::Work(job) => {
                    if let Some(finished) = self.jobs.give(job) {
                        self.finished(finished);
                    }
                }
                Action::Report(event) => self.report(&event),
            }
        }
    }

    fn install(&mut self, install: Install) {
        let (connection, spi) = (install.connection, install.sa.inbound.spi);
        if install.encapsulation || self.has_raw {
            self.children.install(install);
        } else {
            let at = self.shared.clock.now().wall;
            let failure = explain::no_raw_sockets(at);
            tracing::error!(
                "peer {}: {}\n  fix: {}",
                self.children.name(connection),
                failure.what,
                failure.fix[0]
            );
            self.children.failed(connection, failure);
        }
        // If it could not be loaded.
        self.expect_no_more(spi);
    }

    /// Drops the packets that wait for an SA that will not be installed.
    fn expect_no_more(&mut self, spi: u32) {
        self.drops.count(DropReason::UnknownSa, self.shared.tables.pre_sa.forget(spi));
    }

    fn send(&mut self, path: Path, message: &[u8]) {
        self.trace("sent to", path.remote, message);
        let refusal = if path.local.port() == IKE_PORT {
            self.initial.message(Some(outside(path)), message, DS_FIELD)
        } else {
            self.sender.message(Some(outside(path)), &[&MARKER, message].concat(), DS_FIELD)
        };
        self.note_sent(path, refusal);
    }

    /// Notes whether this machine could send a message. A local refusal is reported at once, not after missing answers.
    fn note_sent(&mut self, path: Path, refusal: Option<Errno>) {
        let Some(refusal) = refusal else { return self.children.unsent.note_sent(path.remote.ip()) };
        let failure = explain::unsent(path, refusal, self.shared.clock.now().wall);
        if self.children.unsent.note_refused(path.remote.ip(), failure.clone()) {
            let fix = failure.fix.join("\n       ");
            tracing::warn!("{}\n  fix: {fix}", failure.what);
        }
    }
}
