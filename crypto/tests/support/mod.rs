//! The engines under test.

use crypto::engine::Engine;
use crypto::engine::af_alg::AfAlg;
use crypto::engine::cryptodev::Cryptodev;
use crypto::engine::multi_buffer::MultiBuffer;
use std::io::Write;
use std::sync::Arc;

/// All engines of this machine; reports missing ones on stderr.
pub fn engines() -> Vec<Arc<dyn Engine>> {
    let found = crypto::choice::find();
    for (name, reason) in &found.absent {
        // Bypass the output capture of the test harness: skipped engines must be visible.
        let _ = writeln!(std::io::stderr(), "SKIPPED for the engine {name}: {reason}");
    }
    // Use engines with drivers unguarded: in an emulated machine they exceed the guard's deadlines.
    let af_alg = AfAlg::load().ok().map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    let cryptodev = Cryptodev::load().ok().map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    let driven: Vec<_> = af_alg.into_iter().chain(cryptodev).collect();
    let guarded = |engine: &Arc<dyn Engine>| driven.iter().any(|it| it.name() == engine.name());
    // The one with the best instructions is among those that were found.
    let others = MultiBuffer::all().skip(1).map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    let found = found.engines.into_iter().filter(|engine| !guarded(engine));
    found.chain(driven.iter().cloned()).chain(others).collect()
}
