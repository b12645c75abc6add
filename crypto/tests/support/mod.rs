//! The engines under test.

use crypto::engine::Engine;
use crypto::engine::af_alg::AfAlg;
use crypto::engine::cryptodev::Cryptodev;
use std::io::Write;
use std::sync::Arc;

/// Every engine of this machine; says aloud which it has not.
pub fn engines() -> Vec<Arc<dyn Engine>> {
    let found = crypto::choice::find();
    for (name, reason) in &found.absent {
        // Past the capture of the test harness: what was not tested must be seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED for the engine {name}: {reason}");
    }
    // An engine behind a driver is taken without its guard, whose patience ends where a machine is emulated.
    let af_alg = AfAlg::load().ok().map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    let cryptodev = Cryptodev::load().ok().map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    let driven: Vec<_> = af_alg.into_iter().chain(cryptodev).collect();
    let guarded = |engine: &Arc<dyn Engine>| driven.iter().any(|it| it.name() == engine.name());
    found.engines.into_iter().filter(|engine| !guarded(engine)).chain(driven.iter().cloned()).collect()
}
