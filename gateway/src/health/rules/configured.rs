//! Rules about the configuration: what makes tunnels slower than they could be, and certificates that end.

use super::super::machine::Device;
use super::super::sight::Seen;
use super::{Found, Trouble};
use config::settings::Watched;
use config::settings::watched::{ESP_OVERHEAD, Mtu, Suite, WIREGUARD_OVERHEAD};
use crypto::machine::qat::Qat;

const DAY: u64 = 86_400;

/// What the configuration says.
pub(super) fn configured<'a>(seen: &Seen<'a>) -> Result<&'a Watched, String> {
    seen.configured.clone()
}

/// Whether a device works, or the configuration counts on one.
fn is_accelerated(seen: &Seen<'_>, watched: &Watched) -> bool {
    let works = |devices: &Vec<Device>| devices.iter().map(|it| &it.qat).any(Qat::is_up);
    watched.accelerators || seen.machine.devices.as_ref().is_ok_and(works)
}

/// CBC with a MAC is two passes over each packet, and slower than GCM in every device.
pub(super) fn suite_slow(seen: &Seen<'_>, _: u32) -> Found {
    let watched = configured(seen)?;
    if !is_accelerated(seen, watched) {
        return Ok(Vec::new());
    }
    let one = |(group, suite): (&String, &Suite)| {
        let Suite { encryption, hash } = suite;
        let bits = encryption.strip_prefix("aes").filter(|rest| matches!(*rest, "128" | "192" | "256"));
        let is_slow = bits.is_some() || encryption == "3des" || encryption.contains("ctr");
        let hash = hash.as_deref().unwrap_or("sha1");
        let sentence =
            format!("esp-group {group} wants {encryption} with {hash} first: two passes over each packet.");
        let bits = bits.unwrap_or("256");
        let remedy = format!(
            "set vpn ipsec esp-group {group} proposal 1 encryption aes{bits}gcm128, here and at the peer"
        );
        is_slow.then(|| Trouble::new(format!("esp-group {group}"), sentence, remedy))
    };
    Ok(watched.suites.iter().filter_map(one).collect())
}

pub(super) fn detection(seen: &Seen<'_>, least: u32) -> Found {
    let one = |(group, seconds): (&String, &u32)| {
        let sentence = format!("ike-group {group} probes its peers after {seconds} s of silence.");
        let remedy = format!("set vpn ipsec ike-group {group} dead-peer-detection interval 30");
        (*seconds < least).then(|| Trouble::new(format!("ike-group {group}"), sentence, remedy))
    };
    Ok(configured(seen)?.detections.iter().filter_map(one).collect())
}

/// Tunnels of the configuration whose packets fit no interface, with what the tunnel adds.
pub(super) fn mtu(seen: &Seen<'_>, _: u32) -> Found {
    let links = seen.machine.links.as_ref().map_err(Clone::clone)?;
    let watched = configured(seen)?;
    let (name, outside) =
        links.outside.clone().ok_or("/sys/class/net has no interface that is up and leads outside")?;
    let wrong = |subject: String, mtu: Mtu, remedy: String| {
        let fits = outside.saturating_sub(mtu.overhead);
        let sentence = format!(
            "{subject} is {}, and with {} bytes of the tunnel that is more than the {outside} of {name}, which takes the largest packets.",
            mtu.bytes, mtu.overhead
        );
        (mtu.bytes > fits).then(|| Trouble::new(subject, sentence, format!("{remedy} {fits}")))
    };
    let mut found: Vec<Trouble> = Vec::new();
    for (path, mtu) in &watched.mtus {
        found.extend(wrong(path.clone(), *mtu, format!("set {path}")));
    }
    for (tunnel, bytes) in links.tunnels.iter().filter(|(name, _)| watched.tunnels.contains(name)) {
        // Its configured MTU is reported already.
        if found.iter().any(|it| it.subject == format!("interfaces wireguard {tunnel} mtu")) {
            continue;
        }
        let is_wireguard = tunnel.starts_with("wg");
        let overhead = if is_wireguard { WIREGUARD_OVERHEAD } else { ESP_OVERHEAD };
        let remedy = if is_wireguard {
            format!("set interfaces wireguard {tunnel} mtu")
        } else {
            format!("ip link set {tunnel} mtu")
        };
        found.extend(wrong(format!("the MTU of {tunnel}"), Mtu { bytes: *bytes, overhead }, remedy));
    }
    Ok(found)
}

pub(super) fn offloads(seen: &Seen<'_>, _: u32) -> Found {
    let one = |(interface, off): (&String, &Vec<String>)| {
        let sentence = format!(
            "{} of {interface} is switched off: each packet is a call of the kernel.",
            off.join(", ")
        );
        let remedy = format!("delete interfaces wireguard {interface} disable-offload");
        Trouble::new(interface.clone(), sentence, remedy)
    };
    Ok(configured(seen)?.offloads.iter().map(one).collect())
}

pub(super) fn certificates(seen: &Seen<'_>, days: u32) -> Found {
    let until = seen.at.saturating_add(u64::from(days) * DAY);
    let one = |(path, ends): (&String, &u64)| {
        let left = ends.saturating_sub(seen.at);
        let sentence = match left {
            0 => format!("The certificate {path} has expired."),
            left if left < DAY => format!("The certificate {path} expires within a day."),
            left => format!("The certificate {path} expires in {} days.", left / DAY),
        };
        let remedy = format!("set {path} certificate BASE64, with a new one of its authority");
        Trouble::new(path.clone(), sentence, remedy)
    };
    Ok(configured(seen)?.certificates.iter().filter(|(_, ends)| **ends < until).map(one).collect())
}
