//! Sockets that are bound, and TCP connections that have ended.

use super::ControlThread;
use port::Transmit;

impl<T: Transmit> ControlThread<T> {
    /// Binds the sockets that are wanted: all of them, or none.
    pub(super) fn open(&mut self) -> Result<(), String> {
        if !self.tcp.as_ref().is_some_and(|tcp| tcp.is_alone()) {
            self.binding.open().map_err(|error| error.to_string())?;
        }
        // TCP last: a socket that listens would be in the way of the next attempt.
        let listens = self.tcp.as_ref().map_or(Ok(()), |tcp| tcp.listen());
        listens.map_err(|error| {
            self.binding.close();
            error.to_string()
        })
    }

    /// Ends the sessions whose connections have ended.
    pub(super) fn connections(&mut self) {
        let ended = self.tcp.as_ref().map(|tcp| tcp.ended()).unwrap_or_default();
        for (remote, error) in ended {
            if let Some(error) = error {
                tracing::debug!("interface {}: TCP connection with {remote}: {error}", self.name);
            }
            let now = self.shared.clock.now();
            self.call(now, |side, out| side.connection_ended(now, remote, out));
        }
    }
}
