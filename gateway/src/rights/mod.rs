//! What a thread may do: no more than its work needs, since what it reads may come from unauthenticated sources.

pub mod filter;

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use filter::FilterError;
use rustix::thread::{no_new_privs, set_no_new_privs};

/// What a thread keeps of what the process may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// No capability, and only system calls on descriptors that are open: it carries packets.
    Packets,
    /// No capability.
    None,
    /// To read files whatever their permissions say.
    Files,
    /// To change links, addresses, routes and rules.
    Network,
    /// To bind and to mark sockets in the network namespace it is in.
    Sockets,
    /// To change links, in whatever namespace they are.
    Namespaces,
    /// To open ports that carry frames, also after the process has given up that right.
    Ports,
    /// What DPDK needs for its virtual devices: threads of its own keep it.
    VirtualDevices,
    /// The same for all devices: network cards and crypto cards, whose registers and memory DPDK uses, and net_af_xdp.
    Devices,
}

impl Rights {
    fn capabilities(self) -> &'static [Capability] {
        match self {
            Self::Packets | Self::None => &[],
            Self::Files => &[Capability::CAP_DAC_READ_SEARCH],
            Self::Network => &[Capability::CAP_NET_ADMIN],
            Self::Sockets => &[Capability::CAP_NET_ADMIN, Capability::CAP_NET_BIND_SERVICE],
            Self::Namespaces => &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN],
            // Frames of AF_XDP are in memory that is locked.
            Self::Ports | Self::VirtualDevices => &[
                Capability::CAP_NET_ADMIN,
                Capability::CAP_NET_RAW,
                Capability::CAP_BPF,
                Capability::CAP_IPC_LOCK,
            ],
            Self::Devices => &[
                Capability::CAP_NET_ADMIN,
                Capability::CAP_NET_RAW,
                Capability::CAP_BPF,
                Capability::CAP_IPC_LOCK,
                // Physical addresses, and registers behind I/O ports. libxdp finds its program by its number, and loads one that
                // compares pointers.
                Capability::CAP_SYS_ADMIN,
                Capability::CAP_SYS_RAWIO,
                Capability::CAP_PERFMON,
            ],
        }
    }

    /// Gives up all others, for the thread that calls it and those that it will start.
    pub fn keep(self) {
        if let Err(error) = self.drop_others() {
            tracing::warn!("a thread keeps more rights than it needs: {error}");
        }
        // These are started before the process has a filter.
        let filter = match self {
            Self::Ports => Some(filter::filter_ports as fn() -> Result<(), FilterError>),
            Self::VirtualDevices | Self::Devices => Some(filter::filter_devices as fn() -> _),
            _ => None,
        };
        if let Some(filter) = filter {
            let filtered = set_no_new_privs(true).map_err(|error| error.to_string());
            match filtered.and_then(|()| filter().map_err(|error| error.to_string())) {
                Ok(()) => {}
                Err(error) => tracing::warn!("a thread may make more system calls than it needs: {error}"),
            }
        }
        // A process without its filter has logged the reason. A filter of this thread would need the one of the process.
        if self == Self::Packets && is_filtered() {
            match filter::filter_packets() {
                Ok(()) | Err(FilterError::Architecture) => {}
                Err(error) => tracing::warn!("a thread may make more system calls than it needs: {error}"),
            }
        }
    }

    fn drop_others(self) -> Result<(), CapsError> {
        let had = caps::read(None, CapSet::Permitted)?;
        let kept: CapsHashSet = self.capabilities().iter().copied().filter(|one| had.contains(one)).collect();
        caps::set(None, CapSet::Effective, &kept)?;
        caps::set(None, CapSet::Permitted, &kept)
    }
}

/// Whether the process gave up its rights at its start. One that did not is a test's, or a benchmark's.
fn is_filtered() -> bool {
    no_new_privs().unwrap_or(false)
}
