//! With the kernel's crypto API, and with a device on a bus: a stock Debian kernel in an emulated machine, to which qemu adds
//! virtio-crypto. What runs in there is this program, with the suite that every engine passes.

use crate::machine::{Machine, Start, X86, kernel};
use crate::support::{lab, unavailable};
use crypto::Cipher;
use crypto::choice::{BURSTS, Choice, Rules, SIZES, Slot, Subject};
use crypto::cipher::{Encryption, Integrity, Pair};
use crypto::engine::Engine;
use crypto::engine::af_alg::AfAlg;
use std::time::Duration;

#[path = "../../crypto/tests/engines.rs"]
mod engines;
#[expect(clippy::duplicate_mod, reason = "each file of the suite names its engines")]
#[path = "../../crypto/tests/vectors.rs"]
mod vectors;

/// The suite takes a second where no machine is emulated.
const PATIENCE: Duration = Duration::from_secs(400);
/// What is measured: qemu's device has AES-CBC.
const PAIR: Pair = Pair { encryption: Encryption::AesCbc(16), integrity: Integrity::HmacSha256 };
const DEVICE: [&str; 4] =
    ["-object", "cryptodev-backend-builtin,id=c0", "-device", "virtio-crypto-pci,cryptodev=c0"];

/// The kernel has every cipher. In the emulated machine [`run`] also reads what this prints: the drivers, and what was measured and
/// chosen with accelerators and without.
#[test]
fn the_crypto_api_has_every_cipher() {
    let engine = match AfAlg::load() {
        Ok(engine) => engine,
        Err(error) => {
            return unavailable(&format!("{error}; the tests in the emulated machine run this test"));
        }
    };
    for driver in engine.accelerators() {
        println!("DEVICE {driver}");
    }
    for &cipher in Cipher::ALL {
        engine.load(cipher, &vec![1; cipher.key_length()]).expect("the kernel has it");
    }
    for &encryption in Encryption::ALL {
        for &integrity in Integrity::ALL {
            let pair = Pair { encryption, integrity };
            let secret: Vec<u8> = (0..encryption.key_length() as u8).collect();
            engine.load_pair(pair, &secret, &vec![1; integrity.key_length()]).expect("the kernel has it");
        }
    }
    println!("HAS ALL CIPHERS");
    let choice = Choice::here(None);
    for engine in choice.engines() {
        println!("ENGINE {} {} ({})", engine.name(), engine.is_accelerator(), engine.version());
    }
    for subject in [Subject::from(PAIR), Cipher::Aes128Gcm.into()] {
        for accelerators in [true, false] {
            choice.set_rules(Rules { accelerators, ..Rules::default() });
            say(&choice, subject, accelerators);
        }
    }
}

fn say(choice: &Choice, subject: Subject, accelerators: bool) {
    let row = choice.row(subject);
    for slot in Slot::all() {
        let name = |index: usize| choice.engines()[index].name();
        let costs = row.ranking(slot).into_iter().map(|(index, ns)| format!(" {}={ns:.0}", name(index)));
        let costs: String = costs.collect();
        let (packets, size) = (BURSTS[slot.burst], SIZES[slot.size]);
        let (direction, chosen) = (slot.direction.name(), name(row.chosen(slot)));
        println!("SLOT {subject} {accelerators} {direction} {packets} x {size} -> {chosen}:{costs}");
    }
}

/// A line about a place in the table.
struct Line<'a> {
    subject: &'a str,
    accelerators: bool,
    chosen: &'a str,
    /// ns a packet, by engine.
    costs: Vec<(&'a str, f64)>,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let (place, costs) = line.strip_prefix("SLOT ")?.split_once(':')?;
    let words: Vec<&str> = place.split(' ').collect();
    let cost = |text: &'_ str| text.split_once('=').and_then(|(_, ns)| ns.parse().ok());
    let costs = costs.split_whitespace().filter_map(|text| Some((text.split('=').next()?, cost(text)?)));
    Some(Line {
        subject: words.first()?,
        accelerators: words.get(1) == Some(&"true"),
        chosen: words.last()?,
        costs: costs.collect(),
    })
}

/// Boots a machine that runs the suite and says what there is; all that it said.
fn run(hardware: &[&str], suite: &str) -> Option<String> {
    let kernel = kernel(&[])?;
    let mut lab = lab(&["a"])?;
    let program = std::env::current_exe().expect("this program is somewhere");
    let name = program.file_name().expect("it has a name").to_string_lossy().into_owned();
    let script = format!(
        "{name} --test-threads 1 {suite} && echo SUITE PASSED\n\
         {name} --nocapture the_crypto_api_has_every_cipher && echo SAID\n\
         echo END; sleep 1000\n"
    );
    let start =
        Start { board: &X86, modules: "crypto", programs: &[program], tree: None, script: &script, hardware };
    let machine = Machine::boot(&mut lab, "a", &kernel, &start);
    machine.says("\nEND\n", PATIENCE);
    let said = machine.said();
    for sign in ["SUITE PASSED", "HAS ALL CIPHERS", "SAID"] {
        assert!(said.contains(sign), "no {sign}: {}", what_went_wrong(&said));
    }
    Some(said)
}

/// Of all that a machine said the lines about failures: it says thousands, and reports of tests are cut off.
fn what_went_wrong(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let is_about_failure =
        |line: &&str| ["panicked", "FAILED", "Wrong", "BUG"].iter().any(|word| line.contains(word));
    let around = lines.windows(3).filter(|window| is_about_failure(&window[0]));
    let last = lines[lines.len().saturating_sub(10)..].join("\n");
    format!("{}\n...\n{last}", around.map(|window| window.join("\n")).collect::<Vec<_>>().join("\n"))
}

/// The engine that costs least is chosen, and an accelerator only where one is allowed.
fn assert_chosen_by_measurement(said: &str, af_alg_is_accelerator: bool) {
    let lines: Vec<Line<'_>> = said.lines().filter_map(parse).collect();
    assert_eq!(lines.len(), 2 * 2 * Slot::all().count());
    for line in lines {
        let forbidden = af_alg_is_accelerator && !line.accelerators;
        let allowed = |name: &str| !forbidden || name != "af-alg";
        let costs = || line.costs.iter().filter(|(name, _)| allowed(name));
        let best = costs().map(|&(_, ns)| ns).fold(f64::MAX, f64::min);
        let chosen = costs().find(|(name, _)| *name == line.chosen).map(|&(_, ns)| ns);
        assert!(line.costs.iter().any(|(name, _)| *name == "af-alg"), "{} is measured", line.subject);
        assert_eq!(chosen, Some(best), "{} {:?}", line.subject, line.costs);
    }
}

#[test]
fn a_device_on_a_bus_is_found_measured_and_used_where_it_wins() {
    let Some(said) = run(&DEVICE, "virtio_crypto::engines virtio_crypto::vectors") else { return };
    assert!(said.contains("DEVICE cbc(aes) by virtio_crypto_aes_cbc"));
    assert!(said.contains("ENGINE af-alg true (Linux "));
    assert_chosen_by_measurement(&said, true);
}

#[test]
fn a_kernel_without_devices_is_an_engine_and_no_accelerator() {
    let Some(said) = run(&[], "virtio_crypto::vectors") else { return };
    assert!(!said.contains("DEVICE "));
    assert!(said.contains("ENGINE af-alg false (Linux "));
    assert_chosen_by_measurement(&said, false);
}
