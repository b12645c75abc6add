//! What to run, from `interfaces secgw` of the configuration.

use super::files::Files;
use super::lcores::Queues;
use super::plan::{Plan, PortPlan};
use super::reassembly::table::Limits;
use config::secgw::Driver;
use config::settings::Secgw;
use config::settings::secgw::Port;
use port::link::Channels;
use port::xdp::QUEUES;
use std::time::Duration;

/// How long fragments are kept, as without `--frag-ttl`.
const LIFETIME: Duration = Duration::from_secs(10);

impl Plan {
    /// The plan of a gateway of the configuration. A family without a policy does not pass in clear: the configuration has policies for that.
    /// Each thread has a queue of each port; see [`spread_queues`](Self::spread_queues).
    pub fn configured(settings: &Secgw) -> Self {
        let threads = settings.threads as usize;
        let port = |(&number, port): (&u16, &Port)| PortPlan {
            number,
            driver: port.driver,
            interface: port.interface.clone(),
            device: port.device.clone(),
            address: None,
            is_protected: port.is_protected,
            is_promiscuous: port.is_promiscuous,
            own: port.addresses.clone(),
            defers_napi: port.defers_napi,
            files: Files::default(),
            queues: Queues::spread(threads, threads),
            neighbour: port.neighbour,
            mtu: settings.mtu as u16,
        };
        let limits = |packets| Limits { packets: packets as usize, lifetime: LIFETIME };
        let mut plan = Self {
            lcores: (0..settings.threads).collect(),
            ports: settings.ports.iter().map(port).collect(),
            policies: settings.policies.clone(),
            sas: settings.sas.clone(),
            routes: settings.routes.clone(),
            window: settings.window,
            extended_sequence: settings.extended_sequence,
            single_sa: None,
            mtu: settings.mtu as usize,
            reassembly: settings.reassemble.map(limits),
            statistics_seconds: 0,
            ike_peers: settings.ike_peers.clone(),
            ike: Vec::new(),
            remarks: Vec::new(),
        };
        plan.set_ike(&settings.ike);
        plan
    }

    /// Spreads all queues over the threads that the interfaces of AF_XDP have now: the kernel would have the frames of the others.
    ///
    /// # Errors
    /// An interface has fewer queues than there are threads.
    pub(super) fn spread_queues(&mut self) -> Result<(), TooManyThreads> {
        let threads = self.lcores.len();
        for port in self.ports.iter_mut().filter(|port| port.driver == Driver::AfXdp) {
            // A driver that does not tell may have them.
            let Some(channels) = Channels::of(&port.interface) else { continue };
            let queues = channels.receiving().min(QUEUES) as usize;
            if queues < threads {
                let (number, interface) = (port.number, port.interface.clone());
                return Err(TooManyThreads { number, interface, queues, words: channels.words(threads) });
            }
            port.queues = Queues::spread(queues, threads);
        }
        Ok(())
    }
}

/// An interface has fewer queues than there are threads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyThreads {
    /// The port.
    pub(super) number: u16,
    /// Its interface.
    pub(super) interface: String,
    /// How many it has.
    pub(super) queues: usize,
    /// What follows `ethtool -L NAME` for as many as there are threads.
    pub(super) words: String,
}

#[cfg(test)]
mod tests {
    use super::super::plan::{LONGEST_OF_DPDK, longest_of_af_xdp};
    use super::*;
    use config::settings::secgw;

    #[test]
    fn the_configuration_knows_what_frames_hold() {
        assert_eq!(longest_of_af_xdp(), secgw::LONGEST_OF_AF_XDP as usize);
        assert_eq!(LONGEST_OF_DPDK, secgw::LONGEST_OF_DPDK as usize);
    }

    #[test]
    fn queues_are_spread_in_turn() {
        assert_eq!(Queues::spread(5, 2).receivers, [0, 1, 0, 1, 0]);
    }
}
