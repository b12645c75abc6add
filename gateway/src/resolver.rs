//! The resolver of this machine: addresses of host names, and where those who answer are.

use ipnet::IpNet;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Where the resolvers of this machine are named; behind a local one, those that it asks.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// The addresses of a host name. It may take long: not for a thread that has something else to do.
///
/// # Errors
/// No name server knows the name, or none answers.
pub fn addresses(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

/// The same, within a time: a thread goes on to wait for a resolver that does not answer.
///
/// # Errors
/// No name server knows the name, or none answers.
pub fn addresses_within(host: &str, limit: Duration) -> io::Result<Vec<IpAddr>> {
    let (sender, receiver) = mpsc::channel();
    let asked = host.to_owned();
    std::thread::Builder::new().spawn(move || sender.send(addresses(&asked)))?;
    let late = |_| io::Error::other(format!("no resolver answers within {} s", limit.as_secs()));
    receiver.recv_timeout(limit).map_err(late)?
}

/// Addresses of a name that are called.
pub(crate) const MOST: usize = 8;

/// The addresses at which a name can be called, each once. Some resolvers give 0.0.0.0 for names that they block, and some give an address
/// inside a tunnel while it is up: packets to that would be led into the tunnel that they carry.
///
/// # Errors
/// None can be called.
pub fn callable(found: &[IpAddr], inside: &[IpNet]) -> io::Result<Vec<IpAddr>> {
    let is_inside = |address: &IpAddr| inside.iter().any(|prefix| prefix.contains(address));
    let why = if found.iter().any(is_inside) {
        "it has an address inside the tunnel only"
    } else {
        "no address of it can be called"
    };
    let mut callable: Vec<IpAddr> = Vec::new();
    for address in found {
        let is_anybody = address.is_unspecified() || address.is_multicast();
        if !is_anybody && !is_inside(address) && !callable.contains(address) {
            callable.push(*address);
        }
    }
    callable.truncate(MOST);
    if callable.is_empty() { Err(io::Error::other(why)) } else { Ok(callable) }
}

/// The resolvers of this machine.
pub fn of_this_machine() -> Vec<IpAddr> {
    resolvers(&FILES.map(Path::new))
}

/// The resolvers that one of these files names which is not of this machine.
fn resolvers(files: &[&Path]) -> Vec<IpAddr> {
    let read = |file: &&Path| nameservers(&std::fs::read_to_string(file).unwrap_or_default());
    let mut lists = files.iter().map(read);
    lists.find(|list| list.iter().any(|it| !it.is_loopback())).unwrap_or_default()
}

/// The addresses in a file as resolv.conf(5) has it; not those with a link's name, which are on it.
pub(crate) fn nameservers(text: &str) -> Vec<IpAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("literal")).collect()
    }

    #[test]
    fn addresses_that_nobody_has_or_that_are_inside_the_tunnel_are_not_called() {
        let inside = ["10.2.0.0/24".parse().expect("literal")];
        let found = callable(&ips(&["0.0.0.0", "192.0.2.1", "10.2.0.1", "ff02::1", "192.0.2.1"]), &inside);
        assert_eq!(found.expect("one is left"), ips(&["192.0.2.1"]));
        assert!(callable(&ips(&["::"]), &inside).expect_err("none").to_string().contains("can be called"));
        let error = callable(&ips(&["10.2.0.1"]), &inside).expect_err("none").to_string();
        assert!(error.contains("inside the tunnel"), "{error}");
        let many: Vec<IpAddr> = (1..=20).map(|number| IpAddr::from([192, 0, 2, number])).collect();
        assert_eq!(callable(&many, &inside).expect("some").len(), MOST);
    }

    #[test]
    fn an_address_is_its_own_answer_and_no_answer_is_waited_for_beyond_the_limit() {
        let limit = Duration::from_secs(5);
        assert_eq!(addresses_within("192.0.2.1", limit).expect("no resolver is asked"), ips(&["192.0.2.1"]));
        let late = addresses_within("head.invalid", Duration::ZERO).expect_err("no time");
        assert_eq!(late.to_string(), "no resolver answers within 0 s");
    }
}
