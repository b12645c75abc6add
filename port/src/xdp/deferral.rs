//! Deferred NAPI: the kernel takes received frames of an interface some at a time instead of one softirq each.
//!
//! On a veth each frame raises a softirq on the sender's core. Deferral costs some microseconds of delay. It belongs to the interface,
//! not to a socket: it is set on request, and put back when this is dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The settings that were changed, and their values before, of all interfaces of this process.
static CHANGED: Mutex<Vec<(PathBuf, String)>> = Mutex::new(Vec::new());

fn changed() -> MutexGuard<'static, Vec<(PathBuf, String)>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Deferred NAPI of an interface.
#[derive(Debug)]
pub struct Deferral(PathBuf);

impl Deferral {
    /// Files of an interface below /sys/class/net: interrupts that are deferred, and the nanoseconds after which frames are taken at the
    /// latest.
    pub const VALUES: [(&str, &str); 2] = [("napi_defer_hard_irqs", "2"), ("gro_flush_timeout", "20000")];

    /// Defers NAPI of an interface, in the network namespace that /sys shows.
    pub fn set(interface: &str) -> io::Result<Self> {
        Self::set_in(&Path::new("/sys/class/net").join(interface))
    }

    fn set_in(directory: &Path) -> io::Result<Self> {
        let deferral = Self(directory.to_owned());
        for (name, value) in Self::VALUES {
            let path = directory.join(name);
            let before = std::fs::read_to_string(&path)?;
            let mut changed = changed();
            std::fs::write(&path, value)?;
            changed.push((path, before));
        }
        Ok(deferral)
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        put_back(|path| path.starts_with(&self.0));
    }
}

/// Puts back the settings of all interfaces, for a process that a signal ends.
pub fn put_back_deferrals() {
    put_back(|_| true);
}

fn put_back(is_meant: impl Fn(&Path) -> bool) {
    changed().retain(|(path, before)| {
        if is_meant(path) {
            // The interface may be gone.
            let _ = std::fs::write(path, before);
        }
        !is_meant(path)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_put_back_even_if_one_of_them_is_missing() {
        let directory = std::env::temp_dir().join(format!("postern-{}-deferral", std::process::id()));
        std::fs::create_dir_all(&directory).expect("it can be made");
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect("it is there");
        std::fs::write(directory.join(Deferral::VALUES[0].0), "0\n").expect("it can be written");
        assert!(Deferral::set_in(&directory).is_err(), "the other is missing");
        assert_eq!(read(Deferral::VALUES[0].0), "0\n");
        std::fs::write(directory.join(Deferral::VALUES[1].0), "7\n").expect("it can be written");
        let deferral = Deferral::set_in(&directory).expect("both are there");
        assert_eq!(
            (read(Deferral::VALUES[0].0), read(Deferral::VALUES[1].0)),
            ("2".to_owned(), "20000".to_owned())
        );
        put_back_deferrals();
        assert_eq!(read(Deferral::VALUES[0].0), "0\n", "a signal has ended the process");
        std::fs::write(directory.join(Deferral::VALUES[1].0), "7\n").expect("it can be written");
        drop(deferral);
        drop(Deferral::set_in(&directory).expect("both are there"));
        assert_eq!(
            (read(Deferral::VALUES[0].0), read(Deferral::VALUES[1].0)),
            ("0\n".to_owned(), "7\n".to_owned())
        );
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
}
