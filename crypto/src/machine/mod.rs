//! The machine's means of encryption: its processor, the accelerators on the PCI bus, and the kernel's crypto drivers.
//!
//! Everything is read from files below a root, which may be an untrusted copy of another machine: see [`Files`].

mod bus;
mod driver_name;
mod files;
mod hidden;
pub(crate) mod kernel;
mod processor;
pub mod qat;

pub use bus::{Accelerator, DEVICES, Device, Family, Identity};
pub(crate) use driver_name::names_device;
pub use files::{Files, Known, why};
pub use hidden::{Certainty, Hider, has_qat_in_truth, hidden_aes};
pub use kernel::{Algorithm, Interfaces};
pub use processor::{Capability, Processor};

use std::path::Path;

/// What is known about a machine's means of encryption.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The processor.
    pub processor: Processor,
    /// The accelerators on the PCI bus.
    pub accelerators: Vec<Accelerator>,
    /// The kernel's crypto drivers.
    pub algorithms: Vec<Algorithm>,
    /// The interfaces to the kernel's crypto API.
    pub interfaces: Interfaces,
}

impl Machine {
    /// Says what was searched for accelerators, and what was found; for a machine without a usable one.
    pub fn accelerators_found(&self) -> String {
        let state = |it: &Accelerator| match &it.device.driver {
            None => "without a driver".to_owned(),
            Some(driver) if it.device.is_lent_to_a_program() => {
                format!("bound to {driver}, for use by a program")
            }
            Some(driver) => format!("whose driver {driver} offers no algorithm to the kernel"),
        };
        let idle = self.accelerators.iter().filter(|it| it.algorithms.is_empty());
        let idle: Vec<String> =
            idle.map(|it| format!("{} at {}, {}", it.name(), it.device.address, state(it))).collect();
        let on_bus = if idle.is_empty() { "none known".to_owned() } else { idle.join("; ") };
        let yes = |is_there: bool| if is_there { "available" } else { "not available" };
        format!(
            "on the PCI bus (/sys/bus/pci/devices): {on_bus}; drivers of devices in /proc/crypto: {}; AF_ALG: {}; \
             /dev/crypto: {}",
            self.algorithms.iter().filter(|it| it.is_async && names_device(&it.driver)).count(),
            yes(self.interfaces.af_alg),
            yes(self.interfaces.cryptodev)
        )
    }

    /// Reads this machine.
    pub fn here() -> Self {
        Self::read(Path::new("/"))
    }

    /// Reads the machine whose `/proc`, `/sys`, `/dev` and `/lib/modules` are under `root`. Unreadable files count as
    /// absent.
    pub fn read(root: &Path) -> Self {
        let files = Files { root };
        let algorithms = kernel::parse(&files.text("proc/crypto").unwrap_or_default());
        Self {
            processor: Processor::read(files),
            accelerators: bus::read(files)
                .into_iter()
                .map(|device| Accelerator::new(device, &algorithms))
                .collect(),
            interfaces: Interfaces::read(files),
            algorithms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_hostile_copy_shows_no_file_outside_of_it_and_cannot_block() {
        let outside = tempfile::tempdir().expect("writable");
        fs::write(outside.path().join("cpuinfo"), "processor : 0\nflags : aes\n").expect("writable");
        fs::create_dir_all(outside.path().join("0000:01:00.0")).expect("writable");
        fs::write(outside.path().join("0000:01:00.0/vendor"), "0x8086\n").expect("writable");
        fs::write(outside.path().join("0000:01:00.0/device"), "0x4940\n").expect("writable");
        let copy = tempfile::tempdir().expect("writable");
        let at = |name: &str| copy.path().join(name);
        fs::create_dir_all(at("proc/sys/kernel")).expect("writable");
        fs::create_dir_all(at("sys/bus/pci")).expect("writable");
        fs::create_dir_all(at("sys/kernel")).expect("writable");
        symlink(outside.path().join("cpuinfo"), at("proc/cpuinfo")).expect("writable");
        symlink(outside.path(), at("sys/bus/pci/devices")).expect("writable");
        for fifo in ["proc/crypto", "proc/interrupts", "proc/sys/kernel/osrelease", "sys/kernel/debug"] {
            rustix::fs::mknodat(CWD, at(fifo), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        }
        let machine = Machine::read(copy.path());
        assert_eq!((machine.processor.count, machine.processor.flags.len()), (0, 0));
        assert!(machine.accelerators.is_empty() && machine.algorithms.is_empty());
        assert!(qat::devices(copy.path()).is_empty() && qat::interrupts(copy.path()).is_empty());
    }
}
