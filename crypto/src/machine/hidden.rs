//! Features of a processor that its flags do not show, because a hypervisor or the firmware hides them.

use super::{Capability, Processor};

/// Whether all processors of a model have AES, and why that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// All have it.
    Sure(&'static str),
    /// Some have it, or one is assumed.
    Likely(&'static str),
}

/// What hides a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hider {
    /// The hypervisor.
    Hypervisor,
    /// The firmware: BIOS or UEFI.
    Firmware,
}

/// What hides the AES instructions of a processor without the flag; `None` if it has the flag, or if no AES is known of its model.
pub fn hidden_aes(processor: &Processor) -> Option<(Hider, Certainty)> {
    if processor.has(Capability::Aes) {
        return None;
    }
    let hider = if processor.is_virtual() { Hider::Hypervisor } else { Hider::Firmware };
    Some((hider, model_has_aes(processor)?))
}

/// Whether processors of a model have AES; `None` if they do not, or if it is unknown.
fn model_has_aes(processor: &Processor) -> Option<Certainty> {
    let (family, model) = processor.numbers;
    let generic = ["QEMU Virtual CPU", "Common KVM processor", "Common 32-bit KVM"];
    if generic.iter().any(|name| processor.model.contains(name)) {
        return Some(Certainty::Sure(
            "a generic model of the hypervisor, which hides the features of the CPU",
        ));
    }
    match processor.vendor.as_str() {
        "GenuineIntel" if family == 6 => intel(&processor.model, model),
        "AuthenticAMD" | "HygonGenuine" if family >= 0x15 => {
            Some(Certainty::Sure("all AMD processors of this family have AES"))
        }
        _ if processor.model.starts_with("ARM Neoverse") => {
            Some(Certainty::Likely("servers with a Neoverse core usually have AES, but a vendor may omit it"))
        }
        _ => None,
    }
}

/// Intel has sold processors of one model with AES and without it. From Westmere (0x25) on, the more expensive ones
/// have it; from Skylake (0x4e) and Goldmont (0x5c) on, all have it.
fn intel(name: &str, model: u32) -> Option<Certainty> {
    // 0x5d, 0x65, 0x6e and 0x75 are not used in computers; 0x27, 0x35 and 0x36 are Atoms; 0x2e is Nehalem-EX.
    let is_odd = [0x27, 0x2e, 0x35, 0x36, 0x5d, 0x65, 0x6e, 0x75].contains(&model);
    let all_have = matches!(model, 0x4e | 0x55 | 0x5e) || model >= 0x5c;
    // Some Core i5 of model 0x25 lack it.
    let is_dear =
        name.contains("Xeon") || model > 0x25 && ["i5-", "i7-", "i9-"].iter().any(|it| name.contains(it));
    match model {
        _ if is_odd || model < 0x25 => None,
        _ if all_have => Some(Certainty::Sure("all Intel processors of this generation have AES")),
        _ if is_dear => Some(Certainty::Sure("all Intel processors of this name have AES")),
        _ => Some(Certainty::Likely("some Intel processors of this model have AES, and some do not")),
    }
}

/// Whether all processors of a name have QuickAssist beside their cores, so that a machine without the device hides it.
///
/// Of Intel's generations with it, only some models have it: Atom C2xx8 and C3xx8, Atom P5xxx, Xeon D with N in the suffix, and Xeon
/// from Sapphire Rapids on with N, H or + at the end.
pub fn has_qat_in_truth(processor: &Processor) -> bool {
    let (family, model) = processor.numbers;
    if processor.vendor != "GenuineIntel" || family != 6 {
        return false;
    }
    let cleaned = processor.model.replace("(R)", " ").replace("(TM)", " ");
    let is_number = |word: &&str| word.bytes().filter(u8::is_ascii_digit).count() >= 4;
    let Some(name) = cleaned.split_whitespace().find(is_number) else { return false };
    let suffix = name
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .trim_start_matches(|c: char| c.is_ascii_digit());
    match model {
        0x4d | 0x5f => name.starts_with('C') && name.ends_with('8'),
        0x86 => name.starts_with('P'),
        0x55 | 0x56 | 0x6c => name.starts_with("D-") && suffix.contains('N'),
        0x8f | 0xcf | 0xad | 0xae => suffix.contains(['N', 'H', '+']),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_aes_names_who_hides_it_and_how_sure_that_is() {
        let of = |cpuinfo: &str| hidden_aes(&Processor::parse(cpuinfo));
        let intel = "vendor_id : GenuineIntel\ncpu family : 6\n";
        let hidden = of(&format!("{intel}model : 143\nflags : fpu hypervisor\n"));
        assert!(matches!(hidden, Some((Hider::Hypervisor, Certainty::Sure(_)))), "{hidden:?}");
        let guess = of(&format!("{intel}model : 58\nmodel name : Intel(R) Pentium(R)\nflags : fpu\n"));
        assert!(matches!(guess, Some((Hider::Firmware, Certainty::Likely(_)))), "{guess:?}");
        assert_eq!(of(&format!("{intel}model : 143\nflags : fpu aes\n")), None);
        assert_eq!(of("vendor_id : Other\nflags : fpu hypervisor\n"), None, "an unknown model");
    }

    #[test]
    fn processors_that_all_have_an_accelerator_are_known() {
        let of = |model: u32, name: &str| {
            has_qat_in_truth(&Processor::parse(&format!(
                "vendor_id : GenuineIntel\ncpu family : 6\nmodel : {model}\nmodel name : {name}\n"
            )))
        };
        for (model, name) in [
            (0x5f, "Intel(R) Atom(TM) CPU C3758 @ 2.20GHz"),
            (0x4d, "Intel(R) Atom(TM) CPU  C2758  @ 2.40GHz"),
            (0x6c, "Intel(R) Xeon(R) D-2796NT CPU @ 2.00GHz"),
            (0x55, "Intel(R) Xeon(R) D-2146NT CPU @ 2.30GHz"),
            (0x8f, "Intel(R) Xeon(R) Gold 6438N"),
            (0x8f, "Intel(R) Xeon(R) Platinum 8480+"),
            (0x86, "Intel(R) Atom(TM) P5362 processor"),
        ] {
            assert!(of(model, name), "{name}");
        }
        for (model, name) in [
            (0x5f, "Intel(R) Atom(TM) CPU C3950 @ 1.70GHz"),
            (0x8f, "Intel(R) Xeon(R) Gold 6430"),
            (0x55, "Intel(R) Xeon(R) Gold 6148N CPU @ 2.40GHz"),
            (0x8f, "Intel(R) Xeon(R) Processor"),
            (0x9e, "Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz"),
        ] {
            assert!(!of(model, name), "{name}");
        }
    }
}
