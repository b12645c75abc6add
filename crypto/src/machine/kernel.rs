//! The kernel's crypto API: `/proc/crypto`, and the interfaces to user space.

use super::files::Files;

/// An entry of `/proc/crypto`: one implementation of an algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Algorithm {
    /// The name of the algorithm, such as `cbc(aes)`.
    pub name: String,
    /// The name of the driver, such as `cbc-aes-aesni`.
    pub driver: String,
    /// The kernel module; `kernel` if the driver is built in.
    pub module: String,
    /// For one algorithm name, the kernel prefers the driver with the highest priority.
    pub priority: i32,
    /// The type, such as `skcipher`.
    pub kind: String,
    /// Whether only other drivers may use the driver.
    pub internal: bool,
    /// Whether the driver has passed its self-test.
    pub tested: bool,
    /// Whether requests complete asynchronously.
    pub is_async: bool,
}

/// Parses `/proc/crypto`.
pub(crate) fn parse(text: &str) -> Vec<Algorithm> {
    let block = |block: &str| {
        let mut algorithm = Algorithm::default();
        for (key, value) in block.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match key.trim() {
                "name" => value.clone_into(&mut algorithm.name),
                "driver" => value.clone_into(&mut algorithm.driver),
                "module" => value.clone_into(&mut algorithm.module),
                "priority" => algorithm.priority = value.parse().unwrap_or(0),
                "type" => value.clone_into(&mut algorithm.kind),
                "internal" => algorithm.internal = value == "yes",
                "selftest" => algorithm.tested = value == "passed",
                // Entries of synchronous hashes lack this line.
                "async" => algorithm.is_async = value == "yes",
                _ => {}
            }
        }
        algorithm
    };
    text.split("\n\n").map(block).filter(|algorithm| !algorithm.driver.is_empty()).collect()
}

/// Bytes of a kernel's lists of modules: modules.dep has up to about a million.
const MODULES: u64 = 16 << 20;

/// The interfaces by which a program can use the kernel's crypto API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// Sockets of the family `AF_ALG`, if the kernel has them or can load the module.
    pub af_alg: bool,
    /// `/dev/crypto` of cryptodev-linux.
    pub cryptodev: bool,
}

impl Interfaces {
    pub(super) fn read(files: Files<'_>) -> Self {
        let text = |path: &str| files.text_of(path, MODULES).unwrap_or_default();
        let modules = format!("lib/modules/{}", text("proc/sys/kernel/osrelease").trim());
        let loaded = text("proc/net/protocols").lines().any(|line| line.starts_with("ALG "));
        let loadable = ["modules.dep", "modules.builtin"]
            .iter()
            .any(|list| text(&format!("{modules}/{list}")).contains("/af_alg.ko"));
        Self { af_alg: loaded || loadable, cryptodev: files.has("dev/crypto") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_are_read_with_their_priorities() {
        let text = "name         : cbc(aes)\ndriver       : qat_aes_cbc\nmodule       : intel_qat\npriority     : 100\n\
            internal     : no\ntype         : skcipher\nblocksize    : 16\n\nname         : __ecb(aes)\n\
            driver       : __ecb-aes-aesni\nmodule       : aesni_intel\npriority     : 400\ninternal     : yes\n\
            type         : skcipher\n\n";
        let algorithms = parse(text);
        assert_eq!(algorithms.len(), 2);
        assert_eq!((algorithms[0].driver.as_str(), algorithms[0].priority), ("qat_aes_cbc", 100));
        assert!(!algorithms[0].internal && algorithms[1].internal);
        assert_eq!(parse(""), []);
    }
}
