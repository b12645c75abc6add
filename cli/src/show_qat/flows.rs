//! What a device has computed, line by line with the source of each number.

use super::{UNKNOWN, named};
use crate::answer::Answer;
use crate::output::bytes;
use crate::request::Request;
use crate::{Failure, host};
use crypto::machine::qat::{Qat, Sourced, devices};
use gateway::api::model::{Crypto, CryptoEngine, CryptoTraffic};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How long the rates are measured.
const MEASURED: Duration = Duration::from_secs(1);
/// The source of what the daemon has counted.
const DAEMON: &str = "postern show crypto: packets that the kernel's QAT driver did for Postern";

/// A line of the statistics.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    section: &'static str,
    name: &'static str,
    /// None if nothing has the number.
    value: Option<String>,
    source: Option<String>,
}

/// The counters of one moment.
struct Sample {
    at: Instant,
    device: Qat,
    postern: Option<Postern>,
}

/// What the daemons have had the device do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Postern {
    sealed: CryptoTraffic,
    opened: CryptoTraffic,
    failures: u64,
}

/// The statistics of a device.
pub(crate) fn flows(request: &Request) -> Result<Answer, Failure> {
    answer(request, false)
}

/// The same with sources.
pub(crate) fn flows_detail(request: &Request) -> Result<Answer, Failure> {
    answer(request, true)
}

fn answer(request: &Request, with_sources: bool) -> Result<Answer, Failure> {
    let before = sample(request)?;
    std::thread::sleep(MEASURED);
    let after = sample(request)?;
    let several = devices(&host::root()).iter().filter(|device| device.is_up()).count() > 1;
    let lines = lines(&before, &after, several);
    let name = after.device.name();
    Ok(Answer::new(lines, move |lines| text(&name, lines, with_sources)))
}

fn sample(request: &Request) -> Result<Sample, Failure> {
    let answers: Vec<Crypto> = request.ask().unwrap_or_default();
    Ok(Sample { at: Instant::now(), device: named(request)?, postern: of_daemons(&answers) })
}

/// The sum of the engines that use a QAT driver; their versions name the drivers.
fn of_daemons(answers: &[Crypto]) -> Option<Postern> {
    let is_qat = |engine: &&CryptoEngine| {
        engine.accelerator && engine.version.as_ref().is_some_and(|version| version.contains("qat"))
    };
    let engines: Vec<&CryptoEngine> =
        answers.iter().flat_map(|answer| &answer.engines).filter(is_qat).collect();
    let add = |sum: CryptoTraffic, more: Option<CryptoTraffic>| {
        let more = more.unwrap_or_default();
        CryptoTraffic { packets: sum.packets + more.packets, bytes: sum.bytes + more.bytes }
    };
    let sum = |sum: Postern, engine: &&CryptoEngine| Postern {
        sealed: add(sum.sealed, engine.sealed),
        opened: add(sum.opened, engine.opened),
        failures: sum.failures + engine.failures,
    };
    (!engines.is_empty()).then(|| engines.iter().fold(Postern::default(), sum))
}

fn lines(before: &Sample, after: &Sample, several: bool) -> Vec<Line> {
    [
        crypto_operations(after, several),
        compression(),
        performance(before, after, several),
        vec![errors(after)],
    ]
    .concat()
}

/// A line whose number may be missing.
fn line(section: &'static str, name: &'static str, found: Option<(String, String)>) -> Line {
    let (value, source) = found.unzip();
    Line { section, name, value, source }
}

/// The kernel spreads the packets of a program over all devices, and does not tell which had which.
fn of_all(text: String, several: bool) -> String {
    if several { format!("{text} (all devices)") } else { text }
}

fn crypto_operations(sample: &Sample, several: bool) -> Vec<Line> {
    const SECTION: &str = "Crypto Operations";
    let daemon = |of: fn(Postern) -> String| {
        sample.postern.map(|postern| (of_all(of(postern), several), DAEMON.to_owned()))
    };
    let operations = sample.device.requests.as_ref().map(|Sourced { value: (requests, _), source }| {
        (grouped(*requests), format!("{source}: requests, of all programs and services"))
    });
    vec![
        line(SECTION, "Encryption Requests", daemon(|it| grouped(it.sealed.packets))),
        line(SECTION, "Decryption Requests", daemon(|it| grouped(it.opened.packets))),
        // The firmware counts no kinds of requests.
        line(SECTION, "Authentication Requests", None),
        line(SECTION, "Total Operations", operations),
        line(SECTION, "Encryption Bytes", daemon(|it| bytes(it.sealed.bytes))),
        line(SECTION, "Decryption Bytes", daemon(|it| bytes(it.opened.bytes))),
        line(SECTION, "Total Bytes Processed", daemon(|it| bytes(it.sealed.bytes + it.opened.bytes))),
    ]
}

/// No file of any driver has these.
fn compression() -> Vec<Line> {
    ["Compression Requests", "Decompression Requests", "Total Bytes Compressed"]
        .map(|name| line("Compression Operations", name, None))
        .to_vec()
}

fn performance(before: &Sample, after: &Sample, several: bool) -> Vec<Line> {
    const SECTION: &str = "Performance";
    let seconds = after.at.duration_since(before.at).as_secs_f64().max(f64::EPSILON);
    let requests = |sample: &Sample| sample.device.requests.as_ref().map(|known| known.value.0);
    let rate = requests(before).zip(requests(after)).zip(after.device.requests.as_ref()).map(
        |((earlier, now), known)| {
            let rate = now.saturating_sub(earlier) as f64 / seconds;
            (grouped(rate.round() as u64), format!("{}: requests in one second", known.source))
        },
    );
    let latency = after.device.measured("gp_lat_acc_avg").map(|known| {
        (format!("{:.3} ms", known.value as f64 / 1e6), format!("{}: gp_lat_acc_avg", known.source))
    });
    vec![
        line(SECTION, "Operations/sec", rate),
        line(SECTION, "Throughput", throughput(before, after, seconds, several)),
        line(SECTION, "Average Latency", latency),
    ]
}

/// What the device itself measures, or what Postern had the devices do in the time.
fn throughput(before: &Sample, after: &Sample, seconds: f64, several: bool) -> Option<(String, String)> {
    if let Some(known) = after.device.measured("bw_in") {
        let source = format!("{}: bw_in, what the device writes over PCIe", known.source);
        return Some((format!("{} Mbps", known.value), source));
    }
    let total = |sample: &Sample| sample.postern.map(|it| it.sealed.bytes + it.opened.bytes);
    let (earlier, now) = total(before).zip(total(after))?;
    let megabits = now.saturating_sub(earlier) as f64 * 8.0 / 1e6 / seconds;
    Some((of_all(format!("{megabits:.0} Mbps"), several), format!("{DAEMON}, in one second")))
}

/// The sum of all errors that anything counts.
fn errors(sample: &Sample) -> Line {
    let counted =
        sample.device.errors.iter().map(|(name, known)| (known.value, format!("{} ({name})", known.source)));
    let failures = sample.postern.map(|it| (it.failures, "postern show crypto: failures".to_owned()));
    let counted: Vec<(u64, String)> = counted.chain(failures).collect();
    let sources: Vec<&str> = counted.iter().map(|(_, source)| source.as_str()).collect();
    let sum = grouped(counted.iter().map(|(number, _)| number).sum());
    line("", "Errors", (!counted.is_empty()).then(|| (sum, sources.join(" + "))))
}

fn text(name: &str, lines: &[Line], with_sources: bool) -> String {
    let mut text = format!("QAT Device {name} Flow Statistics:\n");
    let mut section = "";
    for line in lines {
        if line.section != section && !line.section.is_empty() {
            let _ = writeln!(text, "{}:", line.section);
        }
        section = line.section;
        let indent = if section.is_empty() { "" } else { "  " };
        let value = line.value.as_deref().unwrap_or(UNKNOWN);
        let source = line.source.as_deref().unwrap_or("no file of this driver has it");
        let source = if with_sources { format!("  [{source}]") } else { String::new() };
        let _ = writeln!(text, "{indent}{}: {value}{source}", line.name);
    }
    text
}

/// A number with a comma after each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known<T>(value: T, source: &str) -> Sourced<T> {
        Sourced { value, source: source.to_owned() }
    }

    fn sample(at: Instant, requests: u64) -> Sample {
        let device = Qat { requests: Some(known((requests, requests), "/f")), ..Qat::default() };
        Sample { at, device, postern: None }
    }

    fn shown(lines: &[Line], name: &str) -> String {
        let line = lines.iter().find(|line| line.name == name).expect(name);
        line.value.clone().unwrap_or_else(|| UNKNOWN.to_owned())
    }

    #[test]
    fn what_nothing_counts_is_not_invented() {
        let now = Instant::now();
        let lines = lines(&sample(now, 1_000), &sample(now + Duration::from_secs(2), 92_242), false);
        assert_eq!(shown(&lines, "Total Operations"), "92,242");
        assert_eq!(shown(&lines, "Operations/sec"), "45,621");
        for name in ["Encryption Requests", "Throughput", "Average Latency", "Errors", "Compression Requests"]
        {
            assert_eq!(shown(&lines, name), "n/a", "{name}");
        }
        let text = text("qat_dev0", &lines, true);
        assert!(
            text.contains("  Total Operations: 92,242  [/f: requests, of all programs and services]\n"),
            "{text}"
        );
        assert!(text.ends_with("\nErrors: n/a  [no file of this driver has it]\n"), "{text}");
    }

    #[test]
    fn the_daemon_counts_what_it_had_done_and_by_whom() {
        let engine = |version: &str, packets| CryptoEngine {
            name: "af-alg".to_owned(),
            version: Some(version.to_owned()),
            state: gateway::api::model::EngineState::InUse,
            why: None,
            retry_in: None,
            accelerator: true,
            failures: 1,
            sealed: Some(CryptoTraffic { packets, bytes: packets * 1000 }),
            opened: None,
        };
        let answer = Crypto {
            engines: vec![
                engine("Linux 6.12, qat_aes_gcm (priority 100)", 5),
                engine("Linux 6.12, virtio_crypto", 9),
            ],
            ..Crypto::default()
        };
        let postern = of_daemons(&[answer]);
        assert_eq!(postern.map(|it| (it.sealed.packets, it.opened.packets, it.failures)), Some((5, 0, 1)));
        assert_eq!(of_daemons(&[Crypto::default()]), None);
        let now = Instant::now();
        let [mut before, mut after] = [sample(now, 0), sample(now + Duration::from_secs(1), 0)];
        before.postern = Some(Postern::default());
        after.postern = postern;
        let lines = lines(&before, &after, true);
        assert_eq!(shown(&lines, "Encryption Requests"), "5 (all devices)");
        assert_eq!(
            (shown(&lines, "Throughput"), shown(&lines, "Errors")),
            ("0 Mbps (all devices)".into(), "1".into())
        );
    }

    #[test]
    fn the_measurements_of_the_device_come_first() {
        let now = Instant::now();
        let mut after = sample(now, 0);
        after.device.telemetry =
            vec![("bw_in".to_owned(), known(778, "/t")), ("gp_lat_acc_avg".to_owned(), known(120_000, "/t"))];
        after.device.errors = vec![("fatal", known(0, "/e"))];
        let lines = lines(&sample(now, 0), &after, false);
        assert_eq!(
            (shown(&lines, "Throughput"), shown(&lines, "Average Latency")),
            ("778 Mbps".into(), "0.120 ms".into())
        );
        assert_eq!(shown(&lines, "Errors"), "0");
    }
}
