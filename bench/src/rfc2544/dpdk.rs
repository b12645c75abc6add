//! Ports of DPDK, by the names of their devices; EAL must have started. They are calibrated by two ports of net_memif that are connected to
//! each other.

use super::wire::Halves;
use crate::Outcome;
use dpdk::Eal;
use dpdk::port::PortOptions;
use port::dpdk::{DpdkPort, open};
use std::time::{Duration, Instant};

/// How long a link may take to come up: network cards negotiate, and net_memif waits for its other end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Frames of 1518 bytes are longer with ESP.
const MTU: u16 = 1800;

/// Opens both ports, and waits for their links.
pub(super) fn pair(names: &[String; 2]) -> Outcome<[Halves; 2]> {
    let ports = [port(&names[0])?, port(&names[1])?];
    for port in &ports {
        wait_for_link(port)?;
    }
    Ok(ports.map(halves))
}

/// Ports of net_memif in this process, connected to each other.
pub(super) fn looped() -> Outcome<[Halves; 2]> {
    let socket = format!("socket=/postern-loop-{},socket-abstract=yes", std::process::id());
    let names = ["net_memif_near", "net_memif_far"].map(str::to_owned);
    for (name, role) in names.iter().zip(["server", "client"]) {
        eal()?.add_device(name, &format!("role={role},{socket}"))?;
    }
    pair(&names)
}

fn eal() -> Outcome<&'static Eal> {
    Ok(Eal::running().ok_or("DPDK does not run")?)
}

fn port(name: &str) -> Outcome<DpdkPort> {
    let eal = eal()?;
    let ports = eal.ports();
    let Some(facts) = ports.iter().find(|port| port.name == name) else {
        let there = ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        let there = if there.is_empty() { "none" } else { &there };
        return Err(
            format!("DPDK has no port {name}; it has: {there}\n  fix: name its device in --eal").into()
        );
    };
    // The tester's hardware addresses are not the port's.
    let options = PortOptions { receive_queues: 1, transmit_queues: 1, mtu: MTU, is_promiscuous: true };
    Ok(open(eal, facts.number, &options)?)
}

fn wait_for_link(port: &DpdkPort) -> Outcome<()> {
    let begun = Instant::now();
    while port.link.is_up() != Some(true) {
        if begun.elapsed() > PATIENCE {
            let name = &port.facts.name;
            return Err(format!(
                "{name}: its link is down\n  fix: connect it to the device, which must be running"
            )
            .into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn halves(mut port: DpdkPort) -> Halves {
    let told = format!("{}, DPDK", port.facts.driver);
    (Box::new(port.transmit.remove(0)), Box::new(port.receive.remove(0)), told)
}
