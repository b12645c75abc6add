//! What `/proc/crypto` says: which driver serves an algorithm of the kernel, and whether it is a device.

use crate::machine::{Algorithm, kernel, names_device};
use std::fmt;

/// An implementation of an algorithm in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// What it computes, such as `cbc(aes)`.
    pub algorithm: String,
    /// Its own name, such as `virtio_crypto_aes_cbc`.
    pub name: String,
    /// Of several, the kernel takes the one with the highest.
    pub priority: i32,
    /// Whether answers come later.
    pub is_async: bool,
    /// `aead`, `skcipher`, `ahash`, `shash` or another.
    pub kind: String,
}

impl Driver {
    /// Whether a device on a bus does the work: it answers later, and is not the kernel itself. A template such as
    /// `authenc` is one if one of its parts is.
    pub fn is_accelerator(&self) -> bool {
        self.is_async && names_device(&self.name)
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.algorithm, self.name)
    }
}

/// The drivers in the text of `/proc/crypto` that can be used: not internal, and with their self-test passed.
pub(super) fn parse(text: &str) -> Vec<Driver> {
    kernel::parse(text).into_iter().filter_map(usable).collect()
}

fn usable(algorithm: Algorithm) -> Option<Driver> {
    (algorithm.tested && !algorithm.internal).then_some(Driver {
        algorithm: algorithm.name,
        name: algorithm.driver,
        priority: algorithm.priority,
        is_async: algorithm.is_async,
        kind: algorithm.kind,
    })
}

/// The drivers of this machine's kernel.
pub fn drivers() -> Vec<Driver> {
    std::fs::read_to_string("/proc/crypto").map(|text| parse(&text)).unwrap_or_default()
}

/// The driver of `algorithm` with the highest priority, of those in a list that are `wanted`.
pub(super) fn first(
    drivers: &[Driver],
    (kind, algorithm): (&str, &str),
    wanted: impl Fn(&Driver) -> bool,
) -> Option<Driver> {
    // AF_ALG says `hash`, for both kinds that the kernel has.
    let fits = |driver: &Driver| driver.kind == kind || kind == "hash" && driver.kind.ends_with("hash");
    drivers
        .iter()
        .filter(|driver| driver.algorithm == algorithm && fits(driver) && wanted(driver))
        .max_by_key(|driver| driver.priority)
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
name         : cbc(aes)
driver       : virtio_crypto_aes_cbc
module       : virtio_crypto
priority     : 150
refcnt       : 1
selftest     : passed
internal     : no
type         : skcipher
async        : yes
blocksize    : 16

name         : sha256
driver       : sha256-generic
module       : kernel
priority     : 100
refcnt       : 1
selftest     : passed
internal     : no
type         : shash
blocksize    : 64

name         : __cbc(aes)
driver       : __cbc-aes-aesni
module       : aesni_intel
priority     : 400
refcnt       : 1
selftest     : passed
internal     : yes
type         : skcipher
async        : no

name         : half";

    #[test]
    fn entries_are_read_and_what_is_internal_is_left_out() {
        let drivers = parse(TEXT);
        assert_eq!(drivers.len(), 2);
        assert_eq!(drivers[0].to_string(), "cbc(aes) by virtio_crypto_aes_cbc");
        assert_eq!((drivers[0].priority, &drivers[0].kind[..]), (150, "skcipher"));
        assert!(drivers[0].is_accelerator());
        assert!(!drivers[1].is_accelerator() && !drivers[1].is_async);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn devices_are_told_from_the_kernel_itself() {
        let driver = |name: &str| Driver {
            algorithm: String::new(),
            name: name.to_owned(),
            priority: 0,
            is_async: true,
            kind: String::new(),
        };
        for name in [
            "virtio_crypto_aes_cbc",
            "qat_aes_cbc_hmac_sha256",
            "gcm-aes-caam",
            "cbc-aes-ccp",
            "cbc-aes-sun8i-ce",
            "mv-cbc-aes",
            "hisi_sec_cbc(aes)",
            "authenc(hmac(sha256-generic),virtio_crypto_aes_cbc)",
        ] {
            assert!(driver(name).is_accelerator(), "{name}");
        }
        for name in [
            "cbc-aes-aesni",
            "cbc-aes-ce",
            "cbc(aes-generic)",
            "cryptd(__cbc-aes-aesni)",
            "generic-gcm-vaes-avx10_256",
            "gcm_base(ctr-aes-aesni,ghash-clmulni)",
            "authenc(hmac(sha1-ni),cbc-aes-aesni)",
            "rfc7539(chacha20-simd,poly1305-simd)",
        ] {
            assert!(!driver(name).is_accelerator(), "{name}");
        }
    }
}
