//! Network interfaces: how large their packets may be, and which one leads outside.

use super::counters::default_route;
use super::files::{Files, Known};

/// The interfaces of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Bytes of the largest packet of the interface that leads outside, and its name.
    pub outside: Option<(String, u32)>,
    /// The tunnels: their names, and bytes of their largest packets.
    pub tunnels: Vec<(String, u32)>,
}

/// What the names of tunnels begin with that carry no packet longer than fits. OpenVPN has 1500 by default, and lowers the MSS.
const TUNNELS: [&str; 2] = ["wg", "ipsec"];

pub(super) fn read(files: Files<'_>) -> Known<Links> {
    let mut links = Links::default();
    let mut others = Vec::new();
    for name in files.names("sys/class/net")? {
        let folder = format!("sys/class/net/{name}");
        let Ok(mtu) = files.number::<u32>(&format!("{folder}/mtu")) else { continue };
        let begins = |prefix: &str| {
            let rest = name.strip_prefix(prefix).unwrap_or_default();
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
        };
        if TUNNELS.iter().any(|it| begins(it)) {
            links.tunnels.push((name, mtu));
        } else if name != "lo" && !files.has(&format!("{folder}/tun_flags")) {
            others.push((name, mtu));
        }
    }
    let default = files.text("proc/net/route").ok().and_then(|text| default_route(&text));
    let leads = |(name, _): &&(String, u32)| Some(name) == default.as_ref();
    // Without a default route it may be any: the largest makes no false alarm.
    let outside = others.iter().find(leads).or_else(|| others.iter().max_by_key(|(_, mtu)| *mtu));
    links.outside = outside.cloned();
    Ok(links)
}
