//! Receives packets on TCP connections: many packets in each read.

use super::connection::Connection;
use super::connections::{TcpConnections, longest};
use super::framing::{self, BadLength};
use crate::moderation::Moderation;
use crate::{Pace, Receive, Wake};
use packet::{Batch, DropCounters, DropReason, Endpoint};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Bytes of one read.
const READ: usize = 128 << 10;
/// Events of one call.
const EVENTS: usize = 64;
/// Connections that are accepted before packets are received again.
const ACCEPTS: usize = 16;
/// The size of a batch: a few reads, each with the begin of a packet.
pub const BATCH_BYTES: usize = 4 * (READ + (64 << 10));

/// Receives on all connections of an interface.
pub struct TcpReceive {
    connections: Arc<TcpConnections>,
    /// What is ready and has not had its turn: each connection is read once before any is read again.
    ready: VecDeque<(u64, EventFlags)>,
    moderation: Moderation,
}

impl TcpReceive {
    /// Receives on `connections`, and accepts new ones.
    pub fn new(connections: Arc<TcpConnections>) -> Self {
        Self { connections, ready: VecDeque::new(), moderation: Moderation::default() }
    }

    /// Asks which sockets are ready.
    fn poll(&mut self) -> io::Result<()> {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        let found = match epoll::wait(self.connections.epoll(), &mut events, Some(&Timespec::default())) {
            Ok(found) => found,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let ready = events[..found].iter().map(|event| (event.data.u64(), event.flags));
        self.ready.extend(ready);
        Ok(())
    }
}

/// The outcome of a turn of a connection.
enum Turn {
    Done,
    /// The batch is full.
    Full,
    /// It is not OpenVPN; what it has sent.
    Foreign(Vec<u8>),
}

impl Receive for TcpReceive {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let before = batch.len();
        if self.ready.is_empty() {
            self.poll()?;
        }
        while let Some((number, events)) = self.ready.front().copied() {
            if let Some(connection) = self.connections.connection(number) {
                let before = batch.len();
                match serve(&self.connections, &connection, events, batch, drops) {
                    Ok(Turn::Full) => break,
                    Ok(Turn::Done) => {}
                    Ok(Turn::Foreign(begun)) => self.connections.hand_over(&connection, begun, drops),
                    Err(error) => self.connections.ended(&connection, error),
                }
                self.moderation.note(1, batch.len() - before);
            } else {
                (0..ACCEPTS).take_while(|_| self.connections.accept(number, drops)).for_each(drop);
            }
            self.ready.pop_front();
        }
        Ok(batch.len() - before)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        if self.ready.is_empty() {
            if let Some(pause) = Pace::now().pause()
                && self.moderation.is_worthwhile(Instant::now(), pause)
            {
                let [] = wake.wait_at_most([], Some(pause))?;
                return Ok(());
            }
            wake.wait([Some(self.connections.epoll().as_fd())])?;
        }
        Ok(())
    }
}

/// Gives a connection its turn. An error is its end.
fn serve(
    connections: &TcpConnections,
    connection: &Arc<Connection>,
    events: EventFlags,
    batch: &mut Batch,
    drops: &DropCounters,
) -> Result<Turn, Option<Errno>> {
    if events.contains(EventFlags::OUT) {
        connections.writable(connection).map_err(Some)?;
    }
    if events.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
        let before = batch.len();
        let turn = read(connections, connection, batch, drops);
        if batch.len() > before && !connection.has_spoken.swap(true, Ordering::Relaxed) {
            connections.spoke(connection);
        }
        return turn;
    }
    Ok(Turn::Done)
}

/// Reads once, and appends the packets that are whole as one train.
fn read(
    connections: &TcpConnections,
    connection: &Connection,
    batch: &mut Batch,
    drops: &DropCounters,
) -> Result<Turn, Option<Errno>> {
    let mut begun = connection.begun.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(area) = batch.take(begun.len() + READ) else { return Ok(Turn::Full) };
    let stream = batch.area_mut(area.clone());
    stream[..begun.len()].copy_from_slice(&begun);
    let received = match recv(&connection.socket, &mut stream[begun.len()..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(None),
        Ok((received, _)) => Ok(received),
        Err(Errno::AGAIN | Errno::INTR) => {
            batch.give_back(&area, 0);
            return Ok(Turn::Done);
        }
        Err(error) => Err(Some(error)),
    };
    let length = begun.len() + received.inspect_err(|_| batch.give_back(&area, 0))?;
    if let Some(foreign) = connections.foreign(connection, &batch.area_mut(area.clone())[..length]) {
        batch.give_back(&area, 0);
        return Ok(Turn::Foreign(foreign));
    }
    let (first, mut start) = (batch.len(), 0);
    let end = loop {
        match framing::next(&batch.area_mut(area.clone())[..length], start, longest(connection)) {
            Ok(Some(packet)) => {
                start = packet.end;
                batch.declare(area.start + packet.start..area.start + packet.end);
            }
            Ok(None) => break Ok(Turn::Done),
            Err(BadLength) => {
                drops.count(DropReason::BadFraming, 1);
                break Err(None);
            }
        }
    };
    batch.close_train(first, Some(Endpoint::tcp(connection.remote)), 0);
    begun.clear();
    begun.extend_from_slice(&batch.area_mut(area.clone())[start..length]);
    batch.give_back(&area, length);
    end
}
