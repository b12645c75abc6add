//! What a line of the kernel's log is about, by the words in it.

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A device works again.
    Started,
    /// Its firmware does not answer.
    Heartbeat,
    /// More was asked of it than it has room for.
    Overflow,
    /// It has made an error that cannot be corrected.
    Uncorrectable,
    /// There was no memory.
    Memory,
    /// Its firmware was not loaded.
    Firmware,
    /// It did not start, or was stopped.
    Down,
    /// A processor is too hot, and is slowed down.
    Hot,
    /// It is no longer.
    Cool,
}

/// The names that the kernel's drivers have for devices, which stand before the address: the name of the driver.
const DRIVERS: [&str; 14] = [
    "dh895xcc",
    "dh895xccvf",
    "c6xx",
    "c6xxvf",
    "c62x",
    "c3xxx",
    "c3xxxvf",
    "d15xx",
    "200xx",
    "c4xxx",
    "4xxx",
    "401xx",
    "420xx",
    "6xxx",
];

/// Words that say that something went wrong.
const FAILS: &[&str] =
    &["fail", "error", "cannot", "can't", "unable", "not found", "missing", "timeout", "lost"];

/// What lines about one topic have.
struct Pattern {
    topic: Topic,
    /// Of each group, one at least is in the line.
    groups: &'static [&'static [&'static str]],
    /// One of these is a word of its own in the line, if there are any.
    words: &'static [&'static str],
    /// None of these is in the line.
    without: &'static [&'static str],
}

const fn pattern(topic: Topic, groups: &'static [&'static [&'static str]]) -> Pattern {
    Pattern { topic, groups, words: &[], without: &[] }
}

impl Pattern {
    const fn with_words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }

    const fn without(self, without: &'static [&'static str]) -> Self {
        Self { without, ..self }
    }

    /// Whether it is that of a line in small letters.
    fn is_of(&self, lower: &str) -> bool {
        let has = |any: &&str| lower.contains(*any);
        self.groups.iter().all(|group| group.iter().any(has))
            && (self.words.is_empty() || words(lower).any(|word| self.words.contains(&word)))
            && !self.without.iter().any(has)
    }
}

/// About accelerators; the first that a line has counts.
const ACCELERATOR: &[Pattern] = &[
    pattern(Topic::Started, &[&["started"], &["acceleration engine"]]),
    pattern(
        Topic::Started,
        &[&["is ready for use", "successfully initialized", "is up and running", "reset completed"]],
    ),
    pattern(
        Topic::Uncorrectable,
        &[&["uncorrectable", "severity=uncorrected", "fatal error", "severity=fatal"]],
    ),
    pattern(Topic::Heartbeat, &[&["heartbeat", "heart beat"], FAILS])
        .without(&["device is healthy", "heartbeat ok"]),
    pattern(Topic::Heartbeat, &[&["heartbeat", "heart beat"], &["not responding", "missed"]])
        .without(&["device is healthy", "heartbeat ok"]),
    pattern(Topic::Heartbeat, &[&["device is not responding", "does not respond"]]),
    pattern(Topic::Heartbeat, &[&["admin msg", "admin message"], FAILS]),
    pattern(Topic::Overflow, &[&["overflow", "is full", "ring full", "no space", "no room"]])
        .with_words(&["ring", "rings", "queue"]),
    pattern(
        Topic::Memory,
        &[&[
            "out of memory",
            "no memory",
            "enomem",
            "error -12",
            "page allocation failure",
            "swiotlb buffer is full",
        ]],
    ),
    pattern(Topic::Memory, &[&["alloc"], FAILS]).without(&["irq", "interrupt", "vector"]),
    pattern(Topic::Firmware, &[&["firmware", " fw", "_fw", "uof", "mmp", "microcode"], FAILS]),
    pattern(
        Topic::Down,
        &[&[
            "failed to init",
            "failed init",
            "failed to start",
            "start failed",
            "not available",
            "unusable",
            "restart device failed",
            "restart failed",
            "failed to send init",
            "can't recover",
            "hardware error",
        ]],
    ),
    pattern(Topic::Down, &[&["probe"], &["failed with error"]]),
];

/// About heat. Since Linux 5.6 there is "is" in it.
const HEAT: &[Pattern] = &[
    pattern(Topic::Hot, &[&["temperature above threshold", "temperature is above threshold"]]),
    pattern(Topic::Hot, &[&["cpu clock throttled", "cpu clock is throttled", "thermal throttling"]]),
    pattern(Topic::Cool, &[&["temperature/speed normal"]]),
];

/// What a line in small letters is about, which names these devices; none if that is neither an accelerator nor heat.
pub(super) fn topic(lower: &str, devices: &[String]) -> Option<Topic> {
    let patterns = if is_of_accelerator(lower, devices) { ACCELERATOR } else { HEAT };
    patterns.iter().find(|pattern| pattern.is_of(lower)).map(|pattern| pattern.topic)
}

fn is_of_accelerator(lower: &str, devices: &[String]) -> bool {
    let is_qat = |word: &str| {
        word.strip_prefix("qat").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    words(lower).any(is_qat)
        || lower.contains("quickassist")
        || !devices.is_empty() && lower.split([' ', ':']).any(|word| DRIVERS.contains(&word))
}

fn words(lower: &str) -> impl Iterator<Item = &str> {
    lower.split(|c: char| !c.is_ascii_alphanumeric())
}
