//! One direction of a trial: the frames that leave by a port, and what is noted of them at the other.

use super::broadcast;
use super::end::{Fate, Opened, unsealed};
use super::frame::{Path, Reader, Seen, Template};
use super::neighbour::Neighbour;
use super::pacer::Pacer;
use super::receiver::{Receiver, Sampling};
use super::streams::stream_of;
use super::trial::Load;
use packet::Batch;

/// The most frames a second that room for sequence numbers is made for before a trial without a rate.
const EXPECTED: f64 = 4e6;

/// One direction: frames from one port that are expected at the other.
pub struct Direction {
    /// The port that frames leave by.
    pub from: usize,
    /// The port that they are expected at.
    pub to: usize,
    templates: Vec<Template>,
    reader: Reader,
    /// When frames are due.
    pub pacer: Pacer,
    /// The number of streams.
    streams: usize,
    /// The frame that leaves beside the test frames, one in a hundred.
    broadcast: Option<Vec<u8>>,
    /// What arrived.
    pub receiver: Receiver,
    /// The next sequence number.
    pub next: u64,
    /// Frames that left later than planned.
    pub late: u64,
    /// The first and the last departure.
    departures: [u64; 2],
}

impl Direction {
    /// The direction of a path from a port, with frames of these lengths in turn.
    pub fn new(from: usize, path: &Path, lengths: &[usize], has_broadcasts: bool) -> Self {
        Self {
            from,
            to: 1 - from,
            templates: lengths.iter().map(|&length| Template::new(path, length)).collect(),
            reader: Reader::new(path),
            pacer: Pacer::new(1.0, 1, 0, 0.0, None),
            streams: path.streams.count(),
            broadcast: has_broadcasts.then(|| broadcast::frame(path.source_mac, path.streams.source())),
            receiver: Receiver::new(0, 1, 0, None),
            next: 0,
            late: 0,
            departures: [0; 2],
        }
    }

    /// Begins a trial.
    pub fn prepare(&mut self, load: &Load, start: u64, trial: u16) {
        self.pacer = Pacer::new(load.rate, load.burst, start, load.seconds, load.frames);
        let expected = load.frames.unwrap_or((load.rate.min(EXPECTED) * load.seconds) as u64);
        let sampling = load.samples.map(|count| {
            let half = expected / 2;
            Sampling { first: half, every: (half / count.max(1) as u64).max(1), count }
        });
        self.receiver = Receiver::new(trial, self.streams, expected, sampling);
        (self.next, self.late, self.departures) = (0, 0, [start; 2]);
    }

    /// Adds the next frames to a batch, each with so much more room before it.
    #[inline]
    pub fn fill(&self, batch: &mut Batch, count: u64, now: u64, room: usize) {
        for sequence in self.next..self.next + count {
            self.append(batch, sequence, now, room);
        }
    }

    /// Adds the broadcast frames that leave with so many test frames.
    #[inline]
    pub fn add_broadcasts(&self, batch: &mut Batch, count: u64) {
        let Some(frame) = &self.broadcast else { return };
        for _ in 0..broadcast::due(self.next..self.next + count) {
            batch.append(frame.len()).expect("a batch has room for a burst").copy_from_slice(frame);
        }
    }

    #[inline]
    fn append(&self, batch: &mut Batch, sequence: u64, now: u64, room: usize) {
        let template = match &self.templates[..] {
            [one] => one,
            several => &several[(sequence % several.len() as u64) as usize],
        };
        let (index, length) = (batch.len(), template.length());
        let frame = batch.append(room + length).expect("a batch has room for a burst");
        template.write(&mut frame[room..], self.receiver.tag(sequence, now));
        if room > 0 {
            batch.shrink(index, room, length);
        }
    }

    /// Notes that `taken` frames left at `now`.
    #[inline]
    pub fn left(&mut self, taken: u64, now: u64) {
        if taken == 0 {
            return;
        }
        if self.next == 0 {
            self.departures[0] = now;
        }
        self.departures[1] = now;
        self.late += if self.pacer.is_late(self.next, now) { taken } else { 0 };
        self.receiver.left(self.next..self.next + taken);
        self.next += taken;
    }

    /// The frames a second that the tester offered.
    pub fn offered(&self, load: &Load) -> f64 {
        if self.next >= self.pacer.total() && load.frames.is_none() {
            return load.rate;
        }
        // The last departure is that of up to a burst; so short a trial has no rate.
        let seconds = (self.departures[1] - self.departures[0]) as f64 / 1e9;
        if load.frames.is_some() && seconds > 0.0 {
            return self.next as f64 / seconds;
        }
        self.next as f64 / load.seconds
    }
}

/// Notes the frames that arrived at a port.
pub struct Note<'a> {
    /// The direction that ends there; none if the tester only answers.
    pub direction: Option<&'a mut Direction>,
    pub neighbour: &'a mut Neighbour,
    pub now: u64,
}

impl Note<'_> {
    /// Notes a batch, of which encrypted packets are already opened; answers to ARP and neighbour discovery are added to `requests`.
    #[inline]
    pub fn all(mut self, batch: &Batch, opened: Option<Opened<'_>>, requests: &mut Vec<Vec<u8>>) {
        let Some(Opened { fates, expected }) = opened else {
            for index in batch.live(0..batch.len()) {
                self.frame(batch.packet(index), false, requests);
            }
            return;
        };
        for (index, fate) in fates.iter().enumerate() {
            match *fate {
                Fate::Frame => self.frame(batch.packet(index), true, requests),
                Fate::Opened { is_repeated, sa } => {
                    self.opened(batch.packet(index), is_repeated, sa, expected);
                }
                Fate::Corrupt => {
                    if let Some(direction) = &mut self.direction {
                        direction.receiver.note(Seen::Corrupt(None), self.now);
                    }
                }
                Fate::Nothing | Fate::Sealed(_) => {}
            }
        }
    }

    /// Notes a frame that came as it is.
    #[inline]
    fn frame(&mut self, frame: &[u8], is_protected: bool, requests: &mut Vec<Vec<u8>>) {
        if let Some(Direction { reader, receiver, .. }) = &mut self.direction {
            let seen = reader.read(frame);
            receiver.note(if is_protected { unsealed(seen) } else { seen }, self.now);
        }
        requests.extend(self.neighbour.answer(frame));
    }

    /// Notes a packet that was opened under an SA.
    #[inline]
    fn opened(&mut self, packet: &[u8], is_repeated: bool, sa: u32, expected: &[u32]) {
        let Some(Direction { reader, receiver, .. }) = &mut self.direction else { return };
        let seen = reader.read_packet(packet);
        if !receiver.note(seen, self.now) {
            return;
        }
        receiver.counts.repeated += u64::from(is_repeated);
        if let (Seen::Ours(tag), false) = (seen, expected.is_empty()) {
            let is_right = expected[stream_of(tag.sequence, expected.len())] == sa;
            receiver.counts.other_sa += u64::from(!is_right);
        }
    }
}
