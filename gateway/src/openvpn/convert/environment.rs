//! What all programs are told, and the settings of those about the interface.

use super::Refusals;
use crate::openvpn::lifecycle::InterfacePrograms;
use crate::openvpn::scripts::Environment;
use crate::openvpn::scripts::addressing::{Addressing, default_gateway};
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Addresses, Connection, Family, Protocol, Role, Topology, Transport};
use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Variables of all programs, without the name of the interface.
pub(super) fn environment(settings: &OpenVpn, link: &Connection, refusals: &Refusals) -> Environment {
    let mut environment = Environment::default();
    let files = refusals.given.values().map(|position| &position.file);
    environment.set("config", files.min().cloned().unwrap_or_default());
    environment.set("dev_type", "tun");
    environment.set("tun_mtu", link.tun_mtu);
    environment.set("daemon", u8::from(settings.process.is_daemon));
    environment.set("daemon_log_redirect", u8::from(settings.log.file.is_some()));
    environment.set("daemon_pid", std::process::id());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    environment.set("daemon_start_time", now.as_secs());
    environment.set("verb", settings.log.verbosity);
    for (index, listen) in settings.listen.iter().enumerate() {
        let number = index + 1;
        environment.set(&format!("local_port_{number}"), listen.port);
        environment.set(&format!("remote_port_{number}"), listen.port);
        environment.set(&format!("proto_{number}"), name(listen.protocol));
        if let Some(host) = &listen.host {
            environment.set(&format!("local_{number}"), host);
        }
    }
    let connections = settings.connections.iter().filter(|_| settings.role != Role::Server);
    for (index, connection) in connections.enumerate() {
        let number = index + 1;
        environment.set(&format!("proto_{number}"), name(connection.protocol));
        environment.set(&format!("remote_port_{number}"), connection.remote_port);
        if let Some(remote) = &connection.remote {
            environment.set(&format!("remote_{number}"), remote);
        }
        if let Some(local) = &connection.local {
            environment.set(&format!("local_{number}"), local);
        }
        if let Some(port) = connection.local_port.filter(|_| connection.bind) {
            environment.set(&format!("local_port_{number}"), port);
        }
    }
    environment
}

/// What a server tells programs of its own interface.
pub(super) fn of_server(settings: &OpenVpn) -> Addressing {
    let (device, routing) = (&settings.device, &settings.routing);
    Addressing {
        v4: match device.addresses {
            Some(Addresses::Subnet(network)) if device.topology != Topology::Subnet => {
                let local = network.addr();
                Some(Addresses::Peer(local, Ipv4Addr::from_bits(local.to_bits() + 1)))
            }
            addresses => addresses,
        },
        v6: device.ipv6,
        ..Addressing::of_routing(routing, settings.dns.clone())
    }
}

/// The settings of programs about the interface.
pub(super) fn programs(settings: &OpenVpn, link: &Connection, refusals: &Refusals) -> InterfacePrograms {
    let is_server = settings.role == Role::Server;
    InterfacePrograms {
        environment: environment(settings, link, refusals),
        addressing: if is_server { of_server(settings) } else { Addressing::default() },
        is_down_first: settings.scripts.down_pre,
        has_restarts: settings.scripts.up_restart,
        persists: settings.device.persist,
        is_delayed: settings.scripts.up_delay,
        leaves_addresses: settings.device.is_by_script,
        leaves_routes: settings.routing.is_by_script,
    }
}

/// Variables of all programs about clients of a server.
pub(super) fn about_clients(settings: &OpenVpn, link: &Connection, refusals: &Refusals) -> Environment {
    let mut environment = environment(settings, link, refusals);
    let addressing = of_server(settings);
    addressing.tell(&mut environment, default_gateway(), None);
    environment.set("redirect_gateway", u8::from(addressing.redirects));
    environment.set("script_context", "init");
    environment
}

/// A protocol as OpenVPN writes it.
fn name(protocol: Protocol) -> &'static str {
    match (protocol.transport, protocol.family) {
        (Transport::Udp, Family::Any) => "udp",
        (Transport::Udp, Family::V4) => "udp4",
        (Transport::Udp, Family::V6) => "udp6",
        (Transport::TcpServer, Family::Any) => "tcp-server",
        (Transport::TcpServer, Family::V4) => "tcp4-server",
        (Transport::TcpServer, Family::V6) => "tcp6-server",
        (Transport::TcpClient, Family::Any) => "tcp-client",
        (Transport::TcpClient, Family::V4) => "tcp4-client",
        (Transport::TcpClient, Family::V6) => "tcp6-client",
    }
}
