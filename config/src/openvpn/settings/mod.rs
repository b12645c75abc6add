//! The typed settings of OpenVPN: a server for many clients, a client, or one side of two sites.

mod connection;
mod material;
mod process;
mod server;
mod tls;
mod tunnel;

pub(crate) use connection::PORT;
pub use connection::{Connecting, Connection, Family, Listen, Protocol, Retry, Transport, Wrapping};
pub use material::Material;
pub use process::{Command, Credentials, Log, Management, ManagementAddress, Process, Scripts, Status};
pub use server::{
    AuthRetry, CertificateOf, Client, ClientFile, Filter, FilterAction, Login, PasswordCheck, Pool, Pool6,
    Server, Token,
};
pub use tls::{
    Compression, DataChannel, DataCipher, Digest, Group, NameMatch, PeerName, Revocation, Suite, Tls,
    TlsRole, TlsVersion, default_ciphers,
};
pub use tunnel::{
    Addresses, Destination, Device, Dns, DnsServer, Domain, Gateway, Ipv6Addresses, MssFix, NULL, Redirect,
    Route, Routing, Timers, Topology,
};

/// What the configuration is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A server for many clients: `mode server`.
    Server,
    /// A client that takes its addresses and routes from the server: `pull`.
    Client,
    /// One of two peers with addresses of their own.
    #[default]
    SiteToSite,
}

/// Everything that is served.
#[derive(Clone, Debug)]
pub struct OpenVpn {
    /// What it is for.
    pub role: Role,
    /// The peers, in the order in which they are tried; of a server one without a remote.
    pub connections: Vec<Connection>,
    /// The sockets of a server.
    pub listen: Vec<Listen>,
    /// How peers are tried.
    pub connecting: Connecting,
    /// The tunnel interface.
    pub device: Device,
    /// Routes and the default gateway.
    pub routing: Routing,
    /// Name servers and search domains of this machine.
    pub dns: Dns,
    /// The control channel.
    pub tls: Tls,
    /// The data channel.
    pub data: DataChannel,
    /// Timers and limits of a session.
    pub timers: Timers,
    /// What a server alone has.
    pub server: Option<Server>,
    /// What a client alone has.
    pub client: Option<Client>,
    /// Programs that are run.
    pub scripts: Scripts,
    /// The management interface.
    pub management: Option<Management>,
    /// Log and status file.
    pub log: Log,
    /// The process.
    pub process: Process,
}
