//! The state that all requests share: keys, limits, the daemon.

use crate::daemon::Daemon;
use crate::keys::Keys;
use crate::limiter::{Limiter, Rate};
use crate::local::Local;
use crate::long_bodies::LongBodies;
use crate::place::Place;
use crate::source::Source;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Operational commands at once.
const LOCAL_AT_ONCE: usize = 4;

/// Wrong keys of a source: 10 at once, then one in 10 s.
const WRONG_KEYS: Rate = Rate { burst: 10.0, per_second: 0.1 };
/// Sources that are remembered for their wrong keys.
const SOURCES: usize = 4096;
/// How long the answer to a wrong key is held back.
const WRONG_KEY_DELAY: Duration = Duration::from_millis(500);
/// Requests of a key: 200 at once, then 50 a second.
const REQUESTS: Rate = Rate { burst: 200.0, per_second: 50.0 };
/// Keys that are counted.
const KEYS: usize = 1024;

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) daemon: Daemon,
    pub(crate) local: Arc<dyn Local>,
    pub(crate) local_permits: Semaphore,
    /// One commit after the other, as VyOS does.
    pub(crate) commits: tokio::sync::Mutex<()>,
    /// The folder that `/config-file` names files in.
    pub(crate) files: PathBuf,
    pub(crate) long_bodies: LongBodies,
    serving: Mutex<Arc<Serving>>,
    wrong_keys: Mutex<Limiter<Source>>,
    requests: Mutex<Limiter<String>>,
}

/// The part of it that changes with the configuration.
#[derive(Default)]
pub(crate) struct Serving {
    pub(crate) keys: Keys,
    pub(crate) is_strict: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client with a right key.
pub(crate) struct Client {
    /// The name of the key.
    pub(crate) id: String,
}

impl App {
    pub(crate) fn new(place: &Place, local: Arc<dyn Local>) -> Self {
        Self {
            daemon: Daemon::new(place.api.clone()),
            local,
            local_permits: Semaphore::new(LOCAL_AT_ONCE),
            commits: tokio::sync::Mutex::default(),
            files: place.state.join("config"),
            long_bodies: LongBodies::default(),
            serving: Mutex::default(),
            wrong_keys: Mutex::new(Limiter::new(WRONG_KEYS, SOURCES)),
            requests: Mutex::new(Limiter::new(REQUESTS, KEYS)),
        }
    }

    pub(crate) fn set_serving(&self, serving: Serving) {
        *lock(&self.serving) = Arc::new(serving);
    }

    pub(crate) fn serving(&self) -> Arc<Serving> {
        Arc::clone(&lock(&self.serving))
    }

    /// The client with this key. A source with too many wrong keys must wait, also with a right one: else it would learn which is
    /// right.
    pub(crate) async fn client(&self, key: Option<&[u8]>, source: Source) -> Result<Client, Denied> {
        let now = Instant::now();
        if let Some(wait) = lock(&self.wrong_keys).wait(&source, now) {
            return Err(Denied::TooMany(wait));
        }
        let serving = self.serving();
        let Some(id) = key.and_then(|key| serving.keys.name(key)) else {
            if key.is_some() {
                let last = {
                    let mut wrong = lock(&self.wrong_keys);
                    wrong.take(&source, now).is_ok() && wrong.wait(&source, now).is_some()
                };
                if last {
                    tracing::warn!("https: {source} sends wrong keys, and must wait");
                }
                tokio::time::sleep(WRONG_KEY_DELAY).await;
            }
            return Err(Denied::WrongKey);
        };
        let id = id.to_owned();
        lock(&self.requests).take(&id, now).map_err(Denied::TooMany)?;
        Ok(Client { id })
    }
}

/// Why a client may not ask.
#[derive(Debug, PartialEq)]
pub(crate) enum Denied {
    WrongKey,
    TooMany(Duration),
}
