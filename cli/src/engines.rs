//! The choice between the crypto engines of this machine.

use crypto::choice::{Choice, Subject};
use gateway::api::describe_engine_event;
use gateway::rights::Rights;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where measurements are kept between two starts.
pub(crate) const CACHE: &str = "/var/cache/postern/crypto.json";
/// The interval between two attempts to use failed engines.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// All engines, measured for `subjects`.
pub(crate) fn choice(subjects: &[Subject]) -> Arc<Choice> {
    Arc::new(Choice::here(Some(Path::new(CACHE))).prepared_for(subjects))
}

/// Retries failed engines for as long as the program runs, and logs what happens to engines.
pub(crate) fn maintain(choice: &Arc<Choice>) -> std::io::Result<()> {
    let choice = Arc::clone(choice);
    // A thread of its own: an engine that is tried again may stall.
    std::thread::Builder::new().name("engines".to_owned()).spawn(move || {
        Rights::None.keep();
        loop {
            for event in choice.maintain() {
                tracing::warn!("crypto engine {} {}", event.engine, describe_engine_event(&event.what));
            }
            std::thread::sleep(MAINTENANCE);
        }
    })?;
    Ok(())
}
