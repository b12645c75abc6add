//! What rules of health say: asked only while somebody looks at it.

use super::fresh::Fresh;
use super::performance::in_time;
use crate::daemon::Daemon;
use gateway::facts::FRESH;
use gateway::health::model::Health;
use std::sync::Arc;

/// What the rules say, or why that is not known.
type Outcome = Result<Arc<Health>, String>;

/// The latest of it.
pub(super) struct Healths(Arc<Fresh<Outcome>>);

impl Default for Healths {
    fn default() -> Self {
        Self(Arc::new(Fresh::new(FRESH)))
    }
}

impl Healths {
    /// What the rules say, at most a second old.
    pub(super) async fn get(&self, daemon: &Arc<Daemon>) -> Outcome {
        let make = || {
            let daemon = Arc::clone(daemon);
            async move { in_time(daemon.ask::<Health>("/v1/health")).await.map(Arc::new) }
        };
        self.0.get(make).await
    }
}
