//! Network interfaces: how large their packets may be, and which one takes the largest.

use crypto::machine::{Files, Known};

/// The interfaces of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// The interface that is up, is no tunnel and takes the largest packets, and their bytes. Which one a tunnel uses may depend on each
    /// peer: what fits none is wrong for sure.
    pub outside: Option<(String, u32)>,
    /// The tunnels: their names, and bytes of their largest packets.
    pub tunnels: Vec<(String, u32)>,
}

/// What the names of tunnels begin with that carry no packet longer than fits. OpenVPN has 1500 by default, and lowers the MSS.
const TUNNELS: [&str; 2] = ["wg", "ipsec"];

pub(super) fn read(files: Files<'_>) -> Known<Links> {
    let mut links = Links::default();
    for name in files.names("sys/class/net")? {
        let folder = format!("sys/class/net/{name}");
        let Ok(mtu) = files.number::<u32>(&format!("{folder}/mtu")) else { continue };
        let begins = |prefix: &str| {
            let rest = name.strip_prefix(prefix).unwrap_or_default();
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
        };
        if TUNNELS.iter().any(|it| begins(it)) {
            links.tunnels.push((name, mtu));
            continue;
        }
        let is_largest = links.outside.as_ref().is_none_or(|(_, largest)| mtu > *largest);
        let is_ours = || name == "lo" || files.has(&format!("{folder}/tun_flags"));
        // Drivers that do not know it say "unknown".
        let is_up = || !files.text(&format!("{folder}/operstate")).is_ok_and(|it| it.ends_with("down"));
        if is_largest && !is_ours() && is_up() {
            links.outside = Some((name, mtu));
        }
    }
    Ok(links)
}
