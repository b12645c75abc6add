//! When a task runs: an interval, or the times of crontab(5).

use std::collections::BTreeSet;

/// The times at which a task runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// The five fields of crontab(5), in digits.
    pub crontab: String,
    /// Minutes of an hour.
    pub minutes: BTreeSet<u8>,
    /// Hours of a day.
    pub hours: BTreeSet<u8>,
    /// Days of a month.
    pub days: BTreeSet<u8>,
    /// Months of a year.
    pub months: BTreeSet<u8>,
    /// Days of a week; Sunday is 0.
    pub weekdays: BTreeSet<u8>,
    /// Whether a day needs to be only one of both: of `days` or of `weekdays`.
    pub either_day: bool,
}

/// The words for frequent times, and what they stand for.
const WORDS: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];
const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Times {
    /// Reads what crontab(5) has before the command.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = WORDS.iter().find(|(word, _)| *word == text).map_or(text, |(_, meant)| meant);
        let fields: Vec<&str> = text.split([' ', '\t']).filter(|field| !field.is_empty()).collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else { return None };
        Some(Self {
            minutes: field(minutes, 0, 59, &[])?,
            hours: field(hours, 0, 23, &[])?,
            days: field(days, 1, 31, &[])?,
            months: field(months, 1, 12, MONTHS)?,
            // Both 0 and 7 are Sunday.
            weekdays: field(weekdays, 0, 7, WEEKDAYS)?.into_iter().map(|day| day % 7).collect(),
            either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
            crontab: fields.join(" "),
        })
    }

    /// Reads an interval as VyOS writes it; a number alone is of minutes. It begins with the hour, the day or the month.
    pub(crate) fn every(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let number: u8 = digits.parse().ok()?;
        // As it is printed: neither +1 nor 01.
        if number == 0 || number.to_string() != digits {
            return None;
        }
        let crontab = match &text[digits.len()..] {
            "" | "m" if number <= 60 => format!("*/{number} * * * *"),
            "h" if number <= 24 => format!("0 */{number} * * *"),
            "d" if number <= 31 => format!("0 0 */{number} * *"),
            _ => return None,
        };
        Self::parse(&crontab)
    }
}

/// A field: numbers and ranges, separated by commas, each with a step perhaps.
fn field(text: &str, low: u8, high: u8, names: &[&str]) -> Option<BTreeSet<u8>> {
    let value = |text: &str| {
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name)).map(|at| at as u8 + low);
        let digits = || text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        named.or_else(digits).filter(|value| (low..=high).contains(value))
    };
    let mut all = BTreeSet::new();
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            // A sign would be a number here, and no number for cron, which then ignores the whole file.
            Some((range, step)) if step.bytes().all(|byte| byte.is_ascii_digit()) => {
                (range, step.parse::<u8>().ok().filter(|step| *step > 0)?)
            }
            Some(_) => return None,
            None => (part, 1),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((first, last)) => (value(first)?, value(last)?),
            // crontab(5) has steps only after ranges.
            None if part != range => return None,
            None => (value(range)?, value(range)?),
        };
        if first > last {
            return None;
        }
        all.extend((first..=last).step_by(step.into()));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(set: &BTreeSet<u8>) -> Vec<u8> {
        set.iter().copied().collect()
    }

    #[test]
    fn the_fields_of_crontab_are_read() {
        let times = Times::parse("*/20 4,6-8 1 jan-Mar 5-7").expect("right");
        assert_eq!(numbers(&times.minutes), [0, 20, 40]);
        assert_eq!(numbers(&times.hours), [4, 6, 7, 8]);
        assert_eq!((numbers(&times.days), numbers(&times.months)), (vec![1], vec![1, 2, 3]));
        assert_eq!(numbers(&times.weekdays), [0, 5, 6]);
        assert!(times.either_day, "the first of the month, and weekends");
        assert!(!Times::parse("0 0 */2 * 1").expect("right").either_day, "as cron does it");
        assert_eq!(Times::parse("@daily").expect("right").crontab, "0 0 * * *");
        for wrong in ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *"] {
            assert_eq!(Times::parse(wrong), None, "{wrong}");
        }
        for wrong in [
            "* * * * 8",
            "5-1 * * * *",
            "5/2 * * * *",
            "*/0 * * * *",
            "+5 * * * *",
            "*/+5 * * * *",
            "a * * * *",
            ", * * * *",
        ] {
            assert_eq!(Times::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_interval_is_a_time_of_crontab() {
        let of = |text: &str| Times::every(text).map(|times| times.crontab);
        assert_eq!(of("5m").as_deref(), Some("*/5 * * * *"));
        assert_eq!(of("30").as_deref(), Some("*/30 * * * *"));
        assert_eq!(of("12h").as_deref(), Some("0 */12 * * *"));
        assert_eq!(of("1d").as_deref(), Some("0 0 */1 * *"));
        for wrong in ["", "0m", "01d", "+1d", "61m", "25h", "32d", "1w", "1dd", "d", "1D", "300"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
