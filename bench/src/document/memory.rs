//! Two of our encryptors without the kernel: the worker of the gateway in a thread, between rings in memory.

use super::device::addresses;
use super::protocol::Setup;
use super::secgw::{Keys, words};
use crate::Outcome;
use crate::rfc2544::session::Session;
use crate::rfc2544::wire::Opened;
use crypto::Cipher;
use crypto::choice::Choice;
use gateway::secgw::bed;
use lab::pin_thread;
use port::memory::{RingReceive, RingTransmit, ring};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Frames in a ring.
const SLOTS: usize = 4096;
/// The ports that the rings stand for.
const PORTS: &str = "--vdev net_tap0 --vdev net_tap1 --vdev net_tap2 --vdev net_tap3 --";

/// The gateway in its thread, with the tester at its ports.
pub(super) struct InMemory {
    pub session: Session,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl InMemory {
    /// Starts the thread on a core; it never sleeps.
    pub fn start(core: usize) -> Outcome<Self> {
        let ((to_first, first_in), (first_out, from_first)) = (ring(SLOTS), ring(SLOTS));
        let ((to_second, second_in), (second_out, from_second)) = (ring(SLOTS), ring(SLOTS));
        let ((left_out, right_in), (right_out, left_in)) = (ring(SLOTS), ring(SLOTS));
        let half = |receive: RingReceive, transmit: RingTransmit| -> bed::Halves {
            (Box::new(receive), Box::new(transmit))
        };
        let ports = [
            half(first_in, first_out),
            half(left_in, left_out),
            half(right_in, right_out),
            half(second_in, second_out),
        ];
        let choice = Choice::here(None).prepared_for(&[Cipher::Aes128Gcm.into()]);
        let file = Keys::random()?.file(Setup::Memory);
        let line = format!("{PORTS} {} -f x", words(Setup::Memory, core));
        let mut worker = bed::worker(&file, &line, &choice, ports)?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let carry = move || {
            // A machine with one core has no other.
            let _ = pin_thread(None, core);
            while !is_stopped.load(Ordering::Relaxed) {
                for place in 0..4 {
                    worker.burst(place);
                }
            }
        };
        let thread = std::thread::Builder::new().name("device".to_owned()).spawn(carry)?;
        let addresses = addresses(None, false);
        let ends = [(to_first, from_first), (to_second, from_second)];
        let session = Session::new(Opened::in_memory(&addresses, ends), addresses, [None, None]);
        Ok(Self { session, stop, thread: Some(thread) })
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
