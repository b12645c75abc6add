//! What a server alone has, and what a client alone has.

use super::material::Material;
use super::process::{Command, Credentials};
use ipnet::{IpNet, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// Addresses for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The first.
    pub first: Ipv4Addr,
    /// The last.
    pub last: Ipv4Addr,
}

/// IPv6 addresses for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool6 {
    /// The first address, with the length of its network.
    pub first: Ipv6Net,
}

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateOf {
    /// Each client.
    #[default]
    Required,
    /// Checked if the client has one.
    Optional,
    /// Not asked for.
    None,
}

/// How a program gets a user name and a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordCheck {
    /// The program.
    pub command: Command,
    /// In its environment; otherwise in a file that its last argument names.
    pub is_by_environment: bool,
}

/// `auth-gen-token`.
#[derive(Clone, Debug, Default)]
pub struct Token {
    /// Seconds that a token is valid; 0 without limit.
    pub lifetime_seconds: u32,
    /// Seconds until a token is renewed; as new keys if none.
    pub renewal_seconds: Option<u32>,
    /// Whether programs check tokens too.
    pub is_external: bool,
    /// The key of tokens; a random one if none.
    pub key: Option<Material>,
}

/// A server for many clients.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Server {
    /// IPv4 addresses for clients.
    pub pool: Option<Pool>,
    /// IPv6 addresses for clients.
    pub pool6: Option<Pool6>,
    /// The file of leases, and the seconds between writing it; 0 if it is never written.
    pub leases: Option<(PathBuf, u32)>,
    /// Options pushed to each client.
    pub push: Vec<String>,
    /// The directory with a file for each client.
    pub client_directory: Option<PathBuf>,
    /// Whether clients without a file are refused: `ccd-exclusive`.
    pub only_with_file: bool,
    /// Whether clients reach each other.
    pub client_to_client: bool,
    /// Whether clients of one name are connected at once.
    pub duplicate_names: bool,
    /// The maximum number of clients.
    pub max_clients: u32,
    /// The maximum number of networks behind a client.
    pub max_routes: u32,
    /// New connections, and the seconds in which they may come.
    pub connect_limit: Option<(u32, u32)>,
    /// Answers to unauthenticated sources, and the seconds in which they are sent.
    pub initial_limit: Option<(u32, u32)>,
    /// Whether clients need a certificate.
    pub certificate: CertificateOf,
    /// The program that checks user names and passwords.
    pub password_check: Option<PasswordCheck>,
    /// The file of user names and hashes of passwords, which Postern has beside OpenVPN's directives.
    pub password_hashes: Option<Material>,
    /// Whether a client without a user name is accepted.
    pub password_optional: bool,
    /// Whether the user name stands for the common name.
    pub username_as_name: bool,
    /// Tokens in place of passwords.
    pub token: Option<Token>,
    /// Only these IPv4 addresses are given to clients: `ifconfig-push-constraint`.
    pub constraint: Option<ipnet::Ipv4Net>,
    /// Days after which a tls-crypt-v2 key is refused.
    pub key_max_age_days: Option<u32>,
    /// The web server that gets TCP connections which are not OpenVPN, and a directory with their origins.
    pub port_share: Option<(SocketAddr, Option<PathBuf>)>,
    /// Whether each TCP socket sends at once: `tcp-nodelay`.
    pub tcp_nodelay: bool,
    /// Waiting packets for a TCP client.
    pub tcp_queue: u32,
    /// Directory of temporary files.
    pub temporary: Option<PathBuf>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            pool: None,
            pool6: None,
            leases: None,
            push: Vec::new(),
            client_directory: None,
            only_with_file: false,
            client_to_client: false,
            duplicate_names: false,
            max_clients: 1024,
            max_routes: 256,
            connect_limit: None,
            initial_limit: None,
            certificate: CertificateOf::Required,
            password_check: None,
            password_hashes: None,
            password_optional: false,
            username_as_name: false,
            token: None,
            constraint: None,
            key_max_age_days: None,
            port_share: None,
            tcp_nodelay: false,
            tcp_queue: 64,
            temporary: None,
        }
    }
}

/// What becomes of a pushed option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterAction {
    /// It is taken.
    Accept,
    /// It is left out.
    Ignore,
    /// The connection ends.
    Reject,
}

/// `pull-filter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// What becomes of it.
    pub action: FilterAction,
    /// How the option begins.
    pub prefix: String,
}

/// What a client does when its password is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthRetry {
    /// It ends.
    #[default]
    None,
    /// It tries again with the same password.
    NoInteract,
    /// It asks again.
    Interact,
}

/// Who the user name and the password come from.
#[derive(Clone, Debug)]
pub enum Login {
    /// A file or an inline block.
    Known(Credentials),
    /// The management interface or the terminal.
    Asked,
}

/// A client.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Client {
    /// User name and password.
    pub user: Option<Login>,
    /// What is done when the password is refused.
    pub retry: AuthRetry,
    /// Whether passwords are forgotten after their use: `auth-nocache`.
    pub forget: bool,
    /// Pushed options that are not taken, the first that fits.
    pub filters: Vec<Filter>,
    /// Whether pushed routes and name servers are left out: `route-nopull`.
    pub no_routes: bool,
    /// Whether pushed addresses may be host names.
    pub allow_names: bool,
    /// Whether the server is told more about this machine: `push-peer-info`.
    pub tells_about_itself: bool,
    /// The text of the challenge, and whether the answer is shown.
    pub challenge: Option<(String, bool)>,
    /// Whether packets to the server itself may go into the tunnel.
    pub allow_recursive: bool,
}

/// The settings of one client: its file in `client-config-dir`, or the answer of `client-connect`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFile {
    /// Its IPv4 address, and what `ifconfig` says behind it: the netmask, or the other end.
    pub address: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Its IPv6 address with the length of the network, and the other end.
    pub address6: Option<(Ipv6Net, Option<Ipv6Addr>)>,
    /// Networks behind it.
    pub routes: Vec<IpNet>,
    /// Options pushed to it besides those of the server.
    pub push: Vec<String>,
    /// Whether it gets none of the options of the server: `push-reset`.
    pub reset: bool,
    /// Options that it does not get, by a part of their text.
    pub remove: Vec<String>,
    /// Whether it is refused.
    pub is_disabled: bool,
    /// Its user name in place of its own.
    pub username: Option<String>,
    /// Seconds until its session ends; 0 for no limit.
    pub session_seconds: Option<u32>,
}
