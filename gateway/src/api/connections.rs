//! Connections of clients: how many there may be, of each source and in all, and how long each may take.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// When a client must have sent its request or taken the answer; suspended while a request is answered.
#[derive(Clone)]
pub struct Deadline(Arc<watch::Sender<Option<Instant>>>);

impl Deadline {
    /// One that passes after this time.
    pub fn after(patience: Duration) -> Self {
        Self(Arc::new(watch::Sender::new(Some(Instant::now() + patience))))
    }

    /// Begins the time anew.
    pub fn restart(&self, patience: Duration) {
        self.0.send_replace(Some(Instant::now() + patience));
    }

    /// Stops the time until it begins anew.
    pub fn suspend(&self) {
        self.0.send_replace(None);
    }

    fn instant(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// The time that is left; none while it is suspended.
    #[cfg(test)]
    pub(super) fn left(&self) -> Option<Duration> {
        self.instant().map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Returns when the deadline has passed without being moved.
    pub async fn passed(&self) {
        let mut seen = self.0.subscribe();
        loop {
            let at = *seen.borrow_and_update();
            let passed = async {
                match at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => return,
                _ = seen.changed() => {}
            }
        }
    }
}

/// The connections that are open, by their sources.
pub struct Connections<Source> {
    open: VecDeque<Connection<Source>>,
    most: usize,
    most_of_source: usize,
}

struct Connection<Source> {
    source: Source,
    task: AbortHandle,
    deadline: Deadline,
}

impl<Source: Clone + Eq + Hash> Connections<Source> {
    /// None yet, and at most so many, in all and of each source.
    pub fn new(most: usize, most_of_source: usize) -> Self {
        Self { open: VecDeque::new(), most, most_of_source }
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Makes room for one more connection of a source. If there is none, the longest idle connection is closed: of that source if
    /// it has its share, otherwise of the source that has most. False if none is idle.
    pub fn make_room(&mut self, source: &Source) -> bool {
        self.open.retain(|connection| !connection.task.is_finished());
        let mut counts: HashMap<Source, usize> = HashMap::new();
        for connection in &self.open {
            *counts.entry(connection.source.clone()).or_default() += 1;
        }
        if counts.get(source).is_some_and(|count| *count >= self.most_of_source) {
            return self.close_idle(|connection| connection.source == *source);
        }
        if self.open.len() < self.most {
            return true;
        }
        let idle = self.open.iter().filter(|connection| connection.deadline.instant().is_some());
        let Some(most) = idle.map(|connection| counts[&connection.source]).max() else { return false };
        self.close_idle(|connection| counts[&connection.source] == most)
    }

    /// Closes the longest idle connection of some.
    fn close_idle(&mut self, is_one: impl Fn(&Connection<Source>) -> bool) -> bool {
        let ones = self.open.iter().enumerate().filter(|(_, connection)| is_one(connection));
        let idle = ones.filter_map(|(at, connection)| Some((connection.deadline.instant()?, at)));
        let Some((_, longest)) = idle.min() else { return false };
        self.open.remove(longest).inspect(|idle| idle.task.abort()).is_some()
    }

    /// Counts a connection that a task serves.
    pub fn add(&mut self, source: Source, task: AbortHandle, deadline: Deadline) {
        self.open.push_back(Connection { source, task, deadline });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of a source that never ends by itself.
    fn open(
        connections: &mut Connections<u8>,
        source: u8,
    ) -> Option<(tokio::task::JoinHandle<()>, Deadline)> {
        if !connections.make_room(&source) {
            return None;
        }
        let task = tokio::spawn(std::future::pending());
        let deadline = Deadline::after(Duration::from_secs(3600));
        connections.add(source, task.abort_handle(), deadline.clone());
        Some((task, deadline))
    }

    #[tokio::test]
    async fn a_source_that_opens_many_closes_its_own() {
        let mut connections = Connections::new(8, 3);
        let other = open(&mut connections, 1).expect("there is room").0;
        let mut own: Vec<_> =
            (0..20).map(|_| open(&mut connections, 2).expect("its own idle one goes").0).collect();
        assert_eq!(connections.len(), 4);
        let last = own.split_off(17);
        for task in own {
            assert!(task.await.expect_err("closed").is_cancelled());
        }
        tokio::task::yield_now().await;
        assert!(last.iter().all(|task| !task.is_finished()) && !other.is_finished());
    }

    #[tokio::test]
    async fn when_all_is_taken_the_source_that_has_most_gives_way() {
        let mut connections = Connections::new(4, 3);
        let single = open(&mut connections, 1).expect("room").0;
        let many: Vec<_> = (0..3).map(|_| open(&mut connections, 2).expect("room").0).collect();
        open(&mut connections, 3).expect("one of the second source goes");
        tokio::task::yield_now().await;
        assert!(many[0].is_finished() && !single.is_finished());
    }

    #[tokio::test]
    async fn what_is_being_answered_is_not_closed() {
        let mut connections = Connections::new(2, 2);
        let busy: Vec<_> = (0..2).map(|_| open(&mut connections, 1).expect("room")).collect();
        for (_, deadline) in &busy {
            deadline.suspend();
        }
        assert!(open(&mut connections, 1).is_none() && open(&mut connections, 2).is_none());
        busy[0].1.restart(Duration::from_secs(3600));
        assert!(open(&mut connections, 2).is_some());
    }
}
