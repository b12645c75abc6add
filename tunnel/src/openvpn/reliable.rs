//! The reliability layer of one key: messages are numbered from 0, acknowledged, sent again, and delivered in order.

use super::limits::{EARLY_RETRANSMIT, MAX_ACKS, RECEIVE_WINDOW, RETRANSMIT, SEND_WINDOW};
use super::packet::Opcode;
use crate::Time;
use arrayvec::ArrayVec;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A message that was sent and is not acknowledged.
struct Outgoing {
    message: u32,
    opcode: Opcode,
    payload: Vec<u8>,
    /// When to send it (again).
    due: Time,
    interval: Duration,
    /// Later messages that were acknowledged since the last transmission.
    later: u32,
}

/// A message to transmit.
#[derive(Debug, PartialEq, Eq)]
pub struct Transmission {
    /// The packet's type.
    pub opcode: Opcode,
    /// The message's number.
    pub message: u32,
    /// The message.
    pub payload: Vec<u8>,
}

/// The sending half.
#[derive(Default)]
pub struct Sender {
    next: u32,
    window: ArrayVec<Outgoing, SEND_WINDOW>,
}

impl Sender {
    /// A sender whose message 0 was sent and acknowledged already, by the stateless answer to a client.
    pub fn after_reset() -> Self {
        Self { next: 1, window: ArrayVec::new() }
    }

    /// Whether another message may be sent.
    pub fn has_room(&self) -> bool {
        !self.window.is_full()
    }

    /// Whether a message was sent and acknowledged.
    pub fn is_acknowledged(&self, message: u32) -> bool {
        message < self.next && self.window.iter().all(|sent| sent.message != message)
    }

    /// Takes a message, which is due at once. There must be room.
    pub fn push(&mut self, now: Time, opcode: Opcode, payload: Vec<u8>) {
        let message = self.next;
        self.next += 1;
        self.window.push(Outgoing { message, opcode, payload, due: now, interval: RETRANSMIT, later: 0 });
    }

    /// Removes acknowledged messages. When several later ones arrived, an earlier one is lost and due at once.
    pub fn acknowledge(&mut self, now: Time, acks: &[u32]) {
        for ack in acks {
            let Some(position) = self.window.iter().position(|sent| sent.message == *ack) else { continue };
            self.window.remove(position);
            for earlier in &mut self.window[..position] {
                earlier.later += 1;
                if earlier.later == EARLY_RETRANSMIT {
                    earlier.due = now;
                }
            }
        }
    }

    /// The next message that is due, which is due again later.
    pub fn transmit(&mut self, now: Time) -> Option<Transmission> {
        let sent = self.window.iter_mut().find(|sent| sent.due <= now)?;
        sent.due = now + sent.interval;
        sent.interval *= 2;
        Some(Transmission { opcode: sent.opcode, message: sent.message, payload: sent.payload.clone() })
    }

    /// When a message is due.
    pub fn next_timeout(&self) -> Option<Time> {
        self.window.iter().map(|sent| sent.due).min()
    }
}

/// What became of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is new.
    New,
    /// It was received before; the acknowledgment was lost.
    Duplicate,
    /// It is too far ahead, and not acknowledged.
    Outside,
}

/// The receiving half.
#[derive(Default)]
pub struct Receiver {
    next: u32,
    /// Messages that wait for an earlier one.
    early: BTreeMap<u32, (Opcode, Vec<u8>)>,
    /// Messages to acknowledge, the oldest first.
    acks: VecDeque<u32>,
    /// Acknowledgments that were sent, the latest first.
    sent_acks: ArrayVec<u32, MAX_ACKS>,
}

impl Receiver {
    /// A receiver whose message 0 was received and acknowledged already, without state.
    pub fn after_reset() -> Self {
        Self { next: 1, ..Self::default() }
    }

    /// Takes a message, and notes that it is to be acknowledged.
    pub fn accept(&mut self, message: u32, opcode: Opcode, payload: &[u8]) -> Received {
        if message >= self.next.saturating_add(RECEIVE_WINDOW) {
            return Received::Outside;
        }
        let is_new = message >= self.next && !self.early.contains_key(&message);
        if is_new {
            self.early.insert(message, (opcode, payload.to_vec()));
        }
        if !self.acks.contains(&message) && self.acks.len() < 2 * MAX_ACKS {
            self.acks.push_back(message);
        }
        if is_new { Received::New } else { Received::Duplicate }
    }

    /// The next message in order.
    pub fn deliver(&mut self) -> Option<(Opcode, Vec<u8>)> {
        let message = self.early.remove(&self.next)?;
        self.next += 1;
        Some(message)
    }

    /// Whether there are messages to acknowledge.
    pub fn owes_acks(&self) -> bool {
        !self.acks.is_empty()
    }

    /// Up to `most` acknowledgments, which are then no longer owed, and earlier ones if there is room: packets are lost,
    /// and a server finds its cookie only beside an acknowledgment.
    pub fn take_acks(&mut self, most: usize) -> ArrayVec<u32, MAX_ACKS> {
        let count = self.acks.len().min(most).min(MAX_ACKS);
        let owed = self.acks.drain(..count);
        let mut acks: ArrayVec<u32, MAX_ACKS> = owed.collect();
        for ack in std::mem::take(&mut self.sent_acks) {
            if !acks.is_full() && !acks.contains(&ack) {
                acks.push(ack);
            }
        }
        self.sent_acks.clone_from(&acks);
        acks.truncate(most);
        acks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::from_nanoseconds(1) + Duration::from_millis(milliseconds)
    }

    fn numbers(sender: &mut Sender, now: Time) -> Vec<u32> {
        std::iter::from_fn(|| sender.transmit(now)).map(|sent| sent.message).collect()
    }

    #[test]
    fn a_message_is_sent_again_after_2_4_and_8_seconds() {
        let mut sender = Sender::default();
        sender.push(at(0), Opcode::Control, b"one".to_vec());
        let mut sent = Vec::new();
        while sent.len() < 4 {
            let due = sender.next_timeout().expect("not acknowledged");
            assert_eq!(numbers(&mut sender, due), [0]);
            sent.push((due - at(0)).as_secs());
        }
        assert_eq!(sent, [0, 2, 6, 14]);
        sender.acknowledge(at(15_000), &[0]);
        assert!(sender.is_acknowledged(0) && sender.next_timeout().is_none());
    }

    #[test]
    fn a_lost_message_is_sent_again_when_three_later_ones_arrived() {
        let mut sender = Sender::default();
        for _ in 0..SEND_WINDOW {
            assert!(sender.has_room());
            sender.push(at(0), Opcode::Control, Vec::new());
        }
        assert!(!sender.has_room());
        assert_eq!(numbers(&mut sender, at(0)), [0, 1, 2, 3, 4, 5]);
        sender.acknowledge(at(10), &[1, 2]);
        assert!(numbers(&mut sender, at(10)).is_empty());
        sender.acknowledge(at(20), &[2, 4, 99]);
        assert_eq!(numbers(&mut sender, at(20)), [0]);
    }

    #[test]
    fn messages_are_delivered_once_and_in_order() {
        let mut receiver = Receiver::default();
        assert_eq!(receiver.accept(1, Opcode::Control, b"b"), Received::New);
        assert_eq!(receiver.deliver(), None);
        assert_eq!(receiver.accept(1, Opcode::Control, b"b"), Received::Duplicate);
        assert_eq!(receiver.accept(0, Opcode::Control, b"a"), Received::New);
        let delivered: Vec<_> = std::iter::from_fn(|| receiver.deliver()).map(|(_, bytes)| bytes).collect();
        assert_eq!(delivered, [b"a", b"b"]);
        assert_eq!(receiver.accept(0, Opcode::Control, b"a"), Received::Duplicate);
        assert_eq!(receiver.take_acks(8)[..], [1, 0]);
    }

    #[test]
    fn a_receiver_holds_twelve_messages_at_most() {
        let mut receiver = Receiver::after_reset();
        for message in (2..100).rev() {
            let expected = if message < 1 + RECEIVE_WINDOW { Received::New } else { Received::Outside };
            assert_eq!(receiver.accept(message, Opcode::Control, &[0; 100]), expected, "{message}");
        }
        assert_eq!(receiver.accept(u32::MAX, Opcode::Control, b""), Received::Outside);
        assert_eq!(receiver.early.len(), 11);
        assert_eq!(receiver.take_acks(MAX_ACKS)[..], [12, 11, 10, 9, 8, 7, 6, 5]);
        assert_eq!(receiver.take_acks(MAX_ACKS)[..], [4, 3, 2, 12, 11, 10, 9, 8], "and earlier ones again");
        assert!(!receiver.owes_acks());
        assert_eq!(receiver.take_acks(2)[..], [4, 3]);
        assert!(receiver.take_acks(0).is_empty());
    }
}
