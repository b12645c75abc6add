//! Where the CPU time of a program goes: the cost of the same transfer with less and less protection, subtracted.

use super::measure::TO_SERVER;
use super::report::{Cost, Measurement, Report, Run};
use super::{OURS, OURS_BARE, OURS_BOTH, OURS_DIGEST, STOCK_BARE, STOCK_BOTH, STOCK_DIGEST};

/// A sentence for each program whose pairs were all measured.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let Some(measurement) = report.measurement(TO_SERVER) else { return Vec::new() };
    let cost = |name: &str| {
        let pair = report.pair(name)?;
        let total = measurement.median(pair, Run::both);
        total.is_finite().then_some((pair, total))
    };
    let by_parts = |name: &str, [both, digest, bare]: [&str; 3]| {
        let ((_, both), (_, digest), (bare, rest)) = (cost(both)?, cost(digest)?, cost(bare)?);
        let parts = [("the cipher", both - digest), ("the digest", digest - rest)];
        Some(sentence(&format!("{name}, AES-256-CBC and HMAC-SHA256"), both, &parts, rest, measurement, bare))
    };
    let aead = || {
        let ((_, both), (bare, rest)) = (cost(OURS)?, cost(OURS_BARE)?);
        let parts = [("cipher and digest, which are one in AES-256-GCM,", both - rest)];
        Some(sentence("postern, AES-256-GCM", both, &parts, rest, measurement, bare))
    };
    let stock = by_parts("openvpn", [STOCK_BOTH, STOCK_DIGEST, STOCK_BARE]);
    let ours = by_parts("postern", [OURS_BOTH, OURS_DIGEST, OURS_BARE]);
    [stock, ours, aead()].into_iter().flatten().collect()
}

/// What the parts cost that were taken away, what is left, and which is the largest.
fn sentence(
    name: &str,
    total: f64,
    parts: &[(&str, f64)],
    rest: f64,
    measurement: &Measurement,
    bare: usize,
) -> String {
    let both =
        |of: fn(&Cost) -> f64| measurement.median(bare, |run| Some(of(run.client()?) + of(run.server()?)));
    let kernel = both(|cost| cost.system) / rest;
    let busiest = measurement.median(bare, |run| Some(run.client()?.busiest.max(run.server()?.busiest)));
    let share = |cost: f64| {
        // A difference below zero is noise: the part costs less than two runs differ.
        format!("{:.2} ({:.0}%)", cost.max(0.0), 100.0 * cost.max(0.0) / total)
    };
    let listed: Vec<String> = parts.iter().map(|(part, cost)| format!("{part} {}", share(*cost))).collect();
    let largest =
        parts.iter().copied().fold(("", rest), |most, part| if part.1 > most.1 { part } else { most });
    let largest = match largest.0.trim_end_matches(',') {
        "" if kernel >= 0.5 => "the kernel's work for each packet",
        "" => "the program's own work for each packet",
        part => part,
    };
    format!(
        "{name}: of {total:.2} CPU s/GB of both gateways in one TCP stream to the server, {} and all else {}, of it {:.0}% in the \
         kernel, with the busiest thread running {:.0}% of the time: the bottleneck is {largest}.",
        listed.join(", "),
        share(rest),
        100.0 * kernel,
        100.0 * busiest,
    )
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, run};
    use super::*;

    #[test]
    fn the_largest_part_is_the_bottleneck() {
        let stock = |both: f64, digest: f64, bare: f64| {
            report(&[
                (STOCK_BOTH, run(1.0, [0.0, both / 2.0], [0.0, both / 2.0])),
                (STOCK_DIGEST, run(1.0, [0.0, digest / 2.0], [0.0, digest / 2.0])),
                (STOCK_BARE, run(1.0, [bare / 8.0, bare / 8.0 * 3.0], [bare / 8.0, bare / 8.0 * 3.0])),
            ])
        };
        let told = sentences(&stock(10.0, 9.0, 6.0)).concat();
        assert!(
            told.contains(
                "the cipher 1.00 (10%), the digest 3.00 (30%) and all else 6.00 (60%), of it 75% in"
            ),
            "{told}"
        );
        assert!(told.ends_with("is the kernel's work for each packet."), "{told}");
        let told = sentences(&stock(10.0, 4.0, 2.0)).concat();
        assert!(told.ends_with("is the cipher."), "{told}");
        let told = sentences(&stock(6.0, 6.5, 5.0)).concat();
        assert!(told.contains("the cipher 0.00 (0%)"), "a negative difference is noise: {told}");
    }

    #[test]
    fn without_the_pairs_there_is_no_sentence() {
        assert!(sentences(&report(&[(OURS, run(1.0, [1.0; 2], [1.0; 2]))])).is_empty());
        let both =
            report(&[(OURS, run(9.0, [1.0, 0.5], [1.0, 0.5])), (OURS_BARE, run(9.0, [0.25; 2], [0.25; 2]))]);
        assert!(sentences(&both).concat().ends_with("is cipher and digest, which are one in AES-256-GCM."));
    }
}
