//! The result as tables: one for each measurement, a row for each frame size.

use super::esp::EspReport;
use super::procedure::{Limit, Throughput};
use super::receiver::Counts;
use super::report::{Report, SizeResult, StreamResult};
use super::wireguard::WireGuardReport;
use crate::report::{short, table};
use std::fmt::Write as _;

/// The report as text.
pub fn write(report: &Report) -> String {
    let mut text = head(report);
    text += "\nThroughput: frames/s in each direction; NDR loses nothing, PDR at most the share. Spread: of the searches.\n";
    text += &table(
        &[
            "frame",
            "NDR",
            "Gbit/s",
            "spread",
            "PDR 0.1%",
            "PDR 0.5%",
            "tester alone",
            "late",
            "steal",
            "limit",
        ],
        &report.sizes.iter().map(|size| throughput(report, size)).collect::<Vec<_>>(),
    );
    let latency: Vec<Vec<String>> = report.sizes.iter().flat_map(latencies).collect();
    if !latency.is_empty() {
        text += "\nLatency in us, store and forward (RFC 1242), by software at both ends; floor: the tester's own ports, connected.\n";
        let head = [
            "frame",
            "load",
            "frames/s",
            "tagged mean",
            "typical",
            "worst 99.9%",
            "PDV",
            "IPDV least, median, most",
            "floor median",
            "floor 99.9%",
            "lost",
        ];
        text += &table(&head, &latency);
    }
    let loss: Vec<Vec<String>> = report.sizes.iter().flat_map(losses).collect();
    if !loss.is_empty() {
        text += "\nFrame loss: at shares of the highest rate.\n";
        text += &table(&["frame", "load", "frames/s", "lost"], &loss);
    }
    let bursts: Vec<Vec<String>> = report.sizes.iter().filter_map(burst).collect();
    if !bursts.is_empty() {
        text += "\nBack-to-back frames (RFC 9004): the longest burst without loss.\n";
        let head = ["frame", "searches", "mean", "least", "most", "deviation", "implied ms", "corrected ms"];
        text += &table(&head, &bursts);
    }
    text + &notes(report)
}

fn head(report: &Report) -> String {
    let mut text = report.machine.head();
    let between = match report.wire.as_str() {
        "memory" => "rings in memory, a thread that copies between them as the device".to_owned(),
        wire => {
            let [first, second] =
                [0, 1].map(|it: usize| format!("{} ({})", report.interfaces[it], report.ports[it]));
            let deferred = if report.is_napi_deferred { ", NAPI deferred" } else { "" };
            format!("{wire} on {first} and {second}{deferred}")
        }
    };
    let directions = if report.both { "both directions" } else { "one direction" };
    let protocol = format!("{:?}", report.protocol).to_uppercase();
    let streams = match report.streams {
        1 => String::new(),
        count => format!(", {count} streams in each direction"),
    };
    let broadcasts = if report.broadcasts { ", 1% broadcast frames beside" } else { "" };
    let _ = writeln!(
        text,
        "{between}; {directions}, {protocol} over {}{}{}, bursts of {}; tester on core {}, clock {}",
        report.family.name(),
        streams,
        broadcasts,
        report.plan.burst,
        report.core,
        report.clock_source
    );
    text += &esp(report);
    text += &wireguard(report);
    let scale = report.plan.scale;
    if (scale - 1.0).abs() > f64::EPSILON {
        let _ = writeln!(
            text,
            "not RFC 2544 conformant: the repetitions are those of the RFCs, and all lengths {scale} times theirs"
        );
        return text;
    }
    text += if report.plan.is_conformant {
        "lengths and repetitions of RFC 2544, 8219 and 9004; see docs/rfc2544.md for what else they ask\n"
    } else {
        "not RFC 2544 conformant: short trials, few repetitions; --full has those of the RFCs\n"
    };
    text
}

/// The ports with ESP, the SAs, and the sequence number for the next run.
fn esp(report: &Report) -> String {
    let Some(esp) = &report.esp else { return String::new() };
    let mut text = format!("ESP at {}", names(report, esp.ports));
    if esp.opens.len() + esp.seals.len() > FEW_SAS {
        text += &many_sas(esp);
    } else {
        for (spi, name, _) in &esp.opens {
            let _ = write!(text, "; opens SPI {spi} ({name})");
        }
        for (spi, name, next) in &esp.seals {
            let _ = write!(text, "; sealed with SPI {spi} ({name}) up to sequence number {}", next - 1);
        }
    }
    let _ = writeln!(text, "; engines: {}", esp.engines.join(", "));
    for note in &esp.notes {
        let _ = writeln!(text, "{note}");
    }
    text + "frame sizes are those of the frames without ESP\n"
}

/// The ports with WireGuard, and its handshakes.
fn wireguard(report: &Report) -> String {
    let Some(WireGuardReport { ports, own, endpoint, handshakes, opened, engines }) = &report.wireguard
    else {
        return String::new();
    };
    format!(
        "WireGuard at {}, from {own} to {endpoint}: {handshakes} handshakes, {} packets opened; engines: {}\n\
         frame sizes are those of the frames without WireGuard\n",
        names(report, *ports),
        grouped(*opened as f64),
        engines.join(", ")
    )
}

/// The names of these ports.
fn names(report: &Report, ports: [bool; 2]) -> String {
    let ports = report.interfaces.iter().zip(["tx", "rx"]).zip(ports).filter(|it| it.1);
    let names = ports.map(|((interface, side), _)| if interface.is_empty() { side } else { interface });
    names.collect::<Vec<_>>().join(" and ")
}

/// So many SAs in a line; the sequence numbers of more are in the JSON.
const FEW_SAS: usize = 6;

/// How many SAs were used, and which were not.
fn many_sas(esp: &EspReport) -> String {
    let unused: Vec<String> = esp.opens.iter().filter(|sa| sa.2 == 0).map(|sa| sa.0.to_string()).collect();
    let mut text = format!("; opened {} SAs", esp.opens.len() - unused.len());
    if !unused.is_empty() {
        let more = if unused.len() > FEW_SAS { ", ..." } else { "" };
        let _ =
            write!(text, ", nothing came under SPI {}{more}", unused[..unused.len().min(FEW_SAS)].join(", "));
    }
    if let Some(most) = esp.seals.iter().map(|seal| seal.2 - 1).max() {
        let _ = write!(text, "; sealed with {} SAs up to sequence number {most}", esp.seals.len());
    }
    text
}

pub(crate) fn rate(throughput: &Throughput) -> String {
    let sign = if throughput.limit == Some(Limit::Tester) { ">= " } else { "" };
    throughput.rate.map_or("-".to_owned(), |rate| format!("{sign}{}", grouped(rate)))
}

/// Thousands, apart by commas.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn throughput(report: &Report, size: &SizeResult) -> Vec<String> {
    let [most, some, none] = &size.throughput[..] else { return vec![String::new(); 10] };
    let bits = none.rate.map_or(f64::NAN, |rate| rate * size.bytes * 8.0 / 1e9);
    let spread = match (&none.searches[..], none.rate) {
        ([_], _) | (_, None) => "-".to_owned(),
        (searches, Some(rate)) => {
            let rates: Vec<f64> = searches.iter().map(|it| it.unwrap_or(0.0)).collect();
            let (least, most) =
                (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
            format!("{:.0}%", (most - least) / rate * 100.0)
        }
    };
    let steal: f64 = size.trials.iter().map(|it| it.disturbance.steal_ms).sum();
    let seconds: f64 = size.trials.iter().map(|it| it.seconds).sum();
    let late = size.trials.iter().map(|it| it.late_share).sum::<f64>() / size.trials.len().max(1) as f64;
    let limit = match none.limit {
        Some(Limit::Tester) => "tester-limited",
        Some(Limit::Line) => "line",
        None if none.rate.is_none() => "loss at every rate",
        None => "device",
    };
    vec![
        size.name.clone(),
        rate(none),
        short(bits),
        spread,
        rate(some),
        rate(most),
        grouped(size.calibration.most),
        format!("{:.1}%", late * 100.0),
        format!("{:.1}%", steal / 10.0 / seconds.max(1e-3) / report.machine.cores as f64),
        limit.to_owned(),
    ]
}

/// The load of a latency: the NDR, or the PDR of a device that loses frames at every rate.
pub(crate) fn load(latency: &super::procedure::Latency) -> String {
    let of =
        if latency.allowed > 0.0 { format!(" of PDR {}", percent(latency.allowed)) } else { String::new() };
    format!("{:.0}%{of}", latency.share * 100.0)
}

/// A median, and the range of the trials if there are several.
fn spread(median: f64, [least, most]: [f64; 2]) -> String {
    let text = short(median);
    if most > least { format!("{text} ({} to {})", short(least), short(most)) } else { text }
}

fn latencies(size: &SizeResult) -> Vec<Vec<String>> {
    let floor = size.calibration.floor;
    let row = |it: &super::procedure::Latency| {
        vec![
            size.name.clone(),
            load(it),
            grouped(it.rate),
            short(it.tagged_mean),
            spread(it.typical, it.typical_range),
            spread(it.worst, it.worst_range),
            short(it.variation),
            it.ipdv.map(short).join(", "),
            short(floor.map_or(f64::NAN, |it| it.median)),
            short(floor.map_or(f64::NAN, |it| it.p999)),
            percent(it.loss),
        ]
    };
    size.latency.iter().map(row).collect()
}

/// A share, exact where it is small.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0%".to_owned(),
        percent if percent < 0.1 => format!("{percent:.4}%"),
        percent => format!("{percent:.2}%"),
    }
}

fn losses(size: &SizeResult) -> Vec<Vec<String>> {
    let row = |it: &super::procedure::LossPoint| {
        vec![size.name.clone(), format!("{:.0}%", it.share * 100.0), grouped(it.rate), percent(it.loss)]
    };
    size.loss.iter().map(row).collect()
}

fn burst(size: &SizeResult) -> Option<Vec<String>> {
    let it = size.back_to_back.as_ref()?;
    let sign = if it.is_longest { ">= " } else { "" };
    Some(vec![
        size.name.clone(),
        it.frames.len().to_string(),
        format!("{sign}{}", grouped(it.mean)),
        grouped(it.frames.iter().copied().min().unwrap_or_default() as f64),
        grouped(it.frames.iter().copied().max().unwrap_or_default() as f64),
        short(it.deviation),
        short(it.implied_ms),
        short(it.corrected_ms),
    ])
}

/// Streams of which no frame arrived, and how loss was spread over the others.
fn streams(size: &SizeResult) -> String {
    let mut text = String::new();
    let name = |it: &StreamResult| format!("{} > {}", it.stream.source, it.stream.destination);
    let (silent, mut alive): (Vec<_>, Vec<_>) = size.streams.iter().partition(|it| it.counts.received == 0);
    if !silent.is_empty() {
        let first: Vec<String> = silent.iter().take(3).map(&name).collect();
        let (count, all, first) = (silent.len(), size.streams.len(), first.join(", "));
        let _ = writeln!(text, "{}: no frame of {count} of {all} streams arrived: {first}", size.name);
    }
    alive.sort_by(|a, b| a.counts.loss().total_cmp(&b.counts.loss()));
    if let (Some(best), Some(worst)) = (alive.first(), alive.last())
        && worst.counts.loss() > 0.0
    {
        let [least, most] = [best, worst].map(|it| percent(it.counts.loss()));
        let worst = name(worst);
        let _ = writeln!(
            text,
            "{}: loss by stream, all trials: {least} to {most}, the most of {worst}",
            size.name
        );
    }
    text
}

/// What the tables do not say: frames that were more than lost, and limits.
fn notes(report: &Report) -> String {
    let mut text = String::new();
    for size in &report.sizes {
        let through = size.trials.iter().filter(|it| it.purpose != super::trial::Purpose::Calibration);
        let sum = through.fold(Counts::default(), |sum, it| sum.and(it.counts));
        let own: u64 = size.trials.iter().map(super::trial::Trial::dropped_by_tester).sum();
        if own > 0 {
            let own = grouped(own as f64);
            let _ = writeln!(
                text,
                "{}: {own} frames dropped by the tester's own ports in all trials, counted as lost",
                size.name
            );
        }
        for (count, what) in [
            (sum.duplicated, "duplicated"),
            (sum.reordered, "reordered"),
            (sum.corrupted, "corrupted"),
            (sum.clear, "not encrypted where they have to be"),
            (sum.repeated, "with a number of ESP or WireGuard that another frame has had"),
            (sum.other_sa, "under another SA than that of their policy"),
        ] {
            if count > 0 {
                let _ =
                    writeln!(text, "{}: {} frames {what} in all trials", size.name, grouped(count as f64));
            }
        }
        text += &streams(size);
        if size.throughput.last().is_some_and(|it| it.rate.is_none()) {
            let latency = if size.latency.is_empty() { "neither latency nor" } else { "no" };
            let _ = writeln!(text, "{}: {latency} back-to-back frames: no rate without loss", size.name);
        }
        if size.back_to_back.is_none() && size.throughput.last().is_some_and(|it| it.limit.is_some()) {
            let _ = writeln!(
                text,
                "{}: no back-to-back frames: the device keeps up with the highest rate",
                size.name
            );
        }
    }
    if report.sizes.iter().any(|it| it.throughput.iter().any(|it| it.limit == Some(Limit::Tester))) {
        text += ">=: the tester itself carries at most 1.25 times as much; the device may do more\n";
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::super::receiver::StreamCounts;
    use super::super::report::tests::example;
    use super::super::streams::Stream;
    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_size_and_says_what_limits() {
        let text = example().text();
        let row = |start: &str| {
            text.lines()
                .map(str::trim_start)
                .find(|line| line.starts_with(start))
                .unwrap_or_default()
                .to_owned()
        };
        assert!(row("64 ").contains("1,000,000") && row("64 ").ends_with("device"), "{text}");
        assert!(row("1518 ").contains(">= 500,000") && row("1518 ").ends_with("tester-limited"), "{text}");
        assert!(row("64 ").contains("20%"), "the spread of the searches: {text}");
        let latency = text.lines().find(|line| line.contains("20.0 (18.0 to 25.0)")).unwrap_or_default();
        assert!(latency.contains("100%  1,000,000") && latency.contains("  90.0  "), "{text}");
        assert!(
            text.contains("not RFC 2544 conformant") && text.contains("the device may do more"),
            "{text}"
        );
        assert!(text.contains("postern 0.1.0, commit 0123456789ab"), "{text}");
        let mut full = example();
        full.plan = super::super::Plan::full();
        assert!(!full.text().contains("not RFC 2544 conformant"));
        full.plan = full.plan.scaled(0.001);
        assert!(full.text().contains("all lengths 0.001 times theirs"), "{}", full.text());
    }

    #[test]
    fn duplicates_reordering_and_corruption_are_named() {
        let mut report = example();
        report.sizes[0].trials[1].counts.duplicated = 1234;
        report.sizes[0].trials[1].counts.corrupted = 5;
        let text = report.text();
        assert!(
            text.contains("64: 1,234 frames duplicated") && text.contains("64: 5 frames corrupted"),
            "{text}"
        );
    }

    #[test]
    fn streams_that_do_not_arrive_and_uneven_loss_are_named() {
        let of = |number: u8, received| StreamResult {
            stream: Stream::between([198, 18, number, 2].into(), [198, 19, number, 2].into()),
            counts: StreamCounts { sent: 1000, received, ..StreamCounts::default() },
        };
        let mut report = example();
        report.streams = 3;
        report.sizes[0].streams = vec![of(0, 1000), of(1, 0), of(2, 900)];
        let text = report.text();
        assert!(text.contains("UDP over IPv4, 3 streams in each direction"), "{text}");
        let silent = "64: no frame of 1 of 3 streams arrived: 198.18.1.2 > 198.19.1.2\n";
        let uneven = "64: loss by stream, all trials: 0% to 10.00%, the most of 198.18.2.2 > 198.19.2.2\n";
        assert!(text.contains(silent) && text.contains(uneven), "{text}");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0.0, 999.0, 1000.0, 1_234_567.0].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.000_01, 0.005, 0.5].map(percent), ["0%", "0.0010%", "0.50%", "50.00%"]);
    }
}
