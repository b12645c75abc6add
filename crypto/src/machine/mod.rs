//! What this machine has to encrypt with: its processor, the devices on its bus, the drivers of its kernel.
//!
//! All of it is read from files, under a root that tests lay out themselves; every parser is a function of a text.

mod bus;
mod driver_name;
pub(crate) mod kernel;
mod processor;

pub use bus::{Accelerator, DEVICES, Device, Family, Identity};
pub(crate) use driver_name::names_device;
pub use kernel::{Algorithm, Interfaces};
pub use processor::{Capability, Processor};

use std::path::Path;

/// A machine, as far as encryption is concerned.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its processor.
    pub processor: Processor,
    /// The accelerators on its PCI bus.
    pub accelerators: Vec<Accelerator>,
    /// What its kernel can encrypt, and by which driver.
    pub algorithms: Vec<Algorithm>,
    /// How a program may reach the kernel's drivers.
    pub interfaces: Interfaces,
}

impl Machine {
    /// What of its accelerators was found where, for one that has none to use.
    pub fn accelerators_found(&self) -> String {
        let state = |it: &Accelerator| match &it.device.driver {
            None => "without a driver".to_owned(),
            Some(driver) if it.device.is_lent_to_a_program() => format!("lent to a program by {driver}"),
            Some(driver) => format!("whose driver {driver} offers the kernel nothing"),
        };
        let idle = self.accelerators.iter().filter(|it| it.algorithms.is_empty());
        let idle: Vec<String> =
            idle.map(|it| format!("{} at {}, {}", it.name(), it.device.address, state(it))).collect();
        let on_bus = if idle.is_empty() { "none known".to_owned() } else { idle.join("; ") };
        let yes = |is_there: bool| if is_there { "there" } else { "not there" };
        format!(
            "on the PCI bus (/sys/bus/pci/devices): {on_bus}; drivers of devices in /proc/crypto: {}; AF_ALG: {}; \
             /dev/crypto: {}",
            self.algorithms.iter().filter(|it| it.is_async && names_device(&it.driver)).count(),
            yes(self.interfaces.af_alg),
            yes(self.interfaces.cryptodev)
        )
    }

    /// This machine.
    pub fn here() -> Self {
        Self::read(Path::new("/"))
    }

    /// The machine whose `/proc`, `/sys`, `/dev` and `/lib/modules` are under `root`. What cannot be read is not there.
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
