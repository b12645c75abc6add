//! The engines under test.

use crypto::engine::Engine;
use crypto::engine::af_alg::AfAlg;
use crypto::engine::cryptodev::Cryptodev;
use crypto::engine::dpdk::{Dpdk, drivers};
use crypto::engine::library::Unavailable;
use crypto::engine::multi_buffer::MultiBuffer;
use dpdk::{Eal, Library};
use std::io::Write;
use std::sync::{Arc, OnceLock};

/// The words of EAL for all its software drivers; they need neither huge pages nor rights.
const WORDS: &str = "--no-huge -m 96 --no-pci --no-shconf --no-telemetry --iova-mode=va --lcores 0@0 \
    --vdev crypto_openssl0 --vdev crypto_aesni_gcm0 --vdev crypto_aesni_mb0 --vdev crypto_null0";

/// Starts DPDK, once; why it does not start.
fn start_dpdk() -> Option<String> {
    static STARTED: OnceLock<Option<String>> = OnceLock::new();
    let start = || {
        let library = Library::find().map_err(|error| error.to_string())?;
        let words: Vec<String> = WORDS.split_whitespace().map(str::to_owned).collect();
        Eal::start(library, &words, || ()).map(drop).map_err(|error| error.to_string())
    };
    STARTED.get_or_init(|| start().err()).clone()
}

/// All engines of this machine; reports missing ones on stderr.
pub fn engines() -> Vec<Arc<dyn Engine>> {
    let dpdk = start_dpdk().map(|reason| ("dpdk", Unavailable::Refused(reason)));
    let found = crypto::choice::find();
    for (name, reason) in found.absent.iter().chain(&dpdk) {
        // Bypass the output capture of the test harness: skipped engines must be visible.
        let _ = writeln!(std::io::stderr(), "SKIPPED for the engine {name}: {reason}");
    }
    // Use engines with drivers unguarded: in an emulated machine they exceed the guard's deadlines.
    let af_alg = AfAlg::load().ok().map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    let cryptodev = Cryptodev::load().ok().map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    let dpdk = drivers().into_iter().filter_map(|driver| Some(Arc::new(Dpdk::open(&driver).ok()?) as _));
    let driven: Vec<Arc<dyn Engine>> = af_alg.into_iter().chain(cryptodev).chain(dpdk).collect();
    let guarded = |engine: &Arc<dyn Engine>| driven.iter().any(|it| it.name() == engine.name());
    // The one with the best instructions is among those that were found.
    let others = MultiBuffer::all().skip(1).map(|engine| Arc::new(engine) as Arc<dyn Engine>);
    let found = found.engines.into_iter().filter(|engine| !guarded(engine));
    found.chain(driven.iter().cloned()).chain(others).collect()
}
