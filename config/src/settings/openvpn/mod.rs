//! `interfaces openvpn`, checked as VyOS checks it, and written as OpenVPN's own directives.
//!
//! ```text
//! tree ── check: what excludes each other ──┐
//! pki ── keys: certificates as PEM ─────────┴──> directives ──> Profile ──> openvpn::load, as a file of OpenVPN
//! ```
//! The reader of OpenVPN's own files reads the profile, so that there is one conversion of settings. A refusal of it is told with
//! the path in the configuration from which its line was written.

mod check;
mod directives;
mod keys;
mod profile;
#[cfg(test)]
mod tests;

pub use directives::cipher;
pub use profile::{CLIENTS, Profile};

use super::{Reader, Settings, set};
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an end of a tunnel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A server for many clients.
    Server,
    /// A client, which has addresses and routes from its server.
    Client,
    /// One of two peers with addresses of their own.
    SiteToSite,
}

impl Mode {
    /// The peer of an interface as facts name it: that which is `named`, if there may be several.
    pub(super) fn peer(self, named: Option<&str>) -> Option<&str> {
        match self {
            // The only peer has no name.
            Self::Client => Some("server"),
            Self::SiteToSite => Some("site"),
            Self::Server => named,
        }
    }
}

impl Mode {
    /// The word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::SiteToSite => "site-to-site",
        }
    }
}

/// An OpenVPN interface that is not disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenVpn {
    /// Description.
    pub description: Option<String>,
    /// What it is.
    pub mode: Mode,
    /// The port that is bound, if it is known.
    pub port: Option<u16>,
    /// Whether it is bound over UDP.
    pub is_udp: bool,
    /// Its settings, as a file of OpenVPN.
    pub profile: Arc<Profile>,
}

/// The port of OpenVPN.
const PORT: u16 = 1194;

/// An interface of the tree.
struct Interface<'a> {
    name: &'a str,
    path: String,
    tree: &'a Tree,
    /// The whole configuration.
    root: &'a Tree,
    mode: Mode,
}

impl Interface<'_> {
    fn protocol(&self) -> &str {
        self.tree.value("protocol").unwrap_or("udp")
    }

    /// The path of a node of this interface.
    fn at(&self, words: &str) -> String {
        format!("{} {words}", self.path)
    }
}

impl Reader {
    /// All interfaces that are not disabled, by name.
    pub(super) fn openvpn(&mut self, root: &Tree) -> BTreeMap<String, OpenVpn> {
        let Some(interfaces) = root.at(&["interfaces", "openvpn"]) else { return BTreeMap::new() };
        let mut found = BTreeMap::new();
        for (name, tree) in interfaces.children() {
            let path = format!("interfaces openvpn {name}");
            let mode = match tree.value("mode") {
                Some("server") => Mode::Server,
                Some("client") => Mode::Client,
                Some(_) => Mode::SiteToSite,
                None => {
                    let fix = format!("set {path} mode server, or client, or site-to-site");
                    self.error(tree.location(), format!("{path}: mode is not set"), fix);
                    continue;
                }
            };
            let read = self.interface(&Interface { name, path, tree, root, mode });
            if let Some(read) = read.filter(|_| !tree.has("disable")) {
                found.insert(name.to_owned(), read);
            }
        }
        found
    }

    fn interface(&mut self, interface: &Interface<'_>) -> Option<OpenVpn> {
        let errors = self.errors.len();
        self.check_openvpn(interface);
        let profile = self.directives(interface);
        if self.errors.len() > errors {
            return None;
        }
        let tree = interface.tree;
        let local: Option<u16> = set(tree, "local-port");
        Some(OpenVpn {
            description: tree.value("description").map(str::to_owned),
            mode: interface.mode,
            port: match interface.mode {
                Mode::Client => local,
                Mode::Server | Mode::SiteToSite => Some(local.unwrap_or(PORT)),
            },
            is_udp: interface.protocol() == "udp",
            profile: Arc::new(profile),
        })
    }

    /// Two interfaces cannot have one socket.
    pub(super) fn check_openvpn_ports(&mut self, root: &Tree, settings: &Settings) {
        let wireguard = settings.wireguard.iter().filter(|(_, interface)| !interface.disable);
        let mut ports: BTreeMap<(u16, bool), &str> =
            wireguard.filter_map(|(name, it)| Some(((it.port?, true), name.as_str()))).collect();
        for (name, interface) in &settings.openvpn {
            let Some(port) = interface.port else { continue };
            if let Some(other) = ports.insert((port, interface.is_udp), name) {
                let tree = root.at(&["interfaces", "openvpn", name]);
                let reason = format!("interfaces openvpn {name}: {other} has port {port} too");
                let fix = format!("set interfaces openvpn {name} local-port to another one");
                self.error(tree.map(Tree::location).unwrap_or_default(), reason, fix);
            }
        }
    }
}
