//! The engines of this machine.

use super::guard::Guarded;
use crate::engine::library::Unavailable;
use crate::engine::{
    Engine, af_alg::AfAlg, aws_lc::AwsLc, cryptodev::Cryptodev, ipsec_mb::IpsecMb, openssl::OpenSsl,
};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a driver may take to show itself: the kernel may load modules, which test themselves.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was looked for.
pub struct Found {
    /// The engines that can be used; the first is built in and has every cipher.
    pub engines: Vec<Arc<dyn Engine>>,
    /// Those that cannot, and why.
    pub absent: Vec<(&'static str, Unavailable)>,
}

impl Found {
    /// Whether one of the engines is an accelerator on a bus.
    pub fn has_accelerator(&self) -> bool {
        self.engines.iter().any(|engine| engine.is_accelerator())
    }
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
    driven(&mut found, "af-alg", AfAlg::load);
    driven(&mut found, "cryptodev", Cryptodev::load);
    found
}

/// Looks for an engine behind a driver, which may never answer: in a thread of its own, that is left to itself then.
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
