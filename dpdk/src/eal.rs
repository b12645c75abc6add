//! EAL: started once, in a thread that opens and closes ports and devices as long as the process lives.

#![expect(unsafe_code, reason = "calls a C library")]

use crate::crypto::{Device, Retired};
use crate::library::{Library, LoadError};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Why EAL does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It runs already, with other words.
    #[error("DPDK was started before: EAL starts once in a process")]
    Twice,
    /// A word has a zero byte.
    #[error("a word of EAL has a zero byte")]
    Word,
    /// DPDK refuses.
    #[error(
        "DPDK does not start with these words of EAL: {0}; its own messages are above\n  fix: correct the words of EAL, which stand before --"
    )]
    Refused(io::Error),
    /// There is no thread.
    #[error("a thread for DPDK: {0}")]
    Thread(io::Error),
}

/// Why a port or a crypto device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is none with this number.
    #[error("DPDK has {present} {what}s, and no {what} {number}")]
    Absent {
        /// A port, or a crypto device.
        what: &'static str,
        /// Its number.
        number: u16,
        /// How many there are.
        present: usize,
    },
    /// It is open.
    #[error("{0} is open already")]
    Busy(String),
    /// It has fewer queues.
    #[error(
        "{name} has at most {most} queues to receive from, and lcores receive from {wanted}\n  fix: name fewer in --config, or give the device more"
    )]
    Queues {
        /// Its name.
        name: String,
        /// How many it has.
        most: u16,
        /// How many are wanted.
        wanted: u16,
    },
    /// It is open with other arguments.
    #[error(
        "{0} has a port with other arguments\n  fix: close that first, or give the device another number"
    )]
    Changed(String),
    /// A call of DPDK fails.
    #[error("{name}: {error}; DPDK's own messages are above")]
    Refused {
        /// Its name.
        name: String,
        /// What DPDK says.
        error: io::Error,
    },
}

/// What the thread of EAL does.
type Task = Box<dyn FnOnce() + Send>;

/// DPDK, started.
pub struct Eal {
    pub(crate) library: &'static Library,
    tasks: Mutex<Sender<Task>>,
    /// The devices that were added, with their arguments.
    added: Mutex<BTreeMap<String, String>>,
    /// Ports and crypto devices that are open.
    pub(crate) open_ports: Mutex<BTreeSet<u16>>,
    pub(crate) open_devices: Mutex<BTreeMap<u8, Arc<Device>>>,
    /// Held while keys are loaded and dropped: a driver may do one at a time. Those that wait for jobs which a device keeps.
    pub(crate) retired_keys: Mutex<Vec<Retired>>,
}

static RUNNING: OnceLock<Eal> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Eal {
    /// EAL, if it has started in this process.
    pub fn running() -> Option<&'static Self> {
        RUNNING.get()
    }

    /// Starts EAL with its words. Its thread first does `prepare`; all threads of DPDK have what the thread has then.
    ///
    /// # Errors
    /// EAL runs already, or refuses the words. It cannot be tried again in this process.
    pub fn start(
        library: &'static Library,
        words: &[String],
        prepare: impl FnOnce() + Send + 'static,
    ) -> Result<&'static Self, StartError> {
        let _starting = lock(&STARTING);
        if RUNNING.get().is_some() {
            return Err(StartError::Twice);
        }
        let all = ["postern".to_owned()].into_iter().chain(words.iter().cloned()).map(CString::new);
        let words: Vec<CString> = all.collect::<Result<_, _>>().map_err(|_| StartError::Word)?;
        let ((tasks, inbox), (reply, answer)) = (channel::<Task>(), channel());
        let serve = move || {
            prepare();
            let is_started = reply.send(init(library, words)).is_ok();
            if is_started {
                for task in inbox {
                    task();
                }
            }
        };
        std::thread::Builder::new().name("dpdk".to_owned()).spawn(serve).map_err(StartError::Thread)?;
        let outcome = answer.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        outcome.map_err(StartError::Refused)?;
        Ok(RUNNING.get_or_init(|| Self {
            library,
            tasks: Mutex::new(tasks),
            added: Mutex::default(),
            open_ports: Mutex::default(),
            open_devices: Mutex::default(),
            retired_keys: Mutex::default(),
        }))
    }

    /// The version of DPDK, such as `DPDK 22.11.11`.
    pub fn version(&self) -> &str {
        self.library.version()
    }

    /// Adds a device for frames, unless it has a port: a virtual one, as `--vdev NAME,ARGUMENTS` does, or a network card by its place on the
    /// PCI bus.
    ///
    /// # Errors
    /// DPDK refuses it, or its port was made with other arguments and is open.
    pub fn add_device(&'static self, name: &str, arguments: &str) -> Result<(), DeviceError> {
        let mut added = lock(&self.added);
        if self.ports().iter().any(|port| port.name == name) {
            let is_same = added.get(name).is_none_or(|before| before == arguments);
            return if is_same { Ok(()) } else { Err(DeviceError::Changed(name.to_owned())) };
        }
        let refused = |error| DeviceError::Refused { name: name.to_owned(), error };
        let bus = if name.contains(':') { c"pci" } else { c"vdev" };
        let word = |text: &str| CString::new(text).map_err(|error| refused(error.into()));
        let (name_word, words) = (word(name)?, word(arguments)?);
        let outcome = self.call(move || {
            // SAFETY: EAL runs, and all are zero-terminated.
            unsafe { (self.library.functions.add_device)(bus.as_ptr(), name_word.as_ptr(), words.as_ptr()) }
        });
        checked(outcome).map_err(refused)?;
        added.insert(name.to_owned(), arguments.to_owned());
        Ok(())
    }

    /// What the thread of EAL returns from a function.
    pub(crate) fn call<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (reply, answer) = channel();
        let task = move || drop(reply.send(work()));
        lock(&self.tasks).send(Box::new(task)).expect("the thread lives as long as the process");
        answer.recv().expect("the thread answers each task")
    }
}

/// A number, or the error that a negative one is.
pub(crate) fn checked(outcome: i32) -> io::Result<i32> {
    if outcome < 0 { Err(io::Error::from_raw_os_error(-outcome)) } else { Ok(outcome) }
}

fn init(library: &Library, words: Vec<CString>) -> io::Result<()> {
    let count = words.len() as i32;
    let mut pointers: Vec<_> = words.into_iter().map(CString::into_raw).collect();
    pointers.push(std::ptr::null_mut());
    // EAL keeps pointers to words, and may change their order.
    let pointers = pointers.leak();
    // SAFETY: as many zero-terminated words as it is told, which are never freed.
    checked(unsafe { (library.functions.start)(count, pointers.as_mut_ptr()) }).map(drop)
}

/// Whether this thread has a number of DPDK's, which gives it caches of buffers of its own; given back at its end.
struct Entered(Cell<Option<&'static Library>>);

thread_local! {
    static ENTERED: Entered = const { Entered(Cell::new(None)) };
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(library) = self.0.get() {
            // SAFETY: this thread has entered.
            unsafe { (library.functions.leave_thread)() };
        }
    }
}

/// Registers this thread with DPDK, if EAL runs; before a filter of system calls, which would refuse to look at NUMA nodes. A thread
/// without a number works too, and is slower.
pub fn enter_thread() {
    if let Some(eal) = Eal::running() {
        eal.enter();
    }
}

impl Eal {
    /// As [`enter_thread`]; once a thread.
    #[inline]
    pub(crate) fn enter(&self) {
        let _ = ENTERED.try_with(|entered| {
            if entered.0.get().is_none() {
                // SAFETY: EAL runs. DPDK counts a thread once.
                unsafe { (self.library.functions.enter_thread)() };
                entered.0.set(Some(self.library));
            }
        });
    }
}
