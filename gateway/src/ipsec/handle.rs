//! What other threads ask of an IKE thread.

use super::connections::Plan;
use super::ike_thread::Command;
use super::model;
use crossbeam_channel::{Receiver, Sender, unbounded};
use tokio::sync::oneshot;
use tunnel::ikev2::Patience;

/// The commands of one IKE thread. Once it has ended, they do nothing, and it has no peers.
#[derive(Clone)]
pub struct IkeHandle(Sender<Command>);

impl IkeHandle {
    /// A handle, and what its thread reads.
    pub(crate) fn new() -> (Self, Receiver<Command>) {
        let (commands, inbox) = unbounded();
        (Self(commands), inbox)
    }

    /// Serves these peers; others of the same names are ended first, unless they may stay.
    pub fn add(&self, plans: Vec<Plan>) {
        self.tell(Command::Add(plans));
    }

    /// Ends the connections to these peers.
    pub fn remove(&self, names: Vec<String>) {
        self.tell(Command::Remove(names));
    }

    /// Waits so long for the answers of all peers.
    pub fn set_patience(&self, patience: Patience) {
        self.tell(Command::SetPatience(patience));
    }

    /// The state and the MTU of the interface.
    pub(crate) fn link(&self, up: bool, mtu: usize) {
        self.tell(Command::Link { up, mtu });
    }

    /// Asks the kernel again for the path MTU to every peer.
    pub fn measure(&self) {
        self.tell(Command::Measure);
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.tell(Command::Stop);
    }

    /// Returns when all that was asked before is done.
    pub async fn settle(&self) {
        self.ask(Command::Settle).await;
    }

    /// The same, for a thread without a runtime.
    pub(crate) fn settle_here(&self) {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Settle(reply));
        let _ = answer.blocking_recv();
    }

    /// Shows all peers.
    pub async fn status(&self) -> Vec<model::IpsecPeer> {
        self.ask(Command::Status).await
    }

    /// Re-establishes the connection to a peer, or one tunnel of it; returns whether it exists.
    pub async fn reset(&self, peer: &str, tunnel: Option<u32>) -> bool {
        self.ask(|reply| Command::Reset(peer.to_owned(), tunnel, reply)).await
    }

    fn tell(&self, command: Command) {
        let _ = self.0.send(command);
    }

    async fn ask<Answer: Default>(&self, command: impl FnOnce(oneshot::Sender<Answer>) -> Command) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply));
        answer.await.unwrap_or_default()
    }
}
