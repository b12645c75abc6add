//! Values that are written into files of other programs: none of them can end a line, a quotation or a word there.

use super::schedule::Times;
use std::net::IpAddr;

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One line of text of up to this many bytes.
    Line(usize),
    /// The community of SNMP version 2c.
    Community,
    /// The name of a user, a group or a view of SNMP, of up to this many bytes.
    SnmpName(usize),
    /// The password of a user of SNMP.
    Passphrase,
    /// The key of a user of SNMP, in hexadecimal.
    UsmKey,
    /// The number of an agent of SNMP, in hexadecimal.
    EngineId,
    /// The number of an object of SNMP.
    Oid,
    /// Which numbers of that count, a bit each, in hexadecimal.
    Mask,
    /// An address or a domain name.
    Remote,
    /// A domain name.
    Domain,
    /// The address of an Ethernet card.
    HardwareAddress,
    /// The address of a mailbox.
    Mailbox,
    /// The name of a user.
    User,
    /// The name of a file, without folders.
    FileName,
    /// The name of a task.
    Task,
    /// The whole path of a program.
    Program,
    /// The arguments of a program: words, of which quotes hold some together.
    Arguments,
    /// How often: a number with m, h or d.
    Interval,
    /// When, as crontab(5) says it.
    Crontab,
}

/// Bytes in the path of a program.
const LONGEST_PATH: usize = 255;
/// Bytes in the arguments of a program.
const LONGEST_ARGUMENTS: usize = 255;

impl Form {
    /// Whether `text` has this form.
    pub(super) fn fits(self, text: &str) -> bool {
        // In bytes, as the programs count that read it.
        let length = text.len();
        let only =
            |more: &[u8]| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte));
        match self {
            Self::Line(longest) => (1..=longest).contains(&length) && is_printed(text),
            Self::Community => {
                let begins = text.starts_with(|first: char| first.is_ascii_alphanumeric());
                (1..=100).contains(&length) && only(b"-_!@*#") && begins
            }
            Self::SnmpName(longest) => {
                (1..=longest).contains(&length) && only(b"-_") && !text.starts_with('-')
            }
            // RFC 3414 11.2: eight characters at least. snmpd gives these two a meaning between quotes.
            Self::Passphrase => {
                let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
                (8..=100).contains(&length) && text.bytes().all(is_plain)
            }
            Self::UsmKey => text.strip_prefix("0x").is_some_and(|key| is_hex(key, 16, 64)),
            // RFC 3411 5: SnmpEngineID.
            Self::EngineId => is_hex(text, 5, 32),
            Self::Oid => {
                let number = |part: &str| part.len() <= 10 && part.parse::<u32>().is_ok();
                only(b".") && length <= 255 && text.split('.').all(number)
            }
            Self::Mask => is_hex(text, 1, 16),
            Self::Remote => text.parse::<IpAddr>().is_ok() || is_domain(text),
            Self::Domain => is_domain(text),
            Self::HardwareAddress => is_hardware_address(text),
            Self::Mailbox => is_mailbox(text),
            Self::User => (1..=100).contains(&length) && only(b"-_.") && !text.starts_with(['-', '.']),
            Self::FileName => (1..=255).contains(&length) && only(b"-_.") && !text.starts_with(['-', '.']),
            Self::Task => (1..=64).contains(&length) && only(b"-_.") && !text.starts_with(['-', '.']),
            Self::Program => {
                let parts = text.strip_prefix('/').unwrap_or_default().split('/');
                let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
                length <= LONGEST_PATH && only(b"-_./+,:@") && parts.into_iter().all(is_part)
            }
            Self::Arguments => {
                (1..=LONGEST_ARGUMENTS).contains(&length) && is_printed(text) && words(text).is_some()
            }
            Self::Interval => Times::every(text).is_some(),
            Self::Crontab => Times::parse(text).is_some(),
        }
    }

    /// Whether a value is, or may be, a password that the configuration shows, as VyOS does. Logs do not have it.
    pub(super) fn is_private(self) -> bool {
        matches!(self, Self::Community | Self::Arguments | Self::Passphrase | Self::UsmKey)
    }

    /// What a value must be, for errors and for the reference.
    pub(super) fn expected(self) -> String {
        match self {
            Self::Line(longest) => format!("one line of 1 to {longest} bytes"),
            Self::Community => "1 to 100 letters, digits, or -_!@*#".to_owned(),
            Self::SnmpName(longest) => format!("a name of 1 to {longest} letters, digits, or -_"),
            Self::Passphrase => "a password of 8 to 100 ASCII characters, without \" and \\".to_owned(),
            Self::UsmKey => "a key of 16 to 64 bytes in hexadecimal, as 0x0123".to_owned(),
            Self::EngineId => "5 to 32 bytes in hexadecimal".to_owned(),
            Self::Oid => "the number of an object, such as 1.3.6.1.2.1".to_owned(),
            Self::Mask => "1 to 16 bytes in hexadecimal, such as ffa0".to_owned(),
            Self::Remote => "an IPv4 or IPv6 address, or a domain name".to_owned(),
            Self::Domain => "a domain name".to_owned(),
            Self::HardwareAddress => "six bytes in hexadecimal digits, such as 02:00:5e:10:00:01".to_owned(),
            Self::Mailbox => "an address of mail, such as operator@example.net".to_owned(),
            Self::User => "the name of a user: up to 100 letters, digits, or -_.".to_owned(),
            Self::FileName => "the name of a file: up to 255 letters, digits, or -_.".to_owned(),
            Self::Task => "a name of 1 to 64 letters, digits, or -_.".to_owned(),
            Self::Program => "the whole path of a program, such as /config/scripts/check.sh".to_owned(),
            Self::Arguments => format!("words of up to {LONGEST_ARGUMENTS} bytes, with closed quotes"),
            Self::Interval => "an interval: 1 to 60 and m, 1 to 24 and h, or 1 to 31 and d".to_owned(),
            Self::Crontab => "a time of crontab(5): minute, hour, day, month and weekday, as \
                              '30 4 * * 1-5', or a word such as @daily"
                .to_owned(),
        }
    }

    /// What a value looks like, in a list of what may follow.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Line(_) => "<text>",
            Self::Community => "<community>",
            Self::Remote => "<address>|<domain>",
            Self::Domain => "<domain>",
            Self::Mailbox => "<user>@<domain>",
            Self::HardwareAddress => "<xx:xx:xx:xx:xx:xx>",
            Self::User | Self::FileName | Self::Task | Self::SnmpName(_) => "<name>",
            Self::Passphrase | Self::UsmKey => "<secret>",
            Self::EngineId | Self::Mask => "<hexadecimal>",
            Self::Oid => "<oid>",
            Self::Program => "<path>",
            Self::Arguments => "<words>",
            Self::Interval => "<number>m|h|d",
            Self::Crontab => "<minute hour day month weekday>",
        }
    }
}

/// Whether a text is so many bytes in hexadecimal.
fn is_hex(text: &str, least: usize, most: usize) -> bool {
    let is_even = text.len().is_multiple_of(2);
    is_even && (least..=most).contains(&(text.len() / 2)) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// RFC 5321 4.1.2, without quoted names: nothing that has a meaning in SMTP or in the head of a message.
fn is_mailbox(text: &str) -> bool {
    let Some((user, domain)) = text.split_once('@') else { return false };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    let is_atom = |part: &str| !part.is_empty() && part.bytes().all(is_plain);
    user.len() <= 64 && text.len() <= 254 && user.split('.').all(is_atom) && is_domain(domain)
}

fn is_printed(text: &str) -> bool {
    // Line and paragraph separators end a line for some programs.
    !text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
}

/// The words of a text, of which quotes hold some together; none if a quotation does not end. Nothing else has a meaning.
pub(crate) fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in text.chars() {
        match (character, quote) {
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, Some(open)) if character == open => quote = None,
            (_, None) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

fn is_hardware_address(text: &str) -> bool {
    let is_byte = |part: &str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    text.split(':').count() == 6 && text.split(':').all(is_byte)
}

/// Whether a name can be resolved. Digits and dots alone are a mistyped address.
pub fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    text.len() <= 253
        && text.strip_suffix('.').unwrap_or(text).split('.').all(is_label)
        && text.contains(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_ends_a_line_a_quotation_or_a_path_fits() {
        for (form, good, bad) in [
            (
                Form::Line(5),
                &["a b'\"", "ä"][..],
                &["", "abcdef", "äöü", "a\nb", "a\rb", "a\0", "a\u{2028}b"][..],
            ),
            (Form::Community, &["public", "a!@*#-_"], &["", "a b", "a\"", "a\n", "ä", "a$"]),
            (Form::SnmpName(3), &["a-b", "_"], &["", "abcd", "-a", "a b", "a\n"]),
            (
                Form::Passphrase,
                &["open sesame", "#$'{}-x l"],
                &["", "seventy", "open\"sesame", "open\\sesame", "open\nsesame", "öffne dich"],
            ),
            (
                Form::UsmKey,
                &["0x000102030405060708090a0b0c0d0e0f"],
                &[
                    "",
                    "0x",
                    "000102030405060708090a0b0c0d0e0f",
                    "0x00010203",
                    "0x000102030405060708090a0b0c0d0e0g",
                ],
            ),
            (Form::EngineId, &["8000000001"], &["", "80000000", "800000000", "0x80000000"]),
            (Form::Oid, &["1.3.6.1", "1"], &["", ".1", "1.", "1..3", "1.4294967296", "1 3", "1.+3", "a"]),
            (Form::Mask, &["f0", "FFA0"], &["", "f", "g0", "ff.a0"]),
            (
                Form::Remote,
                &["10.0.0.1", "2001:db8::1", "log.example.org"],
                &["", "a b", "10.0.0.256", "a\n"],
            ),
            (Form::Domain, &["a.example", "b"], &["", "a b", "a/b", "10.0.0.1", "a\n", "a,b"]),
            (
                Form::HardwareAddress,
                &["02:00:5e:10:00:0A"],
                &["", "02:00:5e:10:00", "02:00:5e:10:00:0g", "2:0:5e:10:0:1"],
            ),
            (Form::User, &["admin", "a.b"], &["", "-a", "a,b", "*", "a b"]),
            (Form::FileName, &["messages", "a.log"], &["", ".", "..", "a/b", "-a", ".a", "a\n"]),
            (Form::Task, &["qat-daily-check"], &["", "..", "a/b", "a b", "a\n", "%i"]),
            (
                Form::Program,
                &["/config/scripts/qat-check.sh"],
                &["", "/", "//a", "/a/../b", "a/b", "/a b", "/a\n", "/a'", "/a;b", "/a%", "/a$b", "/a/"],
            ),
            (Form::Arguments, &["-v 'a b' \"c\"", "a;b|c $HOME"], &["", "'a", "a\nb", "\""]),
            (
                Form::Interval,
                &["1d", "5m", "24h", "60", "1"],
                &["", "90", "0m", "1x", "61m", "25h", "32d", "01m", "1d\n"],
            ),
            (
                Form::Crontab,
                &["*/5 * * * *", "@daily"],
                &["", "* * * *", "60 * * * *", "@reboot", "* * * * *\n"],
            ),
        ] {
            for text in good {
                assert!(form.fits(text), "{form:?} {text:?}");
            }
            for text in bad {
                assert!(!form.fits(text), "{form:?} {text:?}");
            }
        }
    }

    #[test]
    fn arguments_are_words_and_no_shell_reads_them() {
        let read = |text: &str| words(text).expect("closed");
        assert_eq!(read(" -a  'b c'd \"e'\" "), ["-a", "b cd", "e'"]);
        assert_eq!(read("'' $(x) a\\ b"), ["", "$(x)", "a\\", "b"]);
        assert_eq!(words("a 'b"), None);
    }
}
