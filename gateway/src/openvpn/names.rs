//! Host names of servers: resolved again at each attempt to connect, in a thread of its own.

use crypto::Random;
use crypto::random::System;
use std::io;
use std::net::{IpAddr, SocketAddr};
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
    /// Whether each look-up has a random label before the name, past caches of DNS (`remote-random-hostname`).
    pub has_random_label: bool,
    /// The last addresses that were found.
    pub known: Vec<IpAddr>,
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
            Err(_) => resolve(&self.asked())?,
        };
        found.retain(|address| self.only_v4.is_none_or(|v4| address.is_ipv4() == v4));
        if found.is_empty() {
            return Err(io::Error::other("it has no address of the IP version of proto"));
        }
        self.known = found;
        Ok(())
    }

    /// The name that is looked up.
    fn asked(&self) -> String {
        if !self.has_random_label {
            return self.host.clone();
        }
        let mut bytes = [0; 6];
        System::default().fill(&mut bytes);
        let label: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{label}.{}", self.host)
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
            has_random_label: false,
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

    #[test]
    fn each_look_up_asks_for_another_name_if_labels_are_random() {
        let mut name = Name {
            host: "vpn.example".to_owned(),
            port: 1194,
            is_tcp: false,
            connection: 0,
            timeout: Duration::ZERO,
            only_v4: None,
            has_random_label: true,
            known: Vec::new(),
        };
        let mut asked = Vec::new();
        for _ in 0..2 {
            let answer = |host: &str| {
                asked.push(host.to_owned());
                Ok(vec![[192, 0, 2, 1].into()])
            };
            name.look_up(answer).expect("known");
        }
        for host in &asked {
            let label = host.strip_suffix(".vpn.example").expect("before the name");
            assert!(label.len() == 12 && label.bytes().all(|byte| byte.is_ascii_hexdigit()), "{host}");
        }
        assert_ne!(asked[0], asked[1]);
        let address = Name { host: "192.0.2.9".to_owned(), ..name };
        let mut address = address;
        address.look_up(|host| panic!("{host} is an address")).expect("an address");
    }
}
