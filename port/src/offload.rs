//! Offloads: kernel features that handle many packets in one call, with their state and counters.
//!
//! Each is probed when its port opens, and can be disabled by the configuration. If the kernel refuses one at run
//! time, it is disabled, and the burst is sent again without it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Whether an offload is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Not probed yet.
    Unprobed,
    /// In use.
    On,
    /// Disabled by the configuration.
    SwitchedOff,
    /// Not supported by this kernel.
    Unsupported,
    /// Supported when probed, but refused at run time.
    Failed,
}

impl State {
    const ALL: [Self; 5] = [Self::Unprobed, Self::On, Self::SwitchedOff, Self::Unsupported, Self::Failed];
}

/// One offload of one interface.
pub struct Offload {
    state: AtomicU8,
    calls: AtomicU64,
    packets: AtomicU64,
    fallbacks: AtomicU64,
}

impl Default for Offload {
    fn default() -> Self {
        Self {
            state: AtomicU8::new(State::Unprobed as u8),
            calls: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
        }
    }
}

impl Offload {
    /// Whether it is in use.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) == State::On as u8
    }

    /// Its state.
    pub fn state(&self) -> State {
        State::ALL[usize::from(self.state.load(Ordering::Relaxed))]
    }

    /// Sets the state.
    pub fn set(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Sets the outcome of a probe, unless the configuration has disabled it.
    pub fn probed(&self, supported: bool) {
        if self.state() != State::SwitchedOff {
            self.set(if supported { State::On } else { State::Unsupported });
        }
    }

    /// Whether the configuration allows it.
    pub fn is_wanted(&self) -> bool {
        self.state() != State::SwitchedOff
    }

    /// Counts a call with `packets` packets.
    #[inline]
    pub fn count(&self, packets: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.packets.fetch_add(packets as u64, Ordering::Relaxed);
    }

    /// Counts a call that the kernel refused and that was repeated without the offload.
    pub fn count_fallback(&self) {
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of calls, of packets in them, and of repeated calls, in this order.
    pub fn counters(&self) -> (u64, u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.calls), read(&self.packets), read(&self.fallbacks))
    }
}

/// Declares the offloads once: the struct, the list and the names are generated from this.
macro_rules! offloads {
    ($($field:ident = $name:literal, $does:literal;)+) => {
        /// All offloads of an interface.
        #[derive(Default)]
        pub struct Offloads {
            $(#[doc = $does] pub $field: Offload,)+
        }

        impl Offloads {
            /// The names, as used in the configuration.
            pub const NAMES: &[&str] = &[$($name,)+];

            /// Every offload with its name and its description.
            pub fn all(&self) -> Vec<(&'static str, &'static str, &Offload)> {
                vec![$(($name, $does, &self.$field),)+]
            }
        }
    };
}

offloads! {
    tun_tso = "tun-tso", "TUN reads return TCP super-packets, which are segmented in the program";
    tun_uso = "tun-uso", "the same as tun-tso, for UDP";
    tun_gro = "tun-gro", "consecutive packets of a flow are merged into one TUN write";
    udp_gso = "udp-gso", "one send call carries many datagrams to a peer";
    udp_gro = "udp-gro", "one receive call returns many datagrams of a peer";
}

impl Offloads {
    /// The offload with this name.
    pub fn by_name(&self, name: &str) -> Option<&Offload> {
        self.all().into_iter().find(|(known, _, _)| *known == name).map(|(_, _, offload)| offload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disabled_offload_stays_disabled() {
        let offloads = Offloads::default();
        offloads.udp_gso.set(State::SwitchedOff);
        offloads.udp_gso.probed(true);
        offloads.udp_gro.probed(true);
        assert!(!offloads.udp_gso.is_on() && offloads.udp_gro.is_on());
    }

    #[test]
    fn every_name_finds_its_offload() {
        let offloads = Offloads::default();
        for name in Offloads::NAMES {
            offloads.by_name(name).expect("listed").count(2);
        }
        assert!(offloads.all().iter().all(|(_, _, offload)| offload.counters() == (1, 2, 0)));
        assert!(offloads.by_name("tun").is_none());
    }
}
