//! What to run, from `interfaces secgw` of the configuration.

use super::lcores::Queues;
use super::plan::{Plan, PortPlan};
use config::settings::Secgw;

impl Plan {
    /// The plan of a gateway of the configuration. A family without a policy does not pass in clear: the configuration has policies for that.
    pub fn configured(settings: &Secgw) -> Self {
        let port = |(&number, port): (&u16, &config::settings::secgw::Port)| PortPlan {
            number,
            driver: port.driver,
            interface: port.interface.clone(),
            address: None,
            is_protected: port.is_protected,
            is_promiscuous: port.is_promiscuous,
            queues: Queues { receivers: vec![0], ..Queues::default() },
            neighbour: port.neighbour,
            mtu: settings.mtu as u16,
        };
        Self {
            lcores: vec![0],
            ports: settings.ports.iter().map(port).collect(),
            policies: settings.policies.clone(),
            sas: settings.sas.clone(),
            routes: settings.routes.clone(),
            window: settings.window,
            extended_sequence: settings.extended_sequence,
            single_sa: None,
            mtu: settings.mtu as usize,
            reassembly: None,
            statistics_seconds: 0,
            ike_peers: Vec::new(),
            ike: Vec::new(),
            remarks: Vec::new(),
        }
    }
}
