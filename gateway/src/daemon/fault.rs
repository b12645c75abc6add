//! Points of a commit at which a test ends the process, as `kill -9` or a loss of power would; or, as `term:POINT`, as systemd does.

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
    if !STARTED.load(Ordering::Relaxed) {
        return;
    }
    let Ok(wanted) = std::env::var(VARIABLE) else { return };
    let (signal, wanted) = match wanted.strip_prefix("term:") {
        Some(wanted) => (Signal::TERM, wanted),
        None => (Signal::KILL, &*wanted),
    };
    if wanted == name {
        tracing::warn!("{VARIABLE}: this process is sent {signal:?} at {name}");
        // It cannot fail: a process may always end itself.
        let _ = kill_process(getpid(), signal);
    }
}
