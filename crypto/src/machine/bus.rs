//! Crypto accelerators on the PCI bus.

use super::files::Files;
use super::kernel::Algorithm;

/// A family of accelerators that share drivers and remedies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Intel QuickAssist.
    Qat,
    /// virtio-crypto, a device of the hypervisor.
    Virtio,
    /// AMD Cryptographic Coprocessor (CCP).
    AmdCcp,
    /// Annapurna Labs Alpine, in routers such as the R9000.
    Annapurna,
    /// Marvell OCTEON CPT.
    Octeon,
    /// A device of a PCI class for encryption, with unknown IDs.
    Unknown,
}

impl Family {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qat => "Intel QuickAssist (QAT)",
            Self::Virtio => "virtio-crypto",
            Self::AmdCcp => "AMD CCP",
            Self::Annapurna => "Annapurna crypto",
            Self::Octeon => "Marvell OCTEON CPT",
            Self::Unknown => "unknown accelerator",
        }
    }

    /// Whether a driver in `/proc/crypto` belongs to this family.
    fn owns(self, algorithm: &Algorithm) -> bool {
        let driver = algorithm.driver.as_str();
        match self {
            Self::Qat => driver.starts_with("qat") || algorithm.module == "intel_qat",
            Self::Virtio => driver.starts_with("virtio") || algorithm.module == "virtio_crypto",
            Self::AmdCcp => driver.ends_with("-ccp") || algorithm.module == "ccp_crypto",
            Self::Annapurna => driver.ends_with("-al") || algorithm.module.starts_with("al_"),
            Self::Octeon => driver.starts_with("cpt_") || algorithm.module.contains("cpt"),
            Self::Unknown => false,
        }
    }
}

/// The PCI IDs of a known accelerator.
pub struct Identity {
    /// PCI vendor ID.
    pub vendor: u16,
    /// PCI device ID.
    pub device: u16,
    /// The family.
    pub family: Family,
    /// The model.
    pub model: &'static str,
    /// The kernel module that drives the device.
    pub module: &'static str,
}

const fn id(
    (vendor, device): (u16, u16),
    family: Family,
    model: &'static str,
    module: &'static str,
) -> Identity {
    Identity { vendor, device, family, model, module }
}

/// Known accelerators by PCI ID. VF: virtual function, a part of a device that is passed to a virtual machine.
pub const DEVICES: &[Identity] = &[
    id((0x8086, 0x0434), Family::Qat, "DH89xxCC (8925)", "icp_qa_al"),
    id((0x8086, 0x0442), Family::Qat, "DH89xxCC VF", "icp_qa_al"),
    id((0x8086, 0x0435), Family::Qat, "DH895xCC (8950)", "qat_dh895xcc"),
    id((0x8086, 0x0443), Family::Qat, "DH895xCC VF", "qat_dh895xccvf"),
    id((0x8086, 0x1f18), Family::Qat, "Atom C2xxx", "icp_qa_al"),
    id((0x8086, 0x1f19), Family::Qat, "Atom C2xxx VF", "icp_qa_al"),
    id((0x8086, 0x37c8), Family::Qat, "C62x (8960, 8970)", "qat_c62x"),
    id((0x8086, 0x37c9), Family::Qat, "C62x VF", "qat_c62xvf"),
    id((0x8086, 0x6f54), Family::Qat, "Xeon D-15xx", "qat_d15xx"),
    id((0x8086, 0x6f55), Family::Qat, "Xeon D-15xx VF", "qat_d15xxvf"),
    id((0x8086, 0x19e2), Family::Qat, "Atom C3xxx", "qat_c3xxx"),
    id((0x8086, 0x19e3), Family::Qat, "Atom C3xxx VF", "qat_c3xxxvf"),
    id((0x8086, 0x18ee), Family::Qat, "200xx", "qat_200xx"),
    id((0x8086, 0x18ef), Family::Qat, "200xx VF", "qat_200xxvf"),
    id((0x8086, 0x18a0), Family::Qat, "C4xxx", "qat_c4xxx"),
    id((0x8086, 0x18a1), Family::Qat, "C4xxx VF", "qat_c4xxxvf"),
    id((0x8086, 0x4940), Family::Qat, "4xxx", "qat_4xxx"),
    id((0x8086, 0x4941), Family::Qat, "4xxx VF", "vfio-pci"),
    id((0x8086, 0x4942), Family::Qat, "401xx", "qat_4xxx"),
    id((0x8086, 0x4943), Family::Qat, "401xx VF", "vfio-pci"),
    id((0x8086, 0x4944), Family::Qat, "402xx", "qat_4xxx"),
    id((0x8086, 0x4945), Family::Qat, "402xx VF", "vfio-pci"),
    id((0x8086, 0x4946), Family::Qat, "420xx", "qat_420xx"),
    id((0x8086, 0x4947), Family::Qat, "420xx VF", "vfio-pci"),
    id((0x8086, 0x4948), Family::Qat, "6xxx", "qat_6xxx"),
    id((0x8086, 0x4949), Family::Qat, "6xxx VF", "vfio-pci"),
    // DPDK's driver names only the IDs of these virtual functions, and no kernel module has them.
    id((0x8086, 0x578b), Family::Qat, "578b VF", "vfio-pci"),
    id((0x8086, 0x1454), Family::Qat, "1454 VF", "vfio-pci"),
    id((0x8086, 0x0da5), Family::Qat, "0da5 VF", "vfio-pci"),
    id((0x1af4, 0x1054), Family::Virtio, "virtio-crypto", "virtio_crypto"),
    id((0x1022, 0x1456), Family::AmdCcp, "Zen", "ccp_crypto"),
    id((0x1022, 0x1468), Family::AmdCcp, "Zen", "ccp_crypto"),
    id((0x1022, 0x1486), Family::AmdCcp, "Zen 2", "ccp_crypto"),
    id((0x1c36, 0x0011), Family::Annapurna, "Alpine", "al_crypto"),
    id((0x1c36, 0x8011), Family::Annapurna, "Alpine VF", "al_crypto"),
    id((0x177d, 0xa040), Family::Octeon, "OCTEON TX", "octeontx_cpt"),
    id((0x177d, 0xa0fd), Family::Octeon, "OCTEON TX2", "rvu_cptpf"),
];

impl Identity {
    /// Whether it is a virtual function.
    pub fn is_virtual(&self) -> bool {
        self.model.ends_with(" VF")
    }

    /// The files that the kernel's driver loads into a QuickAssist device, in `/lib/firmware`; a virtual function has none of its own.
    pub fn firmware(&self) -> &'static [&'static str] {
        match self.device {
            _ if self.vendor != 0x8086 => &[],
            0x0435 => &["qat_895xcc.bin", "qat_895xcc_mmp.bin"],
            0x37c8 => &["qat_c62x.bin", "qat_c62x_mmp.bin"],
            0x19e2 => &["qat_c3xxx.bin", "qat_c3xxx_mmp.bin"],
            0x4940 | 0x4942 => &["qat_4xxx.bin", "qat_4xxx_mmp.bin"],
            0x4944 => &["qat_402xx.bin", "qat_402xx_mmp.bin"],
            0x4946 => &["qat_420xx.bin", "qat_420xx_mmp.bin"],
            0x4948 => &["qat_6xxx.bin", "qat_6xxx_mmp.bin"],
            _ => &[],
        }
    }
}

/// PCI classes: encryption controller for network and computing, other encryption controller, coprocessor.
const CLASSES: [u32; 3] = [0x1000, 0x1080, 0x0b40];

/// A PCI device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// PCI address, such as `0000:01:00.0`.
    pub address: String,
    /// PCI vendor ID.
    pub vendor: u16,
    /// PCI device ID.
    pub device: u16,
    /// PCI class and subclass.
    pub class: u32,
    /// The driver bound to the device.
    pub driver: Option<String>,
    /// QAT: `up` or `down`.
    pub state: Option<String>,
    /// QAT: the configured services, such as `sym;asym`.
    pub services: Option<String>,
}

/// The folder of the devices.
pub(super) const FOLDER: &str = "sys/bus/pci/devices";

/// The accelerators, sorted by address.
pub(super) fn read(files: Files<'_>) -> Vec<Device> {
    let addresses = files.names(FOLDER).unwrap_or_default();
    addresses
        .into_iter()
        .map(|address| {
            let folder = format!("{FOLDER}/{address}");
            let text = |name: &str| files.text(&format!("{folder}/{name}")).ok();
            let hex = |name: &str| {
                let text = text(name).unwrap_or_default();
                u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
            };
            Device {
                vendor: hex("vendor") as u16,
                device: hex("device") as u16,
                class: hex("class") >> 8,
                driver: driver(files, &folder),
                state: text("qat/state"),
                services: text("qat/cfg_services"),
                address,
            }
        })
        .filter(|device| device.identity().is_some() || CLASSES.contains(&device.class))
        .collect()
}

/// The driver that is bound: the last part of a link. In a copy, the link may have become the folder that it leads to, or a file with its
/// text.
fn driver(files: Files<'_>, device: &str) -> Option<String> {
    let link = format!("{device}/driver");
    if let Some(path) = files.link(&link) {
        return Some(path.file_name()?.to_string_lossy().into_owned());
    }
    let event = files.text(&format!("{device}/uevent")).unwrap_or_default();
    let named = event.lines().find_map(|line| line.strip_prefix("DRIVER=")).map(str::to_owned);
    let copied =
        || Some(files.text(&link).ok()?.rsplit('/').next()?.to_owned()).filter(|name| !name.is_empty());
    named.or_else(copied).or_else(|| files.has_folder(&link).then(|| "a driver".to_owned()))
}

impl Device {
    /// The known accelerator with these IDs.
    pub fn identity(&self) -> Option<&'static Identity> {
        DEVICES.iter().find(|id| (id.vendor, id.device) == (self.vendor, self.device))
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.identity().map_or(Family::Unknown, |id| id.family)
    }

    /// Whether the driver passes the device to user space (VFIO or UIO), for a program such as one of DPDK.
    pub fn is_lent_to_a_program(&self) -> bool {
        matches!(self.driver.as_deref(), Some("vfio-pci" | "qat_vfio_pci" | "uio_pci_generic" | "igb_uio"))
    }
}

/// A device and the kernel's crypto drivers for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    /// The device.
    pub device: Device,
    /// The kernel's crypto drivers of the device's family; empty if the kernel does not drive the device.
    pub algorithms: Vec<Algorithm>,
}

impl Accelerator {
    pub(super) fn new(device: Device, algorithms: &[Algorithm]) -> Self {
        let family = device.family();
        let own = device.driver.is_some() && !device.is_lent_to_a_program();
        let algorithms = algorithms.iter().filter(|algorithm| own && family.owns(algorithm)).cloned();
        Self { algorithms: algorithms.collect(), device }
    }

    /// Family and model.
    pub fn name(&self) -> String {
        match self.device.identity() {
            Some(id) if id.family.name() == id.model => id.model.to_owned(),
            Some(id) => format!("{} {}", id.family.name(), id.model),
            None => {
                format!("{} {:04x}:{:04x}", Family::Unknown.name(), self.device.vendor, self.device.device)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use std::fs;
    use std::path::Path;

    fn lay(root: &Path, address: &str, [vendor, device, class]: [&str; 3], driver: Option<&str>) {
        let at = root.join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&at).expect("writable");
        for (name, value) in [("vendor", vendor), ("device", device), ("class", class)] {
            fs::write(at.join(name), format!("{value}\n")).expect("writable");
        }
        if let Some(driver) = driver {
            std::os::unix::fs::symlink(format!("../../drivers/{driver}"), at.join("driver"))
                .expect("writable");
        }
    }

    #[test]
    fn accelerators_are_found_with_their_drivers_and_algorithms() {
        let root = tempfile::tempdir().expect("writable");
        let root = root.path();
        lay(root, "0000:00:02.0", ["0x1af4", "0x1041", "0x020000"], Some("virtio-pci"));
        lay(root, "0000:00:04.0", ["0x1af4", "0x1054", "0x0b4000"], Some("virtio-pci"));
        lay(root, "0000:01:00.0", ["0x8086", "0x37c8", "0x0b4000"], None);
        lay(root, "0000:02:00.0", ["0x1234", "0x0001", "0x100000"], None);
        let copied = "sys/bus/pci/devices/0000:02:00.0";
        let files = Files { root };
        assert_eq!(driver(files, copied), None);
        fs::write(root.join(copied).join("uevent"), "DRIVER=other\nPCI_ID=1234:0001\n").expect("writable");
        assert_eq!(driver(files, copied).as_deref(), Some("other"));
        fs::create_dir_all(root.join("proc")).expect("writable");
        let crypto =
            "name : cbc(aes)\ndriver : virtio_crypto_aes_cbc\nmodule : virtio_crypto\npriority : 150\n";
        fs::write(root.join("proc/crypto"), crypto).expect("writable");
        let machine = Machine::read(root);
        let names: Vec<String> = machine.accelerators.iter().map(Accelerator::name).collect();
        assert_eq!(
            names,
            ["virtio-crypto", "Intel QuickAssist (QAT) C62x (8960, 8970)", "unknown accelerator 1234:0001"]
        );
        let drivers: Vec<usize> = machine.accelerators.iter().map(|it| it.algorithms.len()).collect();
        assert_eq!(drivers, [1, 0, 0]);
        assert_eq!(machine.accelerators[0].device.driver.as_deref(), Some("virtio-pci"));
        assert_eq!(machine.interfaces, super::super::Interfaces::default());
    }
}
