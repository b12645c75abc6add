//! `postern show system`: the processor and the accelerators of this machine.

use crate::answer::Answer;
use crate::host;
use ::bench::report::table;
use crypto::machine::{Accelerator, Capability, Machine, Processor};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Processor flags that speed up packets, and how.
const PACKETS: &[(&str, &str)] = &[
    ("fsrm", "copies of short packets"),
    ("erms", "copies of long packets"),
    ("movdir64b", "doorbells of devices"),
    ("pdpe1gb", "huge pages of 1 GiB, for DPDK"),
    ("constant_tsc", "a clock without system calls"),
    ("atomics", "counters that many cores share"),
    ("crc32", "hashes of flows"),
];

pub(crate) fn cpu() -> Answer {
    let processor = Machine::read(&host::root()).processor;
    Answer::new(cpu_value(&processor), move |_| cpu_text(&processor))
}

/// The processor as the kernel describes it, for scripts that search for a flag.
pub(crate) fn cpu_detail() -> Answer {
    let root = host::root();
    let text = host::text(&root.join("proc/cpuinfo")).unwrap_or_default();
    Answer::new(cpu_value(&Machine::read(&root).processor), move |_| format!("{text}\n"))
}

pub(crate) fn acceleration() -> Answer {
    let machine = Machine::read(&host::root());
    Answer::new(acceleration_value(&machine), move |_| acceleration_text(&machine))
}

/// Capabilities that a processor of this kind may have.
fn possible(processor: &Processor) -> impl Iterator<Item = Capability> {
    let x86 = processor.is_x86();
    Capability::ALL.iter().copied().filter(move |capability| match capability {
        Capability::Neon => !x86,
        Capability::VectorAes | Capability::Avx2 | Capability::Avx512 => x86,
        _ => true,
    })
}

fn cpu_value(processor: &Processor) -> Value {
    let capabilities: Vec<Value> = possible(processor)
        .map(|it| json!({ "name": processor.name_of(it), "present": processor.has(it), "purpose": it.purpose() }))
        .collect();
    let packets: Vec<&str> =
        PACKETS.iter().map(|(flag, _)| *flag).filter(|flag| processor.has_flag(flag)).collect();
    json!({
        "architecture": processor.architecture,
        "vendor": processor.vendor,
        "model": processor.model,
        "family": processor.numbers.0,
        "model_number": processor.numbers.1,
        "cpus": processor.count,
        "mhz": processor.megahertz,
        "hypervisor": processor.hypervisor,
        "crypto": capabilities,
        "packets": packets,
        "flags": processor.flags,
    })
}

/// The two numbers that tell models apart, of this kind of processor.
fn numbers(processor: &Processor, x86: bool, written: impl Fn(u32) -> String) -> String {
    let (first, second) = processor.numbers;
    if processor.is_x86() == x86 { format!("{}, {}", written(first), written(second)) } else { String::new() }
}

fn cpu_text(processor: &Processor) -> String {
    let unknown = || "unknown".to_owned();
    let lines = [
        ("Architecture", processor.architecture.clone()),
        ("CPU(s)", processor.count.to_string()),
        ("Vendor ID", processor.vendor.clone()),
        ("Model name", processor.model.clone()),
        ("CPU family, model", numbers(processor, true, |number| number.to_string())),
        ("Implementer, part", numbers(processor, false, |number| format!("{number:#x}"))),
        ("CPU MHz", processor.megahertz.map_or_else(unknown, |mhz| format!("{mhz:.0}"))),
        ("Hypervisor", processor.hypervisor.clone().unwrap_or_else(|| "none".to_owned())),
    ];
    let filled = lines.iter().filter(|(_, value)| !value.is_empty());
    let mut text: String =
        filled.map(|(name, value)| format!("{:<20}{value}\n", format!("{name}:"))).collect();
    let yes = |has: bool| if has { "yes" } else { "no" }.to_owned();
    let crypto = possible(processor)
        .map(|it| vec![processor.name_of(it).to_owned(), yes(processor.has(it)), it.purpose().to_owned()]);
    let packets = PACKETS
        .iter()
        .filter(|(flag, _)| processor.has_flag(flag))
        .map(|(flag, purpose)| vec![(*flag).to_owned(), yes(true), (*purpose).to_owned()]);
    let rows: Vec<Vec<String>> = crypto.chain(packets).collect();
    let _ = writeln!(text, "\n{}", table(&["Instructions", "Present", "Good for"], &rows));
    text + &wrapped("Flags: ", &processor.flags, 100)
}

/// A label and words, in lines of at most `width`.
fn wrapped(label: &str, words: &[String], width: usize) -> String {
    let (mut text, mut line) = (String::new(), label.to_owned());
    for word in words {
        if line.len() + word.len() >= width {
            text += line.trim_end();
            text.push('\n');
            line = " ".repeat(label.len());
        }
        line += word;
        line.push(' ');
    }
    text + line.trim_end() + "\n"
}

fn acceleration_value(machine: &Machine) -> Value {
    let accelerators: Vec<Value> = machine
        .accelerators
        .iter()
        .map(|it| {
            let algorithms: Vec<Value> = it
                .algorithms
                .iter()
                .map(|own| json!({ "name": own.name, "driver": own.driver, "priority": own.priority }))
                .collect();
            json!({
                "name": it.name(),
                "address": it.device.address,
                "id": format!("{:04x}:{:04x}", it.device.vendor, it.device.device),
                "driver": it.device.driver,
                "state": it.device.state,
                "services": it.device.services,
                "algorithms": algorithms,
            })
        })
        .collect();
    json!({
        "accelerators": accelerators,
        "af_alg": machine.interfaces.af_alg,
        "dev_crypto": machine.interfaces.cryptodev,
        "aes_instructions": machine.processor.has(Capability::Aes),
    })
}

fn state(accelerator: &Accelerator) -> String {
    let device = &accelerator.device;
    match (&device.driver, &device.state) {
        (None, _) => "no driver".to_owned(),
        (Some(_), _) if device.is_lent_to_a_program() => "lent to a program".to_owned(),
        (Some(_), Some(state)) => state.clone(),
        (Some(_), None) if accelerator.algorithms.is_empty() => "offers nothing".to_owned(),
        (Some(_), None) => "up".to_owned(),
    }
}

fn acceleration_text(machine: &Machine) -> String {
    let rows: Vec<Vec<String>> = machine
        .accelerators
        .iter()
        .map(|it| {
            let driver = it.device.driver.clone().unwrap_or_else(|| "-".to_owned());
            let algorithms: Vec<&str> = it.algorithms.iter().map(|own| own.name.as_str()).collect();
            let algorithms = if algorithms.is_empty() { "-".to_owned() } else { algorithms.join(", ") };
            vec![it.name(), it.device.address.clone(), driver, state(it), algorithms]
        })
        .collect();
    let mut text = if rows.is_empty() {
        "no accelerator on the PCI bus\n".to_owned()
    } else {
        table(&["Accelerator", "Address", "Driver", "State", "Algorithms"], &rows)
    };
    let yes = |has: bool, yes: &str, no: &str| if has { yes } else { no }.to_owned();
    let _ = writeln!(
        text,
        "\nAES instructions of the processor: {}\nAF_ALG: {}\n/dev/crypto: {}",
        yes(machine.processor.has(Capability::Aes), "available", "none"),
        yes(machine.interfaces.af_alg, "available", "not in this kernel"),
        yes(machine.interfaces.cryptodev, "available", "none")
    );
    if !rows.is_empty() {
        text += "Find unused acceleration: postern doctor crypto\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_shown_as_the_guide_greps_for_them() {
        let mut processor = Processor::parse("processor : 0\nmodel name : A Xeon\nflags : fpu aes fsrm\n");
        "x86_64".clone_into(&mut processor.architecture);
        let text = cpu_text(&processor);
        assert!(text.contains("Model name:         A Xeon\n") && text.contains("Flags: fpu aes fsrm\n"));
        assert!(text.lines().any(|line| line.starts_with("VAES") && line.contains("no")));
        assert!(!text.contains("NEON"));
    }

    #[test]
    fn long_lists_of_flags_are_wrapped() {
        let words: Vec<String> = (100..140).map(|number| number.to_string()).collect();
        let text = wrapped("Flags: ", &words, 40);
        assert!(text.lines().all(|line| line.len() <= 40));
        assert_eq!(text.split_whitespace().count(), 41);
    }

    #[test]
    fn a_machine_without_accelerators_says_so() {
        let text = acceleration_text(&Machine::default());
        assert!(
            text.starts_with("no accelerator on the PCI bus\n")
                && text.contains("AF_ALG: not in this kernel")
        );
    }
}
