//! What a daemon is told to do while it runs: by signals and by the API.

use super::rejected::Rejected;
use crate::api::model::{Commit, Committed, Confirmed, Reloaded};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot};

/// Orders that may wait.
const WAITING: usize = 8;

/// An order to a daemon.
pub enum Order {
    /// Read the configuration file again and apply what has changed; the result goes to the sender, if there is one.
    Reload(Option<oneshot::Sender<Reloaded>>),
    /// Put changes in force.
    Commit(Commit, oneshot::Sender<Result<Committed, Rejected>>),
    /// Keep the commit of this revision, which is undone otherwise.
    Confirm(u64, oneshot::Sender<Result<Confirmed, Rejected>>),
}

/// Gives orders to a daemon.
#[derive(Clone)]
pub struct Orders {
    queue: mpsc::Sender<Order>,
    confirms: mpsc::Sender<Order>,
    stop: Arc<Notify>,
}

/// Where a daemon gets its orders from.
pub struct Inbox {
    /// They are carried out one after the other.
    pub(super) orders: mpsc::Receiver<Order>,
    /// Confirmations overtake them: their time is short.
    pub(super) confirms: mpsc::Receiver<Order>,
    /// This one overtakes all.
    pub(super) stop: Stop,
}

/// Whether the daemon is to stop.
#[derive(Clone)]
pub(super) struct Stop(Arc<Notify>);

impl Orders {
    /// The two ends.
    pub fn channel() -> (Self, Inbox) {
        let ((queue, orders), stop) = (mpsc::channel(WAITING), Arc::new(Notify::new()));
        let (confirm, confirms) = mpsc::channel(WAITING);
        (
            Self { queue, confirms: confirm, stop: Arc::clone(&stop) },
            Inbox { orders, confirms, stop: Stop(stop) },
        )
    }

    /// Gives an order; whether it will be carried out. It is not if too many others wait, or the daemon has ended.
    #[must_use]
    pub fn give(&self, order: Order) -> bool {
        let queue = if matches!(order, Order::Confirm(..)) { &self.confirms } else { &self.queue };
        queue.try_send(order).is_ok()
    }

    /// Ends the daemon, also while it waits for a name server or a file.
    pub fn stop(&self) {
        self.stop.notify_one();
    }
}

impl Stop {
    /// Returns when the daemon is to stop, and only once.
    pub(super) async fn ordered(&self) {
        self.0.notified().await;
    }

    /// Does work that may wait for others, unless the daemon is to stop first.
    pub(super) async fn unless_ordered<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.ordered() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
    }

    #[test]
    fn an_order_to_stop_is_not_kept_waiting_by_others() {
        let (orders, inbox) = Orders::channel();
        assert!(orders.give(Order::Reload(None)));
        orders.stop();
        // Given before anything was begun.
        assert_eq!(block_on(inbox.stop.unless_ordered(std::future::pending::<()>())), None);
        let slow = async {
            orders.stop();
            std::future::pending::<()>().await;
        };
        assert_eq!(block_on(inbox.stop.unless_ordered(slow)), None, "given meanwhile");
        assert_eq!(block_on(inbox.stop.unless_ordered(async { 7 })), Some(7));
    }

    #[test]
    fn orders_are_bounded() {
        let (orders, inbox) = Orders::channel();
        let taken = (0..=WAITING).filter(|_| orders.give(Order::Reload(None))).count();
        assert_eq!(taken, WAITING);
        assert!(orders.give(Order::Confirm(7, oneshot::channel().0)), "one that is not kept waiting by them");
        drop(inbox);
        assert!(!orders.give(Order::Reload(None)), "it has ended");
    }
}
