//! Finds the engines that work on this machine.

use super::guard::Guarded;
use crate::engine::library::Unavailable;
use crate::engine::{
    Engine, af_alg::AfAlg, aws_lc::AwsLc, cryptodev::Cryptodev, dpdk, dpdk::Dpdk, ipsec_mb::IpsecMb,
    multi_buffer::MultiBuffer, openssl::OpenSsl,
};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long loading an engine may take: the kernel may load modules, which run self-tests.
const PATIENCE: Duration = Duration::from_secs(5);

/// The result of [`find`].
pub struct Found {
    /// The usable engines. The first is AWS-LC, which is built in and supports every cipher.
    pub engines: Vec<Arc<dyn Engine>>,
    /// The engines that cannot be used, and why.
    pub absent: Vec<(&'static str, Unavailable)>,
}

impl Found {
    /// Whether one of the engines is a hardware accelerator.
    pub fn has_accelerator(&self) -> bool {
        self.engines.iter().any(|engine| engine.is_accelerator())
    }
}

/// Tries to load every engine that this program supports.
pub fn find() -> Found {
    let mut found =
        Found { engines: vec![Arc::new(AwsLc), Arc::new(MultiBuffer::here())], absent: Vec::new() };
    match IpsecMb::load() {
        Ok(engine) => found.engines.push(Arc::new(engine)),
        Err(reason) => found.absent.push(("ipsec-mb", reason)),
    }
    match OpenSsl::load() {
        // A provider configured by the user may drive a device.
        Ok(engine) if engine.is_accelerator() => found.engines.push(Arc::new(Guarded::new(Arc::new(engine)))),
        Ok(engine) => found.engines.push(Arc::new(engine)),
        Err(reason) => found.absent.push(("openssl", reason)),
    }
    // These depend on a kernel driver, and perhaps on a device.
    driven(&mut found, "af-alg", AfAlg::load);
    driven(&mut found, "cryptodev", Cryptodev::load);
    // These depend on a driver of DPDK, and on the devices that were given to it.
    for driver in dpdk::drivers() {
        driven(&mut found, dpdk::engine_name(&driver), move || Dpdk::open(&driver));
    }
    found
}

/// Loads an engine that depends on a driver. A driver may hang, so a thread of its own loads it and is abandoned after
/// [`PATIENCE`].
fn driven<E: Engine + 'static>(
    found: &mut Found,
    name: &'static str,
    load: impl FnOnce() -> Result<E, Unavailable> + Send + 'static,
) {
    let (give, take) = channel();
    let looks = std::thread::Builder::new().name(format!("find {name}"));
    let started = looks.spawn(move || drop(give.send(load())));
    let answer = match started {
        Ok(_) => take.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            Err(Unavailable::Refused(format!("it did not answer in {} s", PATIENCE.as_secs())))
        }),
        Err(error) => Err(Unavailable::Refused(format!("no thread to ask it: {error}"))),
    };
    match answer {
        Ok(engine) => found.engines.push(Arc::new(Guarded::new(Arc::new(engine)))),
        Err(reason) => found.absent.push((name, reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_whose_driver_never_answers_is_absent() {
        let mut found = Found { engines: Vec::new(), absent: Vec::new() };
        driven(&mut found, "slow", || -> Result<AwsLc, _> {
            std::thread::sleep(PATIENCE * 2);
            Ok(AwsLc)
        });
        let reason = Unavailable::Refused("it did not answer in 5 s".to_owned());
        assert_eq!(found.absent, [("slow", reason)]);
    }
}
