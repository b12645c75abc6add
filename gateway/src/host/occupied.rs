//! The owner of a resource that we need: a UDP port, or an interface name. Used for error messages only.

use super::netlink::Netlink;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Programs that serve IKE, and the service to stop. Where we may not see whose a socket is, one that runs has the port.
const IKE: &[(&str, &str)] = &[
    ("charon", "strongswan-starter"),
    ("charon-systemd", "strongswan"),
    ("pluto", "ipsec"),
    ("iked", "openiked"),
    ("racoon", "racoon"),
    ("postern", "postern"),
];
const IKE_PORTS: [u16; 2] = [500, 4500];

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    number: u32,
    name: String,
}

/// What was found of ports that were taken before the daemon gave up its rights.
static FOUND: Mutex<BTreeMap<u16, (BTreeSet<u64>, Process)>> = Mutex::new(BTreeMap::new());

/// Looks up the owners of these ports; those of processes with more rights than ours are hidden.
pub fn look(ports: impl Iterator<Item = u16>) {
    for port in ports {
        let inodes = inodes("thread-self", port);
        if let Some(owner) = owner(&inodes) {
            lock().insert(port, (inodes, owner));
        }
    }
}

fn lock() -> MutexGuard<'static, BTreeMap<u16, (BTreeSet<u64>, Process)>> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the program that has a UDP port, and the fix: the rest of a sentence that begins with "... is in use".
pub(crate) fn port(port: u16) -> String {
    let inodes = inodes("thread-self", port);
    let seen = lock().get(&port).filter(|(seen, _)| *seen == inodes).map(|(_, owner)| owner.clone());
    if let Some(owner) = seen.or_else(|| owner(&inodes)) {
        return held(port, &owner);
    }
    // Of another one that serves IKE, and sees the same socket, it is likely.
    let likely = |process: &&Process| {
        let sees = || !inodes.is_disjoint(&self::inodes(&process.number.to_string(), port));
        process.number != std::process::id() && IKE.iter().any(|(name, _)| *name == process.name) && sees()
    };
    let all = if IKE_PORTS.contains(&port) { processes() } else { Vec::new() };
    match all.iter().find(likely) {
        Some(process) => format!(", it seems{}", held(port, process)),
        None => format!("\n  fix: {}, or stop what uses it: ss -ulpn 'sport = {port}'", other(port)),
    }
}

/// The sockets of a port in the network namespace of a process.
fn inodes(process: &str, port: u16) -> BTreeSet<u64> {
    let tables = ["udp", "udp6"].iter();
    tables.flat_map(|table| sockets(&read(&format!("/proc/{process}/net/{table}")), port)).collect()
}

fn owner(inodes: &BTreeSet<u64>) -> Option<Process> {
    if inodes.is_empty() {
        return None;
    }
    processes().into_iter().find(|process| has_any(process, inodes))
}

fn held(port: u16, process: &Process) -> String {
    let Process { number, name } = process;
    if *number == std::process::id() {
        return format!(
            " by this daemon itself\n  fix: if what has it is refused, mend that first; {}",
            other(port)
        );
    }
    let stop = match IKE.iter().find(|(known, _)| known == name) {
        Some((_, service)) => format!("systemctl disable --now {service}, or kill {number}"),
        None => format!("{}, or stop it: kill {number}", other(port)),
    };
    format!(" by {name} (process ID {number})\n  fix: {stop}")
}

/// What can be done without stopping anything: IKE has no other ports.
fn other(port: u16) -> &'static str {
    if IKE_PORTS.contains(&port) { "run one program for IPsec only" } else { "choose another port" }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The inodes of sockets of a port, out of a table of /proc/net.
fn sockets(table: &str, port: u16) -> Vec<u64> {
    let of_port = |line: &str| {
        let mut words = line.split_whitespace();
        let local = words.nth(1)?;
        let (_, found) = local.rsplit_once(':')?;
        if u16::from_str_radix(found, 16) != Ok(port) {
            return None;
        }
        words.nth(7)?.parse().ok()
    };
    table.lines().skip(1).filter_map(of_port).collect()
}

fn processes() -> Vec<Process> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut all: Vec<Process> = numbers
        .map(|number| Process { number, name: read(&format!("/proc/{number}/comm")).trim_end().to_owned() })
        .collect();
    all.sort_by_key(|process| process.number);
    all
}

/// Whether a process has one of these sockets open, as far as we may see.
fn has_any(process: &Process, inodes: &BTreeSet<u64>) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", process.number)).into_iter().flatten().flatten();
    let inode = |link: std::path::PathBuf| -> Option<u64> {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    open.filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(inode)
        .any(|inode| inodes.contains(&inode))
}

/// Describes the interface that already has this name, and the fix; empty if there is none.
pub(crate) fn interface(name: &str) -> Option<String> {
    let kind = Netlink::open().ok()?.link_kind(name).ok()?;
    let another = "or choose another name for ours";
    Some(match kind.as_deref() {
        Some("wireguard") => format!(
            "it is a WireGuard interface of the kernel\n  fix: if wg-quick made it: wg-quick down {name}, and \
             systemctl disable wg-quick@{name}; else: ip link delete {name}; {another}"
        ),
        Some("tun") => format!(
            "another program made it, another WireGuard, Postern or OpenVPN\n  fix: stop that program; or, if none runs: \
             ip link delete {name}; {another}"
        ),
        Some(kind) => format!("it is of the kind {kind}\n  fix: ip link delete {name}; {another}"),
        None => "it is a device of this machine\n  fix: choose another name".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_process_that_has_a_port_is_named() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("free");
        let taken = socket.local_addr().expect("bound").port();
        assert_eq!(owner(&inodes("thread-self", taken)).map(|it| it.number), Some(std::process::id()));
        let said = port(taken);
        assert!(said.contains(" by this daemon itself\n  fix: ") && !said.contains("kill"), "{said}");
        drop(socket);
        assert!(port(taken).contains(&format!("ss -ulpn 'sport = {taken}'")));
    }

    #[test]
    fn a_program_for_ipsec_is_told_with_its_service() {
        let charon = Process { number: 812, name: "charon".to_owned() };
        let said = held(500, &charon);
        assert_eq!(
            said,
            " by charon (process ID 812)\n  fix: systemctl disable --now strongswan-starter, or kill 812"
        );
        let other = Process { name: "nc".to_owned(), ..charon };
        assert!(!held(500, &other).contains("another port"));
        assert_eq!(
            held(7, &other),
            " by nc (process ID 812)\n  fix: choose another port, or stop it: kill 812"
        );
    }

    #[test]
    fn sockets_are_found_in_the_table_of_the_kernel() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref\n\
                     81: 00000000:01F4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 77 2 0 0\n\
                     82: 00000000:1194 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 78 2 0 0\n";
        assert_eq!((sockets(table, 500), sockets(table, 4500)), (vec![77], vec![78]));
        assert!(sockets(table, 7).is_empty() && sockets("", 500).is_empty());
    }
}
