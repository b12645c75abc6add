//! Numbers and states as people read them. A state is a word and a shape, not only a colour.

use gateway::facts::model::{Protocol, State};
use maud::{Markup, html};

/// The shape of a state.
pub(super) fn shape(state: State) -> &'static str {
    match state {
        State::Up => "\u{25cf}",
        State::Waiting => "\u{25cb}",
        State::Down => "\u{2716}",
    }
}

/// A state as shape and word.
pub(super) fn state(state: State) -> Markup {
    html! { span.state { span aria-hidden="true" { (shape(state)) } " " (state) } }
}

pub(super) fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::WireGuard => "WireGuard",
        Protocol::Ipsec => "IPsec",
        Protocol::OpenVpn => "OpenVPN",
    }
}

/// A number with the prefix that leaves one to three digits before the point.
fn short(mut number: f64, unit: &str) -> String {
    let mut prefix = "";
    for next in ["k", "M", "G", "T", "P"] {
        // What would be rounded up to 1000 has the next prefix.
        if number < 999.5 {
            break;
        }
        (number, prefix) = (number / 1000.0, next);
    }
    let digits = usize::from(!prefix.is_empty() && number < 99.95);
    format!("{number:.digits$} {prefix}{unit}")
}

pub(super) fn bytes(count: u64) -> String {
    short(count as f64, "B")
}

/// A rate in bits a second; a dash before there is one.
pub(super) fn bits(per_second: Option<f64>) -> String {
    per_second.map_or_else(|| "\u{2013}".to_owned(), |rate| short(rate, "bit/s"))
}

/// A number of packets.
pub(super) fn count(number: u64) -> String {
    if number < 10_000 { number.to_string() } else { short(number as f64, "").trim_end().to_owned() }
}

/// Packets a second; a dash before there is a rate.
pub(super) fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "\u{2013}".to_owned(),
        Some(0.0) => "0/s".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}/s"),
        Some(rate) => short(rate, "/s").replacen(" /s", "/s", 1),
    }
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.0}%", 100.0 * part)
}

/// A round-trip time; a dash where there is none.
pub(super) fn round_trip(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "\u{2013}".to_owned(), gateway::path::model::milliseconds)
}

pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// How long ago something was.
pub(super) fn ago(now: u64, at: Option<u64>) -> String {
    at.map_or_else(|| "none".to_owned(), |at| duration(now.saturating_sub(at)) + " ago")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!([0, 999, 1000, 1_234_567].map(bytes), ["0 B", "999 B", "1.0 kB", "1.2 MB"]);
        assert_eq!([0.0, 999.6, 123_456.0].map(|it| bits(Some(it))), ["0 bit/s", "1.0 kbit/s", "123 kbit/s"]);
        assert_eq!([0, 9999, 12_345].map(count), ["0", "9999", "12.3 k"]);
        assert_eq!(
            [0.0, 0.25, 12.0, 4321.0].map(|it| per_second(Some(it))),
            ["0/s", "0.2/s", "12/s", "4.3 k/s"]
        );
        assert_eq!([5, 120, 7200, 172_800].map(duration), ["5 s", "2 min", "2 h", "2 d"]);
        assert_eq!((ago(10, Some(3)), ago(10, None)), ("7 s ago".to_owned(), "none".to_owned()));
        assert_eq!([None, Some(0.00125), Some(0.25)].map(round_trip), ["\u{2013}", "1.25 ms", "250 ms"]);
        assert_eq!((bits(None), per_second(None)), ("\u{2013}".to_owned(), "\u{2013}".to_owned()));
    }
}
