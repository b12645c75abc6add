//! What rules of health read: files of the kernel, and configurations; and what mail servers answer to those who send alerts.

use gateway::health::machine::{advanced_errors, hides_aes, huge_pages, parse_log, softnet, udp, udp6};
use gateway::health::read_watched;
use https::mail::Reply;

/// Counters and lines of the log of the kernel; a configuration, of which all or no line is understood.
pub fn files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = (
        softnet(&text),
        udp(&text),
        udp6(&text),
        advanced_errors(&text),
        huge_pages(&text),
        hides_aes(&text),
    );
    for said in parse_log(&text) {
        assert!(said.text.chars().count() <= 300 && !said.text.contains(char::is_control), "{}", said.text);
        assert!(said.devices.iter().all(|device| !device.contains(char::is_whitespace)));
    }
    // It takes a reading for each of some rounds.
    if text.len() < 512 {
        let _ = read_watched(&text);
    }
}

/// Answers of a mail server, one after the other.
pub fn answers(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((reply, taken))) = Reply::parse(rest) {
        assert!(taken > 3 && taken <= rest.len() && reply.code < 1000 && !reply.lines.is_empty());
        rest = &rest[taken..];
    }
}
