//! What head office may have of a branch: the answer to a token is checked against this machine before anything of it is set.
//!
//! Head office is trusted with its own networks, and not with those of the branch: a mistake there must not lead the branch's own
//! devices, or all that it sends, into the tunnel.

use crate::Failure;
use config::settings::Host;
use config::settings::enrollment::reserved;
use https::enrollment::{Granted, VERSION};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

const UNUSABLE: &str =
    "the answer of head office cannot be used\n  fix: install the same version of Postern on both";
/// Prefixes of IPv4 and IPv6 that are shorter take more than a site.
const SHORTEST: [u8; 2] = [8, 16];

/// What is known of this machine.
pub(super) struct Here<'a> {
    /// Its addresses with their networks, and the interfaces that have them, but for the one of the tunnel.
    pub(super) addresses: &'a [(String, IpNet)],
    /// What its other tunnels lead to, with their interfaces.
    pub(super) tunnels: &'a [(String, IpNet)],
    /// The domain name of head office in the token.
    pub(super) host_name: Option<&'a str>,
    /// The addresses of head office in the token, and the one that has answered.
    pub(super) head_office: &'a [IpAddr],
    /// Networks that the user lets head office have although they are refused otherwise.
    pub(super) allowed: &'a [IpNet],
}

/// What a branch takes of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Checked {
    /// Its address in the tunnel.
    pub(super) address: IpNet,
    /// What the tunnel carries.
    pub(super) networks: Vec<IpNet>,
    /// Where head office is by name, if the token has it.
    pub(super) host: Option<Host>,
    /// Where head office is, of what the token names.
    pub(super) endpoints: Vec<SocketAddr>,
}

/// Checks an answer.
pub(super) fn check(granted: &Granted, here: &Here<'_>) -> Result<Checked, Failure> {
    if granted.version != VERSION {
        let text =
            format!("head office answers in version {}, and this program knows {VERSION}", granted.version);
        return Err(format!("{text}\n  fix: install the same version of Postern on both").into());
    }
    let address: IpNet = granted.address.parse().map_err(|_| UNUSABLE)?;
    let networks: Result<Vec<IpNet>, _> = granted.networks.iter().map(|it| it.parse::<IpNet>()).collect();
    let endpoints: Result<Vec<SocketAddr>, _> = granted.endpoints.iter().map(|it| it.parse()).collect();
    let (networks, endpoints) = (networks.map_err(|_| UNUSABLE)?, endpoints.map_err(|_| UNUSABLE)?);
    if networks.is_empty() {
        return Err(UNUSABLE.into());
    }
    check_address(address, here)?;
    for network in &networks {
        check_network(*network, here)?;
    }
    check_sum(&networks, here)?;
    let is_named = |it: &SocketAddr| it.port() != 0 && here.head_office.contains(&it.ip());
    let mut named: Vec<SocketAddr> = endpoints.iter().copied().filter(is_named).collect();
    let host = host(granted, here, !named.is_empty())?;
    if let (true, Some(answered)) = (named.is_empty() && host.is_none(), here.head_office.last()) {
        // Head office may know its address behind a NAT only; the branch knows the one that has answered.
        let port = endpoints.first().map_or(granted.port, SocketAddr::port);
        named.push(SocketAddr::new(*answered, port));
    }
    if host.is_none() && named.iter().all(|it| it.port() == 0) {
        return Err(UNUSABLE.into());
    }
    Ok(Checked { address, networks, host, endpoints: named })
}

/// Where head office is by name: only the name of the token is taken, which its user was given. Without it, the address that a name had
/// once would be used for ever.
fn host(granted: &Granted, here: &Here<'_>, has_address: bool) -> Result<Option<Host>, Failure> {
    let plain = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let fix =
        "at head office: postern enroll retire BRANCH, and create it again; then join with the new token";
    match (here.host_name, granted.host_name.as_deref()) {
        (None, _) => Ok(None),
        (Some(token), Some(granted_name)) if plain(token) == plain(granted_name) => {
            let host = Host { name: token.to_owned(), port: granted.port };
            if host.port == 0 { Err(UNUSABLE.into()) } else { Ok(Some(host)) }
        }
        (Some(_), None) if has_address => Ok(None),
        (Some(token), _) => {
            Err(format!("head office has another name by now than the token has: {token}\n  fix: {fix}")
                .into())
        }
    }
}

fn check_address(address: IpNet, here: &Here<'_>) -> Result<(), Failure> {
    let text = format!("head office gives this branch the address {address}");
    let fix = "at head office: postern enroll retire BRANCH, and create it again with another --address";
    if let Some(why) = reserved(&IpNet::from(address.addr())) {
        return Err(format!("{text}: {why}\n  fix: {fix}").into());
    }
    let taken =
        here.addresses.iter().find(|(_, own)| own.contains(&address.addr()) || address.trunc().contains(own));
    if let Some((name, own)) = taken {
        return Err(format!("{text}, and {name} has {own}\n  fix: {fix}").into());
    }
    // A prefix would be a route into the tunnel that nobody was asked about.
    if address.prefix_len() < address.max_prefix_len() {
        return Err(format!("{text}, which is a whole network\n  fix: {fix}").into());
    }
    Ok(())
}

/// Networks that are each small enough can be all of the Internet together. Private addresses are a site's, however many.
fn check_sum(networks: &[IpNet], here: &Here<'_>) -> Result<(), Failure> {
    let is_counted = |it: &&IpNet| !here.allowed.contains(it) && !is_private(it);
    let counted: Vec<IpNet> = networks.iter().filter(is_counted).copied().collect();
    for (is_v6, bits) in [(false, 32), (true, 128)] {
        let of_family: Vec<IpNet> =
            counted.iter().filter(|it| it.addr().is_ipv6() == is_v6).copied().collect();
        let Some(first) = of_family.first() else { continue };
        let sizes = IpNet::aggregate(&of_family).into_iter().map(|it| 1u128 << (bits - it.prefix_len()));
        if sizes.fold(0, u128::saturating_add) > 1 << (bits - SHORTEST[usize::from(is_v6)]) {
            let count = of_family.len();
            return Err(format!(
                "head office would have {first} and {} other networks go through the tunnel: together that is much more than a site\n  \
                 fix: if that is meant, name each: postern join TOKEN --allow {first} ...",
                count - 1
            )
            .into());
        }
    }
    Ok(())
}

/// Whether all addresses are private: of RFC 1918, RFC 6598 or RFC 4193.
fn is_private(network: &IpNet) -> bool {
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"]
        .into_iter()
        .any(|it| it.parse::<IpNet>().is_ok_and(|private| private.contains(network)))
}

fn check_network(network: IpNet, here: &Here<'_>) -> Result<(), Failure> {
    let text = format!("head office would have {network} go through the tunnel");
    let allow = format!("if that is meant: postern join TOKEN --allow {network}");
    let shortest = SHORTEST[usize::from(network.addr().is_ipv6())];
    // Each is named by itself: to let head office have everything is not to let it have our own networks.
    let is_allowed = here.allowed.contains(&network);
    if network.prefix_len() < shortest {
        let refused = format!("{text}: that is much more than a site\n  fix: {allow}");
        return if is_allowed { Ok(()) } else { Err(refused.into()) };
    }
    if let Some(why) = reserved(&network) {
        let fix = "at head office: delete service enrollment network, and commit";
        return Err(format!("{text}: {why}\n  fix: {fix}").into());
    }
    if is_allowed {
        return Ok(());
    }
    // A wider network is right: the route to the link is closer.
    if let Some((name, own)) = here.addresses.iter().find(|(_, own)| own.trunc().contains(&network)) {
        return Err(format!("{text}, which is behind {name} here: {own}\n  fix: {allow}").into());
    }
    // A network beside a tunnel for everything is meant, and around a closer one it takes nothing from it.
    let is_taken = |(_, tunnel): &&(String, IpNet)| tunnel.prefix_len() > 0 && tunnel.contains(&network);
    if let Some((name, tunnel)) = here.tunnels.iter().find(is_taken) {
        return Err(format!("{text}, and a tunnel of {name} leads to {tunnel}\n  fix: {allow}").into());
    }
    if let Some(address) = here.head_office.iter().find(|address| network.contains(*address)) {
        return Err(format!(
            "{text}: its own address {address}, which the tunnel itself is sent to, is in it\n  \
             fix: at head office, name narrower networks"
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::granted;
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("literal")
    }

    fn check_with(granted: &Granted, allowed: &[&str]) -> Result<Checked, String> {
        check_named(granted, allowed, None)
    }

    fn check_named(granted: &Granted, allowed: &[&str], host_name: Option<&str>) -> Result<Checked, String> {
        let addresses = [("eth0".to_owned(), net("192.0.2.7/24")), ("eth1".to_owned(), net("10.2.0.1/24"))];
        let allowed: Vec<IpNet> = allowed.iter().map(|it| net(it)).collect();
        let head_office = ["198.51.100.1".parse().expect("literal")];
        let tunnels = ["10.4.0.0/16", "0.0.0.0/0"].map(|it| ("ipsec0".to_owned(), net(it)));
        let here = Here {
            addresses: &addresses,
            tunnels: &tunnels,
            host_name,
            head_office: &head_office,
            allowed: &allowed,
        };
        check(granted, &here).map_err(|error| error.to_string())
    }

    #[test]
    fn networks_of_head_office_are_taken_and_only_endpoints_of_the_token() {
        let checked = check_with(&granted(), &[]).expect("right");
        assert_eq!(checked.networks, [net("10.1.0.0/24"), net("10.255.0.0/24")]);
        assert_eq!(checked.endpoints, ["198.51.100.1:51820".parse().expect("literal")]);
        // A network around ours is less close than the link.
        let wide = Granted { networks: vec!["10.0.0.0/8".to_owned()], ..granted() };
        assert!(check_with(&wide, &[]).is_ok());
        let behind_nat = Granted { endpoints: vec!["127.0.0.1:22".to_owned()], ..granted() };
        let checked = check_with(&behind_nat, &[]).expect("right");
        assert_eq!(checked.endpoints, ["198.51.100.1:22".parse().expect("literal")]);
    }

    #[test]
    fn only_the_name_of_the_token_is_taken() {
        let named = |name: &str, port| Granted { host_name: Some(name.to_owned()), port, ..granted() };
        let host = |granted: &Granted, token| check_named(granted, &[], token).map(|checked| checked.host);
        let token = Some("head.example.org");
        let right = Some(Host { name: "head.example.org".to_owned(), port: 51820 });
        assert_eq!(host(&named("HEAD.example.org.", 51820), token), Ok(right.clone()));
        assert_eq!(host(&named("head.example.org", 51820), None), Ok(None), "the token has no name");
        assert_eq!(host(&granted(), token), Ok(None), "head office has an address of the token");
        // A name alone will do, and without one the address that has answered.
        let alone = Granted { endpoints: Vec::new(), ..named("head.example.org", 51820) };
        let checked = check_named(&alone, &[], token).expect("right");
        assert_eq!((checked.host, checked.endpoints.len()), (right, 0));
        let checked = check_named(&alone, &[], None).expect("right");
        assert_eq!(checked.endpoints, ["198.51.100.1:51820".parse().expect("literal")]);
        // The address that another name had when it was looked up is no place for a tunnel.
        let none = Granted { endpoints: Vec::new(), ..granted() };
        for wrong in [named("other.example.org", 51820), named("head.example.org\nset x", 51820), none] {
            let said = host(&wrong, token).expect_err("refused");
            assert!(said.contains("another name by now") && said.contains("enroll retire"), "{said}");
            assert!(!said.contains("other.example.org") && !said.contains("set x"), "{said}");
        }
        assert!(host(&named("head.example.org", 0), token).is_err());
    }

    #[test]
    fn what_is_not_head_offices_to_give_is_refused() {
        let networks =
            |all: &[&str]| Granted { networks: all.iter().map(|&it| it.to_owned()).collect(), ..granted() };
        let address = |text: &str| Granted { address: text.to_owned(), ..granted() };
        let split: Vec<String> = (11..100).map(|first| format!("{first}.0.0.0/8")).collect();
        let split: Vec<&str> = split.iter().map(String::as_str).collect();
        for (granted, said) in [
            (networks(&["10.2.0.0/25", "10.2.0.128/25"]), "behind eth1"),
            (networks(&["10.2.0.0/24"]), "--allow 10.2.0.0/24"),
            (networks(&["10.4.0.0/16"]), "a tunnel of ipsec0 leads to 10.4.0.0/16"),
            (networks(&["10.4.7.0/24"]), "--allow 10.4.7.0/24"),
            (networks(&["0.0.0.0/0"]), "much more than a site"),
            (networks(&["0.0.0.0/1", "128.0.0.0/1"]), "much more than a site"),
            (networks(&["::/0"]), "--allow ::/0"),
            (networks(&["224.0.0.0/8"]), "no network of a site"),
            (networks(&["255.255.255.255/32"]), "no network of a site"),
            (networks(&["127.0.0.0/8"]), "no network of a site"),
            (networks(&["169.0.0.0/8"]), "no network of a site"),
            (networks(&["198.51.100.0/24"]), "its own address 198.51.100.1"),
            (networks(&split), "much more than a site"),
            (networks(&["2000::/16", "2002::/16"]), "--allow 2000::/16"),
            (networks(&[]), "cannot be used"),
            (address("10.2.0.1/24"), "eth1 has 10.2.0.1/24"),
            (address("10.2.0.77/32"), "eth1 has"),
            (address("10.0.0.1/8"), "eth1 has"),
            (address("127.0.0.1/8"), "no network of a site"),
            (address("0.0.0.0/0"), "no network of a site"),
            (address("64.0.0.1/2"), "a whole network"),
            (address("10.255.0.2/32\nset x"), "cannot be used"),
            (Granted { version: VERSION + 1, ..granted() }, "the same version"),
            (Granted { endpoints: vec!["198.51.100.1:0".to_owned()], ..granted() }, "cannot be used"),
            (Granted { endpoints: Vec::new(), port: 0, ..granted() }, "cannot be used"),
        ] {
            let refused = check_with(&granted, &[]).expect_err("refused");
            assert!(refused.contains(said), "{granted:?}: {refused}");
        }
        assert!(check_with(&networks(&["0.0.0.0/0"]), &["0.0.0.0/0"]).is_ok(), "the user lets it");
        assert!(check_with(&networks(&["10.2.0.0/25"]), &["10.2.0.0/25"]).is_ok());
        let private = networks(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fd00::/16", "fd01::/16"]);
        assert!(check_with(&private, &[]).is_ok(), "private addresses are a site's");
        assert!(check_with(&networks(&["11.0.0.0/8", "12.0.0.0/8"]), &["12.0.0.0/8"]).is_ok());
        let both = networks(&["0.0.0.0/0", "10.2.0.0/25"]);
        assert!(check_with(&both, &["0.0.0.0/0"]).is_err(), "our own network is another matter");
    }
}
