//! Options that a server pushes to its client: the same directives as in a file, of which a server may set few.

use super::directive::{Directive, Position};
use super::draft::Draft;
use super::given::Given;
use super::lexer;
use super::row::{Fate, Scope};
use super::settings::{Dns, Ipv6Addresses, Routing, Topology};
use super::table;
use crate::import::Files;
use crate::text::Text;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

/// What a server may set. None of them names a file or a program.
const PULLED: &[&str] = &[
    "topology",
    "ifconfig",
    "ifconfig-ipv6",
    "tun-mtu",
    "block-ipv6",
    "route",
    "route-ipv6",
    "route-gateway",
    "route-ipv6-gateway",
    "route-metric",
    "redirect-gateway",
    "redirect-private",
    "dhcp-option",
    "dns",
];

/// The network that a server gives its client.
#[derive(Clone, Debug, Default)]
pub struct Pushed {
    /// What the second address means; `Net30` if the server says nothing.
    pub topology: Topology,
    /// The two addresses of `ifconfig`.
    pub addresses: Option<(Ipv4Addr, Ipv4Addr)>,
    /// IPv6 addresses.
    pub ipv6: Option<Ipv6Addresses>,
    /// The MTU inside.
    pub mtu: Option<u16>,
    /// ICMPv6 errors in place of IPv6 through the tunnel.
    pub block_ipv6: bool,
    /// Routes and the default gateway.
    pub routing: Routing,
    /// Name servers and search domains.
    pub dns: Dns,
    /// Options that are malformed, or that a server may not set.
    pub refused: Vec<String>,
}

/// No file is read for a server.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Text> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// Reads the options of a push reply, without those of the protocol itself.
pub fn pushed<'a>(options: impl IntoIterator<Item = &'a str>) -> Pushed {
    let mut draft = Draft::default();
    let (mut refused, mut has_mtu) = (Vec::new(), false);
    for option in options {
        if apply(&mut draft, option).is_none() {
            refused.push(option.to_owned());
        } else {
            has_mtu |= option.starts_with("tun-mtu ");
        }
    }
    // Warnings are for the author of a file.
    draft.take_warnings();
    Pushed {
        topology: draft.device.topology,
        addresses: draft.ifconfig,
        ipv6: draft.device.ipv6,
        mtu: has_mtu.then_some(draft.link.base.tun_mtu),
        block_ipv6: draft.device.block_ipv6,
        routing: draft.routing,
        dns: draft.dns,
        refused,
    }
}

/// `None` if a server may not set this, or not so.
fn apply(draft: &mut Draft, option: &str) -> Option<()> {
    let mut words = lexer::words(option).ok()?.into_iter();
    let name = words.next()?.to_string();
    let row = table::find(&name).filter(|row| PULLED.contains(&row.name))?;
    let position = Position { file: "push".into(), line: 0 };
    let directive = Directive {
        name,
        arguments: words.collect(),
        block: None,
        inner: Vec::new(),
        position,
        is_optional: false,
    };
    row.check(&directive, Scope::CONFIG).ok()?;
    let given = Given {
        directive: &directive,
        name: row.name,
        usage: row.usage,
        files: &NoFiles,
        folder: Path::new("/"),
        root: None,
    };
    match (row.fate, row.by) {
        (Fate::Served { .. }, Some(by)) => by(draft, &given).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_push_reply_are_read_as_in_a_file() {
        let found = pushed([
            "redirect-gateway def1 ipv6",
            "route 10.20.0.0 255.255.0.0 vpn_gateway 5",
            "dhcp-option DNS 192.0.2.1",
            "topology subnet",
            "ifconfig 10.8.0.2 255.255.255.0",
            "tun-mtu 1400",
        ]);
        assert!(found.refused.is_empty(), "{:?}", found.refused);
        let redirect = found.routing.redirect.unwrap_or_default();
        assert!(redirect.def1 && redirect.ipv6 && !redirect.is_private);
        assert_eq!((found.mtu, found.topology), (Some(1400), Topology::Subnet));
        assert_eq!((found.routing.routes[0].metric, found.dns.dhcp.len()), (Some(5), 1));
    }

    #[test]
    fn a_server_sets_no_file_no_program_and_nothing_malformed() {
        let options = [
            "up /bin/sh",
            "ca /etc/shadow",
            "config /etc/shadow",
            "dns-updown /bin/sh",
            "route 10.0.0.0 255.0.255.0",
            "route 10.0.0.0 255.0.0.0 vpn_gateway 4294967296",
            "dhcp-option DNS $(reboot)",
            "route-ipv6 2001:db8::/129",
            "tun-mtu 99999",
            "\"",
            "",
        ];
        assert_eq!(pushed(options).refused, options);
    }
}
