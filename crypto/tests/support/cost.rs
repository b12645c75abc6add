//! What work costs, for the tests that only measure.

/// Microseconds of the processor that `work` takes.
pub fn cost(work: impl Fn()) -> f64 {
    let (start, mut times) = (processor_time(), 0);
    while processor_time() - start < 0.2 {
        work();
        times += 1;
    }
    (processor_time() - start) * 1e6 / f64::from(times)
}

/// Seconds that this thread has run.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
