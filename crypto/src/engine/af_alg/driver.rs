//! The kernel's drivers for an algorithm, from `/proc/crypto`, and whether a device does the work.

use crate::machine::{Algorithm, kernel, names_device};
use std::fmt;

/// A kernel driver for an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The algorithm, such as `cbc(aes)`.
    pub algorithm: String,
    /// The driver's name, such as `virtio_crypto_aes_cbc`.
    pub name: String,
    /// The kernel prefers the driver with the highest priority.
    pub priority: i32,
    /// Whether requests complete asynchronously.
    pub is_async: bool,
    /// `aead`, `skcipher`, `ahash`, `shash` or another.
    pub kind: String,
}

impl Driver {
    /// Whether a device does the work: the driver is asynchronous, and its name is not that of kernel code. This
    /// includes a template such as `authenc` around a device's driver.
    pub fn is_accelerator(&self) -> bool {
        self.is_async && names_device(&self.name)
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.algorithm, self.name)
    }
}

/// The usable drivers in `/proc/crypto`: not internal, and with a passed self-test.
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

/// The usable drivers of the running kernel.
pub fn drivers() -> Vec<Driver> {
    std::fs::read_to_string("/proc/crypto").map(|text| parse(&text)).unwrap_or_default()
}

/// The `wanted` driver of `algorithm` with the highest priority.
pub(super) fn first(
    drivers: &[Driver],
    (kind, algorithm): (&str, &str),
    wanted: impl Fn(&Driver) -> bool,
) -> Option<Driver> {
    // The AF_ALG type `hash` covers the kernel's types `ahash` and `shash`.
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
    fn internal_drivers_are_left_out() {
        let drivers = parse(TEXT);
        assert_eq!(drivers.len(), 2);
        assert_eq!(drivers[0].to_string(), "cbc(aes) by virtio_crypto_aes_cbc");
        assert_eq!((drivers[0].priority, &drivers[0].kind[..]), (150, "skcipher"));
        assert!(drivers[0].is_accelerator());
        assert!(!drivers[1].is_accelerator() && !drivers[1].is_async);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn drivers_of_devices_are_recognized_by_name() {
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
