//! Points of a commit at which a test ends the process, as `kill -9` or a loss of power would.

use rustix::process::{Signal, getpid, kill_process};
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable that names the point.
pub const VARIABLE: &str = "POSTERN_FAULT";

/// Every point, in the order in which a commit passes them.
pub const POINTS: &[&str] = &[
    "commit-begun",
    "pending-created",
    "pending-written",
    "pending-synced",
    "step-done",
    "applied",
    "published",
    "recorded",
    "oldest-removed",
];

/// Whether the start is over: what is applied there passes points too.
static STARTED: AtomicBool = AtomicBool::new(false);

/// From now on the points count.
pub(super) fn arm() {
    STARTED.store(true, Ordering::Relaxed);
}

/// Ends the process here if the environment says so.
pub(super) fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name}");
    if STARTED.load(Ordering::Relaxed) && std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == name) {
        tracing::warn!("{VARIABLE}={name}: this process ends here");
        // It cannot fail: a process may always end itself.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}
