//! What an argument of an operational command can be: names that the daemons know.

use crate::host::interfaces::{Kind, found};
use crate::request::Request;
use crate::shell::api::{Router, Socket};
use crate::{show_qat, vpn};
use crypto::Cipher;
use gateway::facts::model::Facts;
use gateway::openvpn::model as openvpn;
use gateway::path::model::{Path, Paths};
use gateway::wireguard::model::Interfaces;
use std::path::PathBuf;

/// The names from which the value of an argument comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    WireguardInterfaces,
    /// Of the interface that was named before.
    WireguardPeers,
    /// OpenVPN interfaces.
    OpenVpnInterfaces,
    /// The common names of the clients that are connected.
    OpenVpnClients,
    IpsecPeers,
    /// Of the tunnel interface that was named before.
    TunnelPeers,
    /// The numbers of the tunnels of the peer that was named before.
    Tunnels,
    Ciphers,
    /// Of this machine, of one kind or all.
    MachineInterfaces(Option<Kind>),
    /// Accelerators of the family QAT.
    QatDevices,
    /// Of `service path-monitor`.
    Targets,
    /// Any number.
    Number,
    /// Any text.
    Text,
    /// The numbers of the revisions, from 0, the newest.
    Revisions,
}

impl Names {
    /// The names that exist now; none if no daemon answers. `before` are the values of the arguments before this one.
    pub(super) fn existing(self, before: &[&str], api: Option<PathBuf>) -> Vec<String> {
        let before = before.last().copied().unwrap_or_default();
        match self {
            Self::WireguardInterfaces => {
                let found = interfaces(api).into_iter().flat_map(|answer| answer.interfaces);
                found.map(|interface| interface.name).collect()
            }
            Self::WireguardPeers => {
                let all = interfaces(api).into_iter().flat_map(|answer| answer.interfaces);
                let named = all.filter(|interface| before.is_empty() || interface.name == before);
                let peers = named.flat_map(|it| it.peers);
                peers.map(|peer| peer.name.unwrap_or(peer.public_key)).collect()
            }
            Self::OpenVpnInterfaces => openvpn(api).into_iter().map(|interface| interface.name).collect(),
            Self::OpenVpnClients => {
                let sessions = openvpn(api).into_iter().flat_map(|interface| interface.sessions);
                sessions.filter_map(|session| session.common_name).collect()
            }
            Self::Targets => paths(api).into_iter().map(|path| path.target).collect(),
            Self::IpsecPeers => peers(api).into_iter().map(|found| found.peer.name).collect(),
            Self::TunnelPeers => {
                let facts: Vec<Facts> = Request::new(api, "/v1/facts", Vec::new()).ask().unwrap_or_default();
                let tunnels = facts.into_iter().flat_map(|facts| facts.tunnels);
                let mut peers: Vec<String> =
                    tunnels.filter(|it| it.interface == before).map(|it| it.peer).collect();
                peers.dedup();
                peers
            }
            Self::Tunnels => {
                let named = peers(api).into_iter().filter(|found| found.peer.name == before);
                let tunnels = named.flat_map(|found| found.peer.tunnels);
                tunnels.map(|tunnel| tunnel.number.to_string()).collect()
            }
            Self::MachineInterfaces(kind) => {
                found(kind).unwrap_or_default().into_iter().map(|interface| interface.name).collect()
            }
            Self::QatDevices => show_qat::names(),
            Self::Number | Self::Text => Vec::new(),
            Self::Revisions => {
                let count = Socket::new(api).revisions().map_or(0, |revisions| revisions.len());
                (0..count).map(|number| number.to_string()).collect()
            }
            Self::Ciphers => Cipher::ALL.iter().map(|cipher| cipher.name().to_owned()).collect(),
        }
    }
}

fn interfaces(api: Option<PathBuf>) -> Vec<Interfaces> {
    Request::new(api, "/v1/interfaces/wireguard", Vec::new()).ask().unwrap_or_default()
}

fn openvpn(api: Option<PathBuf>) -> Vec<openvpn::Interface> {
    let request = Request::new(api, "/v1/interfaces/openvpn", Vec::new());
    let found: Vec<openvpn::Interfaces> = request.ask().unwrap_or_default();
    found.into_iter().flat_map(|answer| answer.interfaces).collect()
}

fn peers(api: Option<PathBuf>) -> Vec<vpn::Found> {
    vpn::peers(&Request::new(api, "/v1/vpn/ipsec", Vec::new())).unwrap_or_default()
}

fn paths(api: Option<PathBuf>) -> Vec<Path> {
    let found: Vec<Paths> = Request::new(api, "/v1/path", Vec::new()).ask().unwrap_or_default();
    found.into_iter().flat_map(|answer| answer.targets).collect()
}
