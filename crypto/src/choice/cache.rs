//! Keeps measurements in a file, so that a restart need not repeat them.

use super::measured::{Cost, Measured};
use super::slot::SLOTS;
use super::subject::Subject;

use crate::engine::Engine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of the file.
const LARGEST: u64 = 1 << 20;

#[derive(Default, Serialize, Deserialize)]
struct File {
    /// The machine, program and engines that were measured: see [`machine`].
    machine: String,
    /// By cipher, then by engine: ns per packet for each slot, or that the engine does not support the cipher.
    ciphers: BTreeMap<String, BTreeMap<String, Entry>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Entry {
    Works(Vec<f64>),
    Lacks,
}

/// What measurements depend on: program, processor, kernel, and the engines with their versions.
fn machine(engines: &[Arc<dyn Engine>]) -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let processor: Vec<_> =
        cpuinfo.lines().filter(|line| is_about_the_processor(line)).take(4).map(str::trim).collect();
    let kernel = read("/proc/sys/kernel/osrelease");
    let engines = engines.iter().map(|engine| format!("{} {}", engine.name(), engine.version()));
    // Another build of the program may give other results.
    let program = std::fs::metadata("/proc/self/exe").map(|file| (file.len(), file.mtime()));
    // These variables make AWS-LC and OpenSSL avoid CPU features.
    let words = ["OPENSSL_ia32cap", "OPENSSL_armcap"].map(|name| std::env::var(name).unwrap_or_default());
    let (processor, engines) = (processor.join(", "), engines.collect::<Vec<_>>().join(", "));
    let (program, kernel) = (program.unwrap_or_default(), kernel.trim());
    format!("{program:?}; {processor}; {words:?}; {kernel}; {engines}")
}

fn is_about_the_processor(line: &str) -> bool {
    ["model name", "flags", "CPU part", "CPU implementer", "Features"].iter().any(|key| line.starts_with(key))
}

/// The measurements for `subject`, if the file has them for this machine and for every engine.
pub(super) fn read(path: &Path, engines: &[Arc<dyn Engine>], subject: Subject) -> Option<Vec<Measured>> {
    let file = kept(path)?;
    if file.machine != machine(engines) {
        return None;
    }
    let row = file.ciphers.get(&subject.to_string())?;
    let measured = engines.iter().map(|engine| match row.get(engine.name())? {
        Entry::Works(costs) => {
            let costs: [f64; SLOTS] = costs.as_slice().try_into().ok()?;
            Some(Measured::Works(Cost(Box::new(costs))))
        }
        Entry::Lacks => Some(Measured::Lacks),
    });
    measured.collect()
}

/// The file as it is. What is no file, or too large, was not written here.
fn kept(path: &Path) -> Option<File> {
    let there = std::fs::symlink_metadata(path).ok()?;
    let is_ours = there.is_file() && there.len() <= LARGEST;
    is_ours.then(|| serde_json::from_slice(&std::fs::read(path).ok()?).ok())?
}

/// Adds measurements to the file. If that fails, or if an engine failed for this cipher, the next start measures again.
pub(super) fn write(path: &Path, engines: &[Arc<dyn Engine>], subject: Subject, measured: &[Measured]) {
    let now = machine(engines);
    let mut file = kept(path).filter(|file| file.machine == now).unwrap_or_default();
    file.machine = now;
    let entries = engines.iter().zip(measured).filter_map(|(engine, measured)| {
        let entry = match measured {
            Measured::Works(cost) => Entry::Works(cost.0.to_vec()),
            Measured::Lacks => Entry::Lacks,
            Measured::Failed | Measured::Wrong => return None,
        };
        Some((engine.name().to_owned(), entry))
    });
    file.ciphers.insert(subject.to_string(), entries.collect());
    let Ok(json) = serde_json::to_vec_pretty(&file) else { return };
    // Replace the file atomically: another process may be reading it.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let _ = path.parent().map(std::fs::create_dir_all);
    let _ = std::fs::remove_file(&new);
    // Root may measure too, in a folder of the daemon's user: a link that leads elsewhere is no new file.
    let made = OpenOptions::new().write(true).create_new(true).open(&new);
    let _ = made.and_then(|mut file| file.write_all(&json)).and_then(|()| std::fs::rename(&new, path));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cipher;
    use crate::choice::calibrate;
    use crate::engine::aws_lc::AwsLc;
    use crate::engine::none::None as NoEngine;

    #[test]
    fn cached_measurements_are_used_only_for_the_same_engines() {
        let path = std::env::temp_dir().join(format!("postern-cache-{}.json", std::process::id()));
        let built_in: Arc<dyn Engine> = Arc::new(AwsLc);
        let one = [Arc::clone(&built_in)];
        let two: [Arc<dyn Engine>; 2] = [built_in, Arc::new(NoEngine)];
        let subject = Subject::Cipher(Cipher::ChaCha20Poly1305);
        assert_eq!(read(&path, &one, subject), None);
        let measured = calibrate::measure(&one, subject);
        write(&path, &one, subject, &measured);
        assert!(read(&path, &one, subject).is_some_and(|row| row[0].cost().is_some()));
        assert_eq!(read(&path, &two, subject), None, "another set of engines");
        assert_eq!(read(&path, &one, Subject::Cipher(Cipher::Aes128Gcm)), None, "another cipher");
        std::fs::write(&path, b"{\"machine\": 7").expect("writable");
        assert_eq!(read(&path, &one, subject), None, "a truncated file");
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_link_in_the_place_of_the_new_file_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("postern-cache-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("ours");
        let at = |name: &str| folder.join(name);
        std::fs::write(at("secret"), "of root").expect("ours");
        let link = at(&format!("crypto.{}.new", std::process::id()));
        std::os::unix::fs::symlink(at("secret"), link).expect("ours");
        let engines: [Arc<dyn Engine>; 1] = [Arc::new(AwsLc)];
        write(&at("crypto.json"), &engines, Subject::Cipher(Cipher::Aes128Gcm), &[Measured::Lacks]);
        let secret = std::fs::read_to_string(at("secret")).expect("there");
        let written = read(&at("crypto.json"), &engines, Subject::Cipher(Cipher::Aes128Gcm));
        std::fs::remove_dir_all(&folder).expect("ours");
        assert!(secret == "of root" && written.is_some());
    }
}
