//! Which lcore receives from which queue of a port: `--config`, and the words of devices about queues.

use config::secgw::{Device, Driver, QueueAssignment};
use port::xdp::QUEUES;
use std::collections::BTreeMap;

/// What is wrong, and what to do.
type Refusal = (String, String);

/// The queues of a port.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// The queue of the interface that is the first of the port.
    pub first: u32,
    /// Whether the device has words that choose among the queues of the interface.
    pub is_chosen: bool,
    /// Whether those of AF_XDP share one memory.
    pub shares_memory: bool,
    /// For each queue, the place of the lcore that receives from it among all lcores. None for a port that only sends.
    pub receivers: Vec<usize>,
}

impl Queues {
    /// The queues of port `number`, as the words of its device and the entries of `--config` say.
    pub(super) fn of(
        number: u16,
        device: &Device,
        entries: &[QueueAssignment],
        lcores: &[u32],
    ) -> Result<Self, Refusal> {
        let Words { first, count } = Words::of(device)?;
        let receivers = receivers(number, entries, lcores)?;
        if let Some((key, count)) = count.filter(|&(_, count)| (count as usize) < receivers.len()) {
            let text = format!(
                "--vdev {}: {key}={count}, and --config names queue {count} of port {number}",
                device.name
            );
            return Err((text, format!("write {key}={}", receivers.len())));
        }
        Ok(Self {
            first: first.unwrap_or(0),
            is_chosen: first.is_some() || count.is_some(),
            shares_memory: has(device, "shared_umem"),
            receivers,
        })
    }

    /// So many queues in turn for so many threads.
    pub(super) fn spread(queues: usize, threads: usize) -> Self {
        Self { receivers: (0..queues).map(|queue| queue % threads).collect(), ..Self::default() }
    }

    /// The place of the lcore that has a queue.
    pub(super) fn receiver(&self, queue: usize, lcores: usize) -> usize {
        // What a port that only sends receives is not read.
        self.receivers.get(queue).copied().unwrap_or(queue % lcores)
    }
}

/// The lcores of `--config`, each once, in order.
pub(super) fn numbers(entries: &[QueueAssignment]) -> Vec<u32> {
    let mut numbers: Vec<u32> = entries.iter().map(|entry| entry.core).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.is_empty() {
        // Nothing is received.
        numbers.push(0);
    }
    numbers
}

/// For each queue of a port, the place of its lcore.
fn receivers(port: u16, entries: &[QueueAssignment], lcores: &[u32]) -> Result<Vec<usize>, Refusal> {
    let mut owners: BTreeMap<u16, u32> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.port == port) {
        let (queue, core) = (entry.queue, entry.core);
        if let Some(other) = owners.insert(queue, core).filter(|&other| other != core) {
            let text = format!("--config gives queue {queue} of port {port} to lcores {other} and {core}");
            return Err((text, "give each queue to one lcore".to_owned()));
        }
    }
    if let Some((missing, (queue, _))) = (0u16..).zip(&owners).find(|(place, (queue, _))| place != *queue) {
        let text = format!("--config names queue {queue} of port {port}, and not its queue {missing}");
        return Err((text, "name the queues of a port from 0 on".to_owned()));
    }
    if owners.len() > QUEUES as usize {
        let text = format!("--config names {} queues of port {port}", owners.len());
        return Err((text, format!("a port has at most {QUEUES} queues")));
    }
    let place = |core: &u32| lcores.iter().position(|lcore| lcore == core);
    Ok(owners.values().filter_map(place).collect())
}

/// What a device says about queues.
struct Words<'a> {
    first: Option<u32>,
    /// How many there are, with the word that says it.
    count: Option<(&'a str, u32)>,
}

impl<'a> Words<'a> {
    fn of(device: &'a Device) -> Result<Self, Refusal> {
        let Device { name, driver, arguments } = device;
        let mut words = Self { first: None, count: None };
        for (key, value) in arguments {
            let number = || {
                let number = value.parse::<u32>().ok().filter(|&number| number <= QUEUES);
                number.ok_or_else(|| {
                    (format!("--vdev {name}: {key}={value}"), format!("it is a number up to {QUEUES}"))
                })
            };
            match (key.as_str(), driver) {
                ("queue_count", Driver::AfXdp) | ("qpairs", Driver::AfPacket) => {
                    words.count = Some((key.as_str(), number()?.max(1)));
                }
                ("start_queue", Driver::AfXdp) => words.first = Some(number()?),
                _ => {}
            }
        }
        Ok(words)
    }
}

/// Whether a word of a device that is 0 or 1 is 1.
pub(super) fn has(device: &Device, word: &str) -> bool {
    device.arguments.iter().any(|(key, value)| key == word && value == "1")
}

/// Whether a word of a device is about queues.
pub(super) fn is_word(key: &str, driver: Driver) -> bool {
    matches!((key, driver), ("queue_count" | "start_queue", Driver::AfXdp) | ("qpairs", Driver::AfPacket))
}
