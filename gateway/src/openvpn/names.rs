//! Host names of servers: resolved again at each attempt to connect, in a thread of its own.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// A server, as the file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its host name, or its address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether over TCP.
    pub is_tcp: bool,
    /// The number of its connection in the file.
    pub connection: usize,
    /// How long it may take to answer.
    pub timeout: Duration,
    /// Whether only IPv4, or only IPv6, is used.
    pub only_v4: Option<bool>,
    /// The last addresses that were found.
    pub known: Vec<IpAddr>,
}

/// The addresses of a host name.
///
/// # Errors
/// No name server knows the name, or none answers.
pub fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

impl Name {
    /// Whether it may have other addresses later.
    pub fn is_host_name(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }

    /// Looks it up. Without an answer the last addresses are kept: the name servers may be behind the tunnel.
    pub fn look_up(&mut self, resolve: impl FnOnce(&str) -> io::Result<Vec<IpAddr>>) -> io::Result<()> {
        let mut found = match self.host.parse() {
            Ok(address) => vec![address],
            Err(_) => resolve(&self.host)?,
        };
        found.retain(|address| self.only_v4.is_none_or(|v4| address.is_ipv4() == v4));
        if found.is_empty() {
            return Err(io::Error::other("it has no address of the IP version of proto"));
        }
        self.known = found;
        Ok(())
    }

    /// Where to connect to.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.known.iter().map(|address| SocketAddr::new(*address, self.port))
    }
}

/// Looks up all host names again.
pub fn look_up_all(names: &mut [Name], resolve: impl Fn(&str) -> io::Result<Vec<IpAddr>>) {
    for name in names.iter_mut().filter(|name| name.is_host_name()) {
        if let Err(error) = name.look_up(&resolve) {
            tracing::info!("{}: {error}", name.host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_until_there_are_others() {
        let name = |host: &str| Name {
            host: host.to_owned(),
            port: 1194,
            is_tcp: false,
            connection: 0,
            timeout: Duration::ZERO,
            only_v4: Some(true),
            known: Vec::new(),
        };
        let mut names = [name("vpn.example"), name("192.0.2.9")];
        let v6: IpAddr = "2001:db8::1".parse().expect("literal");
        let first: Vec<IpAddr> = vec![[192, 0, 2, 1].into(), v6];
        for name in &mut names {
            name.look_up(|_| Ok(first.clone())).expect("known");
        }
        let mut found = |resolve: &dyn Fn(&str) -> io::Result<Vec<IpAddr>>| {
            look_up_all(&mut names, resolve);
            names.iter().flat_map(Name::addresses).map(|it| it.to_string()).collect::<Vec<_>>()
        };
        let first = found(&|_| Err(io::ErrorKind::TimedOut.into()));
        assert_eq!(first[1..], ["192.0.2.9:1194"]);
        assert_eq!(found(&|_| Ok(vec![v6])), first, "no IPv4 address");
        assert_eq!(found(&|_| Ok(vec![[192, 0, 2, 2].into()])), ["192.0.2.2:1194", "192.0.2.9:1194"]);
    }
}
