//! Finds accelerators that are present but unused.

use super::{Finding, Inputs, Weight};
use crypto::machine::{Accelerator, Algorithm, Family};

/// The gain from an accelerator, as far as it is known.
const WORTH: &str = "not measured here; in a published test of VPN gateways an accelerator was 6.5 times as fast \
    as the CPU at 8 KB, and slower below 1 KB";

pub(super) fn findings(inputs: &Inputs) -> Vec<Finding> {
    let each = inputs.machine.accelerators.iter().filter_map(idle);
    each.chain(unreachable(inputs)).chain(outranked(inputs)).collect()
}

/// Why the kernel has no algorithm of a device.
fn idle(accelerator: &Accelerator) -> Option<Finding> {
    let device = &accelerator.device;
    let (family, name) = (device.family(), accelerator.name());
    if !accelerator.algorithms.is_empty() {
        return None;
    }
    let module = device.identity().map_or("its module", |id| id.module);
    let load = format!("modprobe {module} && dmesg | grep -i {}", module.split('_').next().unwrap_or(module));
    let mut mend = vec![load];
    if family == Family::Qat {
        mend.push(
            "install its firmware: apt install firmware-misc-nonfree (Debian 13: firmware-intel-misc)"
                .to_owned(),
        );
    }
    let at = format!("{:04x}:{:04x} at {}", device.vendor, device.device, device.address);
    let (id, what, evidence) = match &device.driver {
        None => {
            ("accelerator-without-driver", "has no driver", format!("{at} has no driver in /sys/bus/pci"))
        }
        Some(driver) if device.is_lent_to_a_program() => {
            mend =
                vec![format!("if no program uses the device: driverctl unset-override {}", device.address)];
            (
                "accelerator-lent",
                "is bound to a driver for use by a program",
                format!("{at} is bound to {driver}"),
            )
        }
        Some(driver) if device.state.as_deref() == Some("down") => {
            mend = vec![format!("echo up > /sys/bus/pci/devices/{}/qat/state", device.address)];
            ("accelerator-down", "is down", format!("{at}, bound to {driver}: qat/state is down"))
        }
        Some(_) if device.services.as_ref().is_some_and(|services| !services.contains("sym")) => {
            let services = device.services.as_deref().unwrap_or_default();
            let path = format!("/sys/bus/pci/devices/{}/qat", device.address);
            mend = vec![format!(
                "cd {path} && echo down > state && echo 'sym;asym' > cfg_services && echo up > state"
            )];
            (
                "accelerator-not-for-ciphers",
                "is configured for other services than ciphers",
                format!("{at}: cfg_services is {services}"),
            )
        }
        Some(driver) => (
            "accelerator-without-algorithm",
            "has a driver that offers no ciphers",
            format!("{at} is bound to {driver}, and /proc/crypto has no entry of that driver"),
        ),
    };
    // AMD's coprocessor is meant for memory encryption; as a cipher it is slower than the CPU.
    let slight = device.is_lent_to_a_program() || family == Family::AmdCcp;
    Some(Finding {
        name: id,
        weight: if slight { Weight::Note } else { Weight::Loss },
        what: format!("{name} {what}"),
        evidence,
        cost: WORTH.to_owned(),
        mend,
    })
}

/// Finds that accelerators work, but the kernel has no interface for programs to use them.
fn unreachable(inputs: &Inputs) -> Option<Finding> {
    let doors = inputs.machine.interfaces;
    let working = inputs.machine.accelerators.iter().find(|it| !it.algorithms.is_empty())?;
    (!doors.af_alg && !doors.cryptodev).then(|| Finding {
        name: "accelerator-unreachable",
        weight: Weight::Loss,
        what: format!("{} works, but programs cannot use it", working.name()),
        evidence: "the kernel has no AF_ALG (/proc/net/protocols, modules.dep), and there is no /dev/crypto"
            .to_owned(),
        cost: WORTH.to_owned(),
        mend: vec![
            "modprobe -a af_alg algif_skcipher algif_aead (a kernel with CONFIG_CRYPTO_USER_API_*)"
                .to_owned(),
            "or cryptodev-linux: apt install cryptodev-linux-dkms && modprobe cryptodev".to_owned(),
        ],
    })
}

/// Finds drivers of accelerators that the kernel does not select, because another driver has a higher priority.
fn outranked(inputs: &Inputs) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for accelerator in &inputs.machine.accelerators {
        let above = |own: &Algorithm| {
            let rivals = inputs.machine.algorithms.iter().filter(|it| {
                (&it.name, &it.kind) == (&own.name, &own.kind) && !it.internal && it.priority > own.priority
            });
            rivals.max_by_key(|it| it.priority).cloned()
        };
        let pairs: Vec<(&Algorithm, Algorithm)> =
            accelerator.algorithms.iter().filter_map(|own| Some((own, above(own)?))).collect();
        let Some((own, rival)) = pairs.first() else { continue };
        let what = format!("the kernel does not select {} by default", accelerator.name());
        if findings.iter().any(|finding| finding.what == what) {
            continue;
        }
        findings.push(Finding {
            name: "accelerator-outranked",
            weight: Weight::Loss,
            what,
            evidence: format!(
                "/proc/crypto, {} of {} algorithms; {}: {} has priority {}, {} has {}",
                pairs.len(),
                accelerator.algorithms.len(),
                own.name,
                own.driver,
                own.priority,
                rival.driver,
                rival.priority
            ),
            cost: "the kernel's own IPsec and programs that ask by name of the algorithm never use it; since Linux \
                   6.17 this is on purpose for QAT, whose waiting time most of them cannot bear"
                .to_owned(),
            mend: vec![
                "for Postern, which asks for the driver and measures it: set system acceleration qat".to_owned(),
                format!(
                    "for the kernel: crconf update driver \"{}\" type {} priority {}",
                    own.driver,
                    type_number(&own.kind),
                    rival.priority + 1
                ),
            ],
        });
    }
    findings
}

/// The number of an algorithm type for crconf (CRYPTO_ALG_TYPE in linux/crypto.h).
fn type_number(kind: &str) -> u8 {
    match kind {
        "aead" => 3,
        "kpp" => 8,
        "akcipher" => 13,
        "shash" => 14,
        "ahash" => 15,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::machine::Device;

    fn algorithm(driver: &str, priority: i32) -> Algorithm {
        Algorithm {
            name: "cbc(aes)".to_owned(),
            driver: driver.to_owned(),
            module: String::new(),
            priority,
            kind: "skcipher".to_owned(),
            internal: false,
            tested: true,
            is_async: true,
        }
    }

    fn qat(driver: Option<&str>, algorithms: Vec<Algorithm>) -> Accelerator {
        let device = Device {
            address: "0000:01:00.0".to_owned(),
            vendor: 0x8086,
            device: 0x4940,
            class: 0x0b40,
            driver: driver.map(str::to_owned),
            state: None,
            services: None,
        };
        Accelerator { device, algorithms }
    }

    fn inputs(accelerator: Accelerator) -> Inputs {
        let mut inputs = Inputs::default();
        inputs.machine.algorithms.clone_from(&accelerator.algorithms);
        inputs.machine.accelerators = vec![accelerator];
        inputs.machine.interfaces.af_alg = true;
        inputs
    }

    fn names(inputs: &Inputs) -> Vec<&'static str> {
        findings(inputs).into_iter().map(|finding| finding.name).collect()
    }

    #[test]
    fn an_accelerator_without_a_working_driver_is_found() {
        let found = findings(&inputs(qat(None, Vec::new())));
        assert_eq!((found[0].name, found[0].weight), ("accelerator-without-driver", Weight::Loss));
        assert_eq!(found[0].mend[0], "modprobe qat_4xxx && dmesg | grep -i qat");
        assert_eq!(names(&inputs(qat(Some("4xxx"), Vec::new()))), ["accelerator-without-algorithm"]);
        let mut device = qat(Some("4xxx"), Vec::new());
        device.device.state = Some("down".to_owned());
        assert_eq!(names(&inputs(device.clone())), ["accelerator-down"]);
        device.device.state = Some("up".to_owned());
        device.device.services = Some("dc".to_owned());
        assert_eq!(names(&inputs(device)), ["accelerator-not-for-ciphers"]);
        let lent = findings(&inputs(qat(Some("vfio-pci"), Vec::new())));
        assert_eq!((lent[0].name, lent[0].weight), ("accelerator-lent", Weight::Note));
    }

    #[test]
    fn an_accelerator_with_a_lower_priority_is_found() {
        let mut inputs = inputs(qat(Some("4xxx"), vec![algorithm("qat_aes_cbc", 100)]));
        assert_eq!(names(&inputs), Vec::<&str>::new());
        inputs.machine.algorithms.push(algorithm("cbc-aes-vaes-avx512", 800));
        let found = findings(&inputs);
        assert_eq!(found[0].name, "accelerator-outranked");
        assert!(found[0].evidence.ends_with("qat_aes_cbc has priority 100, cbc-aes-vaes-avx512 has 800"));
        inputs.machine.accelerators[0].algorithms[0].priority = 4001;
        assert_eq!(names(&inputs), Vec::<&str>::new());
    }

    #[test]
    fn an_accelerator_that_programs_cannot_use_is_found() {
        let mut inputs = inputs(qat(Some("4xxx"), vec![algorithm("qat_aes_cbc", 4001)]));
        inputs.machine.interfaces.af_alg = false;
        assert_eq!(names(&inputs), ["accelerator-unreachable"]);
        inputs.machine.interfaces.cryptodev = true;
        assert_eq!(names(&inputs), Vec::<&str>::new());
    }
}
