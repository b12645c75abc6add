//! The processor, from `/proc/cpuinfo`.

use super::files::Files;

/// CPU features that make ciphers, hashes or copies fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// AES instructions.
    Aes,
    /// Carry-less multiplication, for the GHASH of GCM.
    CarrylessMultiply,
    /// SHA-1 and SHA-256 instructions.
    Sha,
    /// Vector AES: instructions for two or four blocks at once.
    VectorAes,
    /// 256-bit integer vectors.
    Avx2,
    /// 512-bit integer vectors.
    Avx512,
    /// ARM's 128-bit vectors.
    Neon,
}

impl Capability {
    /// All features.
    pub const ALL: &[Self] = &[
        Self::Aes,
        Self::CarrylessMultiply,
        Self::Sha,
        Self::VectorAes,
        Self::Avx2,
        Self::Avx512,
        Self::Neon,
    ];

    /// The name used in reports about x86; [`Processor::name_of`] is that of any processor.
    fn name(self) -> &'static str {
        match self {
            Self::Aes => "AES",
            Self::CarrylessMultiply => "PCLMUL",
            Self::Sha => "SHA",
            Self::VectorAes => "VAES",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
            Self::Neon => "NEON",
        }
    }

    /// What the feature speeds up.
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Aes => "AES in every mode",
            Self::CarrylessMultiply => "the tag of AES-GCM",
            Self::Sha => "SHA-1 and SHA-256",
            Self::VectorAes => "AES-GCM and AES-CTR, several blocks at once",
            Self::Avx2 | Self::Neon => "ChaCha20-Poly1305, checksums, copies",
            Self::Avx512 => "ChaCha20-Poly1305 and VAES at full width",
        }
    }

    /// The flags in `/proc/cpuinfo`, any of which means this feature.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Aes => &["aes"],
            Self::CarrylessMultiply => &["pclmulqdq", "pmull"],
            Self::Sha => &["sha_ni", "sha2"],
            Self::VectorAes => &["vaes"],
            Self::Avx2 => &["avx2"],
            Self::Avx512 => &["avx512bw"],
            Self::Neon => &["asimd", "neon"],
        }
    }
}

/// Bytes of `/proc/cpuinfo`.
const CPUINFO: u64 = 16 << 20;

/// A processor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processor {
    /// The architecture as the kernel names it, such as `x86_64`.
    pub architecture: String,
    /// The vendor; empty if the kernel does not report it.
    pub vendor: String,
    /// The model name.
    pub model: String,
    /// x86: family and model number. ARM: implementer and part.
    pub numbers: (u32, u32),
    /// Number of processors online.
    pub count: usize,
    /// The current frequency in MHz, if the kernel reports it.
    pub megahertz: Option<f64>,
    /// All flags, as named by the kernel.
    pub flags: Vec<String>,
    /// The hypervisor, if this is a virtual machine.
    pub hypervisor: Option<String>,
}

impl Processor {
    /// Whether it is of the x86 family.
    pub fn is_x86(&self) -> bool {
        matches!(self.architecture.as_str(), "x86_64" | "x86" | "i686")
    }

    /// What the manuals of this processor call a feature.
    pub fn name_of(&self, capability: Capability) -> &'static str {
        match capability {
            Capability::CarrylessMultiply if !self.is_x86() => "PMULL",
            _ => capability.name(),
        }
    }

    pub(super) fn read(files: Files<'_>) -> Self {
        let text = |path: &str| files.text(path).unwrap_or_default();
        // A line of flags has 2 kB, and a large server has a thousand processors.
        let cpuinfo = files.text_of("proc/cpuinfo", CPUINFO).unwrap_or_default();
        let mut processor = Self::parse(&cpuinfo);
        processor.architecture = match text("proc/sys/kernel/arch").trim() {
            "" => std::env::consts::ARCH.to_owned(),
            named => named.to_owned(),
        };
        let khz: Option<f64> =
            text("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq").trim().parse().ok();
        processor.megahertz = khz.map(|khz| khz / 1e3).or(processor.megahertz);
        let made = text("sys/class/dmi/id/sys_vendor") + &text("sys/class/dmi/id/product_name");
        let kind = text("sys/hypervisor/type");
        // A guest's kernel uses the hypervisor's clock source if there is one, even if the firmware does not name the
        // hypervisor.
        let clocks = text("sys/devices/system/clocksource/clocksource0/available_clocksource");
        processor.hypervisor = hypervisor(&(made + &clocks), kind.trim(), processor.has_flag("hypervisor"));
        processor
    }

    /// Parses `/proc/cpuinfo`.
    pub fn parse(cpuinfo: &str) -> Self {
        let field = |names: &[&str]| {
            let pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            let mut values =
                pairs.filter(|(name, _)| names.contains(&name.trim())).map(|(_, value)| value.trim());
            values.next().unwrap_or_default().to_owned()
        };
        let (implementer, part) = (number(&field(&["CPU implementer"])), number(&field(&["CPU part"])));
        let is_arm = part != 0;
        let numbers = if is_arm {
            (implementer, part)
        } else {
            (number(&field(&["cpu family"])), number(&field(&["model"])))
        };
        let named = core_name(implementer, part).map(str::to_owned);
        Self {
            architecture: String::new(),
            vendor: field(&["vendor_id"]),
            model: named.unwrap_or_else(|| field(&["model name", "cpu model", "Hardware"])),
            numbers,
            count: cpuinfo.lines().filter(|line| is_a_processor(line)).count(),
            megahertz: field(&["cpu MHz"]).parse().ok(),
            flags: field(&["flags", "Features"]).split_whitespace().map(str::to_owned).collect(),
            hypervisor: None,
        }
    }

    /// Whether the kernel lists this flag.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    /// Whether the processor has this feature.
    pub fn has(&self, capability: Capability) -> bool {
        capability.flags().iter().any(|flag| self.has_flag(flag))
    }

    /// Whether it is that of a virtual machine.
    pub fn is_virtual(&self) -> bool {
        self.hypervisor.is_some() || self.has_flag("hypervisor")
    }

    /// All features of the processor.
    pub fn capabilities(&self) -> Vec<Capability> {
        Capability::ALL.iter().copied().filter(|&capability| self.has(capability)).collect()
    }
}

/// Matches lines such as `processor : 3`, but not `Processor : ARMv7 ...`, the first line of old ARM kernels.
fn is_a_processor(line: &str) -> bool {
    line.split_once(':')
        .is_some_and(|(name, value)| name.trim() == "processor" && value.trim().parse::<u32>().is_ok())
}

fn number(text: &str) -> u32 {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).unwrap_or(0),
        None => text.parse().unwrap_or(0),
    }
}

/// The name of an ARM core: the kernel prints only implementer and part number.
fn core_name(implementer: u32, part: u32) -> Option<&'static str> {
    Some(match (implementer, part) {
        (0x41, 0xc07) => "ARM Cortex-A7",
        (0x41, 0xc09) => "ARM Cortex-A9",
        (0x41, 0xc0f) => "ARM Cortex-A15",
        (0x41, 0xd03) => "ARM Cortex-A53",
        (0x41, 0xd04) => "ARM Cortex-A35",
        (0x41, 0xd05) => "ARM Cortex-A55",
        (0x41, 0xd07) => "ARM Cortex-A57",
        (0x41, 0xd08) => "ARM Cortex-A72",
        (0x41, 0xd09) => "ARM Cortex-A73",
        (0x41, 0xd0b) => "ARM Cortex-A76",
        (0x41, 0xd0c) => "ARM Neoverse-N1",
        (0x41, 0xd40) => "ARM Neoverse-V1",
        (0x41, 0xd49) => "ARM Neoverse-N2",
        (0x41, 0xd4f) => "ARM Neoverse-V2",
        (0x51, 0x04d | 0x06f) => "Qualcomm Krait",
        _ => return None,
    })
}

/// Finds the hypervisor from firmware names and clock sources (`made`), and from `/sys/hypervisor/type` (`kind`).
fn hypervisor(made: &str, kind: &str, flagged: bool) -> Option<String> {
    let known = [
        ("KVM", "KVM"),
        ("QEMU", "KVM or QEMU"),
        ("Amazon EC2", "Amazon EC2"),
        ("Google", "Google Compute Engine"),
        ("VMware", "VMware"),
        ("VirtualBox", "VirtualBox"),
        ("Microsoft", "Hyper-V"),
        ("OpenStack", "OpenStack"),
        ("Yandex", "Yandex Cloud"),
        ("Xen", "Xen"),
        ("kvm-clock", "KVM"),
        ("hyperv_clocksource", "Hyper-V"),
    ];
    let named = known.iter().find(|(sign, _)| made.contains(sign) && flagged);
    match (named, kind) {
        (Some((_, name)), _) => Some((*name).to_owned()),
        (None, "") => flagged.then(|| "of an unknown kind".to_owned()),
        (None, kind) => Some(kind.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XEON: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
        model name\t: Intel(R) Xeon(R) Processor\ncpu MHz\t\t: 2000.000\n\
        flags\t\t: fpu sse2 pclmulqdq aes avx2 hypervisor avx512bw sha_ni vaes\n\nprocessor\t: 1\n\
        model\t\t: 143\nflags\t\t: fpu\n";
    const NEOVERSE: &str = "processor\t: 0\nBogoMIPS\t: 243.75\n\
        Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics\nCPU implementer\t: 0x41\n\
        CPU architecture: 8\nCPU part\t: 0xd0c\n";
    const ROUTER: &str = "Processor\t: ARMv7 Processor rev 0 (v7l)\nprocessor\t: 0\n\nprocessor\t: 1\n\n\
        Features\t: swp half thumb fastmult vfp edsp neon vfpv3 tls vfpv4\nCPU implementer\t: 0x51\n\
        CPU part\t: 0x06f\nHardware\t: Qualcomm (Flattened Device Tree)\n";

    #[test]
    fn an_x86_processor_is_read() {
        let processor = Processor::parse(XEON);
        assert_eq!((processor.model.as_str(), processor.numbers), ("Intel(R) Xeon(R) Processor", (6, 143)));
        assert_eq!((processor.count, processor.megahertz), (2, Some(2000.0)));
        let names: Vec<&str> = processor.capabilities().into_iter().map(Capability::name).collect();
        assert_eq!(names, ["AES", "PCLMUL", "SHA", "VAES", "AVX2", "AVX-512"]);
    }

    #[test]
    fn arm_processors_are_read() {
        let server = Processor::parse(NEOVERSE);
        assert_eq!((server.model.as_str(), server.count), ("ARM Neoverse-N1", 1));
        let names: Vec<&str> = server.capabilities().into_iter().map(Capability::name).collect();
        assert_eq!(names, ["AES", "PCLMUL", "SHA", "NEON"]);
        let router = Processor::parse(ROUTER);
        assert_eq!((router.model.as_str(), router.count), ("Qualcomm Krait", 2));
        assert!(router.has(Capability::Neon) && !router.has(Capability::Aes));
        assert_eq!(router.name_of(Capability::CarrylessMultiply), "PMULL");
    }

    #[test]
    fn a_hypervisor_is_named_as_well_as_can_be() {
        assert_eq!(hypervisor("kvm-clock tsc", "", true).as_deref(), Some("KVM"));
        assert_eq!(hypervisor("QEMU\nStandard PC", "", true).as_deref(), Some("KVM or QEMU"));
        assert_eq!(hypervisor("", "xen", false).as_deref(), Some("xen"));
        assert_eq!(hypervisor("", "", true).as_deref(), Some("of an unknown kind"));
        assert_eq!(hypervisor("Microsoft Corporation\nSurface", "", false), None);
    }
}
