//! The words of a line, taken one by one, with the messages that ipsec-secgw has for a wrong one.

use super::finding::{Finding, Severity};
use super::number;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::settings::{Family, Ports};

/// The words behind the keyword that are read.
pub(super) const MOST: usize = 32;

/// The longest text of an address: `INET_ADDRSTRLEN` and `INET6_ADDRSTRLEN` without the zero byte.
const LONGEST_V4: usize = 15;
const LONGEST_V6: usize = 45;

/// The words behind the keyword.
pub(super) fn split(text: &str) -> Vec<&str> {
    text.split([' ', '\t', '\x0b', '\x0c', '\r', '\n']).filter(|word| !word.is_empty()).collect()
}

/// The words of a line that are still to be read, and the findings about those that were.
pub(super) struct Tokens<'a> {
    line: u32,
    words: &'a [&'a str],
    next: usize,
    given: Vec<&'a str>,
    pub(super) findings: Vec<Finding>,
}

/// An address as written: without a length the length is 0.
pub(super) struct Written {
    pub(super) address: IpAddr,
    pub(super) length: u32,
    pub(super) has_length: bool,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(line: u32, words: &'a [&'a str]) -> Self {
        Self { line, words, next: 0, given: Vec::new(), findings: Vec::new() }
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    /// The next option, or nothing at the end of the line.
    pub(super) fn option(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.next).copied()?;
        self.next += 1;
        Some(word)
    }

    /// The argument of an option.
    pub(super) fn argument(&mut self, of: &str) -> Result<&'a str, Finding> {
        self.option().ok_or_else(|| {
            self.refuse(
                "reaching the end of the token array",
                format!("write the argument of {of} behind it"),
            )
        })
    }

    /// Where ipsec-secgw crashes: a word that it reads is not there.
    pub(super) fn required(&mut self, what: &str) -> Result<&'a str, Finding> {
        self.option().ok_or_else(|| {
            self.refuse(format!("missing {what}"), "complete the line: ipsec-secgw crashes at this one")
        })
    }

    /// A decimal number, of which the low 32 bits count.
    pub(super) fn number(&mut self, of: &str) -> Result<i32, Finding> {
        let word = self.argument(of)?;
        if !number::is_digits(word) {
            let message = format!("input \"{}\" is not valid number string", shown(word));
            return Err(self.refuse(message, format!("{of} takes decimal digits")));
        }
        Ok(self.cut(of, word, i64::from(u32::MAX)) as i32)
    }

    /// A number of which only the digits at the beginning count.
    pub(super) fn lenient(&mut self, of: &str) -> Result<(&'a str, i64), Finding> {
        let word = self.argument(of)?;
        let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
        let value = number::long(word);
        if digits.is_empty() || !number::is_digits(digits) {
            let text = format!("{of} {} is read as {value}: what follows the digits is ignored", shown(word));
            self.warn("number-cut", text, format!("write {of} with decimal digits"));
        }
        Ok((word, value))
    }

    /// The low bits of a number, of which ipsec-secgw keeps no more.
    pub(super) fn cut(&mut self, of: &str, word: &str, most: i64) -> i64 {
        let value = number::long(word);
        if !(0..=most).contains(&value) {
            let cut = value & most;
            let text =
                format!("{of} {} is read as {cut}: only the low bits of the number are kept", shown(word));
            self.warn("number-cut", text, format!("{of} is at most {most}"));
            return cut;
        }
        value
    }

    /// An address with an optional length.
    pub(super) fn address(&mut self, of: &str, family: Family, noun: &str) -> Result<Written, Finding> {
        let word = self.argument(of)?;
        let (text, length) = match word.split_once('/') {
            Some((text, length)) => (text, Some(length)),
            None => (word, None),
        };
        let parsed = match length {
            Some(length) if !number::is_digits(length) => None,
            _ => self.parse_address(family, text),
        };
        let Some(address) = parsed else {
            let message =
                format!("unrecognized input \"{}\", expect valid {} {noun}", shown(word), family.word());
            return Err(self.refuse(
                message,
                format!("{of} takes an {} address, and its prefix length behind a /", family.name()),
            ));
        };
        let has_length = length.is_some_and(|length| !length.is_empty());
        let length = length.map_or(0, |length| number::int(length) as u32);
        Ok(Written { address, length, has_length })
    }

    fn parse_address(&mut self, family: Family, text: &str) -> Option<IpAddr> {
        match family {
            Family::V4 if text.len() > LONGEST_V4 => {
                let kept = text.get(..LONGEST_V4)?;
                let address: Ipv4Addr = kept.parse().ok()?;
                let sentence =
                    format!("{text} is read as {kept}: what follows {LONGEST_V4} characters is ignored");
                self.warn("address-cut", sentence, "write the address alone".to_owned());
                Some(address.into())
            }
            Family::V4 => Some(text.parse::<Ipv4Addr>().ok()?.into()),
            Family::V6 if text.len() > LONGEST_V6 => None,
            Family::V6 => Some(text.parse::<Ipv6Addr>().ok()?.into()),
        }
    }

    /// Two numbers with a colon between: the first is 65535 if there is none. Other characters are skipped.
    pub(super) fn range(&mut self, of: &str, expected: &str) -> Result<Ports, Finding> {
        let word = self.argument(of)?;
        let Some((low, high)) = range(word) else {
            let message = format!("unrecognized input \"{}\", expect \"{expected}\"", shown(word));
            return Err(
                self.refuse(message, format!("{of} takes two numbers with a colon between, such as 0:65535"))
            );
        };
        let ports = Ports { low: low as u16, high: high as u16 };
        let plain = |text: &str| text.parse::<u16>().is_ok() && number::is_digits(text);
        let is_plain = word.split_once(':').is_some_and(|(low, high)| plain(low) && plain(high));
        if !is_plain {
            let text = format!("{of} {} is read as {}:{}", shown(word), ports.low, ports.high);
            self.warn("range-read", text, format!("write {of} as two numbers with a colon between"));
        }
        Ok(ports)
    }

    /// The message at which ipsec-secgw ends, and what to do.
    pub(super) fn refuse(&self, message: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding::error(self.line, "line", message, fix)
    }

    /// A word that has no place here.
    pub(super) fn unrecognized(&self, word: &str, fix: impl Into<String>) -> Finding {
        self.refuse(format!("unrecognized input \"{}\"", shown(word)), fix)
    }

    pub(super) fn warn(&mut self, rule: &'static str, text: impl Into<String>, fix: impl Into<String>) {
        self.findings.push(Finding::new(Severity::Warning, self.line, rule, text, fix));
    }

    /// Notes an option that may be given once.
    pub(super) fn once(&mut self, option: &'a str) -> Result<(), Finding> {
        if self.has(option) {
            let fix = format!("write {option} once");
            return Err(self.refuse(format!("item \"{option}\" already present"), fix));
        }
        self.given.push(option);
        Ok(())
    }

    /// Whether an option was given.
    pub(super) fn has(&self, option: &str) -> bool {
        self.given.contains(&option)
    }
}

fn range(word: &str) -> Option<(i32, i32)> {
    let (mut digits, mut low) = (String::new(), -1);
    for character in word.chars() {
        match character {
            '0'..='9' if digits.len() >= 19 => return None,
            '0'..='9' => digits.push(character),
            ':' if low != -1 => return None,
            ':' => low = number::int(&std::mem::take(&mut digits)),
            _ => {}
        }
    }
    (!digits.is_empty()).then(|| (low, number::int(&digits)))
}

/// The word, or stars if it may be a part of a key: three or more colons between parts of at most two characters.
pub(super) fn shown(word: &str) -> &str {
    let is_address = word.contains("::") && word.parse::<Ipv6Addr>().is_ok();
    let is_key = word.matches(':').count() >= 3 && word.split(':').all(|part| part.len() <= 2);
    if is_key && !is_address { "***" } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_skip_what_is_no_digit() {
        assert_eq!(range("0:65535"), Some((0, 65535)));
        assert_eq!(
            (range("80"), range("tcp:6"), range("1x2:3-4")),
            (Some((-1, 80)), Some((0, 6)), Some((12, 34)))
        );
        assert_eq!((range("80:"), range("1:2:3"), range(&"1".repeat(20))), (None, None, None));
    }

    #[test]
    fn words_that_may_be_keys_are_not_shown() {
        assert_eq!(
            (shown("00:11:22:33"), shown("0:65535"), shown("2001:db8::1")),
            ("***", "0:65535", "2001:db8::1")
        );
        assert_eq!(shown("::1:2:3"), "::1:2:3");
    }
}
