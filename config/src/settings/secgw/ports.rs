//! The Ethernet ports of a gateway.

use super::{Port, below, ethernet};
use crate::secgw::Driver;
use crate::settings::Reader;
use crate::tree::Tree;
use std::collections::{BTreeMap, HashMap};

impl Reader {
    pub(super) fn ports(
        &mut self,
        path: &str,
        tree: &Tree,
        taken: &mut HashMap<String, String>,
    ) -> BTreeMap<u16, Port> {
        let mut ports = BTreeMap::new();
        for (number, tree) in below(tree, "port") {
            let path = format!("{path} port {number}");
            if let (Some(port), Ok(number)) = (self.port(&path, tree, taken), number.parse()) {
                ports.insert(number, port);
            }
        }
        for (side, is_protected) in [("protected", true), ("unprotected", false)] {
            // A port with an error of its own may be that.
            if ports.len() == below(tree, "port").count()
                && !ports.values().any(|port| port.is_protected == is_protected)
            {
                let fix = format!("set {path} port NUMBER side {side}");
                self.error(tree.location(), format!("{path} has no {side} port"), fix);
            }
        }
        ports
    }

    fn port(&mut self, path: &str, tree: &Tree, taken: &mut HashMap<String, String>) -> Option<Port> {
        let driver = match tree.value("driver") {
            Some("packet") => Driver::AfPacket,
            Some("tap") => Driver::Tap,
            Some("dpdk") => Driver::Dpdk,
            _ => Driver::AfXdp,
        };
        let (interface, device) = if driver == Driver::Dpdk {
            let device = self.port_device(path, tree);
            (device.as_deref().and_then(|device| device.split(',').next()).map(str::to_owned), device)
        } else {
            (self.port_interface(path, tree).map(str::to_owned), None)
        };
        let [side, neighbour] = ["side", "neighbour"].map(|word| self.required(path, tree, word));
        let (interface, side, neighbour) = (interface?, side?, neighbour?);
        let Some(neighbour) = ethernet(neighbour) else {
            let reason = format!("{path}: neighbour {neighbour} is no Ethernet address of a station");
            let fix = format!("set {path} neighbour 02:00:00:00:00:01, with six bytes of two digits");
            self.error(tree.location_of("neighbour"), reason, fix);
            return None;
        };
        if let Some(other) = taken.insert(interface.clone(), path.to_owned()) {
            let reason = format!("{path}: {other} has the interface {interface} already");
            self.error(tree.location_of("interface"), reason, "give each port an interface of its own");
        }
        let defers_napi = tree.has("defer-napi");
        if defers_napi && matches!(driver, Driver::Tap | Driver::Dpdk) {
            let reason = format!("{path}: defer-napi is for driver af-xdp or packet");
            self.error(tree.location_of("defer-napi"), reason, format!("delete {path} defer-napi"));
        }
        let addresses = tree.values("address").into_iter();
        Some(Port {
            driver,
            interface,
            device,
            is_protected: side == "protected",
            is_promiscuous: tree.has("promiscuous"),
            neighbour,
            addresses: addresses.filter_map(|address| address.parse().ok()).collect(),
            defers_napi,
        })
    }

    /// The interface of a port that is not of DPDK.
    fn port_interface<'a>(&mut self, path: &str, tree: &'a Tree) -> Option<&'a str> {
        if tree.has("device") {
            let reason = format!("{path}: device is for driver dpdk");
            let fix = format!("set {path} driver dpdk, or delete {path} device");
            self.error(tree.location_of("device"), reason, fix);
            return None;
        }
        let interface = self.required(path, tree, "interface")?;
        if interface.is_empty() || interface.contains(['/', ' ']) {
            let reason = format!("{path}: {interface:?} is no name of an interface");
            self.error(tree.location(), reason, format!("set {path} interface NAME, such as eth1"));
        }
        Some(interface)
    }

    /// The device of a port of DPDK: a virtual one with its arguments, or a card by its place on the bus.
    fn port_device(&mut self, path: &str, tree: &Tree) -> Option<String> {
        if tree.has("interface") {
            let reason = format!("{path}: driver dpdk takes no interface of the kernel");
            let fix = format!("delete {path} interface, and set {path} device net_af_xdp0,iface=NAME");
            self.error(tree.location_of("interface"), reason, fix);
            return None;
        }
        let device = self.required(path, tree, "device")?;
        let name = device.split(',').next().unwrap_or_default();
        let is_driver = name.strip_prefix("net_").is_some_and(|rest| {
            rest.ends_with(|last: char| last.is_ascii_digit())
                && rest.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        });
        if !is_driver && !is_pci_address(name) || device.contains(|letter: char| letter.is_whitespace()) {
            let reason = format!("{path}: {device:?} is no device of DPDK for frames");
            let fix =
                format!("set {path} device net_memif0,role=server, or a PCI address such as 0000:01:00.0");
            self.error(tree.location_of("device"), reason, fix);
            return None;
        }
        Some(device.to_owned())
    }
}

/// Whether this is a place on the PCI bus with its domain, as DPDK names it: `0000:01:00.0`.
pub fn is_pci_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits
            && part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let digits = [4, 2, 2, 1];
    parts.len() == digits.len()
        && name.matches(':').count() == 2
        && parts.iter().zip(digits).all(|(part, digits)| is_hex(part, digits))
}
