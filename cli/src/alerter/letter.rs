//! An alert as mail: RFC 5322, with a text in base64, so that any server takes it and no line of it means anything to one.

use super::form;
use crate::output::timestamp;
use base64ct::{Base64, Encoding};
use gateway::health::model::{Alert, AlertState};
use gateway::health::wire::Notification;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of base64 in a line: RFC 2045 6.8 allows 76.
const LINE: usize = 76;
/// Bytes of a word of a head: RFC 2047 allows 75 characters with its frame, of which base64 makes four of three bytes.
const WORD: usize = 45;
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// What this machine calls itself to mail servers: a domain name, or `localhost`.
pub(super) fn own_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if name.len() <= 253 && name.split('.').all(is_label) { name } else { "localhost".to_owned() }
}

/// The head and the text of a message.
pub(super) fn write(from: &str, to: &[&str], own_name: &str, notification: &Notification) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let subject = subject(own_name, notification);
    let mut letter = format!(
        "From: <{from}>\r\nTo: {}\r\nSubject: {}\r\nDate: {}\r\nMessage-ID: <{}.{}.postern@{own_name}>\r\nAuto-Submitted: auto-generated\r\n\
         MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n",
        to.iter().map(|to| format!("<{to}>")).collect::<Vec<_>>().join(",\r\n "),
        words(&subject),
        date(now.as_secs()),
        now.as_nanos(),
        std::process::id(),
    );
    let encoded = Base64::encode_string(text(own_name, notification).as_bytes());
    for line in encoded.as_bytes().chunks(LINE) {
        letter.extend(line.iter().map(|&byte| char::from(byte)));
        letter.push_str("\r\n");
    }
    letter
}

fn subject(own_name: &str, notification: &Notification) -> String {
    let Notification { rule, severity, is_repeated, .. } = notification;
    let again = if *is_repeated { "still " } else { "" };
    format!("[{again}{}] {severity} {rule} on {own_name}", form::status(notification))
}

fn text(own_name: &str, notification: &Notification) -> String {
    let mut text = String::new();
    let mut list = |title: &str, state: AlertState| {
        let these: Vec<&Alert> = notification.alerts.iter().filter(|alert| alert.state == state).collect();
        if these.is_empty() {
            return;
        }
        let _ = write!(text, "{title}:\r\n");
        for Alert { sentence, remedy, firing_since, since, resolved_at, .. } in these {
            let line = |text: &str| text.replace(char::is_control, " ");
            let _ = write!(
                text,
                "\r\n  {}\r\n  since {}",
                line(sentence),
                timestamp(firing_since.unwrap_or(*since))
            );
            let _ = match resolved_at {
                Some(at) => write!(text, " until {}\r\n", timestamp(*at)),
                None => write!(text, "\r\n  fix: {}\r\n", line(remedy)),
            };
        }
        text.push_str("\r\n");
    };
    list("Firing", AlertState::Firing);
    list("Resolved", AlertState::Resolved);
    if notification.left_out > 0 {
        let _ = write!(text, "and {} more\r\n\r\n", notification.left_out);
    }
    let _ = write!(text, "postern show health on {own_name} has all of them.\r\n");
    text
}

/// Text of a head: as it is, or as words of RFC 2047 if it has more than ASCII.
fn words(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    if text.is_ascii() {
        return text;
    }
    let mut words: Vec<String> = vec![String::new()];
    for character in text.chars() {
        let last = words.last_mut().expect("it begins with one");
        if last.len() + character.len_utf8() > WORD {
            words.push(character.to_string());
        } else {
            last.push(character);
        }
    }
    let encoded = words.iter().map(|word| format!("=?utf-8?B?{}?=", Base64::encode_string(word.as_bytes())));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

/// A date of RFC 5322 3.3, in UTC.
fn date(seconds: u64) -> String {
    let stamp = timestamp(seconds);
    let part = |from: usize, to: usize| stamp.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    let day = DAYS[(seconds / 86_400 % 7) as usize];
    format!("{day}, {} {} {} {} +0000", part(8, 10), month.unwrap_or(&"Jan"), part(0, 4), part(11, 19))
}

#[cfg(test)]
mod tests {
    use super::super::form::tests::notification;
    use super::*;

    #[test]
    fn a_letter_has_its_head_and_a_text_that_no_server_obeys() {
        let letter = write("a@b.example", &["c@d.example", "e@f.example"], "gw1", &notification());
        let (head, body) = letter.split_once("\r\n\r\n").expect("a head and a text");
        assert!(head.contains("\r\nSubject: [firing] critical tunnel-down on gw1\r\n"), "{head}");
        assert!(head.contains("To: <c@d.example>,\r\n <e@f.example>\r\n"), "{head}");
        assert!(body.lines().all(|line| line.len() <= LINE && !line.starts_with('.')), "{body}");
        let text = Base64::decode_vec(&body.replace("\r\n", "")).expect("base64");
        let text = String::from_utf8(text).expect("text");
        assert!(text.starts_with("Firing:\r\n\r\n  The tunnel wg0 berlin is down.\r\n  since 2000-02-29T00:00:10Z\r\n  fix: postern explain"), "{text}");
        assert!(
            text.contains("wg0 \"rome\" is down.\r\n  since 2000-02-29T00:00:10Z until 2000-02-29T00:01:40Z"),
            "{text}"
        );
        assert!(text.contains("and 3 more"), "{text}");
        let again = Notification { is_repeated: true, ..notification() };
        assert!(write("a@b", &[], "gw1", &again).contains("Subject: [still firing] "));
    }

    #[test]
    fn text_of_a_head_is_one_line_of_ascii() {
        assert_eq!(words("a\r\nBcc: b"), "a  Bcc: b");
        let long = words(&"\u{e9}".repeat(60));
        assert!(long.is_ascii() && long.split("\r\n ").all(|word| word.len() <= 75), "{long}");
    }

    #[test]
    fn dates_have_the_form_of_mail() {
        assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 +0000");
        assert_eq!(date(951_782_400), "Tue, 29 Feb 2000 00:00:00 +0000");
    }
}
