//! What is made once for all who ask while it is fresh.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The latest of what is made. A task of its own makes it, also if those who asked for it have gone: clients that come and go cannot
/// have it made more often.
pub(super) struct Fresh<T> {
    state: Mutex<State<T>>,
    is_made: Notify,
    lasts: Duration,
}

struct State<T> {
    made: Option<(Instant, T)>,
    is_being_made: bool,
}

impl<T: Clone + Send + 'static> Fresh<T> {
    /// One whose content is fresh for so long.
    pub(super) fn new(lasts: Duration) -> Self {
        let state = Mutex::new(State { made: None, is_being_made: false });
        Self { state, is_made: Notify::new(), lasts }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was made last, however old it is; none before, and while it is made anew.
    pub(super) fn latest(&self) -> Option<T> {
        self.lock().made.as_ref().map(|(_, made)| made.clone())
    }

    /// What is fresh, or what `make` makes. Those who ask meanwhile wait for it.
    pub(super) async fn get<F>(self: &Arc<Self>, make: impl Fn() -> F) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        loop {
            let mut is_made = pin!(self.is_made.notified());
            {
                let mut state = self.lock();
                if let Some((at, made)) = &state.made
                    && at.elapsed() < self.lasts
                {
                    return made.clone();
                }
                is_made.as_mut().enable();
                if !std::mem::replace(&mut state.is_being_made, true) {
                    // It is not kept while the next is made: that of ten thousand tunnels has several megabytes.
                    state.made = None;
                    let making = Making { of: Arc::clone(self), made: None };
                    tokio::spawn(making.finish(make()));
                }
            }
            is_made.await;
        }
    }
}

/// What is being made. Those who wait are woken also if it fails with a panic, and make it themselves.
struct Making<T: Clone + Send + 'static> {
    of: Arc<Fresh<T>>,
    made: Option<(Instant, T)>,
}

impl<T: Clone + Send + 'static> Making<T> {
    async fn finish(mut self, makes: impl Future<Output = T>) {
        let made = makes.await;
        self.made = Some((Instant::now(), made));
    }
}

impl<T: Clone + Send + 'static> Drop for Making<T> {
    fn drop(&mut self) {
        *self.of.lock() = State { made: self.made.take(), is_being_made: false };
        self.of.is_made.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn it_is_made_once_for_all_who_ask_also_if_the_first_has_gone() {
        let (fresh, made) = (Arc::new(Fresh::new(Duration::from_secs(3600))), Arc::new(AtomicUsize::new(0)));
        let make = || {
            let made = Arc::clone(&made);
            async move {
                tokio::task::yield_now().await;
                made.fetch_add(1, Ordering::Relaxed)
            }
        };
        let mut gone = Box::pin(fresh.get(make));
        tokio::select! {
            biased;
            _ = &mut gone => panic!("it takes a while"),
            () = std::future::ready(()) => drop(gone),
        }
        let (one, two) = tokio::join!(fresh.get(make), fresh.get(make));
        assert_eq!((one, two, made.load(Ordering::Relaxed)), (0, 0, 1));
    }

    #[tokio::test]
    async fn what_is_old_or_has_failed_is_made_again() {
        let fresh = Arc::new(Fresh::new(Duration::from_millis(20)));
        assert_eq!(fresh.get(|| async { 1 }).await, 1);
        tokio::time::sleep(Duration::from_millis(40)).await;
        let calls = AtomicUsize::new(0);
        let fails_first = || {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            async move { if call == 0 { panic!("the first fails") } else { 2 } }
        };
        assert_eq!(fresh.get(fails_first).await, 2);
    }
}
