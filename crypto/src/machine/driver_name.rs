//! Names of kernel crypto drivers: tells drivers of devices from the kernel's own code.

/// Words in the names of software implementations, mostly the instructions that they use.
const SOFTWARE: [&str; 25] = [
    "generic", "lib", "simd", "asm", "aesni", "vaes", "ni", "avx", "avx2", "ssse3", "sse2", "sse4",
    "clmulni", "pclmul", "x86_64", "i586", "arm", "arm64", "ce", "neon", "neonbs", "riscv64", "p8", "p10",
    "s390",
];
/// Words in the names of devices that also have a word of `SOFTWARE`: `cbc-aes-sun8i-ce` is Allwinner's crypto engine.
const DEVICES: [&str; 3] = ["sun4i", "sun8i", "sun9i"];

/// Whether the driver with this name, or a driver that its template uses, is one of a device.
pub(crate) fn names_device(name: &str) -> bool {
    leaves(name).any(|leaf| !is_software(leaf))
}

/// The driver names inside templates: `sha256-generic` and `cbc-aes-aesni` in
/// `authenc(hmac(sha256-generic),cbc-aes-aesni)`.
fn leaves(name: &str) -> impl Iterator<Item = &str> {
    name.split_inclusive(['(', ',', ')'])
        .filter(|part| !part.ends_with('('))
        .map(|part| part.trim_end_matches([',', ')']))
        .filter(|leaf| !leaf.is_empty())
}

fn is_software(leaf: &str) -> bool {
    let has = |words: &[&str]| leaf.split('-').any(|word| words.contains(&word));
    // Also `avx10_256`, `avx512` and later names.
    let newer = leaf.split('-').any(|word| word.starts_with("avx"));
    (newer || has(&SOFTWARE)) && !has(&DEVICES)
}
