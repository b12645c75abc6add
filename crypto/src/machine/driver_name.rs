//! Names of the kernel's crypto drivers: whether one is a device or the kernel's own code.

/// Words by which the kernel's own implementations call themselves, after the instructions they use.
const SOFTWARE: [&str; 25] = [
    "generic", "lib", "simd", "asm", "aesni", "vaes", "ni", "avx", "avx2", "ssse3", "sse2", "sse4",
    "clmulni", "pclmul", "x86_64", "i586", "arm", "arm64", "ce", "neon", "neonbs", "riscv64", "p8", "p10",
    "s390",
];
/// Words of devices that end like one of those: `cbc-aes-sun8i-ce` is a crypto engine of Allwinner.
const DEVICES: [&str; 3] = ["sun4i", "sun8i", "sun9i"];

/// Whether a driver of this name, or one of its parts, is not the kernel itself.
pub(crate) fn names_device(name: &str) -> bool {
    leaves(name).any(|leaf| !is_software(leaf))
}

/// The innermost names of `authenc(hmac(sha256-generic),cbc-aes-aesni)`: what is no template.
fn leaves(name: &str) -> impl Iterator<Item = &str> {
    name.split_inclusive(['(', ',', ')'])
        .filter(|part| !part.ends_with('('))
        .map(|part| part.trim_end_matches([',', ')']))
        .filter(|leaf| !leaf.is_empty())
}

fn is_software(leaf: &str) -> bool {
    let has = |words: &[&str]| leaf.split('-').any(|word| words.contains(&word));
    // `avx10_256`, `avx512` and what may follow.
    let newer = leaf.split('-').any(|word| word.starts_with("avx"));
    (newer || has(&SOFTWARE)) && !has(&DEVICES)
}
