//! The engines of this machine.

use super::guard::Guarded;
use crate::engine::library::Unavailable;
use crate::engine::{
    Engine, af_alg::AfAlg, aws_lc::AwsLc, cryptodev::Cryptodev, ipsec_mb::IpsecMb, openssl::OpenSsl,
};
use std::sync::Arc;

/// What was looked for.
pub struct Found {
    /// The engines that can be used; the first is built in and has every cipher.
    pub engines: Vec<Arc<dyn Engine>>,
    /// Those that cannot, and why.
    pub absent: Vec<(&'static str, Unavailable)>,
}

/// Looks for every engine this program knows.
pub fn find() -> Found {
    let mut found = Found { engines: vec![Arc::new(AwsLc)], absent: Vec::new() };
    match IpsecMb::load() {
        Ok(engine) => found.engines.push(Arc::new(engine)),
        Err(reason) => found.absent.push(("ipsec-mb", reason)),
    }
    match OpenSsl::load() {
        // With a provider that the user has installed.
        Ok(engine) if engine.is_accelerator() => found.engines.push(Arc::new(Guarded::new(Arc::new(engine)))),
        Ok(engine) => found.engines.push(Arc::new(engine)),
        Err(reason) => found.absent.push(("openssl", reason)),
    }
    // Behind these is a driver, and perhaps a device.
    match AfAlg::load() {
        Ok(engine) => found.engines.push(Arc::new(Guarded::new(Arc::new(engine)))),
        Err(reason) => found.absent.push(("af-alg", reason)),
    }
    match Cryptodev::load() {
        Ok(engine) => found.engines.push(Arc::new(Guarded::new(Arc::new(engine)))),
        Err(reason) => found.absent.push(("cryptodev", reason)),
    }
    found
}
