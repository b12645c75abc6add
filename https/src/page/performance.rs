//! What limits the speed of tunnels, and which engines do the work: asked only while somebody looks at it.

use super::fresh::Fresh;
use super::view::{PATIENCE, parsed};
use crate::daemon::{Daemon, Refused};
use gateway::api::model::{Bottlenecks, Crypto, CryptoCipher};
use gateway::facts::model::History;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long an answer is shown. The daemon looks for a second before it answers.
const LASTS: Duration = Duration::from_secs(1);
/// The same of the choice between engines, which is rarely made anew.
const CHOICE_LASTS: Duration = Duration::from_secs(10);

/// What is known of ciphers, the engine of each among it.
pub(super) type Ciphers = Result<Arc<Vec<CryptoCipher>>, String>;
/// What limits interfaces.
pub(super) type Limits = Result<Arc<Bottlenecks>, String>;

/// The last minutes of interfaces.
pub(super) type Histories = Result<Arc<History>, String>;

/// The latest of all.
pub(super) struct Performance {
    limits: Arc<Fresh<Limits>>,
    history: Arc<Fresh<Histories>>,
    ciphers: Arc<Fresh<Ciphers>>,
}

impl Default for Performance {
    fn default() -> Self {
        Self {
            limits: Arc::new(Fresh::new(LASTS)),
            history: Arc::new(Fresh::new(LASTS)),
            ciphers: Arc::new(Fresh::new(CHOICE_LASTS)),
        }
    }
}

impl Performance {
    /// What limits interfaces, from a second of looking.
    pub(super) async fn limits(&self, daemon: &Arc<Daemon>) -> Limits {
        let make = || {
            let daemon = Arc::clone(daemon);
            async move { in_time(daemon.ask::<Bottlenecks>("/v1/bottleneck")).await.map(Arc::new) }
        };
        self.limits.get(make).await
    }

    /// What interfaces carried in the last minutes.
    pub(super) async fn history(&self, daemon: &Arc<Daemon>) -> Histories {
        let make = || {
            let daemon = Arc::clone(daemon);
            async move { in_time(daemon.ask::<History>("/v1/facts/history")).await.map(Arc::new) }
        };
        self.history.get(make).await
    }

    /// The engines of ciphers.
    pub(super) async fn ciphers(&self, daemon: &Arc<Daemon>) -> Ciphers {
        let make = || {
            let daemon = Arc::clone(daemon);
            async move { in_time(ciphers(&daemon)).await.map(Arc::new) }
        };
        self.ciphers.get(make).await
    }
}

async fn ciphers(daemon: &Daemon) -> Result<Vec<CryptoCipher>, Refused> {
    let json = daemon.bytes("/v1/crypto").await?;
    parsed(move || serde_json::from_slice::<Crypto>(&json).ok().map(|crypto| crypto.ciphers)).await
}

pub(super) async fn in_time<T>(asked: impl Future<Output = Result<T, Refused>>) -> Result<T, String> {
    match timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(|refused| refused.error),
        Err(_) => Err("the daemon does not answer".to_owned()),
    }
}
