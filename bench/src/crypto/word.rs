//! Capability variables: environment variables that make crypto libraries avoid CPU features.
//!
//! OpenSSL and AWS-LC read `OPENSSL_ia32cap` on x86 and `OPENSSL_armcap` on ARM, AWS-LC on 64-bit ARM only. libIPSec_MB reads none.

use crypto::machine::{Capability, Processor};

/// The bits of a CPU feature in the first and the second word of `OPENSSL_ia32cap` (OPENSSL_ia32cap(3)).
fn x86_bits(capability: Capability) -> [u64; 2] {
    match capability {
        Capability::Aes => [1 << 57, 0],
        Capability::CarrylessMultiply => [1 << 33, 0],
        Capability::Sha => [0, 1 << 29],
        Capability::VectorAes => [0, 1 << 41 | 1 << 42],
        Capability::Avx2 => [0, 1 << 5],
        // F, DQ, IFMA, BW and VL.
        Capability::Avx512 => [0, 1 << 16 | 1 << 17 | 1 << 21 | 1 << 30 | 1 << 31],
        Capability::Neon => [0, 0],
    }
}

/// The bits of a CPU feature in `OPENSSL_armcap` (arm_arch.h).
fn arm_bits(capability: Capability) -> u64 {
    match capability {
        Capability::Neon => 1,
        Capability::Aes => 1 << 2,
        Capability::Sha => 1 << 3 | 1 << 4,
        Capability::CarrylessMultiply => 1 << 5,
        Capability::VectorAes | Capability::Avx2 | Capability::Avx512 => 0,
    }
}

/// The features for cryptography.
pub const CRYPTO: &[Capability] =
    &[Capability::Aes, Capability::CarrylessMultiply, Capability::Sha, Capability::VectorAes];
/// The features for cryptography, and vector instructions.
pub const SIMD: &[Capability] = &[
    Capability::Aes,
    Capability::CarrylessMultiply,
    Capability::Sha,
    Capability::VectorAes,
    Capability::Avx2,
    Capability::Avx512,
    Capability::Neon,
];

/// Whether an engine reads the variable for this processor.
pub fn is_heeded_by(engine: &str, processor: &Processor) -> bool {
    match engine {
        "openssl" => true,
        // A program of 32 bits may run on a kernel of 64.
        "aws-lc" => !cfg!(target_arch = "arm") && !processor.architecture.starts_with("arm"),
        _ => false,
    }
}

/// The variable for a processor architecture, if there is one.
pub fn variable(architecture: &str) -> Option<&'static str> {
    match architecture {
        "x86_64" | "x86" | "i686" | "i386" => Some("OPENSSL_ia32cap"),
        "aarch64" | "arm" | "armv7l" | "armv8l" => Some("OPENSSL_armcap"),
        _ => None,
    }
}

/// The variable, and the value that disables `hidden` on `processor`.
pub fn hiding(hidden: &[Capability], processor: &Processor) -> Option<(&'static str, String)> {
    let variable = variable(&processor.architecture)?;
    if variable == "OPENSSL_armcap" {
        // For OpenSSL the value lists all available features.
        let left = processor.capabilities().into_iter().filter(|it| !hidden.contains(it));
        return Some((variable, left.map(arm_bits).fold(0, |all, bits| all | bits).to_string()));
    }
    let words =
        hidden.iter().map(|&it| x86_bits(it)).fold([0, 0], |all, it| [all[0] | it[0], all[1] | it[1]]);
    // Give both words: OpenSSL treats a missing second word as zero.
    let value = format!("~{:#x}:~{:#x}", words[0], words[1]);
    Some((variable, value))
}

/// The features of `processor` that a value of the variable disables in `engine`.
pub fn hidden_by(variable: &str, value: &str, processor: &Processor, engine: &str) -> Vec<Capability> {
    if !is_heeded_by(engine, processor) {
        return Vec::new();
    }
    let mut words = value.split(':');
    let first = words.next().unwrap_or_default();
    let second = words.next().unwrap_or(if engine == "openssl" { "0" } else { "" });
    let is_hidden = |&capability: &Capability| {
        if variable == "OPENSSL_armcap" {
            return hides(first, arm_bits(capability));
        }
        let bits = x86_bits(capability);
        hides(first, bits[0]) || hides(second, bits[1])
    };
    processor.capabilities().into_iter().filter(is_hidden).collect()
}

/// Whether a word such as `~0x20`, `|0x20` or `0x20` clears any of these bits.
fn hides(word: &str, bits: u64) -> bool {
    match (word.strip_prefix('~'), word.is_empty() || word.starts_with('|')) {
        _ if bits == 0 => false,
        (Some(without), _) => number(without) & bits != 0,
        (None, true) => false,
        (None, false) => number(word) & bits != bits,
    }
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap_or(0),
        None => text.parse().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86() -> Processor {
        let mut processor = Processor::parse("flags : aes pclmulqdq sha_ni vaes avx2 avx512bw\n");
        "x86_64".clone_into(&mut processor.architecture);
        processor
    }

    #[test]
    fn a_value_without_a_second_word_disables_more_in_openssl() {
        let hidden = |engine| hidden_by("OPENSSL_ia32cap", "~0x200000200000000", &x86(), engine);
        assert_eq!(hidden("aws-lc"), [Capability::Aes, Capability::CarrylessMultiply]);
        assert_eq!(hidden("openssl"), x86().capabilities());
    }

    #[test]
    fn a_generated_value_disables_the_same_in_both_libraries() {
        for hidden in [CRYPTO, &[Capability::Aes], &[Capability::VectorAes], &[Capability::Avx512]] {
            let (variable, value) = hiding(hidden, &x86()).expect("x86 has a variable");
            for engine in ["aws-lc", "openssl"] {
                assert_eq!(hidden_by(variable, &value, &x86(), engine), hidden, "{value}");
            }
        }
        assert_eq!(hidden_by("OPENSSL_ia32cap", ":~0", &x86(), "openssl"), []);
        assert_eq!(hidden_by("OPENSSL_ia32cap", "0:0", &x86(), "aws-lc"), x86().capabilities());
    }

    #[test]
    fn the_value_for_arm_lists_the_remaining_features() {
        let mut processor = Processor::parse("Features : asimd aes pmull sha1 sha2\n");
        "aarch64".clone_into(&mut processor.architecture);
        assert_eq!(hiding(CRYPTO, &processor), Some(("OPENSSL_armcap", "1".to_owned())));
        assert_eq!(hidden_by("OPENSSL_armcap", "1", &processor, "openssl").len(), 3);
        assert_eq!(hidden_by("OPENSSL_armcap", "0x3d", &processor, "aws-lc"), []);
        // On 32-bit ARM AWS-LC does not read it.
        "armv7l".clone_into(&mut processor.architecture);
        assert!(is_heeded_by("openssl", &processor) && !is_heeded_by("aws-lc", &processor));
        assert_eq!(hidden_by("OPENSSL_armcap", "1", &processor, "aws-lc"), []);
    }
}
