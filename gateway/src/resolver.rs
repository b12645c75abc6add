//! The resolver of this machine: addresses of host names, and where those who answer are.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

/// Where the resolvers of this machine are named; behind a local one, those that it asks.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// The addresses of a host name. It may take long: not for a thread that has something else to do.
///
/// # Errors
/// No name server knows the name, or none answers.
pub fn addresses(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
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
