//! Settings of one interface from a JSON file, for tests and benchmarks.

use super::settings::{
    ClientOverride, ClientSettings, DEFAULT_MSSFIX, DEFAULT_MTU, Role, ServerNetwork, ServerSettings,
    Settings,
};
use crypto::cipher::Integrity;
use crypto::pem;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::peer::Timing;
use tunnel::openvpn::peer_info::OURS;
use tunnel::openvpn::server::ServerWrap;
use tunnel::openvpn::verify::{self, Identity, PeerCheck};
use tunnel::openvpn::wrap::{self, StaticKey, WrapKeys};
use tunnel::openvpn::{ClientConfiguration, ServerConfiguration};
use zeroize::Zeroizing;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct FileError {
    path: PathBuf,
    reason: String,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    interface: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    fwmark: u32,
    #[serde(default = "default_mtu")]
    mtu: u32,
    #[serde(default = "default_mssfix")]
    mssfix: u16,
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    /// The key of tls-crypt.
    tls_crypt: Option<PathBuf>,
    ciphers: Option<Vec<String>>,
    renegotiate_seconds: Option<u64>,
    hand_window_seconds: Option<u64>,
    server: Option<ServerPart>,
    client: Option<ClientPart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerPart {
    network: Option<Prefix<Ipv4Net>>,
    network_v6: Option<Prefix<Ipv6Net>>,
    #[serde(default)]
    routes: Vec<Prefix<IpNet>>,
    #[serde(default)]
    push: Vec<String>,
    ping_seconds: Option<u64>,
    ping_restart_seconds: Option<u64>,
    #[serde(default)]
    clients: BTreeMap<String, OverridePart>,
    #[serde(default)]
    duplicate_names: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverridePart {
    address: Option<Ipv4Addr>,
    address_v6: Option<Ipv6Addr>,
    #[serde(default)]
    behind: Vec<Prefix<IpNet>>,
    #[serde(default)]
    push: Vec<String>,
    #[serde(default)]
    disable: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientPart {
    remotes: Vec<SocketAddr>,
    #[serde(default)]
    float: bool,
}

/// A prefix, as text.
#[derive(Clone, Copy)]
struct Prefix<T>(T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Prefix<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
    }
}

fn default_mtu() -> u32 {
    DEFAULT_MTU
}

fn default_mssfix() -> u16 {
    DEFAULT_MSSFIX
}

/// Connected clients, by default, as in OpenVPN.
const MOST_CLIENTS: usize = 1024;

/// Reads a file: the name of the interface, and its settings.
pub fn read(path: &Path) -> Result<(String, Settings), FileError> {
    let refused = |reason: String| FileError { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let file: File = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    let role = match (&file.server, &file.client) {
        (Some(part), None) => Role::Server(Box::new(file.server_of(part)?)),
        (None, Some(part)) => Role::Client(Box::new(file.client_of(part)?)),
        _ => return Err(refused("it has neither \"server\" nor \"client\", or both".to_owned())),
    };
    let File { interface, port, fwmark, mtu, mssfix, .. } = file;
    let mssfix = Some(mssfix).filter(|mssfix| *mssfix > 0);
    Ok((interface, Settings { role, port, fwmark, mtu, mssfix }))
}

impl File {
    fn server_of(&self, part: &ServerPart) -> Result<ServerSettings, FileError> {
        let check = self.check(wrap::Role::Client)?;
        let tls = verify::server_config(self.identity()?, Arc::new(check))
            .map_err(|error| self.unusable(&error))?;
        let core = ServerConfiguration {
            tls,
            wrap: ServerWrap::Shared(self.wrap(wrap::Role::Server)?),
            ciphers: self.ciphers()?,
            auth: Integrity::HmacSha1,
            ping: part.ping_seconds.map(Duration::from_secs),
            ping_restart: part.ping_restart_seconds.map(Duration::from_secs),
            max_clients: MOST_CLIENTS,
            features: OURS,
            timing: self.timing(),
        };
        let clients = part.clients.iter().map(|(name, client)| {
            let own = ClientOverride {
                v4: client.address,
                v6: client.address_v6,
                behind: client.behind.iter().map(|prefix| prefix.0).collect(),
                push: client.push.clone(),
                is_disabled: client.disable,
            };
            (name.clone(), own)
        });
        let network = ServerNetwork {
            v4: part.network.map(|network| network.0.trunc()),
            v6: part.network_v6.map(|network| network.0.trunc()),
            routes: part.routes.iter().map(|route| route.0).collect(),
            push: part.push.clone(),
            clients: clients.collect(),
            requires_override: false,
            duplicate_names: part.duplicate_names,
        };
        Ok(ServerSettings { core, network })
    }

    fn client_of(&self, part: &ClientPart) -> Result<ClientSettings, FileError> {
        let check = self.check(wrap::Role::Server)?;
        let tls = verify::client_config(Some(self.identity()?), check);
        let core = ClientConfiguration {
            tls: tls.map_err(|error| self.unusable(&error))?,
            wrap: ClientWrap::Shared(self.wrap(wrap::Role::Client)?),
            ciphers: self.ciphers()?,
            auth: Integrity::HmacSha1,
            credentials: Credentials::default(),
            peer_info: Vec::new(),
            mtu: self.mtu.try_into().unwrap_or(u16::MAX),
            features: OURS,
            timing: self.timing(),
        };
        Ok(ClientSettings { core, remotes: part.remotes.clone(), float: part.float })
    }

    fn timing(&self) -> Timing {
        let default = Timing::default();
        Timing {
            hand_window: self.hand_window_seconds.map_or(default.hand_window, Duration::from_secs),
            renegotiate: self.renegotiate_seconds.map(Duration::from_secs).or(default.renegotiate),
            transition: default.transition,
        }
    }

    fn ciphers(&self) -> Result<Vec<DataCipher>, FileError> {
        let Some(names) = &self.ciphers else { return Ok(DataCipher::DEFAULT.to_vec()) };
        let unknown = |name: &String| FileError {
            path: PathBuf::from(&self.interface),
            reason: format!("there is no cipher {name}"),
        };
        names.iter().map(|name| DataCipher::by_name(name).ok_or_else(|| unknown(name))).collect()
    }

    fn wrap(&self, role: wrap::Role) -> Result<WrapKeys, FileError> {
        let Some(path) = &self.tls_crypt else { return Ok(WrapKeys::none()) };
        let refused = |reason: String| FileError { path: path.clone(), reason };
        let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?);
        let key = StaticKey::from_file(&text).map_err(|error| refused(error.to_string()))?;
        Ok(WrapKeys::tls_crypt(key, role))
    }

    /// Accepts certificates for this role that the CA has issued.
    fn check(&self, peer: wrap::Role) -> Result<PeerCheck, FileError> {
        let mut check = PeerCheck::new(peer);
        check.require_purpose();
        for authority in certificates(&self.ca)? {
            check
                .add_authority(&authority)
                .map_err(|error| FileError { path: self.ca.clone(), reason: error.to_string() })?;
        }
        Ok(check)
    }

    fn identity(&self) -> Result<Identity, FileError> {
        let chain = certificates(&self.certificate)?;
        let missing = || FileError { path: self.key.clone(), reason: "there is no private key".to_owned() };
        let sections = sections(&self.key)?;
        let key =
            sections.iter().find(|section| section.label.ends_with("PRIVATE KEY")).ok_or_else(missing)?;
        let key = PrivateKeyDer::try_from(key.der.expose().to_vec()).map_err(|_| missing())?;
        Ok(Identity { chain, key })
    }

    fn unusable(&self, error: &dyn std::error::Error) -> FileError {
        FileError { path: self.certificate.clone(), reason: error.to_string() }
    }
}

fn sections(path: &Path) -> Result<Vec<pem::Section>, FileError> {
    let refused = |reason: String| FileError { path: path.to_owned(), reason };
    let bytes = Zeroizing::new(std::fs::read(path).map_err(|error| refused(error.to_string()))?);
    pem::read(&bytes).map_err(|error| refused(error.to_string()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let sections = sections(path)?;
    let found = sections.iter().filter(|section| section.label == "CERTIFICATE");
    Ok(found.map(|section| CertificateDer::from(section.der.expose().to_vec())).collect())
}
