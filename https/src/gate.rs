//! Who may ask: clients with a key, and how often.

use crate::keys::Keys;
use crate::limiter::{Limiter, Rate};
use crate::source::Source;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

/// A client with a right key.
pub(crate) struct Client {
    /// The name of the key.
    pub(crate) id: String,
}

/// Why a client may not ask.
#[derive(Debug, PartialEq)]
pub(crate) enum Denied {
    WrongKey,
    TooMany(Duration),
}

/// What is remembered of clients.
pub(crate) struct Gate {
    wrong_keys: Mutex<Limiter<Source>>,
    requests: Mutex<Limiter<String>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            wrong_keys: Mutex::new(Limiter::new(WRONG_KEYS, SOURCES)),
            requests: Mutex::new(Limiter::new(REQUESTS, KEYS)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    /// The client with this key. A source with too many wrong keys must wait, also with a right one: else it would learn which is
    /// right.
    pub(crate) async fn client(
        &self,
        keys: &Keys,
        key: Option<&[u8]>,
        source: Source,
    ) -> Result<Client, Denied> {
        let now = Instant::now();
        if let Some(wait) = lock(&self.wrong_keys).wait(&source, now) {
            return Err(Denied::TooMany(wait));
        }
        let Some(id) = key.and_then(|key| keys.name(key)) else {
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
