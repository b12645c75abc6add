//! The report as text: the table of `openssl speed`, then a summary of each algorithm.

use super::report::{Measured, Report, Row};
use crate::report::{short, table};
use std::fmt::Write as _;

/// The unit in which speeds are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Millions of bytes per second.
    Megabytes,
    /// Thousands of bytes per second, as in `openssl speed`.
    Kilobytes,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Megabytes => "MB/s",
            Self::Kilobytes => "1000s of bytes per second",
        }
    }

    /// The width of a column.
    fn width(self) -> usize {
        match self {
            Self::Megabytes => 9,
            Self::Kilobytes => 12,
        }
    }

    fn show(self, bytes_per_second: f64) -> String {
        match self {
            Self::Megabytes => short(bytes_per_second / 1e6),
            Self::Kilobytes => format!("{:.2}k", bytes_per_second / 1e3),
        }
    }
}

/// Formats a line: a label, and a cell for each size.
type Line<'a> = dyn Fn(&str, &dyn Fn(usize) -> String) -> String + 'a;

/// The width of the first column.
const LABEL: usize = 18;

impl Report {
    /// The report as text.
    pub fn text(&self, unit: Unit) -> String {
        let mut text = self.head();
        if !self.rows.is_empty() {
            text += &self.speeds(unit);
            text += &self.improvements(unit);
        }
        if !self.operations.is_empty() {
            text += &self.handshakes();
        }
        text
    }

    fn head(&self) -> String {
        let mut text = self.machine.head();
        text.extend(self.absent.iter().map(|(name, reason)| format!("no {name}: {reason}\n")));
        let _ = writeln!(
            text,
            "{}, one key, at most {} packets per call, {} s per cell; the fastest turn counts",
            if self.threads == 1 { "one thread".to_owned() } else { format!("{} threads", self.threads) },
            self.burst,
            self.seconds
        );
        if let Some(without) = &self.without {
            let hidden = without.hidden.join(", ");
            let _ =
                writeln!(text, "without: {}={}, which disables {hidden}", without.variable, without.value);
        }
        text
    }

    fn speeds(&self, unit: Unit) -> String {
        let mut sizes: Vec<usize> = self.rows.iter().flat_map(|row| &row.sizes).map(|it| it.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let width = unit.width();
        let line = |label: &str, cell: &dyn Fn(usize) -> String| {
            let cells: String = sizes.iter().map(|&size| format!(" {:>width$}", cell(size))).collect();
            format!("{label:<LABEL$}{cells}\n")
        };
        let mut text = format!("\n{}", line("bytes", &|size| size.to_string()));
        let _ = writeln!(text, "{}", "-".repeat(LABEL + (width + 1) * sizes.len()));
        for group in self.groups() {
            let _ = writeln!(text, "{}, {}", group[0].title(), unit.name());
            let base = self.base_of(group).filter(|_| group.len() > 1);
            for row in group {
                let at = |size: usize| row.sizes.iter().find(|it| it.size == size);
                text += &line(&format!("  {}", row.engine), &|size| {
                    at(size).map_or_else(String::new, |it| unit.show(it.bytes_per_second))
                });
                text += &details(row, base, unit, &line);
            }
        }
        text
    }

    /// The summary: one line per algorithm, at one size.
    fn improvements(&self, unit: Unit) -> String {
        let size = self.packet_size();
        let row = |group: &[Row]| {
            let fastest = group.iter().max_by(|a, b| a.speed_at(size).total_cmp(&b.speed_at(size)))?;
            let base = self.base_of(group)?;
            // Compare within one engine, or another library's speed would be credited to the instructions.
            let compared = group.iter().filter(|row| row.speed_without(size).is_some());
            let compared = compared.max_by(|a, b| a.speed_at(size).total_cmp(&b.speed_at(size)));
            let pair = compared.and_then(|row| Some([row.speed_without(size)?, row.speed_at(size)]));
            let [without, with] =
                pair.map_or_else(|| ["-".to_owned(), "-".to_owned()], |pair| pair.map(|it| unit.show(it)));
            let gain = |[base, speed]: [f64; 2]| percent((speed / base - 1.0) * 100.0);
            let is_base = base.engine == fastest.engine;
            let over = gain([base.speed_at(size), fastest.speed_at(size)]);
            Some(vec![
                fastest.title(),
                without,
                with,
                pair.map_or_else(|| "-".to_owned(), gain),
                fastest.engine.clone(),
                unit.show(fastest.speed_at(size)),
                if is_base { "-".to_owned() } else { over },
                if is_base { "-".to_owned() } else { base.engine.clone() },
            ])
        };
        let rows: Vec<Vec<String>> = self.groups().into_iter().filter_map(row).collect();
        let head = ["algorithm", "without", "with", "improvement", "fastest", "speed", "better by", "than"];
        format!(
            "\nAt {size} bytes, {}: an engine with and without those instructions, and the fastest engine\n{}",
            unit.name(),
            table(&head, &rows)
        )
    }

    fn handshakes(&self) -> String {
        let optional = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let rows: Vec<Vec<String>> = self
            .operations
            .iter()
            .map(|it| {
                vec![
                    it.name.clone(),
                    it.engine.clone(),
                    optional(it.without.map(short)),
                    short(it.per_second),
                    optional(it.improvement.map(percent)),
                ]
            })
            .collect();
        // Only one engine implements the operations: the one that Postern's handshakes use.
        let says = "Handshakes always use aws-lc, so only that engine is measured here.";
        format!(
            "\n{says}\n{}",
            table(&["operations per second", "engine", "without", "with", "improvement"], &rows)
        ) + &self.rsa()
    }

    /// RSA in the format of `openssl speed`.
    fn rsa(&self) -> String {
        let row = |bits: &str| {
            let named = |action: &str| {
                let name = format!("rsa-{bits} {action}");
                self.operations.iter().find(|it| it.name == name).map(|it| it.per_second)
            };
            let [sign, verify] = [named("sign")?, named("verify")?];
            let seconds = |per_second: f64| format!("{:.6}s", 1.0 / per_second);
            let [signs, verifies] = [sign, verify].map(|per_second| format!("{per_second:.1}"));
            Some(vec![format!("rsa {bits} bits"), seconds(sign), seconds(verify), signs, verifies])
        };
        let rows: Vec<Vec<String>> = ["2048", "3072"].into_iter().filter_map(row).collect();
        if rows.is_empty() {
            return String::new();
        }
        let rsa = table(&["", "sign", "verify", "sign/s", "verify/s"], &rows);
        format!("\n{rsa}{NO_DSA}\n")
    }
}

/// Explains why a row of `openssl speed` is missing.
const NO_DSA: &str = "DSA is not measured: aws-lc does not support it; see openssl speed dsa2048";

/// The lines below an engine: its speed without the instructions, and its comparison with the base.
fn details(row: &Row, base: Option<&Row>, unit: Unit, line: &Line<'_>) -> String {
    let mut text = String::new();
    let show = |of: &dyn Fn(&Measured) -> Option<String>, size: usize| {
        row.sizes.iter().find(|it| it.size == size).and_then(of).unwrap_or_default()
    };
    if row.sizes.iter().any(|it| it.without.is_some()) {
        text += &line("    without", &|size| show(&|it| it.without.map(|speed| unit.show(speed)), size));
        text += &line("    improvement", &|size| show(&|it| it.improvement.map(percent), size));
    }
    if let Some(base) = base.filter(|base| base.engine != row.engine) {
        let label = format!("    over {}", base.engine);
        text += &line(&label, &|size| show(&|it| it.over_base.map(percent), size));
    }
    text
}

/// A percentage with its sign.
fn percent(value: f64) -> String {
    if value.is_finite() { format!("{:+.0}%", value + 0.0) } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::report::{PerSecond, example};
    use super::*;

    /// The lines of a text, with repeated spaces removed.
    fn lines(text: &str) -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn the_table_has_every_comparison_and_lines_of_at_most_100_characters() {
        let text = example().text(Unit::Megabytes);
        let lines = lines(&text);
        let start = lines.iter().position(|line| line == "aws-lc 800 6000").expect("the first engine");
        assert_eq!(
            lines[start..start + 5],
            [
                "aws-lc 800 6000",
                "without 400 500",
                "improvement +100% +1100%",
                "ipsec-mb 1200 9000",
                "over aws-lc +50% +50%"
            ]
        );
        assert!(
            lines.contains(&"aes-128-gcm 500 6000 +1100% ipsec-mb 9000 +50% aws-lc".to_owned()),
            "{text}"
        );
        assert!(lines.contains(&"ed25519 sign aws-lc 40000 40000 +0%".to_owned()), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn rsa_is_in_the_format_of_openssl_speed() {
        let mut report = example();
        for (name, per_second) in [("rsa-2048 sign", 27.4), ("rsa-2048 verify", 908.0)] {
            report.operations.push(PerSecond::new(name.to_owned(), "aws-lc".to_owned(), per_second, None));
        }
        let lines = lines(&report.text(Unit::Kilobytes));
        assert!(lines.contains(&"sign verify sign/s verify/s".to_owned()), "{lines:#?}");
        assert!(lines.contains(&"rsa 2048 bits 0.036496s 0.001101s 27.4 908.0".to_owned()), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("DSA is not measured: ")), "{lines:#?}");
    }

    #[test]
    fn kilobytes_are_in_the_format_of_openssl_speed() {
        let text = example().text(Unit::Kilobytes);
        assert!(lines(&text).contains(&"aws-lc 800000.00k 6000000.00k".to_owned()), "{text}");
    }
}
