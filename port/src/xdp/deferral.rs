//! Deferred NAPI: the kernel takes received frames of an interface some at a time instead of one softirq each.
//!
//! On a veth each frame raises a softirq on the sender's core. Deferral costs some microseconds of delay. It belongs to the interface,
//! not to a socket: it is set on request, and put back when the last that wants it is dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The settings that were changed, of all interfaces of this process.
static CHANGED: Mutex<Vec<Changed>> = Mutex::new(Vec::new());

fn changed() -> MutexGuard<'static, Vec<Changed>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A setting that was changed.
struct Changed {
    setting: Setting,
    before: String,
    /// So many want it so.
    users: usize,
}

/// A file of an interface, which another interface may have later.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    path: PathBuf,
    /// The number of the interface.
    index: String,
}

impl Setting {
    /// Writes the value from before, unless the interface is gone: one of the same name has values of its own.
    fn put_back(&self, before: &str) {
        let is_same = self.path.parent().is_some_and(|it| index(it).is_ok_and(|index| index == self.index));
        if is_same {
            // It may be deleted just now.
            let _ = std::fs::write(&self.path, before);
        }
    }
}

fn index(directory: &Path) -> io::Result<String> {
    std::fs::read_to_string(directory.join("ifindex"))
}

/// Deferred NAPI of an interface.
#[derive(Debug)]
pub struct Deferral(Vec<Setting>);

impl Deferral {
    /// Files of an interface below /sys/class/net: interrupts that are deferred, and the nanoseconds after which frames are taken at the
    /// latest.
    pub const VALUES: [(&str, &str); 2] = [("napi_defer_hard_irqs", "2"), ("gro_flush_timeout", "20000")];

    /// Defers NAPI of an interface, in the network namespace that /sys shows.
    pub fn set(interface: &str) -> io::Result<Self> {
        Self::set_in(&Path::new("/sys/class/net").join(interface))
    }

    fn set_in(directory: &Path) -> io::Result<Self> {
        let index = index(directory)?;
        // Dropped at an error, with what is set by then.
        let mut deferral = Self(Vec::new());
        for (name, value) in Self::VALUES {
            let setting = Setting { path: directory.join(name), index: index.clone() };
            let mut changed = changed();
            if let Some(known) = changed.iter_mut().find(|it| it.setting == setting) {
                std::fs::write(&setting.path, value)?;
                known.users += 1;
            } else {
                let before = std::fs::read_to_string(&setting.path)?;
                std::fs::write(&setting.path, value)?;
                changed.push(Changed { setting: setting.clone(), before, users: 1 });
            }
            deferral.0.push(setting);
        }
        Ok(deferral)
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        changed().retain_mut(|changed| {
            if self.0.contains(&changed.setting) {
                changed.users -= 1;
            }
            if changed.users == 0 {
                changed.setting.put_back(&changed.before);
            }
            changed.users > 0
        });
    }
}

/// Puts back the settings of all interfaces, for a process that a signal ends.
pub fn put_back_deferrals() {
    for Changed { setting, before, .. } in changed().drain(..) {
        setting.put_back(&before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of an interface, in a folder in place of that of /sys.
    struct Interface(tempfile::TempDir);

    impl Interface {
        fn new(values: [&str; 2]) -> Self {
            let interface = Self(tempfile::tempdir().expect("it can be made"));
            interface.write("ifindex", "5\n");
            for ((name, _), value) in Deferral::VALUES.iter().zip(values) {
                interface.write(name, value);
            }
            interface
        }

        fn write(&self, name: &str, value: &str) {
            std::fs::write(self.0.path().join(name), value).expect("it can be written");
        }

        fn values(&self) -> [String; 2] {
            Deferral::VALUES
                .map(|(name, _)| std::fs::read_to_string(self.0.path().join(name)).unwrap_or_default())
        }

        fn defer(&self) -> io::Result<Deferral> {
            Deferral::set_in(self.0.path())
        }
    }

    const DEFERRED: [&str; 2] = ["2", "20000"];

    /// The settings are those of the process, and a signal puts back all: one test at a time.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn settings_are_put_back_even_if_one_of_them_is_missing() {
        let _alone = alone();
        let interface = Interface::new(["0\n", "7\n"]);
        std::fs::remove_file(interface.0.path().join(Deferral::VALUES[1].0)).expect("it is there");
        assert!(interface.defer().is_err(), "one is missing");
        assert_eq!(interface.values(), ["0\n", ""]);
        interface.write(Deferral::VALUES[1].0, "7\n");
        let deferral = interface.defer().expect("both are there");
        assert_eq!(interface.values(), DEFERRED);
        put_back_deferrals();
        assert_eq!(interface.values(), ["0\n", "7\n"], "a signal has ended the process");
        interface.write(Deferral::VALUES[1].0, "8\n");
        drop(deferral);
        assert_eq!(interface.values(), ["0\n", "8\n"], "once");
        drop(interface.defer().expect("both are there"));
        assert_eq!(interface.values(), ["0\n", "8\n"]);
    }

    #[test]
    fn the_last_of_several_puts_the_first_values_back() {
        let _alone = alone();
        let interface = Interface::new(["0\n", "7\n"]);
        let [first, second] = [(); 2].map(|()| interface.defer().expect("both are there"));
        drop(first);
        assert_eq!(interface.values(), DEFERRED, "another wants it");
        drop(second);
        assert_eq!(interface.values(), ["0\n", "7\n"]);
        let _both = [(); 2].map(|()| interface.defer().expect("both are there"));
        put_back_deferrals();
        assert_eq!(interface.values(), ["0\n", "7\n"], "a signal has ended the process");
    }

    #[test]
    fn an_interface_that_was_made_anew_keeps_its_own_values() {
        let _alone = alone();
        let interface = Interface::new(["0\n", "7\n"]);
        let old = interface.defer().expect("both are there");
        interface.write("ifindex", "6\n");
        for (name, value) in [(Deferral::VALUES[0].0, "3\n"), (Deferral::VALUES[1].0, "9\n")] {
            interface.write(name, value);
        }
        let new = interface.defer().expect("both are there");
        drop(old);
        assert_eq!(interface.values(), DEFERRED, "the new one is deferred still");
        drop(new);
        assert_eq!(interface.values(), ["3\n", "9\n"]);
        let gone = interface.defer().expect("both are there");
        std::fs::remove_file(interface.0.path().join("ifindex")).expect("it is there");
        drop(gone);
        assert_eq!(interface.values(), DEFERRED, "nothing is written");
    }
}
