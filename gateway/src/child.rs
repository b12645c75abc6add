//! Programs of the system that must not keep a process waiting.

use std::io;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// The pause before a program is asked again whether it has ended.
const PAUSE: Duration = Duration::from_millis(10);

/// How a program ends; none if it takes longer than `limit`, and is killed.
pub(crate) fn end_of(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(PAUSE);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}
