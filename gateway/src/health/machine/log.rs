//! What the kernel has said of accelerators and of memory: `/dev/kmsg`, or a file of its log in a copy of a machine.
//! <https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg>

use super::topics::{Topic, topic};
use crypto::machine::{Files, Known, why};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The log of the kernel that runs.
const KMSG: &str = "dev/kmsg";
/// The number of that device: major 1, minor 11 (Documentation/admin-guide/devices.txt). A container may have the console in its place.
const KMSG_DEVICE: u64 = 0x010b;
/// Where else a copy of a machine may have the log, the best first.
const COPIES: [&str; 4] = ["var/log/dmesg", "var/log/kern.log", "var/log/messages", "var/log/syslog"];
/// Bytes of a record: CONSOLE_EXT_LOG_MAX of the kernel is 8192.
const RECORD: usize = 16 << 10;
/// Records and bytes that are read at most.
const RECORDS: usize = 1 << 17;
const BYTES: u64 = 16 << 20;
/// Lines that are kept: the last ones.
const KEPT: usize = 2000;

/// A line about an accelerator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// What it is about.
    pub topic: Topic,
    /// The devices that it names, by `qat_dev0` or an address of PCI.
    pub devices: Vec<String>,
    /// The line without what a terminal would obey.
    pub text: String,
}

/// The log of a machine. That of the kernel that runs is read on from where the last reading ended.
#[derive(Debug, Default)]
pub(in super::super) struct Log {
    kmsg: Option<File>,
    said: Vec<Said>,
}

impl Log {
    /// The lines so far.
    pub(super) fn read(&mut self, files: Files<'_>) -> Known<Vec<Said>> {
        let mut known = self.read_kernel(files);
        if known.is_err() {
            *self = Self::default();
            // Files of this machine may be of another boot, and of weeks.
            if files.root != Path::new("/") {
                known = COPIES.iter().find_map(|path| read_copy(files, path)).map_or(known, Ok);
            }
        }
        known
    }

    fn read_kernel(&mut self, files: Files<'_>) -> Known<Vec<Said>> {
        let failed = |error: io::Error| why(KMSG, &error);
        let kmsg = if let Some(kmsg) = &mut self.kmsg {
            kmsg
        } else {
            let file = files.open(KMSG).map_err(failed)?;
            let about = file.metadata().map_err(failed)?;
            if about.is_file() {
                return last_part(file, about.len()).map(|text| parse(&text)).map_err(failed);
            }
            if !about.file_type().is_char_device() || about.rdev() != KMSG_DEVICE {
                return Err(format!("/{KMSG} is not the log of the kernel"));
            }
            self.kmsg.insert(file)
        };
        let text = records(kmsg).map_err(failed)?;
        add(&mut self.said, &text);
        Ok(self.said.clone())
    }
}

fn read_copy(files: Files<'_>, path: &str) -> Option<Vec<Said>> {
    let file = files.open(path).ok()?;
    let about = file.metadata().ok().filter(Metadata::is_file)?;
    Some(parse(&last_part(file, about.len()).ok()?))
}

/// The end of a file, which has the latest lines.
fn last_part(mut file: File, length: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
    file.take(BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The records that were not read yet.
fn records(kmsg: &mut impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut record = vec![0; RECORD];
    for _ in 0..RECORDS {
        match kmsg.read(&mut record) {
            Ok(0) => break,
            Ok(read) => bytes.extend_from_slice(&record[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // The record was overwritten before it was read.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) => return Err(error),
        }
        if bytes.len() as u64 > BYTES {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The lines that are about accelerators and heat, in records of the kernel, or in lines of its log as other programs write it; of
/// several boots only those of the last one.
pub fn parse(text: &str) -> Vec<Said> {
    let mut said = Vec::new();
    add(&mut said, text);
    said
}

/// Adds the lines of a text to those before it.
fn add(said: &mut Vec<Said>, text: &str) {
    for message in text.lines().filter_map(message) {
        // It is the first message of a kernel.
        if message.starts_with("Linux version ") {
            said.clear();
        }
        said.extend(about(message));
    }
    said.drain(..said.len().saturating_sub(KEPT));
}

/// What the kernel says in a line; nothing if another program says it.
/// `6,339,5140900,-;message`, `[    5.140900] message`, `Nov 27 10:00:00 host kernel: [    5.140900] message`
fn message(line: &str) -> Option<&str> {
    let message = match line.split_once(';').and_then(|(head, message)| Some((priority(head)?, message))) {
        // The facility is above the three bits of the level, and that of the kernel is 0: programs write there, too.
        Some((priority, _)) if priority >> 3 != 0 => return None,
        Some((_, message)) => message,
        None => match words_before_tag(line) {
            Some(words) => after_words(line, words)?.strip_prefix("kernel:")?,
            None => line,
        },
    };
    // A record's dictionary follows it in lines of its own.
    if message.starts_with(' ') && message.contains('=') {
        return None;
    }
    let message = message.trim_start();
    Some(without_moments(message.strip_prefix("kernel:").map_or(message, str::trim_start)))
}

/// The priority in the head of a record, the first of at least three numbers.
fn priority(head: &str) -> Option<u32> {
    let is_number = |it: &&str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    let mut numbers = head.split(',').take(3).take_while(is_number);
    let priority = numbers.next()?.parse().ok()?;
    (numbers.count() == 2).then_some(priority)
}

/// How many words a line of syslog has before the name of the program: `Nov 27 10:00:00 host`, or `2026-11-27T10:00:00Z host`.
fn words_before_tag(line: &str) -> Option<usize> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let first = line.split_whitespace().next()?;
    let is_date = || {
        let (year, rest) = first.split_once('-')?;
        (year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit()) && rest.contains('T')).then_some(2)
    };
    if MONTHS.contains(&first) { Some(4) } else { is_date() }
}

fn after_words(mut text: &str, count: usize) -> Option<&str> {
    for _ in 0..count {
        text = text.trim_start().split_once(char::is_whitespace)?.1;
    }
    Some(text.trim_start())
}

/// A message without its time and its caller: `[    5.140900][   T12] `.
fn without_moments(mut message: &str) -> &str {
    while let Some((within, rest)) = message.strip_prefix('[').and_then(|it| it.split_once(']')) {
        let number = within.trim().trim_start_matches(['T', 'C']);
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            break;
        }
        message = rest.trim_start();
    }
    message
}

fn about(message: &str) -> Option<Said> {
    let lower = message.to_lowercase();
    let devices = devices(&lower);
    let topic = topic(&lower, &devices)?;
    let text: String = message.trim().chars().take(300).collect();
    Some(Said { topic, devices, text: text.replace(char::is_control, "?") })
}

/// The words in a line that name a device.
fn devices(lower: &str) -> Vec<String> {
    let words = lower.split(|c: char| c.is_whitespace() || "()[],;\"'".contains(c));
    let name = |word: &str| {
        let word = word.trim_end_matches(['.', ':', '!']);
        let number = word.strip_prefix("qat_dev").unwrap_or_default();
        let is_device = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (is_device || is_address(word)).then(|| word.to_owned())
    };
    words.filter_map(name).collect()
}

/// Whether this is an address of PCI, such as `0000:3d:00.0`.
fn is_address(word: &str) -> bool {
    let is_hex =
        |part: &str, digits: usize| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = word.split([':', '.']).collect();
    matches!(&parts[..], [domain, bus, device, function]
        if is_hex(domain, 4) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1))
}

/// The last line that says that a processor is too hot, unless a later one says that it is no longer.
pub(in super::super) fn heat(log: &[Said]) -> Option<&Said> {
    log.iter()
        .rev()
        .find(|said| matches!(said.topic, Topic::Hot | Topic::Cool))
        .filter(|it| it.topic == Topic::Hot)
}

/// The last line of a topic that no later line takes back: a device that has started again works.
pub(in super::super) fn unresolved(log: &[Said], topic: Topic) -> Option<&Said> {
    let (at, said) = log.iter().enumerate().rev().find(|(_, said)| said.topic == topic)?;
    // An error of the hardware is one also after a reset.
    let is_over = topic != Topic::Uncorrectable
        && log[at..].iter().filter(|later| later.topic == Topic::Started).any(|later| {
            said.devices.is_empty()
                || later.devices.is_empty()
                || later.devices.iter().any(|device| said.devices.contains(device))
        });
    (!is_over).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// One record a read, as `/dev/kmsg`, and `EAGAIN` after the last.
    struct Records(Vec<&'static str>);

    impl Read for Records {
        fn read(&mut self, mut into: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            into.write(self.0.remove(0).as_bytes())
        }
    }

    #[test]
    fn records_are_read_on_from_where_the_last_reading_ended() {
        let mut kmsg = Records(vec!["3,812,93012345,-;qat_dev0: heartbeat failed\n"]);
        let mut said = Vec::new();
        add(&mut said, &records(&mut kmsg).expect("readable"));
        add(&mut said, &records(&mut kmsg).expect("readable"));
        assert_eq!(said.len(), 1, "nothing is read twice");
        kmsg.0.push("3,813,93012345,-;qat_dev0: ring buffer overflow\n");
        add(&mut said, &records(&mut kmsg).expect("readable"));
        assert_eq!(said.iter().map(|it| it.topic).collect::<Vec<_>>(), [Topic::Heartbeat, Topic::Overflow]);
    }

    fn topics(text: &str) -> Vec<Topic> {
        parse(text).into_iter().map(|said| said.topic).collect()
    }

    #[test]
    fn lines_of_the_guide_and_of_the_drivers_are_understood() {
        for (line, topic) in [
            ("3,812,93012345,-;qat_dev0: heartbeat failed", Topic::Heartbeat),
            ("3,813,93012345,-;qat_dev0: ring buffer overflow", Topic::Overflow),
            ("3,814,93012345,-;qat_dev0: uncorrectable error detected", Topic::Uncorrectable),
            ("3,815,93012345,-;Intel QAT: failed to allocate memory", Topic::Memory),
            ("[    5.120000] qat_c3xxx 0000:00:0b.0: Firmware load failed", Topic::Firmware),
            ("Nov 27 10:00:00 gw kernel: qat_c3xxx 0000:00:0b.0: Failed to initialize qat_dev0", Topic::Down),
            ("3,1,1,-;QAT: Device qat_dev0 is NOT available", Topic::Down),
            ("3,1,1,-;4xxx 0000:6b:00.0: Uncorrectable error detected in AE: 0x1", Topic::Uncorrectable),
            (
                "3,1,1,-;4xxx 0000:6b:00.0: Direct firmware load for qat_4xxx.bin failed with error -2",
                Topic::Firmware,
            ),
            ("3,1,1,-;c6xx 0000:3d:00.0: Failed to load acceleration FW", Topic::Firmware),
            ("3,1,1,-;c6xx 0000:3d:00.0: Failed to initialise Acceleration Engine", Topic::Down),
            ("3,1,1,-;c6xx 0000:3d:00.0: Restart device failed", Topic::Down),
            ("6,1,1,-;c6xx 0000:3d:00.0: qat_dev0 started 9 acceleration engines", Topic::Started),
            ("6,1,1,-;kernel: QAT: Device qat_dev0 is ready for use", Topic::Started),
            ("4,1,1,-;4xxx 0000:6b:00.0: swiotlb buffer is full (sz: 4096 bytes)", Topic::Memory),
            (
                "2,1,1,-;mce: CPU0: Package temperature above threshold, cpu clock throttled (total events = 9)",
                Topic::Hot,
            ),
            (
                "2,1,1,-;CPU3: Package temperature is above threshold, cpu clock is throttled (total events = 9)",
                Topic::Hot,
            ),
            (
                "2026-11-27T10:00:00.1+00:00 gw kernel: [    5.1][   T12] intel_qat: heartbeat failed",
                Topic::Heartbeat,
            ),
            ("Nov  7 10:00:00 gw kernel: QAT: heartbeat failed", Topic::Heartbeat),
        ] {
            assert_eq!(topics(line), [topic], "{line}");
        }
    }

    #[test]
    fn other_lines_are_about_nothing() {
        for line in [
            "6,1,1,-;qat_c3xxx 0000:00:0b.0: enabling device (0000 -> 0002)",
            "6,1,1,-;qat_c3xxx 0000:00:0b.0: Enabling MSI IRQ 24",
            "4,1,1,-;4xxx 0000:6b:00.0: Correctable error detected in AE: 0x1",
            "3,1,1,-;Out of memory: Killed process 812 (java) total-vm:1kB",
            "3,1,1,-;Out of memory: Killed process 812 (postern) total-vm:1kB",
            // A host may be called so, and what another program says is not of the kernel.
            "Nov 27 10:00:00 qat-gw kernel: Out of memory: Killed process 812 (java)",
            "Nov 27 10:00:00 gw sshd[9]: qat_dev0: heartbeat failed",
            "Nov 27 10:00:00 gw dnsmasq[9]: query kernel: qat_dev0: heartbeat failed",
            "2026-11-27T10:00:00Z qat sshd[9]: error: heartbeat failed",
            "30,1,1,-;systemd[1]: qat.service: heartbeat failed",
            "3,1,1,-;squatter: heartbeat failed",
            "3,1,1,-;nvme 0000:01:00.0: failed to allocate memory",
            "3,1,1,-;eth0: ring buffer overflow",
            " SUBSYSTEM=pci qat=heartbeat failed",
            "",
            ";;;,,,",
        ] {
            assert_eq!(topics(line), [], "{line}");
        }
    }

    #[test]
    fn of_several_boots_the_last_one_counts_and_of_a_long_file_the_end() {
        let boot = "Nov 27 10:00:00 gw kernel: [    0.000000] Linux version 6.1.0-1-amd64 (gcc) #1 SMP\n";
        let bad = "Nov 27 10:00:00 gw kernel: [    9.000000] qat_dev0: heartbeat failed\n";
        assert_eq!(topics(&format!("{bad}{boot}")), []);
        assert_eq!(topics(&format!("{bad}{boot}{bad}")), [Topic::Heartbeat]);
        let root = tempfile::tempdir().expect("writable");
        let files = Files { root: root.path() };
        std::fs::create_dir_all(root.path().join("var/log")).expect("writable");
        let filler =
            "Nov 27 10:00:00 gw sshd[9]: nothing of note in this line\n".repeat(BYTES as usize / 57 + 9);
        std::fs::write(root.path().join("var/log/kern.log"), format!("{bad}{filler}")).expect("writable");
        assert_eq!(Log::default().read(files).map(|said| said.len()), Ok(0));
        std::fs::write(root.path().join("var/log/kern.log"), format!("{filler}{bad}")).expect("writable");
        assert_eq!(Log::default().read(files).map(|said| said.len()), Ok(1));
    }

    #[test]
    fn a_device_that_has_started_again_is_well_and_another_is_not() {
        let log = parse(
            "3,1,1,-;qat_dev0: heartbeat failed\n3,2,1,-;qat_dev0: uncorrectable error detected\n\
             6,3,1,-;c6xx 0000:3d:00.0: qat_dev0 started 9 acceleration engines\n",
        );
        assert_eq!(unresolved(&log, Topic::Heartbeat), None);
        assert!(unresolved(&log, Topic::Uncorrectable).is_some(), "hardware");
        let log =
            parse("3,1,1,-;qat_dev1: heartbeat failed\n6,3,1,-;QAT: Device qat_dev0 is ready for use\n");
        assert_eq!(
            unresolved(&log, Topic::Heartbeat).map(|said| &*said.text),
            Some("qat_dev1: heartbeat failed")
        );
        assert_eq!(log[0].devices, ["qat_dev1"]);
        let hot = "2,1,1,-;CPU0: Core temperature above threshold, cpu clock throttled (total events = 1)\n";
        let cool = "6,2,1,-;CPU0: Core temperature/speed normal\n";
        let is_hot = |text: &str| heat(&parse(text)).is_some();
        assert!(
            is_hot(hot) && is_hot(&format!("{cool}{hot}")) && !is_hot(&format!("{hot}{cool}")) && !is_hot("")
        );
    }
}
