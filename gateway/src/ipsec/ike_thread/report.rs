//! Events of IKE, for the log and for the API.

use super::IkeThread;
use crate::ipsec::explain;
use crate::ipsec::model::IpsecFailure;
use tunnel::ikev2::{Cause, ConnectionId, Event, Path};

impl IkeThread {
    pub(super) fn report(&mut self, event: &Event) {
        self.children.note(event);
        match event {
            Event::Failed { connection, path, authentic, cause } => {
                self.report_failure(*connection, *path, *authentic, cause);
            }
            Event::Established { connection, identity, suite, path, .. } => {
                let name = self.children.name(*connection);
                tracing::info!(
                    peer = name,
                    "peer {name}: {identity} at {} is connected, {suite}",
                    path.remote
                );
            }
            Event::Closed { connection, reason, .. } => {
                let peer = self.children.name(*connection);
                tracing::info!(peer, "peer {peer}: connection ended: {reason}");
                self.children.purge(*connection);
                self.children.let_past_go(*connection);
            }
            Event::ChildUp { connection, child, spi, suite } => {
                let name = self.children.child_name(*connection, *child);
                let what = if self.children.is_renewed(*connection, *child) { "is rekeyed" } else { "is up" };
                let peer = self.children.name(*connection);
                tracing::info!(peer, "{name} {what}, SPI {spi:08x}, {suite}");
            }
            Event::ChildDown { connection, child, spi } => {
                let (peer, name) =
                    (self.children.name(*connection), self.children.child_name(*connection, *child));
                if self.children.spis(*connection, *child).is_empty() {
                    tracing::info!(peer, "{name} is down, SPI {spi:08x}");
                } else {
                    tracing::debug!(peer, "{name}: the older SPI {spi:08x} is gone");
                }
            }
            Event::Rekeyed { connection, suite, .. } => {
                let peer = self.children.name(*connection);
                tracing::info!(peer, "peer {peer}: IKE is rekeyed, {suite}");
            }
            Event::Doubted { connection, path, cause } => self.report_doubt(*connection, *path, cause),
            Event::Unfinished { path } => self.report_unfinished(*path),
            // Nothing was sent, and that has been told.
            Event::Unanswered { path, .. } if self.children.unsent.of(Some(path.remote.ip())).is_some() => {}
            Event::Unanswered { connection, path, asked, sent, since } => {
                let at = self.shared.clock.now().wall;
                let failure = explain::unanswered(*path, *asked, *sent, *since, at);
                let peer = self.children.name(*connection);
                tracing::info!(peer, "peer {peer}: {}", failure.what);
                if !self.children.is_established(*connection) {
                    self.children.failed(*connection, failure);
                }
            }
            Event::Calling { connection, path } => {
                let peer = self.children.name(*connection);
                tracing::info!(peer, "calling peer {peer} at {}", path.remote);
            }
        }
    }

    /// Shows what an unauthenticated source says of a set-up that goes on. It is logged if nothing better comes.
    fn report_doubt(&mut self, connection: ConnectionId, path: Path, cause: &Cause) {
        let now = self.shared.clock.now().wall;
        let failure = explain::failure(self.children.names(connection), path, false, cause, now);
        let peer = self.children.name(connection);
        tracing::debug!(peer, "peer {peer}: {}", failure.what);
        if !self.children.is_established(connection) {
            self.children.failed(connection, failure);
        }
    }

    /// Shows a call that has stopped, if it is known of which peer. It is not logged: forged addresses may cause many.
    fn report_unfinished(&mut self, path: Path) {
        let failure = explain::unfinished(path, self.shared.clock.now().wall);
        tracing::debug!("{}", failure.what);
        if let Some(connection) = self.children.only_at(path.remote.ip()) {
            self.children.failed(connection, failure);
        }
    }

    fn report_failure(
        &mut self,
        connection: Option<ConnectionId>,
        path: Path,
        authentic: bool,
        cause: &Cause,
    ) {
        // A peer with another identity than configured is found by its address.
        let connection = connection.or_else(|| self.children.only_at(path.remote.ip()));
        let at = || (*cause == Cause::NoConnection).then(|| self.children.at(path.remote.ip())).flatten();
        let names = connection.or_else(at).and_then(|id| self.children.names(id));
        let failure = explain::failure(names, path, authentic, cause, self.shared.clock.now().wall);
        let is_known = names.is_some();
        let name = names.map_or("unknown", |names| &names.peer).to_owned();
        self.log_failure(connection, &format!("peer {name} at {}", path.remote), &failure);
        if connection.is_none() && *cause == Cause::NoConnection && !is_known {
            self.children.unknown_caller = Some((path.remote.ip(), failure.at));
        }
        let Some(connection) = connection else { return };
        // An unauthenticated failure counts if it comes from the configured address, or if none is configured.
        let known = self.children.settings(connection).and_then(|settings| settings.remote);
        if !authentic && known.is_some_and(|known| known != path.remote.ip()) {
            return;
        }
        // An unauthenticated failure does not replace the state of a connected peer, and packets go on waiting for a
        // connection that is being set up.
        if authentic || !self.children.is_established(connection) {
            self.children.failed(connection, failure);
        }
        if authentic || !self.ike.is_under_way(connection) {
            self.children.purge(connection);
        }
    }

    /// Logs a failure; the same one of a peer again only once in a while.
    fn log_failure(&mut self, connection: Option<ConnectionId>, of: &str, failure: &IpsecFailure) {
        let left_out = connection.map_or(Some(0), |connection| self.children.tell(connection, failure));
        let peer = connection.map(|connection| self.children.name(connection));
        let Some(left_out) = left_out else { return tracing::debug!(peer, "{of}: {} again", failure.what) };
        let again = if left_out == 0 {
            String::new()
        } else {
            format!(" (left out since the last line about it: {left_out})")
        };
        let details: String = failure.details.iter().map(|line| format!("\n  {line}")).collect();
        let fix = failure.fix.join("\n       ");
        tracing::warn!(peer, "{of}: {}{again}{details}\n  fix: {fix}", failure.what);
    }
}
