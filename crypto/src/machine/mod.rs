//! The machine's means of encryption: its processor, the accelerators on the PCI bus, and the kernel's crypto drivers.
//!
//! Everything is read from files, under a root directory that tests can replace.

mod bus;
mod driver_name;
mod hidden;
pub(crate) mod kernel;
mod processor;
pub mod qat;

pub use bus::{Accelerator, DEVICES, Device, Family, Identity};
pub(crate) use driver_name::names_device;
pub use hidden::{Certainty, has_aes_in_truth, has_qat_in_truth};
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
        let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let algorithms = kernel::parse(&text("proc/crypto"));
        Self {
            processor: Processor::read(root),
            accelerators: bus::read(root)
                .into_iter()
                .map(|device| Accelerator::new(device, &algorithms))
                .collect(),
            interfaces: Interfaces::read(root),
            algorithms,
        }
    }
}
