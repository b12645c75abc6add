//! A table of nf_tables that the host keeps: it is replaced as a whole, in one step, and made again when another program has changed it.

use super::nft::{self, Batch, BatchError, CREATE, DELETE_TABLE, NEW_TABLE, text};
use netlink_sys::Socket;
use std::io;

/// A table, and the conversation in which it is replaced.
pub(super) struct OwnTable {
    /// As `nft list ruleset` shows it.
    name: &'static str,
    /// With the number by which the kernel names our own changes; opened when it is needed.
    socket: Option<(Socket, u32)>,
    is_installed: bool,
}

impl OwnTable {
    /// A table of this name, which an earlier daemon may have left.
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, socket: None, is_installed: false }
    }

    /// The conversation, if there was one.
    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref().map(|(socket, _)| socket)
    }

    /// The conversation, which is opened if it is not.
    pub(super) fn open(&mut self) -> io::Result<&Socket> {
        let open = self.socket.take().map_or_else(nft::open, Ok)?;
        Ok(&self.socket.insert(open).0)
    }

    /// Whether the table has what it was replaced by last.
    pub(super) fn is_installed(&self) -> bool {
        self.is_installed
    }

    /// Another program may have changed it.
    pub(super) fn distrust(&mut self) {
        self.is_installed = false;
    }

    /// Reads a notification of the kernel; whether another program has changed the table, which is then no longer trusted.
    pub(super) fn note(&mut self, notification: &[u8]) -> bool {
        let own = self.socket.as_ref().map_or(0, |(_, port)| *port);
        let is_changed = nft::is_change_by_another(notification, self.name, own);
        self.is_installed &= !is_changed;
        is_changed
    }

    /// Replaces the table, or removes it if `fill` adds nothing. If the kernel refuses that, the old one stays; without an answer
    /// of the kernel, the table is no longer trusted.
    pub(super) fn replace(&mut self, fill: impl FnOnce(&mut Batch)) -> Result<(), BatchError> {
        let name = self.name;
        let socket = self.open()?;
        let mut batch = Batch::new();
        // The table is created if it is missing, so that its deletion cannot fail.
        batch.add(NEW_TABLE, CREATE, &text(1, name));
        batch.add(DELETE_TABLE, 0, &text(1, name));
        fill(&mut batch);
        let sent = batch.send(socket);
        match &sent {
            Ok(()) => self.is_installed = true,
            // What the table has is not known.
            Err(refused) if !refused.is_answer => self.is_installed = false,
            Err(_) => {}
        }
        sent
    }
}
