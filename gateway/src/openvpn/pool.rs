//! The addresses of a server's clients: one number gives an IPv4 and an IPv6 address.
//!
//! A client gets the addresses that it had before, if no other client has them, and others get them only when nothing else is
//! free. Numbers are remembered by common name, so that the pool bounds what is remembered.

use super::settings::{ClientOverride, PointToPoint, ServerNetwork};
use ipnet::{IpNet, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tunnel::openvpn::action::SessionNumber;

/// The first IPv6 address for a client, counted from that of the network: OpenVPN's.
pub(super) fn first_v6(network: Ipv6Net) -> u128 {
    if network.prefix_len() < 112 { 0x1000 } else { 2 }
}
/// The most addresses that a pool has, as in OpenVPN.
const MOST: u32 = 65_536;

/// The addresses of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The IPv4 address, if the server has a network.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 address.
    pub v6: Option<Ipv6Addr>,
}

impl Lease {
    /// The addresses as prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        let v4 = self.v4.map(|address| IpNet::from(IpAddr::V4(address)));
        v4.into_iter().chain(self.v6.map(|address| IpNet::from(IpAddr::V6(address))))
    }
}

/// All addresses are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no address is free for the client: choose a larger network")]
pub struct Exhausted;

/// The pool.
#[derive(Debug, Default)]
pub struct Pool {
    /// The first address.
    v4: Option<Ipv4Addr>,
    /// The first address.
    v6: Option<Ipv6Addr>,
    /// How many IPv4 addresses belong to a number, and which of them the client has.
    step: (u32, u32),
    /// The address of the server, which may be among the others.
    own: Option<Ipv4Addr>,
    /// Addresses that are given by settings.
    reserved: BTreeSet<IpAddr>,
    /// How many numbers there are.
    size: u32,
    in_use: BTreeMap<u32, SessionNumber>,
    by_session: HashMap<SessionNumber, u32>,
    /// Who had a number last.
    owners: BTreeMap<u32, String>,
    by_name: HashMap<String, u32>,
}

impl Pool {
    /// All addresses of these networks but the server's, and but those that settings give to a client.
    pub fn new(network: &ServerNetwork) -> Self {
        let v4 = network.v4.map(|v4| {
            // Network, server and broadcast.
            let all = (v4.network().to_bits().saturating_add(2), v4.broadcast().to_bits().saturating_sub(1));
            network.pool.map_or(all, |(first, last)| (first.to_bits(), last.to_bits()))
        });
        // Four addresses, of which the client has the third.
        let is_net30 = network.line == Some(PointToPoint::Net30);
        let (step, v4) = match v4 {
            Some((first, last)) if is_net30 => ((4, 2), Some((first & !3, last | 3))),
            v4 => ((1, 0), v4),
        };
        let v4_size = v4.map(|(first, last)| (u64::from(last) + 1).saturating_sub(first.into()));
        let v4_size = v4_size.map(|size| u32::try_from(size).unwrap_or(u32::MAX) / step.0);
        let v6_size = network.v6.map(|v6| {
            let hosts = 1u128.checked_shl(u32::from(128 - v6.prefix_len())).unwrap_or(u128::MAX);
            u32::try_from(hosts.saturating_sub(first_v6(v6))).unwrap_or(u32::MAX)
        });
        let size = v4_size.into_iter().chain(v6_size).min().unwrap_or(0).min(MOST);
        let reserved = BTreeSet::new();
        let v4 = v4.map(|(first, _)| Ipv4Addr::from_bits(first));
        let v6 = network.v6.map(|v6| Ipv6Addr::from_bits(v6.network().to_bits() + first_v6(v6)));
        let own = network.local;
        let mut pool = Self { v4, v6, step, own, reserved, size, ..Self::default() };
        pool.reserve(network.clients.values());
        for (name, v4, v6) in &network.leases {
            pool.remember(name, *v4, *v6);
        }
        pool
    }

    /// These clients have addresses by their settings, which no other client gets from now on.
    pub fn reserve<'a>(&mut self, clients: impl Iterator<Item = &'a ClientOverride>) {
        let given = clients.flat_map(|it| it.v4.map(IpAddr::V4).into_iter().chain(it.v6.map(IpAddr::V6)));
        self.reserved = given.collect();
    }

    /// Gives a session the addresses that the client of this name had last, or free ones. `is_used`: whether a client has a
    /// prefix that is not of the pool.
    pub fn assign(
        &mut self,
        session: SessionNumber,
        name: &str,
        is_used: impl Fn(IpNet) -> bool,
    ) -> Result<Lease, Exhausted> {
        let is_free = |number: &u32| self.is_free(*number) && !self.lease(*number).prefixes().any(&is_used);
        let before = self.by_name.get(name).copied().filter(is_free);
        let is_fresh = |number: &u32| !self.owners.contains_key(number) && is_free(number);
        let number = before
            .or_else(|| (0..self.size).find(is_fresh))
            .or_else(|| (0..self.size).find(is_free))
            .ok_or(Exhausted)?;
        if let Some(owner) = self.owners.insert(number, name.to_owned())
            && owner != name
        {
            self.by_name.remove(&owner);
        }
        // With `duplicate-cn` another session of the name may have an address too, which is then not remembered.
        if let Some(other) = self.by_name.insert(name.to_owned(), number)
            && other != number
        {
            self.owners.remove(&other);
        }
        self.in_use.insert(number, session);
        self.by_session.insert(session, number);
        Ok(self.lease(number))
    }

    /// Remembers who had an address, as a file says.
    pub fn remember(&mut self, name: &str, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) {
        let distance = |from: u128, to: u128| to.checked_sub(from).and_then(|it| u32::try_from(it).ok());
        let by_v4 =
            self.v4.zip(v4).and_then(|(first, it)| distance(first.to_bits().into(), it.to_bits().into()));
        let by_v4 = by_v4.map(|distance| distance / self.step.0);
        let by_v6 = || self.v6.zip(v6).and_then(|(first, it)| distance(first.to_bits(), it.to_bits()));
        let Some(number) = by_v4.or_else(by_v6).filter(|number| *number < self.size) else { return };
        if !self.owners.contains_key(&number) && !self.by_name.contains_key(name) {
            self.owners.insert(number, name.to_owned());
            self.by_name.insert(name.to_owned(), number);
        }
    }

    /// Who had which addresses, as OpenVPN writes it: name, IPv4 address, IPv6 address. Of four IPv4 addresses it is the first.
    pub fn leases(&self) -> String {
        let line = |(number, name): (&u32, &String)| {
            let Lease { v4, v6 } = self.lease(*number);
            let v4 = v4.map(|v4| Ipv4Addr::from_bits(v4.to_bits() - self.step.1));
            let [v4, v6] = [v4.map(IpAddr::V4), v6.map(IpAddr::V6)].map(|it| it.map(|it| it.to_string()));
            // A comma or a line break would end the name.
            let is_one = !name.contains(|letter: char| letter == ',' || letter.is_control());
            is_one.then(|| format!("{name},{},{}\n", v4.unwrap_or_default(), v6.unwrap_or_default()))
        };
        self.owners.iter().filter_map(line).collect()
    }

    /// Takes the addresses of a session back.
    pub fn release(&mut self, session: SessionNumber) {
        if let Some(number) = self.by_session.remove(&session) {
            self.in_use.remove(&number);
        }
    }

    fn lease(&self, number: u32) -> Lease {
        Lease {
            v4: self.v4.map(|first| {
                let (size, own) = self.step;
                Ipv4Addr::from_bits(first.to_bits().saturating_add(number * size + own))
            }),
            v6: self.v6.map(|first| Ipv6Addr::from_bits(first.to_bits() + u128::from(number))),
        }
    }

    fn is_free(&self, number: u32) -> bool {
        let is_reserved = |address| self.reserved.contains(&address);
        let Lease { v4, v6 } = self.lease(number);
        number < self.size
            && !self.in_use.contains_key(&number)
            && (v4.is_none() || v4 != self.own)
            && !v4.map(IpAddr::V4).is_some_and(is_reserved)
            && !v6.map(IpAddr::V6).is_some_and(is_reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::ClientOverride;
    use super::*;

    fn network(v4: &str, v6: Option<&str>) -> ServerNetwork {
        let v6 = v6.map(|v6| v6.parse().expect("literal"));
        ServerNetwork { v4: Some(v4.parse().expect("literal")), v6, ..ServerNetwork::default() }
    }

    fn v4(pool: &mut Pool, session: SessionNumber, name: &str) -> Option<String> {
        pool.assign(session, name, |_| false)
            .ok()
            .and_then(|lease| lease.v4)
            .map(|address| address.to_string())
    }

    #[test]
    fn clients_get_the_addresses_after_the_servers() {
        let network = network("10.8.0.0/24", Some("fd00:8::/64"));
        let own: Vec<String> = network.own().map(|own| own.to_string()).collect();
        assert_eq!(own, ["10.8.0.1/24", "fd00:8::1/64"]);
        let mut pool = Pool::new(&network);
        let lease = pool.assign(7, "berlin", |_| false).expect("free");
        assert_eq!(lease.v4, Some([10, 8, 0, 2].into()));
        assert_eq!(lease.v6, Some("fd00:8::1000".parse().expect("literal")));
        assert_eq!(v4(&mut pool, 8, "rome").as_deref(), Some("10.8.0.3"));
    }

    #[test]
    fn a_client_that_returns_has_its_address_again_until_it_is_needed() {
        let mut pool = Pool::new(&network("10.8.0.0/29", None));
        assert_eq!(v4(&mut pool, 1, "a").as_deref(), Some("10.8.0.2"));
        pool.release(1);
        assert_eq!(v4(&mut pool, 2, "b").as_deref(), Some("10.8.0.3"), "the first one is remembered for a");
        assert_eq!(v4(&mut pool, 3, "a").as_deref(), Some("10.8.0.2"));
        for (session, name) in [(4, "c"), (5, "d"), (6, "e")] {
            assert!(v4(&mut pool, session, name).is_some());
        }
        assert_eq!(pool.assign(7, "f", |_| false), Err(Exhausted));
        pool.release(3);
        assert_eq!(v4(&mut pool, 8, "f").as_deref(), Some("10.8.0.2"), "nothing else is free");
        pool.release(2);
        assert_eq!(v4(&mut pool, 9, "a").as_deref(), Some("10.8.0.3"));
        assert_eq!(pool.owners.len(), pool.by_name.len());
    }

    #[test]
    fn clients_of_one_name_have_addresses_of_their_own() {
        let mut pool = Pool::new(&network("10.8.0.0/24", None));
        assert_ne!(v4(&mut pool, 1, "a"), v4(&mut pool, 2, "a"));
        pool.release(1);
        pool.release(2);
        assert_eq!((pool.in_use.len(), pool.by_session.len(), pool.owners.len()), (0, 0, 1));
    }

    #[test]
    fn addresses_that_settings_give_are_not_in_the_pool() {
        let mut network = network("10.8.0.0/29", None);
        let fixed = ClientOverride { v4: Some([10, 8, 0, 2].into()), ..ClientOverride::default() };
        network.clients.insert("fixed".to_owned(), fixed);
        let mut pool = Pool::new(&network);
        assert_eq!(v4(&mut pool, 1, "a").as_deref(), Some("10.8.0.3"));
    }

    #[test]
    fn a_part_of_the_network_is_given_but_for_addresses_that_clients_have() {
        let part = Some(([10, 8, 0, 50].into(), [10, 8, 0, 52].into()));
        let mut pool = Pool::new(&ServerNetwork { pool: part, ..network("10.8.0.0/24", None) });
        let used: IpNet = "10.8.0.50/32".parse().expect("literal");
        let mut assign =
            |session| pool.assign(session, &session.to_string(), |prefix| prefix == used).map(|it| it.v4);
        assert_eq!(assign(1), Ok(Some([10, 8, 0, 51].into())));
        assert_eq!(assign(2), Ok(Some([10, 8, 0, 52].into())));
        assert_eq!(assign(3), Err(Exhausted));
    }

    #[test]
    fn addresses_are_remembered_in_a_file() {
        let both = || network("10.8.0.0/24", Some("fd00:8::/64"));
        let mut pool = Pool::new(&both());
        pool.assign(1, "anna", |_| false).expect("free");
        pool.assign(2, "a,b", |_| false).expect("free");
        pool.assign(3, "bert", |_| false).expect("free");
        let text = pool.leases();
        assert_eq!(text, "anna,10.8.0.2,fd00:8::1000\nbert,10.8.0.4,fd00:8::1002\n");
        let bert = ("bert".to_owned(), Some([10, 8, 0, 4].into()), None);
        let far = ("far".to_owned(), Some([10, 9, 0, 4].into()), None);
        let mut again = Pool::new(&ServerNetwork { leases: vec![bert, far], ..both() });
        assert_eq!(v4(&mut again, 1, "anna").as_deref(), Some("10.8.0.2"));
        assert_eq!(v4(&mut again, 2, "bert").as_deref(), Some("10.8.0.4"));
        assert_eq!(v4(&mut again, 3, "far").as_deref(), Some("10.8.0.3"));
    }

    #[test]
    fn each_client_has_four_addresses_with_net30_and_one_with_p2p() {
        let part = Some(([10, 8, 0, 4].into(), [10, 8, 0, 251].into()));
        let of = |line| ServerNetwork { pool: part, line: Some(line), ..network("10.8.0.0/24", None) };
        let net30 = of(PointToPoint::Net30);
        let mut pool = Pool::new(&net30);
        assert_eq!(v4(&mut pool, 1, "a").as_deref(), Some("10.8.0.6"));
        assert_eq!(v4(&mut pool, 2, "b").as_deref(), Some("10.8.0.10"));
        assert_eq!(net30.second([10, 8, 0, 10].into(), None), Some([10, 8, 0, 9].into()));
        assert_eq!(pool.leases(), "a,10.8.0.4,\nb,10.8.0.8,\n");
        let lease = ("b".to_owned(), Some([10, 8, 0, 8].into()), None);
        assert_eq!(
            v4(&mut Pool::new(&ServerNetwork { leases: vec![lease], ..net30.clone() }), 1, "b").as_deref(),
            Some("10.8.0.10")
        );
        let names = |number: u32| v4(&mut pool, 2 + number, &number.to_string());
        assert_eq!((1..=100).map_while(names).last().as_deref(), Some("10.8.0.250"));
        let single = of(PointToPoint::Single);
        assert_eq!(v4(&mut Pool::new(&single), 1, "a").as_deref(), Some("10.8.0.4"));
        assert_eq!(single.second([10, 8, 0, 4].into(), None), Some([10, 8, 0, 1].into()));
        // A client's own: a netmask is none of the other end, and the other way round.
        let subnet = network("10.8.0.0/24", None);
        let second =
            |network: &ServerNetwork, own: [u8; 4]| network.second([10, 8, 0, 6].into(), Some(own.into()));
        assert_eq!(second(&net30, [10, 8, 0, 77]), Some([10, 8, 0, 77].into()));
        assert_eq!(second(&net30, [255, 255, 255, 0]), Some([10, 8, 0, 5].into()));
        assert_eq!(second(&subnet, [10, 8, 0, 5]), Some([255, 255, 255, 0].into()));
        assert_eq!(second(&subnet, [255, 255, 0, 0]), Some([255, 255, 0, 0].into()));
    }

    #[test]
    fn a_network_without_room_has_no_addresses() {
        for network in [network("10.8.0.0/30", Some("fd00::/127")), ServerNetwork::default()] {
            assert_eq!(Pool::new(&network).assign(1, "a", |_| false), Err(Exhausted));
        }
        assert!(Pool::new(&network("10.8.0.0/30", None)).assign(1, "a", |_| false).is_ok());
    }
}
