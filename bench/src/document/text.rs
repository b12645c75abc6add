//! The result as tables: those of RFC 2544 section 26 for the frame sizes, and one for each other part.

use super::chart::megabits;
use super::protocol::Part;
use super::report::{Entry, Report};
use crate::report::{short, table};
use crate::rfc2544::SizeResult;
use crate::rfc2544::procedure::Limit;
use crate::rfc2544::text::{grouped, load, percent, rate};
use std::fmt::Write as _;

type Row<'a> = (&'a Entry, &'a SizeResult);

/// The report as text.
pub(super) fn write(report: &Report) -> String {
    let mut text = head(report);
    let sizes = report.of(Part::FrameSizes);
    if !sizes.is_empty() {
        text += "\nFrame sizes: TCP, bursts of 64, both directions, two encryptors.\n";
        text += &throughput(&sizes);
        text += &latency(&sizes);
        text += &fixed(&sizes);
        text += &loss(&sizes);
        text += &bursts(&sizes);
        text += &ratios(report, &sizes);
    }
    let others = [
        (Part::Bursts, "Bursts: two encryptors, TCP, both directions."),
        (Part::Directions, "One direction: two encryptors, TCP, bursts of 64."),
        (Part::Traffic, "UDP and ICMP: two encryptors, bursts of 64, both directions."),
        (Part::Encryptor, "One encryptor: the tester opens, and in both directions seals, every ESP packet."),
        (
            Part::Memory,
            "In memory: two of our encryptors without the kernel, TCP, bursts of 64, both directions.",
        ),
    ];
    for (part, title) in others {
        let rows = report.of(part);
        if !rows.is_empty() {
            let _ = write!(text, "\n{title}\n{}", steps(&rows));
        }
    }
    if !report.overload.is_empty() {
        text += &super::overload::text(&report.overload);
    }
    text + &notes(report)
}

fn head(report: &Report) -> String {
    let mut text = report.machine.head();
    let _ = writeln!(
        text,
        "tester on core {}, each device on core {}, clock {}; load average {:.1} to {:.1}, steal {:.1}%; {:.0} s",
        report.tester_core,
        report.device_core,
        report.clock_source,
        report.load[0],
        report.load[1],
        report.steal_percent,
        report.seconds,
    );
    let plan = &report.plan;
    if plan.is_conformant {
        text += "lengths and repetitions of RFC 2544, 8219 and 9004; see docs/rfc2544.md for what else they ask\n";
    } else {
        let _ = writeln!(
            text,
            "SCALED, not RFC 2544 conformant: trials of {} s and {} s instead of 60 s and 120 s; --full has those of the RFCs",
            plan.final_seconds.unwrap_or(plan.search_seconds),
            plan.latency_seconds,
        );
    }
    for subject in &report.subjects {
        let _ = writeln!(text, "{}: {}", subject.name, subject.told);
    }
    for (name, why) in &report.missing {
        let _ = writeln!(text, "{name} is not measured: {why}");
    }
    text
}

fn rate_of(result: &SizeResult, place: usize) -> String {
    result.throughput.get(place).map_or_else(|| "-".to_owned(), rate)
}

fn limit(result: &SizeResult) -> String {
    let best = result.throughput.iter().rev().find(|it| it.rate.is_some());
    match best.map(|it| it.limit) {
        Some(Some(Limit::Tester)) => "tester-limited",
        Some(Some(Limit::Line)) => "line",
        Some(None) => "device",
        None => "loss at every rate",
    }
    .to_owned()
}

fn late(result: &SizeResult) -> String {
    let count = result.trials.len().max(1) as f64;
    format!("{:.1}%", result.trials.iter().map(|it| it.late_share).sum::<f64>() / count * 100.0)
}

fn cpu(entry: &Entry) -> String {
    entry.cpu_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0}%"))
}

fn throughput(rows: &[Row<'_>]) -> String {
    let row = |(entry, result): &Row<'_>| {
        let bits =
            result.throughput.first().and_then(|it| it.rate).map_or(f64::NAN, |it| megabits(it, result));
        let lossless =
            result.throughput.last().and_then(|it| it.rate).map_or(f64::NAN, |it| megabits(it, result));
        vec![
            result.name.clone(),
            entry.device.clone(),
            rate_of(result, 2),
            short(lossless),
            rate_of(result, 1),
            rate_of(result, 0),
            short(bits),
            grouped(result.calibration.most),
            cpu(entry),
            late(result),
            format!("{:.1}%", entry.steal_percent),
            limit(result),
        ]
    };
    let head = [
        "frame",
        "device",
        "NDR",
        "Mbit/s",
        "PDR 0.1%",
        "PDR 0.5%",
        "Mbit/s",
        "tester alone",
        "CPU",
        "late",
        "steal",
        "limit",
    ];
    let rows: Vec<_> = rows.iter().map(row).collect();
    format!(
        "\nThroughput (26.1): frames/s in each direction; Mbit/s of NDR and of PDR 0.5%. CPU: of the device.\n{}",
        table(&head, &rows)
    )
}

fn latency(rows: &[Row<'_>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .flat_map(|(entry, result)| {
            let floor = result.calibration.floor;
            result.latency.iter().map(move |it| {
                vec![
                    result.name.clone(),
                    entry.device.clone(),
                    load(it),
                    grouped(it.rate),
                    short(it.tagged_mean),
                    short(it.typical),
                    short(it.worst),
                    short(it.variation),
                    it.ipdv.map(short).join(", "),
                    short(floor.map_or(f64::NAN, |it| it.median)),
                    percent(it.loss),
                ]
            })
        })
        .collect();
    let head = [
        "frame",
        "device",
        "load",
        "frames/s",
        "tagged mean",
        "typical",
        "worst 99.9%",
        "PDV",
        "IPDV least, median, most",
        "floor median",
        "lost",
    ];
    format!(
        "\nLatency (26.2, RFC 8219): us, store and forward, at shares of the device's own NDR.\n{}",
        table(&head, &rows)
    )
}

fn fixed(rows: &[Row<'_>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .flat_map(|(entry, result)| {
            entry.fixed.iter().map(move |it| {
                let sign = if it.is_tester_limited { "tester-limited" } else { "" };
                vec![
                    result.name.clone(),
                    entry.device.clone(),
                    format!("{:.0}", it.bits / 1e6),
                    grouped(it.trial.offered),
                    percent(it.loss),
                    short(it.delays.map_or(f64::NAN, |it| it.mean / 1e3)),
                    short(it.delays.map_or(f64::NAN, |it| it.p999 / 1e3)),
                    sign.to_owned(),
                ]
            })
        })
        .collect();
    let head = ["frame", "device", "Mbit/s", "frames/s", "lost", "mean ms", "99.9% ms", "limit"];
    format!("\nLoss and delay at the document's rates, in each direction.\n{}", table(&head, &rows))
}

/// The curve of each device in a row: the loss at 100%, 90%, ... of the highest rate.
fn loss(rows: &[Row<'_>]) -> String {
    let shares: Vec<String> = (1..=10).rev().map(|tenth| format!("{}%", tenth * 10)).collect();
    let head: Vec<&str> =
        ["frame", "device", "100% is"].into_iter().chain(shares.iter().map(String::as_str)).collect();
    let row = |(entry, result): &Row<'_>| {
        let cells =
            (0..10).map(|place| result.loss.get(place).map_or_else(String::new, |it| percent(it.loss)));
        [result.name.clone(), entry.device.clone(), grouped(result.most)].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    format!(
        "\nFrame loss (26.3): at shares of the highest rate, until two in a row lose nothing.\n{}",
        table(&head, &rows)
    )
}

fn bursts(rows: &[Row<'_>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|(entry, result)| {
            let it = result.back_to_back.as_ref()?;
            let sign = if it.is_longest { ">= " } else { "" };
            Some(vec![
                result.name.clone(),
                entry.device.clone(),
                it.frames.len().to_string(),
                format!("{sign}{}", grouped(it.mean)),
                short(it.deviation),
                short(it.implied_ms),
                short(it.corrected_ms),
            ])
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["frame", "device", "searches", "frames", "deviation", "implied ms", "corrected ms"];
    format!(
        "\nBack-to-back frames (26.4, RFC 9004): the longest burst without loss.\n{}",
        table(&head, &rows)
    )
}

/// How much more the first device carries than each other, by size.
fn ratios(report: &Report, rows: &[Row<'_>]) -> String {
    let [first, others @ ..] = &report.subjects[..] else { return String::new() };
    let mut text = String::new();
    for other in others {
        let cells: Vec<String> = rows
            .iter()
            .filter(|(entry, _)| entry.device == first.name)
            .filter_map(|(_, ours)| {
                let theirs =
                    rows.iter().find(|(entry, it)| entry.device == other.name && it.name == ours.name)?;
                let rate = |it: &SizeResult| it.throughput.first()?.rate;
                let sign = if ours.throughput.first()?.limit == Some(Limit::Tester) { ">= " } else { "" };
                Some(format!("{} {sign}{}x", ours.name, short(rate(ours)? / rate(theirs.1)?)))
            })
            .collect();
        let _ = writeln!(text, "PDR 0.5%, {} to {}: {}", first.name, other.name, cells.join(", "));
    }
    format!("\n{text}")
}

fn steps(rows: &[Row<'_>]) -> String {
    let row = |(entry, result): &Row<'_>| {
        let latency = result.latency.first();
        vec![
            result.name.clone(),
            format!("{:?}", entry.protocol).to_uppercase(),
            entry.burst.to_string(),
            if entry.both { "both" } else { "one" }.to_owned(),
            entry.device.clone(),
            rate_of(result, 2),
            rate_of(result, 1),
            rate_of(result, 0),
            short(
                result.throughput.first().and_then(|it| it.rate).map_or(f64::NAN, |it| megabits(it, result)),
            ),
            short(latency.map_or(f64::NAN, |it| it.typical)),
            short(latency.map_or(f64::NAN, |it| it.worst)),
            cpu(entry),
            format!("{:.1}%", entry.steal_percent),
            limit(result),
        ]
    };
    let head = [
        "frame",
        "traffic",
        "burst",
        "directions",
        "device",
        "NDR",
        "PDR 0.1%",
        "PDR 0.5%",
        "Mbit/s",
        "typical us",
        "worst us",
        "CPU",
        "steal",
        "limit",
    ];
    table(&head, &rows.iter().map(row).collect::<Vec<_>>())
}

/// What the tables do not show.
fn notes(report: &Report) -> String {
    let mut text = String::new();
    for entry in &report.entries {
        if let Some(error) = &entry.error {
            let _ = writeln!(text, "{}, {:?}: {error}", entry.device, entry.part);
        }
        let Some(result) = &entry.result else { continue };
        let sum = result.trials.iter().fold([0; 5], |sum, trial| {
            let counts = trial.counts;
            let all = [counts.duplicated, counts.reordered, counts.corrupted, counts.clear, counts.repeated];
            std::array::from_fn(|place| sum[place] + all[place])
        });
        let names = [
            "duplicated",
            "reordered",
            "corrupted",
            "in clear where ESP is expected",
            "with a repeated ESP number",
        ];
        for (count, name) in sum.into_iter().zip(names).filter(|it| it.0 > 0) {
            let of = format!("{}, {:?}, {}", entry.device, entry.part, result.name);
            let _ = writeln!(text, "{of}: {} frames {name} in all trials", grouped(count as f64));
        }
    }
    let is_limited = |entry: &Entry| {
        let result = entry.result.as_ref();
        result.is_some_and(|it| it.throughput.iter().any(|it| it.limit == Some(Limit::Tester)))
    };
    if report.entries.iter().any(is_limited) {
        text += ">=, tester-limited: the tester itself carries at most 1.25 times as much; the device may do more\n";
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example;

    #[test]
    fn tables_have_a_row_for_each_device_and_size_and_say_what_is_missing_or_scaled() {
        let mut report = example();
        let text = report.text();
        let row = |of: &[&str]| text.lines().filter(|line| of.iter().all(|word| line.contains(word))).count();
        assert_eq!(
            (row(&["postern", "1,000,000", "device"]), row(&["strongswan", "250,000", "device"])),
            (1, 1),
            "{text}"
        );
        assert_eq!(row(&["1518", "postern", ">= 500,000", "tester-limited"]), 1, "{text}");
        assert!(text.contains("SCALED, not RFC 2544 conformant: trials of 0.15 s"), "{text}");
        assert!(text.contains("ipsec-secgw is not measured: apt-get install gcc"), "{text}");
        assert!(text.contains("load average 0.5 to 1.5, steal 1.2%") && text.contains("2 cores"), "{text}");
        assert!(text.contains("PDR 0.5%, postern to strongswan: 64 4.00x, 1518 >= 4.00x"), "{text}");
        assert!(text.contains("100% of PDR 0.50%") && text.contains("30.00%"), "{text}");
        report.entries[1].error = Some("it has gone".to_owned());
        report.entries[0].result.as_mut().expect("it has one").trials[0].counts.clear = 7;
        let text = report.text();
        assert!(text.contains("strongswan, FrameSizes: it has gone"), "{text}");
        assert!(text.contains("postern, FrameSizes, 64: 7 frames in clear where ESP is expected"), "{text}");
    }
}
