//! Finds missing crypto libraries, and what they would improve.

use super::{Finding, Inputs, Weight};
use crypto::engine::library::Unavailable;
use crypto::machine::Capability;

pub(super) fn findings(inputs: &Inputs) -> Vec<Finding> {
    inputs.absent.iter().filter_map(|(engine, reason)| finding(inputs, engine, reason)).collect()
}

fn finding(inputs: &Inputs, engine: &str, reason: &Unavailable) -> Option<Finding> {
    let processor = &inputs.machine.processor;
    let (package, brings) = match engine {
        "ipsec-mb" => (
            "libipsec-mb1",
            "AES-128-GCM of 64-byte packets 1.6 times as fast, with AVX-512 ChaCha20-Poly1305 1.7 times at 1400 bytes \
             (ipsec-mb 1.3 compared with AWS-LC on a virtual machine with AVX-512; to measure this machine: \
             postern bench crypto, once it is installed)",
        ),
        "openssl" => ("libssl3", "providers, such as QAT's, and ciphers that are slow in other libraries"),
        // The kernel interfaces only matter with a device behind them; see `bus`.
        _ => return None,
    };
    let useful = engine != "ipsec-mb" || processor.has(Capability::Aes);
    let weight = if engine == "ipsec-mb" && useful { Weight::Loss } else { Weight::Note };
    let (name, what, mend) = match reason {
        Unavailable::Processor(_) => return None,
        Unavailable::Static => (
            "program-static",
            format!("{engine} cannot be used, as this program is linked statically"),
            format!("use the package for this architecture that is not static, and: apt install {package}"),
        ),
        Unavailable::Missing(_) => {
            ("library-missing", format!("{engine} is not installed"), format!("apt install {package}"))
        }
        Unavailable::Version(version) => (
            "library-unknown",
            format!("{engine} has a version that is not supported: {version}"),
            format!("apt install {package}, or a newer Postern"),
        ),
        Unavailable::Symbol(_) | Unavailable::Refused(_) => (
            "library-broken",
            format!("{engine} is installed but does not work"),
            format!("apt install --reinstall {package}"),
        ),
    };
    let (evidence, cost) = (reason.to_string(), format!("it would provide: {brings}"));
    Some(Finding { name, weight, what, evidence, cost, mend: vec![mend] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::machine::Processor;

    #[test]
    fn a_missing_library_is_a_loss_only_where_it_would_help() {
        let mut inputs = Inputs::default();
        inputs.machine.processor = Processor::parse("flags : aes\n");
        inputs.absent = vec![
            ("ipsec-mb".to_owned(), Unavailable::Missing("libIPSec_MB.so.1")),
            ("openssl".to_owned(), Unavailable::Version("1.1.1w".to_owned())),
            ("af-alg".to_owned(), Unavailable::Missing("af_alg")),
        ];
        let found = findings(&inputs);
        let names: Vec<_> = found.iter().map(|finding| (finding.name, finding.weight)).collect();
        assert_eq!(names, [("library-missing", Weight::Loss), ("library-unknown", Weight::Note)]);
        assert_eq!(found[0].mend, ["apt install libipsec-mb1"]);
        inputs.absent = vec![("ipsec-mb".to_owned(), Unavailable::Processor("x86-64"))];
        assert_eq!(findings(&inputs), [], "the library does not exist for this processor");
    }

    #[test]
    fn a_static_program_is_told_from_a_missing_library() {
        let mut inputs = Inputs::default();
        inputs.machine.processor = Processor::parse("flags : aes\n");
        inputs.absent = vec![("ipsec-mb".to_owned(), Unavailable::Static)];
        let found = findings(&inputs);
        assert_eq!((found[0].name, found[0].weight), ("program-static", Weight::Loss));
        assert!(found[0].mend[0].contains("not static"), "{:?}", found[0].mend);
    }
}
