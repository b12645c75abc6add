//! Settings as far as directives were read: each directive changes them in turn, as in OpenVPN.

use super::settings::{
    Client, Connecting, Connection, DataChannel, DataCipher, Device, Dns, Family, Log, Management, Material,
    Process, Routing, Scripts, Server, Timers, Tls, TlsRole, Transport,
};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::Ipv4Addr;

/// A transport as it is written: `tcp` alone depends on the role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Written {
    #[default]
    Udp,
    Tcp,
    TcpClient,
    TcpServer,
}

impl Written {
    pub(super) fn transport(self, is_server: bool) -> Transport {
        match self {
            Self::Udp => Transport::Udp,
            Self::TcpServer => Transport::TcpServer,
            Self::Tcp if is_server => Transport::TcpServer,
            Self::Tcp | Self::TcpClient => Transport::TcpClient,
        }
    }
}

/// `remote`.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    pub(super) host: String,
    pub(super) port: Option<u16>,
    pub(super) protocol: Option<(Written, Family)>,
}

/// `local`.
#[derive(Clone, Debug)]
pub(super) struct Local {
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) protocol: Option<(Written, Family)>,
}

/// The directives that `<connection>` may have.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub(super) base: Connection,
    pub(super) protocol: (Written, Family),
    pub(super) remotes: Vec<Remote>,
    pub(super) locals: Vec<Local>,
    /// Whether `bind`, `local` or `lport` stand there, and `nobind`.
    pub(super) binds: bool,
    pub(super) nobind: bool,
    pub(super) has_local_port: bool,
    pub(super) auth: Option<(Option<Material>, Option<u8>)>,
    pub(super) crypt: Option<Material>,
    pub(super) crypt_v2: Option<(Material, bool)>,
    pub(super) direction: Option<u8>,
}

/// `server`, before it is expanded.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerHelper {
    pub(super) network: Ipv4Net,
    pub(super) has_pool: bool,
}

/// Settings as far as directives were read.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub(super) struct Draft {
    pub(super) link: Link,
    /// The blocks `<connection>`.
    pub(super) links: Vec<Link>,
    pub(super) connecting: Connecting,
    pub(super) device: Device,
    pub(super) device_type: Option<String>,
    pub(super) has_topology: bool,
    /// `ifconfig-pool-linear`.
    pub(super) is_linear: bool,
    pub(super) ifconfig: Option<(Ipv4Addr, Ipv4Addr)>,
    pub(super) routing: Routing,
    pub(super) dns: Dns,
    pub(super) tls: Tls,
    pub(super) data: DataChannel,
    /// The directive that asks for compression.
    pub(super) compresses: Option<&'static str>,
    pub(super) cipher: Option<DataCipher>,
    pub(super) compatible: Option<(u32, u32)>,
    pub(super) timers: Timers,
    pub(super) keepalive: Option<(u32, u32)>,
    pub(super) is_server: bool,
    pub(super) pull: bool,
    pub(super) tls_role: Option<TlsRole>,
    pub(super) server: Server,
    pub(super) helper: Option<ServerHelper>,
    pub(super) helper6: Option<Ipv6Net>,
    pub(super) override_username: bool,
    pub(super) client: Client,
    pub(super) scripts: Scripts,
    pub(super) management: Option<Management>,
    pub(super) management_flags: Vec<fn(&mut Management)>,
    pub(super) management_user: Option<String>,
    pub(super) management_group: Option<String>,
    pub(super) management_lines: Option<u32>,
    pub(super) log: Log,
    pub(super) process: Process,
    /// What the current directive is remarked with.
    warnings: Vec<String>,
}

impl Draft {
    /// The warnings of the current directive.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Warns of the current directive.
    pub(super) fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}
