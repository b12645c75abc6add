//! Finds CPU features that a library, a variable, a hypervisor, the firmware or this build leaves unused.

use super::{Finding, Inputs, MATTERS, Trial, Weight, gigabytes};
use crate::crypto::word;
use crypto::machine::{Capability, Certainty, Hider, Processor, hidden_aes};

pub(super) fn findings(inputs: &Inputs) -> Vec<Finding> {
    [words(inputs), ignored(inputs), hidden(&inputs.machine.processor), build(inputs)].concat()
}

/// Finds variables that disable features of the CPU.
fn words(inputs: &Inputs) -> Vec<Finding> {
    inputs.words.iter().filter_map(|(variable, value)| word_set(inputs, variable, value)).collect()
}

fn word_set(inputs: &Inputs, variable: &str, value: &str) -> Option<Finding> {
    let processor = &inputs.machine.processor;
    // The variable disables at least as much in OpenSSL as in AWS-LC.
    let hidden = word::hidden_by(variable, value, processor, "openssl");
    if hidden.is_empty() || word::variable(&processor.architecture) != Some(variable) {
        return None;
    }
    let from_both = word::hidden_by(variable, value, processor, "aws-lc");
    let names = |of: &[Capability]| of.iter().map(|it| processor.name_of(*it)).collect::<Vec<_>>().join(", ");
    let what = if from_both == hidden {
        format!("{variable} disables {} in OpenSSL and AWS-LC", names(&hidden))
    } else {
        let both = if from_both.is_empty() { "nothing".to_owned() } else { names(&from_both) };
        format!("{variable} disables {} in OpenSSL, and {both} in AWS-LC", names(&hidden))
    };
    let freed = inputs.trials.iter().filter_map(|trial| Some((trial, trial.freed?)));
    let worst = freed.max_by(|a, b| (a.1 / a.0.speed).total_cmp(&(b.1 / b.0.speed)));
    let cost = worst.map(|(trial, freed)| {
        let (now, then) = (gigabytes(trial.speed), gigabytes(freed));
        format!("{} in {}: {now}, without the variable {then}", trial.subject, trial.engine)
    });
    Some(Finding {
        name: "capability-word",
        weight: Weight::Loss,
        what,
        evidence: format!("{variable}={value} in this environment; /proc/cpuinfo has {}", names(&hidden)),
        cost: cost.unwrap_or_else(|| "not measured".to_owned()),
        mend: vec![format!("unset {variable}"), format!("in a systemd unit: UnsetEnvironment={variable}")],
    })
}

/// Finds libraries that are no faster with an instruction than without it.
fn ignored(inputs: &Inputs) -> Vec<Finding> {
    let processor = &inputs.machine.processor;
    let ignores = |trial: &&Trial| trial.is_indifferent() && processor.has(trial.capability);
    inputs.trials.iter().filter(ignores).map(|trial| ignoring(inputs, trial)).collect()
}

fn ignoring(inputs: &Inputs, trial: &Trial) -> Finding {
    let capability = trial.capability;
    let name = inputs.machine.processor.name_of(capability);
    let rivals = inputs.trials.iter().filter(|it| (it.capability, it.subject) == (capability, trial.subject));
    let fastest = rivals.max_by(|a, b| a.at_best().total_cmp(&b.at_best())).unwrap_or(trial);
    let is_beaten = fastest.at_best() > trial.at_best() * MATTERS;
    let (speed, without) = (gigabytes(trial.at_best()), gigabytes(trial.without.unwrap_or(f64::NAN)));
    Finding {
        name: "library-ignores-cpu",
        weight: if is_beaten { Weight::Note } else { Weight::Loss },
        what: format!("{} does not use {} for {}", trial.engine, name, trial.subject),
        evidence: format!(
            "{} of {} bytes: {speed} with it, {without} without; /proc/cpuinfo has it",
            trial.subject, trial.size
        ),
        cost: if is_beaten {
            let ratio = fastest.at_best() / trial.at_best();
            format!("{} is {ratio:.1} times as fast ({})", fastest.engine, gigabytes(fastest.at_best()))
        } else {
            format!("no library on this machine uses {}, which speeds up {}", name, capability.purpose())
        },
        mend: if is_beaten {
            vec![format!(
                "nothing to do for Postern, which uses {}; programs that only use {} are slower",
                fastest.engine, trial.engine
            )]
        } else if inputs.absent.is_empty() {
            vec!["update the libraries: apt install --only-upgrade libssl3 libipsec-mb1".to_owned()]
        } else {
            let names: Vec<&str> = inputs.absent.iter().map(|(name, _)| name.as_str()).collect();
            vec![format!("install the missing libraries: {}", names.join(", "))]
        },
    }
}

/// Finds AES instructions that a hypervisor hides, or that the firmware has disabled.
fn hidden(processor: &Processor) -> Vec<Finding> {
    let Some((hider, certainty)) = hidden_aes(processor) else { return Vec::new() };
    let (why, weight, verbs) = match certainty {
        Certainty::Sure(why) => (why, Weight::Loss, ["hides", "has disabled"]),
        Certainty::Likely(why) => (why, Weight::Note, ["may hide", "may have disabled"]),
    };
    let (family, model) = processor.numbers;
    let evidence =
        format!("{} (family {family}, model {model}): {why}; /proc/cpuinfo has no flag aes", processor.model);
    let cost = "AES-GCM without these instructions, several times slower (postern bench crypto shows it on a processor that \
        has them); ChaCha20-Poly1305 is not affected";
    let (name, what, mend) = if hider == Hider::Hypervisor {
        let mend = [
            "libvirt, on the host: virsh edit NAME, <cpu mode='host-passthrough'/>",
            "Proxmox, on the host: qm set ID --cpu host",
            "qemu: -cpu host; VMware: a newer EVC mode; Hyper-V: no processor compatibility mode",
        ];
        let what = format!("the hypervisor {} the processor's AES instructions", verbs[0]);
        ("hypervisor-hides-aes", what, mend.to_vec())
    } else {
        let mend =
            ["in the firmware settings, under processor features: enable AES-NI, or load the defaults"];
        let what = format!("the firmware {} the processor's AES instructions", verbs[1]);
        ("firmware-hides-aes", what, mend.to_vec())
    };
    let (cost, mend) = (cost.to_owned(), mend.into_iter().map(str::to_owned).collect());
    vec![Finding { name, weight, what, evidence, cost, mend }]
}

/// Finds that this program was built for a lesser machine. Ciphers select their instructions at run time; other code
/// cannot.
fn build(inputs: &Inputs) -> Vec<Finding> {
    let (build, processor) = (&inputs.build, &inputs.machine.processor);
    let mut findings = Vec::new();
    let mut find = |name, what: String, evidence: String, cost: &str, mend: &str| {
        let (cost, mend) = (cost.to_owned(), vec![mend.to_owned()]);
        findings.push(Finding { name, weight: Weight::Loss, what, evidence, cost, mend });
    };
    let (built, runs) = (build.architecture.as_str(), processor.architecture.as_str());
    if let ("x86", "x86_64") | ("arm", "aarch64") = (built, runs) {
        find(
            "build-of-32-bits",
            format!("this program is built for {built} and runs on {runs}"),
            format!("the kernel is {runs}"),
            "half the registers, and AES-GCM without its fastest code",
            &format!("install the program for {runs}, or build it there: make install"),
        );
    }
    if built == "arm" && !build.neon && processor.has(Capability::Neon) {
        find(
            "build-without-neon",
            "this program is built for ARM processors without NEON".to_owned(),
            format!("/proc/cpuinfo of {} has neon; the build does not", processor.model),
            "a packet of 64 bytes takes 8% more instructions to seal, and each division calls a function: docs/arm.md",
            "build the packages for this core, and install them: make dist TARGET=armv7-cortex-a15; scripts/cross.sh list names other cores",
        );
    }
    if build.debug {
        find(
            "build-for-debugging",
            "this program is a debug build".to_owned(),
            "debug assertions are on".to_owned(),
            "checks that a release build omits; without optimization the data path is several times slower",
            "make install",
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86(model: &str, numbers: (u32, u32), flags: &str) -> Processor {
        let text = format!(
            "vendor_id : GenuineIntel\ncpu family : {}\nmodel : {}\nmodel name : {model}\nflags : {flags}\n",
            numbers.0, numbers.1
        );
        let mut processor = Processor::parse(&text);
        "x86_64".clone_into(&mut processor.architecture);
        processor
    }

    fn inputs(processor: Processor) -> Inputs {
        let mut inputs = Inputs::default();
        inputs.machine.processor = processor;
        inputs
    }

    fn trial(engine: &str, speed: f64, without: Option<f64>) -> Trial {
        Trial {
            capability: Capability::VectorAes,
            subject: "aes-256-gcm",
            size: 8192,
            engine: engine.to_owned(),
            speed,
            without,
            freed: None,
        }
    }

    fn names(findings: &[Finding]) -> Vec<(&str, Weight)> {
        findings.iter().map(|finding| (finding.name, finding.weight)).collect()
    }

    #[test]
    fn a_library_that_does_not_use_a_feature_is_found() {
        let mut inputs = inputs(x86("Xeon", (6, 143), "aes pclmulqdq vaes"));
        inputs.trials = vec![
            trial("aws-lc", 9e9, Some(4e9)),
            trial("openssl", 4e9, Some(4e9)),
            trial("ipsec-mb", 8e9, None),
        ];
        let found = findings(&inputs);
        assert_eq!(names(&found), [("library-ignores-cpu", Weight::Note)]);
        assert!(found[0].what.starts_with("openssl does not use VAES"));
        assert!(found[0].cost.starts_with("aws-lc is 2.2 times as fast"), "{}", found[0].cost);
        inputs.trials.retain(|trial| trial.engine == "openssl");
        assert_eq!(
            names(&findings(&inputs)),
            [("library-ignores-cpu", Weight::Loss)],
            "no other library is faster"
        );
        inputs.machine.processor = x86("Xeon", (6, 85), "aes pclmulqdq");
        assert_eq!(findings(&inputs), [], "the processor lacks the feature");
    }

    #[test]
    fn a_variable_that_disables_instructions_is_found_with_its_cost() {
        let mut inputs = inputs(x86("Xeon", (6, 143), "aes pclmulqdq"));
        inputs.words = vec![("OPENSSL_ia32cap".to_owned(), "~0x200000200000000".to_owned())];
        let trial =
            Trial { capability: Capability::Aes, freed: Some(5e9), ..trial("openssl", 3e8, Some(3e8)) };
        inputs.trials = vec![trial];
        let found = findings(&inputs);
        assert_eq!(names(&found), [("capability-word", Weight::Loss)], "the library is not at fault");
        assert!(found[0].cost.contains("0.30 GB/s, without the variable 5.00 GB/s"), "{}", found[0].cost);
        assert!(found[0].what.starts_with("OPENSSL_ia32cap disables AES, PCLMUL in OpenSSL and AWS-LC"));
        inputs.machine.processor = x86("Xeon", (6, 143), "aes pclmulqdq sha_ni");
        let what = &findings(&inputs)[0].what;
        assert_eq!(what, "OPENSSL_ia32cap disables AES, PCLMUL, SHA in OpenSSL, and AES, PCLMUL in AWS-LC");
        inputs.words[0].1 = ":~0x0".to_owned();
        inputs.trials.clear();
        assert_eq!(findings(&inputs), [], "the variable disables nothing");
    }

    #[test]
    fn a_hypervisor_that_hides_aes_is_found() {
        let guest = x86("Intel(R) Xeon(R) CPU E5-2680 v4", (6, 79), "sse2 hypervisor");
        assert_eq!(names(&findings(&inputs(guest))), [("hypervisor-hides-aes", Weight::Loss)]);
        let generic = x86("QEMU Virtual CPU version 2.5+", (15, 107), "sse2 hypervisor");
        assert_eq!(names(&findings(&inputs(generic))), [("hypervisor-hides-aes", Weight::Loss)]);
        let metal = x86("Intel(R) Xeon(R) CPU E5-2680 v4", (6, 79), "sse2");
        assert_eq!(names(&findings(&inputs(metal))), [("firmware-hides-aes", Weight::Loss)]);
        let old = x86("Intel(R) Core(TM)2 Duo", (6, 23), "sse2 hypervisor");
        assert_eq!(findings(&inputs(old)), []);
    }

    #[test]
    fn disabled_aes_is_a_loss_only_if_all_processors_of_the_model_have_it() {
        let of = |name, model| findings(&inputs(x86(name, (6, model), "sse2")));
        for (name, model) in [("Intel(R) Core(TM) i5-2500", 0x2a), ("Intel(R) Celeron(R) N5105", 0x9c)] {
            assert_eq!(names(&of(name, model)), [("firmware-hides-aes", Weight::Loss)], "{name}");
        }
        for (name, model) in [("Intel(R) Celeron(R) CPU G530", 0x2a), ("Intel(R) Core(TM) i5 M 430", 0x25)] {
            let found = of(name, model);
            assert_eq!(names(&found), [("firmware-hides-aes", Weight::Note)], "{name}");
            assert!(found[0].what.contains("may have disabled"), "{}", found[0].what);
        }
    }

    #[test]
    fn a_build_for_a_lesser_machine_is_found() {
        let mut router = Processor::parse("Features : neon\nCPU implementer : 0x41\nCPU part : 0xd03\n");
        "aarch64".clone_into(&mut router.architecture);
        let mut inputs = inputs(router);
        "arm".clone_into(&mut inputs.build.architecture);
        assert_eq!(
            names(&findings(&inputs)),
            [("build-of-32-bits", Weight::Loss), ("build-without-neon", Weight::Loss)]
        );
        inputs.build = super::super::Build { architecture: "aarch64".to_owned(), neon: true, debug: true };
        assert_eq!(names(&findings(&inputs)), [("build-for-debugging", Weight::Loss)]);
    }
}
