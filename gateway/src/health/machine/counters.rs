//! Counters of the kernel, from the texts of its files.

use std::collections::HashMap;

/// Packets that were taken, and packets that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lossy {
    /// What arrived and was taken.
    pub taken: u64,
    /// What was lost.
    pub lost: u64,
}

impl Lossy {
    /// The difference to an earlier reading; `None` if the counters were reset.
    pub(in super::super) fn since(self, before: Self) -> Option<Self> {
        Some(Self { taken: self.taken.checked_sub(before.taken)?, lost: self.lost.checked_sub(before.lost)? })
    }

    /// The part that was lost.
    pub(in super::super) fn part(self) -> f64 {
        let all = self.taken.saturating_add(self.lost);
        if all == 0 { 0.0 } else { self.lost as f64 / all as f64 }
    }
}

/// `/proc/net/softnet_stat`: a line for each processor, in hexadecimal: packets that were taken, packets for which its backlog had no
/// room, and more. Nothing if it is not in that form.
pub fn softnet(text: &str) -> Option<Lossy> {
    let mut all = Lossy::default();
    let mut lines = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace().map(|word| u64::from_str_radix(word, 16));
        let (Some(Ok(taken)), Some(Ok(lost))) = (words.next(), words.next()) else { return None };
        all.taken = all.taken.saturating_add(taken);
        all.lost = all.lost.saturating_add(lost);
        lines += 1;
    }
    (lines > 0).then_some(all)
}

/// `/proc/net/snmp`: two lines for each protocol, names and numbers. Datagrams that programs got, and those for which the buffer of
/// their socket had no room.
pub fn udp(text: &str) -> Option<Lossy> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let pairs: HashMap<&str, u64> = names
        .split_whitespace()
        .zip(numbers.split_whitespace())
        .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
        .collect();
    Some(Lossy { taken: *pairs.get("InDatagrams")?, lost: *pairs.get("RcvbufErrors")? })
}

/// `/proc/net/snmp6`: a name and a number in each line.
pub fn udp6(text: &str) -> Option<Lossy> {
    let value = |name: &str| {
        let of = |line: &str| line.split_whitespace().nth(1)?.parse().ok();
        text.lines().find(|line| line.split_whitespace().next() == Some(name)).and_then(of)
    };
    Some(Lossy { taken: value("Udp6InDatagrams")?, lost: value("Udp6RcvbufErrors")? })
}

/// `aer_dev_fatal` and `aer_dev_nonfatal` of a PCI device: the sum, in its own line since Linux 4.19 or, without it, of all lines.
pub fn advanced_errors(text: &str) -> Option<u64> {
    let pairs: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| {
            let (name, number) = line.trim().rsplit_once(char::is_whitespace)?;
            Some((name.trim(), number.parse().ok()?))
        })
        .collect();
    let total = pairs.iter().find(|(name, _)| name.starts_with("TOTAL_ERR")).map(|(_, number)| *number);
    let sum = || pairs.iter().fold(0u64, |sum, (_, number)| sum.saturating_add(*number));
    (!pairs.is_empty()).then(|| total.unwrap_or_else(sum))
}

/// The number of huge pages, from `/proc/meminfo`.
pub fn huge_pages(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("HugePages_Total:"))?.trim().parse().ok()
}

/// Whether a value of `OPENSSL_ia32cap` hides the AES instructions: with `~` it is what is taken away, without it what is left.
/// <https://docs.openssl.org/3.0/man3/OPENSSL_ia32cap/>
pub fn hides_aes(value: &str) -> bool {
    /// Bit 25 of ECX of CPUID leaf 1, which is the upper half.
    const AES: u64 = 1 << (32 + 25);
    let first = value.trim().trim_matches(['"', '\'']).split(':').next().unwrap_or_default();
    let (takes, digits) = first.strip_prefix('~').map_or((false, first), |rest| (true, rest));
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    number.is_ok_and(|number| (number & AES != 0) == takes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlogs_of_all_processors_are_summed() {
        let old = "0000001f 00000000 00000002 0 0 0 0 0 0\n000000ff 0000000a 00000000 0 0 0 0 0 0\n";
        assert_eq!(softnet(old), Some(Lossy { taken: 286, lost: 10 }));
        for text in ["", "\n", "00000001", "zz 00000000", "1 -1"] {
            assert_eq!(softnet(text), None, "{text:?}");
        }
        assert_eq!(softnet("ffffffffffffffff 1\nffffffffffffffff 1").map(|it| it.taken), Some(u64::MAX));
    }

    #[test]
    fn datagrams_without_room_are_found_by_name() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 1 64\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\n\
                    Udp: 1000 1 9 900 8\nUdpLite: InDatagrams RcvbufErrors\nUdpLite: 7 7\n";
        assert_eq!(udp(text), Some(Lossy { taken: 1000, lost: 8 }));
        assert_eq!((udp("Udp: InDatagrams\nUdp: 4\n"), udp("Udp: a\n"), udp("")), (None, None, None));
        let six = "Ip6InReceives                   \t5\nUdp6InDatagrams\t40\nUdp6RcvbufErrors   \t2\n";
        assert_eq!(udp6(six), Some(Lossy { taken: 40, lost: 2 }));
        assert_eq!(udp6("Udp6InDatagrams 1\n"), None);
    }

    #[test]
    fn errors_of_the_bus_are_summed_with_or_without_their_total() {
        let text = "Undefined 0\nDLP 0\nPoison TLP Received 2\nMalformed TLP 1\nTOTAL_ERR_FATAL 3\n";
        assert_eq!(advanced_errors(text), Some(3));
        assert_eq!(advanced_errors("DLP 1\nSDES 1\n"), Some(2));
        assert_eq!((advanced_errors(""), advanced_errors("nothing\n")), (None, None));
    }

    #[test]
    fn a_mask_without_aes_is_told_from_another() {
        for value in ["~0x200000200000000", "\"~0x200000200000000\"", "~0x200000000000000:~0x0", "0x0", "0"] {
            assert!(hides_aes(value), "{value}");
        }
        for value in ["~0x0", "~0x200000000", ":~0x20", "0x7ffaf3ffffebffff", "", "~", "aes"] {
            assert!(!hides_aes(value), "{value}");
        }
    }

    #[test]
    fn huge_pages_are_counted() {
        let text = "MemTotal: 1 kB\nHugePages_Total:     512\nHugePages_Free:       16\n";
        assert_eq!(huge_pages(text), Some(512));
        assert_eq!(huge_pages("HugePages_Total: x"), None);
    }
}
