//! Ports of Ethernet frames: mbufs of a queue in, copies of frames out.
//!
//! A queue belongs to one thread at a time. A port is closed with its last queue.

#![expect(unsafe_code, reason = "calls a C library")]

use crate::eal::{DeviceError, Eal, checked, lock};
use crate::library::{OpenRecord, PortRecord, text};
use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::{Arc, Weak};

/// The most frames of a call: `POSTERN_FRAMES`.
pub const BURST: usize = 32;
/// The longest frame: what a buffer holds.
pub const LONGEST: usize = 2048;

/// What DPDK says of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Its number.
    pub number: u16,
    /// The name of its device, such as `net_memif0` or `0000:01:00.0`.
    pub name: String,
    /// Its driver, such as `net_memif`.
    pub driver: String,
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// The most queues to receive from.
    pub most_receive_queues: u16,
    /// The most queues to send by.
    pub most_transmit_queues: u16,
}

impl PortFacts {
    /// Whether it is a device on a bus: its name is its place there.
    fn is_on_bus(&self) -> bool {
        self.name.contains(':')
    }

    /// How many queues to send by it gets. A virtual device has pairs of queues: net_tap and net_af_xdp refuse others, and net_memif does
    /// not connect.
    fn transmit_queues(&self, receive_queues: u16, wanted: u16) -> u16 {
        let wanted = if self.is_on_bus() { wanted.min(self.most_transmit_queues) } else { receive_queues };
        wanted.max(1)
    }
}

/// How a port is opened.
#[derive(Clone, Copy, Debug)]
pub struct PortOptions {
    /// Queues to receive from.
    pub receive_queues: u16,
    /// Queues to send by, if the device has so many.
    pub transmit_queues: u16,
    /// The longest IP packet of a frame.
    pub mtu: u16,
    /// Whether frames for other stations are received.
    pub is_promiscuous: bool,
}

/// `struct postern_frame`: the bytes of a frame.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    data: *const u8,
    length: u32,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> Frame<'a> {
    /// A frame with these bytes, at most [`LONGEST`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        assert!(bytes.len() <= LONGEST, "a buffer holds {LONGEST} bytes");
        Self { data: bytes.as_ptr(), length: bytes.len() as u32, bytes: PhantomData }
    }
}

/// Counts since a port was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounts {
    /// Frames received and sent.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames that came faster than they were taken.
    pub missed: u64,
    /// Frames that were received wrong.
    pub receive_errors: u64,
    /// Frames that were not sent.
    pub transmit_errors: u64,
    /// Frames that found no buffer.
    pub without_buffer: u64,
}

/// A port that is open.
struct Open {
    eal: &'static Eal,
    facts: PortFacts,
}

impl Drop for Open {
    fn drop(&mut self) {
        let (eal, port) = (self.eal, self.facts.number);
        // SAFETY: no queue of it is left.
        eal.call(move || unsafe { (eal.library.functions.close_port)(port) });
        lock(&eal.open_ports).remove(&port);
    }
}

/// Says whether the link of a port is up, as long as the port is open.
#[derive(Clone)]
pub struct LinkState(Weak<Open>);

impl LinkState {
    /// Whether it is; none if the port is closed.
    pub fn is_up(&self) -> Option<bool> {
        self.0.upgrade().map(|port| port.is_up())
    }
}

/// A queue to receive from.
pub struct ReceiveQueue {
    port: Arc<Open>,
    queue: u16,
}

/// A queue to send by.
pub struct TransmitQueue {
    port: Arc<Open>,
    queue: u16,
}

impl Eal {
    /// All ports.
    pub fn ports(&self) -> Vec<PortFacts> {
        let next = |from: u16| {
            // SAFETY: EAL runs.
            let port = checked(unsafe { (self.library.functions.next_port)(from) }).ok()?;
            u16::try_from(port).ok()
        };
        let numbers = std::iter::successors(next(0), |&port| next(port + 1));
        numbers.filter_map(|number| self.port(number).ok()).collect()
    }

    fn port(&self, number: u16) -> io::Result<PortFacts> {
        let mut record = MaybeUninit::<PortRecord>::uninit();
        // SAFETY: EAL runs, and the function fills the record, also if it fails.
        let record = unsafe {
            checked((self.library.functions.describe_port)(number, record.as_mut_ptr()))?;
            record.assume_init()
        };
        let PortRecord { name, driver, address, most_receive_queues, most_transmit_queues, .. } = record;
        let (name, driver) = (text(&name), text(&driver));
        Ok(PortFacts { number, name, driver, address, most_receive_queues, most_transmit_queues })
    }

    /// Opens a port: its queues to receive from and to send by. There is at least one of each, and there may be fewer of the latter than
    /// wanted.
    ///
    /// # Errors
    /// There is no such port, it is open, or has fewer queues to receive from.
    pub fn open_port(
        &'static self,
        number: u16,
        options: &PortOptions,
    ) -> Result<(Vec<ReceiveQueue>, Vec<TransmitQueue>), DeviceError> {
        let ports = self.ports();
        let present = ports.len();
        let facts = ports.into_iter().find(|port| port.number == number);
        let facts = facts.ok_or(DeviceError::Absent { what: "port", number, present })?;
        let (name, most) = (facts.name.clone(), facts.most_receive_queues);
        if options.receive_queues > most {
            return Err(DeviceError::Queues { name, most, wanted: options.receive_queues });
        }
        let receive_queues = options.receive_queues.max(1);
        let record = OpenRecord {
            receive_queues,
            transmit_queues: facts.transmit_queues(receive_queues, options.transmit_queues),
            mtu: options.mtu,
            is_promiscuous: options.is_promiscuous.into(),
        };
        if !lock(&self.open_ports).insert(number) {
            return Err(DeviceError::Busy(name));
        }
        let (receive, transmit) = (record.receive_queues, record.transmit_queues);
        // SAFETY: the port is there, and not open.
        let outcome =
            self.call(move || unsafe { (self.library.functions.open_port)(number, &raw const record) });
        // A port that fails to open cannot be opened again: its buffers may be in use.
        checked(outcome).map_err(|error| DeviceError::Refused { name, error })?;
        let port = Arc::new(Open { eal: self, facts });
        let receive = (0..receive).map(|queue| ReceiveQueue { port: Arc::clone(&port), queue });
        let transmit = (0..transmit).map(|queue| TransmitQueue { port: Arc::clone(&port), queue });
        Ok((receive.collect(), transmit.collect()))
    }
}

impl Open {
    /// Whether its link is up.
    fn is_up(&self) -> bool {
        // SAFETY: the port is open.
        unsafe { (self.eal.library.functions.is_up)(self.facts.number) == 1 }
    }

    fn counts(&self) -> PortCounts {
        let mut counts = [0; 6];
        // SAFETY: the port is open, and the array is as long as the function wants.
        if unsafe { (self.eal.library.functions.count_port)(self.facts.number, &raw mut counts) } < 0 {
            return PortCounts::default();
        }
        let [received, sent, missed, receive_errors, transmit_errors, without_buffer] = counts;
        PortCounts { received, sent, missed, receive_errors, transmit_errors, without_buffer }
    }
}

impl ReceiveQueue {
    /// What DPDK says of its port.
    pub fn facts(&self) -> &PortFacts {
        &self.port.facts
    }

    /// Whether the link of its port is up.
    pub fn is_up(&self) -> bool {
        self.port.is_up()
    }

    /// The same, for another thread.
    pub fn link(&self) -> LinkState {
        LinkState(Arc::downgrade(&self.port))
    }

    /// The counts of its port.
    pub fn counts(&self) -> PortCounts {
        self.port.counts()
    }

    /// Takes at most so many frames and [`BURST`], and calls `each` with every one; none for one in several buffers, or longer than
    /// [`LONGEST`]. Returns their number.
    #[inline]
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(Option<&[u8]>)) -> usize {
        let eal = self.port.eal;
        eal.enter();
        let empty = Frame { data: std::ptr::null(), length: 0, bytes: PhantomData };
        let mut frames: [Frame<'static>; BURST] = [empty; BURST];
        let mut held: [*mut c_void; BURST] = [std::ptr::null_mut(); BURST];
        // SAFETY: the port is open and the queue ours, and both arrays are as long as it is told.
        let count = unsafe {
            let (port, most) = (self.port.facts.number, most.min(BURST) as u32);
            (eal.library.functions.receive)(port, self.queue, frames.as_mut_ptr(), held.as_mut_ptr(), most)
        };
        for frame in &frames[..count as usize] {
            // SAFETY: its bytes are valid until they are released below.
            let bytes = (1..=LONGEST as u32)
                .contains(&frame.length)
                .then(|| unsafe { std::slice::from_raw_parts(frame.data, frame.length as usize) });
            each(bytes);
        }
        if count > 0 {
            // SAFETY: these were received, and are released once.
            unsafe { (eal.library.functions.release)(held.as_mut_ptr(), count) };
        }
        count as usize
    }
}

impl TransmitQueue {
    /// What DPDK says of its port.
    pub fn facts(&self) -> &PortFacts {
        &self.port.facts
    }

    /// Whether the link of its port is up.
    pub fn is_up(&self) -> bool {
        self.port.is_up()
    }

    /// The counts of its port.
    pub fn counts(&self) -> PortCounts {
        self.port.counts()
    }

    /// Sends copies of frames, at most [`BURST`]; returns how many were taken, from the first on.
    #[inline]
    pub fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        let eal = self.port.eal;
        eal.enter();
        let count = frames.len().min(BURST) as u32;
        // SAFETY: the port is open and the queue ours, and each frame is bytes that live.
        unsafe {
            (eal.library.functions.send)(self.port.facts.number, self.queue, frames.as_ptr(), count) as usize
        }
    }
}

// SAFETY: a frame is a reference to bytes.
unsafe impl Send for Frame<'_> {}
