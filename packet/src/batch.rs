//! A batch: the packets that a worker carries from port to port in one iteration, in one slab.
//!
//! A port appends packets, and closes a [`Train`] around packets that arrived together: the segments of one TUN
//! super-packet, or the datagrams of one GRO receive. Work that is the same for a whole train is done once.

use crate::{DropCounters, DropReason, Endpoint, Slab};
use std::ops::Range;

/// Free bytes before each packet of [`Batch::append`]: enough for the tunnel headers but those with the longest HMACs.
pub const HEADROOM: usize = 64;
/// Free bytes after each packet: enough for the longest padding, trailer and tag.
pub const TAILROOM: usize = 64;

/// The position of a packet in the slab; a length of zero marks a dropped one.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    length: u32,
}

impl Span {
    #[inline]
    fn range(self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

/// Consecutive packets that arrived together, or are to be sent together.
#[derive(Clone, Debug)]
pub struct Train {
    /// The indices of its packets in the batch.
    pub packets: Range<usize>,
    /// Outside: the path to or from the peer. Inside: `None`.
    pub endpoint: Option<Endpoint>,
    /// Outside: the DS field (DSCP and ECN, RFC 2474 and 3168) of the outer header.
    pub ds_field: u8,
}

/// A packet that was dropped while drops were noted.
#[derive(Clone, Copy, Debug)]
struct Note {
    index: usize,
    reason: DropReason,
    /// Where its bytes are, which stay until the batch is cleared.
    span: Span,
}

/// Packets in the order of arrival, each with headroom and tailroom, in one slab.
pub struct Batch {
    slab: Slab,
    used: usize,
    /// Where packets end at the latest.
    end: usize,
    spans: Vec<Span>,
    trains: Vec<Train>,
    /// Dropped packets, while a capture wants them.
    notes: Vec<Note>,
    notes_drops: bool,
}

impl Batch {
    /// A batch with a slab of `bytes` bytes, headroom and tailroom included.
    pub fn new(bytes: usize) -> Self {
        let slab = Slab::new(bytes);
        Self {
            end: slab.bytes().len(),
            slab,
            used: 0,
            spans: Vec::with_capacity(256),
            trains: Vec::with_capacity(64),
            notes: Vec::new(),
            notes_drops: false,
        }
    }

    /// Removes all packets.
    pub fn clear(&mut self) {
        self.used = 0;
        self.spans.clear();
        self.trains.clear();
        self.notes.clear();
    }

    /// Keeps so many bytes free from now on, for what is made of the packets of an empty batch: those are not for the port that fills it.
    #[inline]
    pub fn hold_back(&mut self, bytes: usize) {
        self.end = self.slab.bytes().len().saturating_sub(bytes);
    }

    /// The number of packets, including dropped ones.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no packet at all.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Free bytes in the slab.
    #[inline]
    pub fn free(&self) -> usize {
        self.end.saturating_sub(self.used)
    }

    /// The bytes that [`append`](Self::append) takes for a packet of `length` bytes.
    #[inline]
    pub fn footprint(length: usize) -> usize {
        (HEADROOM + length + TAILROOM).next_multiple_of(Slab::ALIGNMENT)
    }

    /// Adds a packet of `length` bytes with headroom and tailroom, and returns it for writing.
    ///
    /// `None` if it does not fit. The bytes are not cleared.
    #[inline]
    pub fn append(&mut self, length: usize) -> Option<&mut [u8]> {
        let footprint = Self::footprint(length);
        if footprint > self.free() {
            return None;
        }
        let span = Span { start: (self.used + HEADROOM) as u32, length: length as u32 };
        self.used += footprint;
        self.spans.push(span);
        Some(&mut self.slab.bytes_mut()[span.range()])
    }

    /// Adds a copy of packet `index` with `before` additional bytes before it, and returns it.
    ///
    /// `None` if it does not fit.
    pub fn append_copy(&mut self, index: usize, before: usize) -> Option<&mut [u8]> {
        let original = self.spans[index].range();
        self.append(before + original.len())?;
        let copy = self.spans.last()?.range();
        self.slab.bytes_mut().copy_within(original, copy.start + before);
        Some(&mut self.slab.bytes_mut()[copy])
    }

    /// Reserves `length` bytes of the slab for a receive call, aligned to a cache line.
    ///
    /// The received packets are then declared with [`segment`](Self::segment). `None` if the bytes do not fit.
    pub fn take(&mut self, length: usize) -> Option<Range<usize>> {
        let end = (self.used + length).next_multiple_of(Slab::ALIGNMENT);
        if end > self.end {
            return None;
        }
        let area = self.used..self.used + length;
        self.used = end;
        Some(area)
    }

    /// The bytes of an area that [`take`](Self::take) returned.
    pub fn area_mut(&mut self, area: Range<usize>) -> &mut [u8] {
        &mut self.slab.bytes_mut()[area]
    }

    /// Declares the bytes of `area` to be packets of `size` bytes each; the last one may be shorter.
    ///
    /// These packets have no headroom and tailroom: they can only shrink.
    pub fn segment(&mut self, area: Range<usize>, size: usize) {
        let size = size.max(1);
        let mut start = area.start;
        while start < area.end {
            let length = size.min(area.end - start);
            self.spans.push(Span { start: start as u32, length: length as u32 });
            start += length;
        }
    }

    /// Declares the bytes of `packet`, which are behind those of all other packets, to be a packet.
    ///
    /// Like those of [`segment`](Self::segment), it can only shrink.
    #[inline]
    pub fn declare(&mut self, packet: Range<usize>) {
        self.spans.push(Span { start: packet.start as u32, length: packet.len() as u32 });
    }

    /// Returns what follows the first `used` bytes of the last taken area.
    pub fn give_back(&mut self, area: &Range<usize>, used: usize) {
        debug_assert!(self.used == area.end.next_multiple_of(Slab::ALIGNMENT), "the last one");
        self.used = (area.start + used).next_multiple_of(Slab::ALIGNMENT);
    }

    /// Makes one train of all packets from `first` on.
    #[inline]
    pub fn close_train(&mut self, first: usize, endpoint: Option<Endpoint>, ds_field: u8) {
        if first < self.spans.len() {
            self.trains.push(Train { packets: first..self.spans.len(), endpoint, ds_field });
        }
    }

    /// The trains, in order.
    #[inline]
    pub fn trains(&self) -> &[Train] {
        &self.trains
    }

    /// Replaces the trains, for a stage that regroups packets.
    #[inline]
    pub fn set_trains(&mut self, trains: impl IntoIterator<Item = Train>) {
        self.trains.clear();
        self.trains.extend(trains);
    }

    /// Clears the local address in a train's endpoint: the kernel refused to send from it.
    pub fn forget_source(&mut self, train: usize) {
        if let Some(endpoint) = &mut self.trains[train].endpoint {
            endpoint.local = None;
        }
    }

    /// The bytes of packet `index`; empty if it was dropped.
    #[inline]
    pub fn packet(&self, index: usize) -> &[u8] {
        &self.slab.bytes()[self.spans[index].range()]
    }

    /// The bytes of packet `index`, mutable.
    #[inline]
    pub fn packet_mut(&mut self, index: usize) -> &mut [u8] {
        let range = self.spans[index].range();
        &mut self.slab.bytes_mut()[range]
    }

    /// Packets of `range` that were not dropped, with their indices, all borrowed at once.
    #[inline]
    pub fn packets_mut(&mut self, range: Range<usize>) -> PacketsMut<'_> {
        PacketsMut {
            rest: self.slab.bytes_mut(),
            offset: 0,
            spans: &self.spans[range.clone()],
            next: range.start,
        }
    }

    /// Indices of the packets of `range` that were not dropped.
    #[inline]
    pub fn live(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        range.filter(|&index| self.spans[index].length != 0)
    }

    /// Whether packet `index` was not dropped.
    #[inline]
    pub fn is_live(&self, index: usize) -> bool {
        self.spans[index].length != 0
    }

    /// Marks packet `index` as dropped; the caller counts the reason.
    #[inline]
    pub fn discard(&mut self, index: usize) {
        self.spans[index].length = 0;
    }

    /// Counts packet `index` as dropped for `reason`, and discards it.
    #[inline]
    pub fn drop_packet(&mut self, index: usize, reason: DropReason, drops: &DropCounters) {
        drops.count(reason, 1);
        self.note_drop(index, reason);
        self.discard(index);
    }

    /// Notes why packet `index` is dropped, if drops are noted, before it is discarded. The caller counts it.
    #[inline]
    pub fn note_drop(&mut self, index: usize, reason: DropReason) {
        if self.notes_drops && self.is_live(index) {
            self.notes.push(Note { index, reason, span: self.spans[index] });
        }
    }

    /// The same for all packets of `range`.
    #[inline]
    pub fn note_drops_of(&mut self, range: Range<usize>, reason: DropReason) {
        if self.notes_drops {
            range.for_each(|index| self.note_drop(index, reason));
        }
    }

    /// Whether drops are noted from now on: a capture wants to know of them.
    pub fn set_notes_drops(&mut self, is_wanted: bool) {
        self.notes_drops = is_wanted;
        self.notes.clear();
        if !is_wanted {
            self.notes.shrink_to_fit();
        }
    }

    /// Whether drops are noted.
    #[inline]
    pub fn notes_drops(&self) -> bool {
        self.notes_drops
    }

    /// The noted drops: index, reason, and the bytes as they are now.
    pub fn noted_drops(&self) -> impl Iterator<Item = (usize, DropReason, &[u8])> {
        self.notes.iter().map(|note| (note.index, note.reason, &self.slab.bytes()[note.span.range()]))
    }

    /// Forgets the noted drops.
    pub fn forget_noted_drops(&mut self) {
        self.notes.clear();
    }

    /// Hides packet `index` from a port that must not send it; returns its length for [`reveal`](Self::reveal).
    #[inline]
    pub fn hide(&mut self, index: usize) -> u32 {
        std::mem::take(&mut self.spans[index].length)
    }

    /// Makes packet `index`, which was hidden, visible with the length that it had.
    #[inline]
    pub fn reveal(&mut self, index: usize, length: u32) {
        self.spans[index].length = length;
    }

    /// Extends packet `index` by `before` and `after` bytes of its headroom and tailroom.
    #[inline]
    pub fn grow(&mut self, index: usize, before: usize, after: usize) {
        debug_assert!(before <= HEADROOM && after <= TAILROOM, "a packet grows into its own room only");
        let span = &mut self.spans[index];
        span.start -= before as u32;
        span.length += (before + after) as u32;
    }

    /// Shrinks packet `index` to the `length` bytes that start at offset `before`.
    #[inline]
    pub fn shrink(&mut self, index: usize, before: usize, length: usize) {
        let span = &mut self.spans[index];
        debug_assert!(before + length <= span.length as usize, "a packet shrinks to a part of itself");
        span.start += before as u32;
        span.length = length as u32;
    }
}

/// See [`Batch::packets_mut`].
pub struct PacketsMut<'a> {
    rest: &'a mut [u8],
    offset: usize,
    spans: &'a [Span],
    next: usize,
}

impl<'a> Iterator for PacketsMut<'a> {
    type Item = (usize, &'a mut [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (span, spans) = self.spans.split_first()?;
            self.spans = spans;
            let index = self.next;
            self.next += 1;
            if span.length == 0 {
                continue;
            }
            // Spans ascend and never overlap, so cutting the slab from the front hands each out once.
            let range = span.range();
            let rest = std::mem::take(&mut self.rest);
            let (packet, rest) = rest[range.start - self.offset..].split_at_mut(range.len());
            self.offset = range.end;
            self.rest = rest;
            return Some((index, packet));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_packets_have_room_on_both_sides() {
        let mut batch = Batch::new(4096);
        for length in [1usize, 60, 1420] {
            let index = batch.len();
            batch.append(length).expect("it fits").fill(length as u8);
            batch.grow(index, HEADROOM, TAILROOM);
            assert_eq!(batch.packet(index).len(), HEADROOM + length + TAILROOM);
            batch.shrink(index, HEADROOM, length);
            assert!(batch.packet(index).iter().all(|&byte| byte == length as u8));
        }
    }

    #[test]
    fn a_full_batch_refuses_instead_of_overwriting() {
        let mut batch = Batch::new(Batch::footprint(100));
        assert!(batch.append(100).is_some());
        assert!(batch.append(0).is_none());
        assert!(batch.take(1).is_none());
        batch.clear();
        assert!(batch.take(100).is_some());
    }

    #[test]
    fn what_is_held_back_is_free_again_later() {
        let mut batch = Batch::new(Batch::footprint(100) * 2);
        batch.hold_back(Batch::footprint(100));
        assert!(batch.append(100).is_some() && batch.append(0).is_none() && batch.take(1).is_none());
        batch.hold_back(0);
        assert!(batch.append(100).is_some());
        batch.hold_back(1 << 20);
        assert_eq!(batch.free(), 0);
    }

    #[test]
    fn copies_have_room_before_them_and_leave_the_original() {
        let mut batch = Batch::new(Batch::footprint(30) + Batch::footprint(70));
        batch.append(30).expect("it fits").fill(7);
        let copy = batch.append_copy(0, 40).expect("it fits");
        copy[..40].fill(1);
        assert_eq!(
            (batch.packet(0), batch.packet(1)),
            (&[7; 30][..], &[[1; 40].as_slice(), &[7; 30]].concat()[..])
        );
        assert!(batch.append_copy(0, 40).is_none());
    }

    #[test]
    fn segments_cover_the_area_and_the_last_is_shorter() {
        let mut batch = Batch::new(8192);
        let area = batch.take(3000).expect("it fits");
        batch.segment(area, 1452);
        let lengths: Vec<usize> = (0..batch.len()).map(|index| batch.packet(index).len()).collect();
        assert_eq!(lengths, [1452, 1452, 96]);
    }

    #[test]
    fn packets_of_any_length_are_declared_in_an_area_whose_rest_is_given_back() {
        let mut batch = Batch::new(4096);
        let area = batch.take(4000).expect("it fits");
        batch.area_mut(area.clone())[..9].copy_from_slice(b".one.four");
        batch.declare(area.start + 1..area.start + 4);
        batch.declare(area.start + 5..area.start + 9);
        batch.give_back(&area, 9);
        assert_eq!((batch.packet(0), batch.packet(1)), (&b"one"[..], &b"four"[..]));
        assert_eq!(batch.take(4096), None, "the first bytes are in use");
        assert_eq!(batch.take(3000), Some(64..3064));
        assert_eq!(batch.packets_mut(0..2).count(), 2);
    }

    #[test]
    fn hidden_packets_are_skipped_until_they_are_revealed() {
        let mut batch = Batch::new(4096);
        batch.append(10).expect("it fits").fill(1);
        batch.append(20).expect("it fits").fill(2);
        let length = batch.hide(0);
        assert_eq!(batch.live(0..2).collect::<Vec<_>>(), [1]);
        batch.reveal(0, length);
        assert_eq!((batch.packet(0), batch.live(0..2).count()), (&[1; 10][..], 2));
    }

    #[test]
    fn dropped_packets_are_noted_with_their_bytes_only_while_that_is_wanted() {
        let (mut batch, drops) = (Batch::new(4096), DropCounters::default());
        for value in 0..4u8 {
            batch.append(10).expect("it fits").fill(value);
        }
        batch.drop_packet(0, DropReason::BadTag, &drops);
        assert_eq!(batch.noted_drops().count(), 0);
        batch.set_notes_drops(true);
        batch.drop_packet(1, DropReason::Replayed, &drops);
        batch.note_drops_of(0..3, DropReason::NoRoute);
        let noted: Vec<_> =
            batch.noted_drops().map(|(index, reason, bytes)| (index, reason, bytes.to_vec())).collect();
        let expected = [(1, DropReason::Replayed, vec![1; 10]), (2, DropReason::NoRoute, vec![2; 10])];
        assert_eq!(noted, expected, "a packet is dropped once");
        assert_eq!(drops.read(DropReason::Replayed) + drops.read(DropReason::BadTag), 2);
        batch.forget_noted_drops();
        assert_eq!(batch.noted_drops().count(), 0);
    }

    #[test]
    fn dropped_packets_are_skipped() {
        let mut batch = Batch::new(8192);
        for value in 0..5u8 {
            batch.append(10).expect("it fits").fill(value);
        }
        batch.discard(1);
        batch.discard(4);
        let seen: Vec<(usize, u8)> =
            batch.packets_mut(1..5).map(|(index, bytes)| (index, bytes[0])).collect();
        assert_eq!(seen, [(2, 2), (3, 3)]);
        assert_eq!(batch.live(0..5).collect::<Vec<_>>(), [0, 2, 3]);
    }
}
