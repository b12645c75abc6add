//! Rules about the machine: its processors, memory, network counters and clock.

use super::super::machine::{Governor, Heat, Lossy, Machine, heat as told_heat};
use super::super::sight::{Seen, Span};
use super::{Found, Trouble, part};
use crypto::machine::{Capability, Certainty, Hider, Known, Processor, hidden_aes};

/// Of what was counted since the machine has started, so much is wrong: a hundred, if they are one in ten thousand.
const LOST_PART: f64 = 1e-4;
const LOST_COUNT: u64 = 100;

/// How often an hour heat may slow a processor down, since the machine has started.
const THROTTLED_AN_HOUR: f64 = 10.0;

const TUNE: &str = "set system option performance throughput";

pub(super) fn stolen(seen: &Seen<'_>, percent: u32) -> Found {
    let stolen = seen.shares.ok_or("/proc/stat has no times of processors yet")?.stolen;
    let sentence = format!("The hypervisor takes {:.0}% of the processor time.", 100.0 * stolen);
    let taken =
        (stolen >= part(percent)).then(|| Trouble::new("processors", sentence, "postern show bottleneck"));
    Ok(taken.into_iter().collect())
}

pub(super) fn memory_low(seen: &Seen<'_>, percent: u32) -> Found {
    let available = seen.available.clone()?;
    let sentence = format!("Only {:.1}% of the memory is available.", 100.0 * available);
    let low = available < part(percent);
    Ok(low.then(|| Trouble::new("memory", sentence, "postern show system processes")).into_iter().collect())
}

/// AES instructions that a hypervisor or the firmware hides, that the processor lacks, or that a variable disables.
pub(super) fn aes_missing(seen: &Seen<'_>, _: u32) -> Found {
    let mut found: Vec<Trouble> = seen
        .machine
        .masks
        .iter()
        .map(|place| {
            let sentence = format!("OPENSSL_ia32cap in {place} switches the AES instructions off.");
            Trouble::new(
                "OPENSSL_ia32cap",
                sentence,
                format!("remove OPENSSL_ia32cap from {place}, and restart postern"),
            )
        })
        .collect();
    let processor = match &seen.machine.processor {
        Ok(processor) if !processor.flags.is_empty() => processor,
        // A problem that was found is reported, although other facts are missing.
        _ if !found.is_empty() => return Ok(found),
        Ok(_) => return Err("/proc/cpuinfo has no flags".to_owned()),
        Err(why) => return Err(why.clone()),
    };
    if processor.has(Capability::Aes) {
        return Ok(found);
    }
    const ON_HOST: &str = "on the host, CPU type host: libvirt <cpu mode='host-passthrough'/>; Proxmox qm set ID --cpu host; qemu -cpu host, or a \
                           type with +aes; VMware a newer EVC mode";
    let is_x86 = !processor.vendor.is_empty();
    let model = &processor.model;
    let (sentence, remedy) = match hidden_aes(processor) {
        Some((hider, certainty)) => {
            let is_sure = matches!(certainty, Certainty::Sure(_));
            let (does, remedy) = match hider {
                Hider::Hypervisor => {
                    (if is_sure { "hypervisor hides" } else { "hypervisor may hide" }, ON_HOST)
                }
                Hider::Firmware => (
                    if is_sure { "firmware has disabled" } else { "firmware may have disabled" },
                    "in the firmware settings (BIOS), under security or processor features: enable AES-NI",
                ),
            };
            (format!("The {does} the AES instructions of the processor: {model} has no flag aes."), remedy)
        }
        // Whether the host has them cannot be seen from a guest whose model is not known.
        None if is_x86 && processor.is_virtual() => (
            format!(
                "This virtual machine has no AES instructions: {model} has no flag aes. The host may have them."
            ),
            ON_HOST,
        ),
        None if is_x86 => (
            format!("The processor has no AES instructions: {model}."),
            "WireGuard, or for IPsec set vpn ipsec esp-group NAME proposal 1 encryption chacha20poly1305, which need none",
        ),
        // Other processors without them are meant for other ciphers.
        None => return Ok(found),
    };
    found.push(Trouble::new("processor", sentence, remedy));
    Ok(found)
}

/// Temperatures at their limit, and processors that were slowed down because of theirs.
pub(super) fn hot(seen: &Seen<'_>, _: u32) -> Found {
    let said = seen.machine.log.as_ref().ok().and_then(|log| told_heat(log));
    let said = said.map(|said| {
        let sentence = format!("A processor is too hot: the kernel says \"{}\".", said.text);
        Trouble::new("kernel", sentence, COOL)
    });
    let heat = match &seen.machine.heat {
        Ok(heat) => heat,
        Err(_) if said.is_some() => return Ok(said.into_iter().collect()),
        // The host has the sensors, and acts on them.
        Err(_) if is_virtual(seen.machine) => return Ok(Vec::new()),
        Err(why) => return Err(why.clone()),
    };
    let mut found: Vec<Trouble> = heat
        .hot
        .iter()
        .map(|it| {
            let sentence = format!("{} is at {} C; its limit is {} C.", it.name, it.celsius, it.limit);
            Trouble::new(it.name.clone(), sentence, COOL)
        })
        .collect();
    let more = match seen.span {
        Span::Boot => match throttled_since_boot(seen.machine, heat) {
            // A problem that was found is reported, although other facts are missing.
            Err(why) if found.is_empty() && said.is_none() => return Err(why),
            count => count.ok().flatten().map(|count| (count, "since the machine has started")),
        },
        Span::Since(Machine { heat: Ok(before), .. }, _) => {
            let count = heat.throttled_since(Some(before));
            (count > 0).then_some((count, "within the last half minute"))
        }
        _ => None,
    };
    if let Some((count, when)) = more {
        let sentence = format!("Heat has slowed a processor down {count} times {when}.");
        found.push(Trouble::new("thermal throttling", sentence, COOL));
    }
    found.extend(said.filter(|_| found.is_empty()));
    Ok(found)
}

/// A few times in months are no trouble.
fn throttled_since_boot(machine: &Machine, heat: &Heat) -> Result<Option<u64>, String> {
    let count = heat.throttled_since(None);
    if (count as f64) < THROTTLED_AN_HOUR {
        return Ok(None);
    }
    let hours = (machine.uptime.clone()? / 3600.0).max(1.0);
    Ok((count as f64 >= hours * THROTTLED_AN_HOUR).then_some(count))
}

const COOL: &str = "postern show environment sensors; see to fans, dust and the air of the room";

fn is_virtual(machine: &Machine) -> bool {
    machine.processor.as_ref().is_ok_and(Processor::is_virtual)
}

/// A governor that keeps the frequency low, or waits long before it rises.
pub(super) fn governor(seen: &Seen<'_>, _: u32) -> Found {
    let governors = match &seen.machine.governors {
        Ok(governors) => governors,
        // The host has the frequencies.
        Err(_) if is_virtual(seen.machine) => return Ok(Vec::new()),
        Err(why) => return Err(why.clone()),
    };
    let is_slow = |governor: &Governor| match governor {
        Governor::Kernel(name) => matches!(&**name, "powersave" | "conservative"),
        Governor::Processor { preference } => {
            matches!(preference.as_deref(), Some("power" | "balance_power"))
        }
    };
    let one = |(governor, count): (&Governor, &usize)| {
        let sentence = format!(
            "{count} processors have the governor {governor}: their frequency does not follow the load."
        );
        Trouble::new(governor.to_string(), sentence, TUNE)
    };
    Ok(governors.iter().filter(|(governor, _)| is_slow(governor)).map(one).collect())
}

/// Packets for which the backlog before a processor had no room.
pub(super) fn backlog(seen: &Seen<'_>, most: u32) -> Found {
    let lost = losses(seen, most, "packets", |machine| &machine.backlog)?;
    let one = |lost| {
        let sentence =
            format!("The kernel dropped {lost} before a processor took them: its backlog was full.");
        Trouble::new("backlog", sentence, TUNE)
    };
    Ok(lost.map(one).into_iter().collect())
}

/// Datagrams for which the buffer of a socket had no room.
pub(super) fn receive_buffer(seen: &Seen<'_>, most: u32) -> Found {
    let lost = losses(seen, most, "UDP datagrams", |machine| &machine.datagrams)?;
    let one = |lost| {
        let sentence = format!("The kernel dropped {lost}, as the receive buffer of a socket was full.");
        Trouble::new("receive buffer", sentence, format!("postern show bottleneck; {TUNE}"))
    };
    Ok(lost.map(one).into_iter().collect())
}

/// How many were lost, if those are many.
fn losses(
    seen: &Seen<'_>,
    most: u32,
    what: &str,
    of: fn(&Machine) -> &Known<Lossy>,
) -> Result<Option<String>, String> {
    let now = of(seen.machine).clone()?;
    match seen.span {
        Span::First => Err("a rate needs two readings, half a minute apart".to_owned()),
        Span::Boot => {
            let is_much = now.lost >= LOST_COUNT && now.part() >= LOST_PART;
            Ok(is_much.then(|| format!("{} {what} since the machine has started", now.lost)))
        }
        Span::Since(before, seconds) => {
            let lost = now.since(of(before).clone()?).ok_or("the counters went back")?.lost as f64 / seconds;
            Ok((lost >= f64::from(most)).then(|| format!("{lost:.0} {what} a second")))
        }
    }
}

pub(super) fn clock(seen: &Seen<'_>, _: u32) -> Found {
    let is_synchronised = seen.machine.clock.clone()?;
    let sentence =
        "Nothing keeps the clock of the machine right: certificates and WireGuard's handshakes depend on it.";
    let trouble = || {
        Trouble::new("clock", sentence.to_owned(), "timedatectl set-ntp true; timedatectl timesync-status")
    };
    Ok((!is_synchronised).then(trouble).into_iter().collect())
}
